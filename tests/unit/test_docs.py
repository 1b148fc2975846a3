"""What the documents name is there: files, headings, commands, settings; and they are plain."""

import ast
import doctest
import importlib
import os
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from privsyn import errors
from privsyn.cli import commands as cli
from privsyn.config import parse_config
from tools import ceilings

ROOT = Path(__file__).parents[2]
NOTES = sorted(ROOT.glob("privsyn/**/guarantee.md"))
CODE = ("benchmarks", "dags", "privsyn", "tests", "tools")
EXAMPLES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in (*(ROOT / "privsyn").rglob("*.py"), ROOT / "tests" / "fakes.py")
    if ">>> " in file.read_text()
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *NOTES])


def anchors(file):
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


def definitions(file):
    """What a module defines: functions, classes and names, those of a class as ``Class.name``."""

    def inside(node, before):
        found: set[str] = set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(before + child.name)
                if isinstance(child, ast.ClassDef):
                    found |= inside(child, f"{before}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                found |= {before + name.id for name in targets if isinstance(name, ast.Name)}
            elif isinstance(child, ast.If | ast.Try | ast.With):
                found |= inside(child, before)
        return found

    return inside(ast.parse(file.read_text()), "")


PYTHON = [
    file.relative_to(ROOT).as_posix()
    for file in ROOT.rglob("*.py")
    if file.relative_to(ROOT).parts[0] in CODE
]


def wrong(said, at="privsyn"):
    """What is wrong with a ``path.py`` or ``path.py:name``; None where it is there.

    A path begins in the repository, in the folder of the document, or anywhere in the package; one
    with a name means one file.
    """
    path, _, name = said.partition(":")
    whole = [file for file in PYTHON if file in (path, os.path.normpath(f"{at}/{path}"))]
    files = whole or [
        file for file in PYTHON if file.startswith("privsyn/") and file.endswith(f"/{path}")
    ]
    if not files:
        return "no such file"
    if name and len(files) > 1:
        return f"one of {', '.join(files)}"
    if name and name not in definitions(ROOT / files[0]):
        return "no such name"
    return None


SAID = re.compile(r"(?<![\w./*<>-])[\w./-]+\.py(?::[\w.]+)?(?![\w*<>-])")
"""A file of Python, with a name in it or without. Not one with a placeholder."""


def said_of_code(text):
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"(?s)```.*?```", "", text))
    return [said.rstrip(".") for span in spans for said in SAID.findall(span)]


def test_files_and_names_of_code_exist():
    seen = [
        (document.relative_to(ROOT).as_posix(), said)
        for document in DOCUMENTS
        if document.name != "CHANGELOG.md"  # says what was
        for said in said_of_code(document.read_text())
    ]
    assert sum(":" in said for _, said in seen) > 60
    assert sum("/" in said for _, said in seen) > 100
    dead = [
        f"{where}: {said}: {why}"
        for where, said in seen
        if (why := wrong(said, os.path.dirname(where)))
    ]
    assert not dead, "\n".join(dead)


@pytest.mark.parametrize("note", NOTES, ids=lambda file: file.parent.name)
def test_the_tags_of_a_note_stand_at_lines_of_code(note):
    code = "".join(file.read_text() for file in (ROOT / "privsyn").rglob("*.py"))
    missing = [tag for tag in re.findall(r"\[[A-Z]\d+\]", note.read_text()) if tag not in code]
    assert missing == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_documents_are_ascii_but_for_what_they_paste(file):
    prose = re.sub(r"(?s)```.*?```", "", file.read_text())
    assert prose.isascii(), [line for line in prose.splitlines() if not line.isascii()]


def commands():
    found = []
    for file in DOCUMENTS:
        text = file.read_text()
        lines = re.findall(r"(?m)^\$ (privsyn .*)$", text) + re.findall(r"`(privsyn [^`]*)`", text)
        for line in lines:
            found.append((file.name, shlex.split(line, comments=True)[1:]))
    return found


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_are_true(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0 == found.failed


def test_commands_and_their_options_exist():
    seen = commands()
    assert len(seen) > 20
    for where, words in seen:
        command, path = typer.main.get_command(cli.app), ["privsyn"]
        if words and not words[0].startswith("-"):
            path.append(words[0])
            assert words[0] in cli.COMMANDS, f"{where}: {' '.join(path)}"
            command = cli.loaded(words.pop(0))
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


def test_the_readme_names_what_a_clone_offers_in_900_words():
    readme = (ROOT / "README.md").read_text()
    targets = (ROOT / "Makefile").read_text()
    for target in ("demo", "up", "test"):
        assert f"`make {target}`" in readme
        assert f"\n{target}: setup" in targets
    assert len(readme.split()) <= 900


def test_sections_of_params_in_the_documents_are_accepted():
    """Each block of YAML goes on top of the shipped settings, and is nothing unknown."""
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())
    checked = 0
    for file in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for block in re.findall(r"(?s)```yaml\n(.*?)```", file.read_text()):
            given = yaml.safe_load(block.replace("<sha256sum checks/movie.json>", "a" * 64))
            merged = dict(shipped)
            for section, values in given.items():
                below = merged.get(section) or {}
                merged |= {section: below | values if isinstance(values, dict) else values}
            parse_config(merged)
            checked += 1
    assert checked >= 4


