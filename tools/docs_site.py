"""Pages of the documentation site that are not in ``docs/``, and links to them.

A hook of MkDocs (``hooks`` in ``mkdocs.yml``). It reads sources as text; of the package it imports
the settings alone:

- every module of the package with a docstring becomes a page of the reference;
- every setting, with its default, its limits and its description, is a row of ``settings.md``;
- every ``*.md`` inside the package (guarantee notes, cards of the models) and a few documents of
  the repository become pages as they are;
- every notebook in ``docs/`` becomes a page with the outputs it was saved with; none is run;
- a link that leaves ``docs/`` leads to such a page; to a file that is no page it is plain text, and
  to no file it stays, so that the strict build fails.

Nothing here names a module: what lies where is found anew at every build.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import posixpath
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "privsyn"
DOCUMENTS = {
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/RESULTS.md": "project/results.md",
    "params.yaml": "project/params.md",
}
SETTINGS = "reference/settings.md"
NOTES, REFERENCE = "notes/*", "reference/*"  # stand in `nav` for the pages found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as GitHub makes them, and a `nav` with the pages found."""
    for found in (modules, notebooks, pages, _included, _notes):
        found.cache_clear()  # under `mkdocs serve` files come and go
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.nav = _filled(
        config.nav, {NOTES: list(_notes().values()), REFERENCE: reference_nav(modules())}
    )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere or are made."""
    for source, uri in sorted(_included().items()):
        files.append(File.generated(config, uri, content=_content(source)))
    found = modules()
    for name in found:
        text = f"# {name}\n\n::: {name}\n"
        files.append(File.generated(config, _module_page(name), content=text))
    files.append(File.generated(config, "reference/index.md", content=overview(found)))
    files.append(File.generated(config, SETTINGS, content=settings_page()))
    for source in notebooks():
        text, pictures = as_page(ROOT / source)
        uri = _notebook_page(source)
        files.append(File.generated(config, uri, content=text))
        for name, content in pictures.items():
            place = posixpath.join(posixpath.dirname(uri), name)
            files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to pages, or into text."""
    uri = page.file.src_uri
    sources = {target: source for source, target in _included().items()}
    if uri.startswith("reference/"):
        return markdown
    sources |= {_notebook_page(source): source for source in notebooks()}
    return relink(markdown, sources.get(uri, f"docs/{uri}"), uri, pages())


def slug(title: str, separator: str) -> str:
    """The anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", separator)


@functools.cache
def notebooks() -> tuple[str, ...]:
    """Notebooks among the documents, as paths from the root."""
    found = (ROOT / "docs").rglob("[!.]*.ipynb")
    return tuple(sorted(file.relative_to(ROOT).as_posix() for file in found))


def as_page(file: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook with its outputs as Markdown, and its pictures by name."""
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.get("data", {}).get("text/html"):  # a table says more than its text
                output.data = {"text/html": output.data["text/html"]}
    exporter = MarkdownExporter()
    text, resources = exporter.from_notebook_node(notebook, {"unique_key": file.stem})
    return text, resources["outputs"]


def _notebook_page(source: str) -> str:
    return source.removeprefix("docs/").removesuffix(".ipynb") + ".md"


@functools.cache
def modules() -> dict[str, str]:
    """Modules of the package with a docstring, and its first paragraph's first line."""
    found = {}
    for folder, inner, names in os.walk(PACKAGE):
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in names:
            if not name.endswith(".py") or name == "__main__.py":
                continue
            path = Path(folder, name)
            text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
            if text:
                parts = path.relative_to(ROOT).with_suffix("").parts
                dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found[dotted] = text.splitlines()[0]
    return dict(sorted(found.items()))


@functools.cache
def pages() -> dict[str, str]:
    """Files of the repository that are pages, as paths from its root, and the pages' addresses."""
    found = _included() | {"README.md": "index.md"}
    for name in modules():
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if (ROOT / path).is_file():
                found |= {path: _module_page(name), posixpath.dirname(path): "reference/index.md"}
                real = (ROOT / path).resolve().relative_to(ROOT).as_posix()
                found[real] = _module_page(name)
    docs = ROOT / "docs"
    for file in docs.rglob("*"):
        if file.is_file():
            inside = file.relative_to(docs).as_posix()
            found[f"docs/{inside}"] = inside
    return found | {source: _notebook_page(source) for source in notebooks()}


def relink(markdown: str, source: str, uri: str, known: dict[str, str]) -> str:
    """Links of a document that lies at ``source`` in the repository and at ``uri`` on the site.

    Args:
        markdown: The document. Code in it stays as it is.
        source: Its path from the root of the repository.
        uri: The address of its page.
        known: Paths from the root, and addresses.
    """

    def link(match: re.Match[str]) -> str:
        if match["code"] is not None:
            return match[0]
        bang, text, target = match["bang"], match["text"], match["target"]
        path, mark, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return match[0]
        named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if named not in known and not (ROOT / named).exists():
            return match[0]  # dead: the strict build says so
        if named not in known:
            bare = text.strip("`")
            same = bare in (named, posixpath.basename(named))
            return f"`{bare}`" if same else f"{text} (`{named}`)"
        there = posixpath.relpath(known[named], posixpath.dirname(uri) or ".")
        return f"{bang}[{text}]({there}{mark}{anchor})"

    return _LINK.sub(link, markdown)


