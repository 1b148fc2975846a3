"""What the documents name is there: files, headings, commands, settings; and they are plain."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from privsyn.cli import commands as cli
from privsyn.config import parse_config

ROOT = Path(__file__).parents[1]
NOTES = sorted(ROOT.glob("privsyn/**/guarantee.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *NOTES])


def anchors(file: Path) -> set[str]:
    """Headings as GitHub links to them."""
    headings = re.findall(r"(?m)^#+ (.*)$", file.read_text())
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (file.parent / path).resolve() if path else file
        assert linked.exists(), f"{file.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{file.name} links to {target}"


@pytest.mark.parametrize("note", NOTES, ids=lambda file: file.parent.name)
def test_the_tags_of_a_note_stand_at_lines_of_code(note):
    code = "".join(file.read_text() for file in (ROOT / "privsyn").rglob("*.py"))
    missing = [tag for tag in re.findall(r"\[[A-Z]\d+\]", note.read_text()) if tag not in code]
    assert missing == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_documents_are_ascii_but_for_what_they_paste(file):
    prose = re.sub(r"(?s)```.*?```", "", file.read_text())
    assert prose.isascii(), [line for line in prose.splitlines() if not line.isascii()]


def commands() -> list[tuple[str, list[str]]]:
    """`privsyn ...` in the documents' consoles and code spans."""
    found = []
    for file in DOCUMENTS:
        text = file.read_text()
        lines = re.findall(r"(?m)^\$ (privsyn .*)$", text) + re.findall(r"`(privsyn [^`]*)`", text)
        for line in lines:
            found.append((file.name, shlex.split(line, comments=True)[1:]))
    return found


def test_commands_and_their_options_exist():
    seen = commands()
    assert len(seen) > 20
    for where, words in seen:
        command, path = typer.main.get_command(cli.app), ["privsyn"]
        while words and hasattr(command, "commands") and not words[0].startswith("-"):
            path.append(words[0])
            assert words[0] in command.commands, f"{where}: {' '.join(path)}"
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        known |= {"--help", "--install-completion"}
        for word in words:
            if word.startswith("-") and not re.fullmatch(r"-\d*", word):
                option = word.partition("=")[0]
                assert option in known, f"{where}: {' '.join(path)} {word}"


def test_sections_of_params_in_the_documents_are_accepted():
    """Each block of YAML goes on top of the shipped settings, and is nothing unknown."""
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())
    checked = 0
    for file in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for block in re.findall(r"(?s)```yaml\n(.*?)```", file.read_text()):
            given = yaml.safe_load(block.replace("<sha256sum schemas/movie.json>", "a" * 64))
            merged = shipped | {"files": {"movie": {"path": "movie.json", "digest": "a" * 64}}}
            for section, values in given.items():
                below = merged.get(section) or {}
                merged |= {section: below | values if isinstance(values, dict) else values}
            parse_config(merged)
            checked += 1
    assert checked >= 4
