"""Check names and phrases against STYLE.md. Counts of old violations may only fall.

    python tools/style.py            # exit code 1 if a count rose
    python tools/style.py --update   # write today's counts to tools/style_allowed.json
    python tools/style.py --list     # every place

Checks: banned names of variables, arguments and functions, banned phrases in Python and Markdown
files, and class names that are defined twice. Moving code between packages does not raise a total,
so it passes.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = Path(__file__).with_name("style_allowed.json")

# Participles that stand for a thing. Name the thing: `message`, `match`, `requested`, `limit`.
NAMES = frozenset("said told found asked wanted kept held heard unheard unseen own".split())
# As names of functions these, too: a verb, what it returns, or `is_...`.
FUNCTIONS = NAMES | frozenset(
    "begun called charged compared counted covered done drawn failed finished gone graded judged "
    "known left listed made measured named noted opened parsed passed planned published requested "
    "settled shared shown stated stored taken tried used validated written".split()
)
MODULES = frozenset("pinned alone beside held stored spread pace utils helpers".split())
PHRASES = (
    r"such a one",
    r"without a word",
    r"(?:is|are|has|was) (?-i:none)\b",  # not `is None`
    r"(?:is|are) no (?:setting|place|word)\b",
    r"vouche?s?\b",
    r"is at it\b",
    r"\b(?-i:begun)\b",  # not the state BEGUN
    r"\bmend(?:s|ed|ing)?\b",
    r"whose .{1,30} are not told",
    r"as it lies there",
    r"lies? in each other",
    r"leave the room",
    r"by how much it misses",
    r"one after the other",
    r"(?:to|by) nobody\b",
    r"to tell apart",
    r"^Of a .{1,40} the ",
)
PHRASE = re.compile("|".join(PHRASES), re.IGNORECASE)


def package(path: Path) -> str:
    """The package a file belongs to, such as ``privsyn/data``; ``docs`` for pages."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "privsyn" and len(parts) > 2 else parts[0]


def assigned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable and argument that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def violations() -> Iterator[tuple[str, Path, int, str]]:
    """Kind, file, line and text of each violation."""
    classes: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in sorted(ROOT.glob("privsyn/**/*.py")):
        content = path.read_text(encoding="utf-8")
        tree = ast.parse(content)
        if path.stem in MODULES:
            yield "module", path, 1, path.stem
        for line, name in assigned(tree):
            if name in NAMES:
                yield "name", path, line, name
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.strip("_") in FUNCTIONS:
                yield "function", path, node.lineno, node.name
            if isinstance(node, ast.ClassDef):
                classes[node.name].append((path, node.lineno))
        yield from phrases(path, content)
    for path in [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md"))]:
        if path.name not in ("STYLE.md", "CHANGELOG.md"):
            yield from phrases(path, path.read_text(encoding="utf-8"))
    for name, places in classes.items():
        for path, line in places[1:]:
            yield "class", path, line, f"{name} is also a class in {places[0][0].name}"


def phrases(path: Path, content: str) -> Iterator[tuple[str, Path, int, str]]:
    """Banned phrases of a file."""
    for number, line in enumerate(content.splitlines(), 1):
        for match in PHRASE.finditer(line):
            yield "phrase", path, number, match[0]


def main(arguments: list[str]) -> int:
    """Compare today's counts with the allowed ones."""
    places = sorted(violations(), key=lambda item: (item[0], str(item[1]), item[2]))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, path, _, _ in places:
        counts[kind][package(path)] += 1
    if "--list" in arguments:
        for kind, path, line, text in places:
            print(f"{path.relative_to(ROOT)}:{line}: {kind}: {text}")
    if "--update" in arguments:
        ALLOWED.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    allowed = json.loads(ALLOWED.read_text(encoding="utf-8"))
    failed = False
    for kind, now in sorted(counts.items()):
        limits = allowed.get(kind, {})
        if sum(now.values()) <= sum(limits.values()):
            continue
        failed = True
        for name, count in sorted(now.items()):
            if count > limits.get(name, 0):
                limit = limits.get(name, 0)
                print(f"{name}: {count} {kind} violations of STYLE.md, allowed {limit}.")
    if failed:
        print("See `python tools/style.py --list`. Rename or reword the new ones.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