_LINK = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]+`(?!\]))"
    r"|(?P<bang>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def overview(found: dict[str, str]) -> str:
    """The first page of the reference: every module with a line of what it holds."""
    lines = ["# Reference", "", "From the docstrings of the code, module by module."]
    for package, names in _by_package(found).items():
        lines += ["", f"## {package}", "", found.get(package, ""), "", "| module | |", "|---|---|"]
        for name in names:
            there = posixpath.relpath(_module_page(name), "reference")
            said = found[name].replace("|", "\\|")
            lines.append(f"| [`{name}`]({there}) | {said} |")
    return "\n".join(lines) + "\n"


def reference_nav(found: dict[str, str]) -> list[Any]:
    """The reference in the navigation: a section for each package."""
    nav: list[Any] = [{"Overview": "reference/index.md"}]
    for package, names in _by_package(found).items():
        short = [{name.removeprefix(f"{package}."): _module_page(name)} for name in names]
        nav.append({package: short})
    return nav


def _by_package(found: dict[str, str]) -> dict[str, list[str]]:
    """Modules by the package right below the root; those of the root itself first."""
    root = PACKAGE.name
    grouped: dict[str, list[str]] = {root: []}
    for name in found:
        parts = name.split(".")
        package = ".".join(parts[:2])
        below = any(other.startswith(f"{package}.") for other in found)
        grouped.setdefault(package if len(parts) > 1 and below else root, []).append(name)
    return grouped


def _module_page(name: str) -> str:
    return f"reference/{name}.md"


@functools.cache
def _included() -> dict[str, str]:
    """Documents outside of ``docs/`` that become pages: path from the root, address."""
    return DOCUMENTS | _notes()


def settings_page() -> str:
    """Every setting, from its own description, a table a section."""
    sys.path.insert(0, str(ROOT))
    try:
        from privsyn.methods.registry import METHODS, load_method
        from tools.ceilings import settings
    finally:
        sys.path.remove(str(ROOT))
    lines = [
        "# Settings",
        "",
        "Made from the descriptions in the code. `privsyn plan --json` prints what holds in a "
        "project, and `-S section.key=value` overrides any of them.",
    ]
    section = ""
    for name, field in settings().items():
        if name == "methods":  # its sections are rows of their own
            continue
        parts = name.split(".")
        above = ".".join(parts[:2] if parts[0] == "methods" else parts[:1])
        method = parts[1] if parts[0] == "methods" and parts[1:] and parts[1] in METHODS else None
        presets = load_method(method).Config.presets if method else {}
        if above != section:
            section = above
            columns = ["setting", "default", *(f"`{preset}`" for preset in presets), "what it is"]
            lines += ["", f"## {section}", "", _row(columns), _row(["---"] * len(columns))]
        key = name.removeprefix(f"{section}.")
        sized = [_value(_below(values, key.split("."))) for values in presets.values()]
        lines.append(_row([f"`{key}`", _default(field), *sized, _described(field)]))
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _below(values: Any, keys: list[str]) -> Any:
    """A value of nested mappings; None where it has none."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _value(value: Any) -> str:
    text = json.dumps(value, default=str)
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return "" if value is None else "`" + short.replace("|", "\\|") + "`"


def _default(field: Any) -> str:
    if field.is_required():
        return "none: must be set"
    return _value(field.get_default(call_default_factory=True)) or "`null`"


def _described(field: Any) -> str:
    """A description, the values to choose from and the limits."""
    said = " ".join((field.description or "").split())
    kinds = [field.annotation, *get_args(field.annotation)]
    literals = [kind for kind in kinds if get_origin(kind) is Literal]
    choices = [f"`{each}`" for kind in literals for each in get_args(kind)]
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [
        f"{word} {getattr(mark, name):g}"
        for mark in field.metadata
        for name, word in words.items()
        if isinstance(getattr(mark, name, None), int | float)
    ]
    more = [*([f"One of {', '.join(choices)}."] if choices else ())]
    more += [f"{', '.join(limits).capitalize()}."] if limits else []
    return " ".join([said, *more]).replace("|", "\\|")


def _content(source: str) -> str:
    """A document as Markdown; settings as a listing."""
    text = (ROOT / source).read_text("utf-8")
    return text if source.endswith(".md") else f"# {source}\n\n```yaml\n{text}```\n"


@functools.cache
def _notes() -> dict[str, str]:
    """Documents inside the package, each by as many of its folders as tell it from the others."""
    parts = {}
    for file in sorted(PACKAGE.rglob("*.md")):
        names = file.relative_to(PACKAGE).with_suffix("").parts
        parts[file.relative_to(ROOT).as_posix()] = names[:-1] if names[-1] == "README" else names
    found = {}
    for source, own in parts.items():
        alike = [names for other, names in parts.items() if other != source]
        kept = next(
            (n for n in range(1, len(own)) if all(names[-n:] != own[-n:] for names in alike)),
            len(own),
        )
        found[source] = f"notes/{'-'.join(own[-kept:])}.md"
    return found


def _filled(nav: Any, pages: dict[str, list[Any]]) -> Any:
    """The `nav` of the settings with lists of pages where a name stands for them."""
    if isinstance(nav, list):
        return [_filled(item, pages) for item in nav]
    if isinstance(nav, dict):
        return {title: _filled(item, pages) for title, item in nav.items()}
    return pages.get(nav, nav)