def test_the_messages_of_troubleshooting_are_those_of_the_code():
    """Between what differs (`<...>`), every message quoted stands in some string of the package."""
    files = (ROOT / "privsyn").rglob("*.py")
    trees = [ast.parse(file.read_text()) for file in files]
    said = "\n".join(
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    tables = [file.read_text() for file in (ROOT / "privsyn").rglob("*.yaml")]
    said += " ".join(" ".join(tables).split())
    rows = re.findall(r"(?m)^\| (`.*?) \|", (ROOT / "docs/troubleshooting.md").read_text())
    messages = [message for row in rows for message in re.findall(r"`([^`]*)`", row)]
    assert len(messages) > 50
    parts = {part.strip() for message in messages for part in re.split(r"<[^>]*>", message)}
    assert [part for part in sorted(parts) if part not in said] == []


def named(nav):
    if isinstance(nav, str):
        return {nav}
    below = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(named, below))


def test_the_site_names_every_document():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    documents = {file.relative_to(ROOT / "docs").as_posix() for file in ROOT.glob("docs/**/*.md")}
    made = {
        page
        for page in named(nav)
        if page.startswith(("project/", "notes/", "reference/", "notebooks/"))
    }
    assert named(nav) - made == documents


def test_the_reference_of_settings_is_of_their_own_descriptions(docs_site):
    lines = docs_site.settings_page().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]

    assert len(rows) == len(ceilings.settings().keys() - {"methods"})
    assert [row for row in rows if not row[-1].strip("| ")] == []
    said = {row[0].strip("|` "): row[1:] for row in rows}
    assert said["images.mode"][0] == '`"RGB"`'
    assert said["images.mode"][1].endswith("One of `L`, `RGB`. |")
    assert said["rounds"][:3] == ["`8`", "`10`", "`1`"]  # by itself, paper, small
    assert said["rounds"][3].endswith("At least 1, at most 1000. |")


def test_the_table_of_exit_codes_is_that_of_the_errors():
    page = (ROOT / "docs/troubleshooting.md").read_text()
    rows = re.findall(r"(?m)^\| (\d) \| (`\w+`[^|]*) \|", page)
    told = {
        name: int(code)
        for code, names in rows
        for name in re.findall(r"`(\w+)`", names.partition(" but ")[0])
    }
    assert len(told) > 10
    for name, code in told.items():
        assert getattr(errors, name).exit_code == code, name
    codes = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.PrivsynError)
    }
    assert codes == set(told.values())


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("[note](../code/a.md#theorem)", "[note](notes/a.md#theorem)"),
        ("![picture](images/a.png)", "![picture](images/a.png)"),
        ("[a test](../tests/unit/test_docs.py)", "a test (`tests/unit/test_docs.py`)"),
        ("[`tests/unit/test_docs.py`](../tests/unit/test_docs.py)", "`tests/unit/test_docs.py`"),
        ("`[note](../code/a.md)`", "`[note](../code/a.md)`"),
        ("```\n[note](../code/a.md)\n```", "```\n[note](../code/a.md)\n```"),
        ("[dead](../tests/none.py)", "[dead](../tests/none.py)"),
        ("[`a`](../code/a.md)", "[`a`](notes/a.md)"),
        ("[page](https://a.example/b)", "[page](https://a.example/b)"),
        ("[here](#above)", "[here](#above)"),
    ],
)
def test_links_out_of_the_documents_lead_to_pages_or_are_text(docs_site, written, read):
    known = {"code/a.md": "notes/a.md", "docs/images/a.png": "images/a.png"}
    assert docs_site.relink(written, "docs/page.md", "page.md", known) == read
