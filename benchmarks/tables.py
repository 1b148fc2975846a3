"""Print what was measured. The rows lie beside the scripts, in benchmarks/*.jsonl.

    python benchmarks/tables.py              # names and titles of the tables
    python benchmarks/tables.py decode       # one: settings, rows and remarks, as Markdown
    python benchmarks/tables.py all          # all of them

A line of a file is the title of a table, a text of it, or a row of it, in the order of printing.
``side_by_side.jsonl`` has a line a run, as its script wrote it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RUNS = "side_by_side"


def tables(folder: Path = FOLDER) -> dict[str, list[Mapping[str, Any]]]:
    """The lines of each table by its name, those of one file after each other."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        if file.stem != RUNS:
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                found.setdefault(entry["table"], []).append(entry)
    return found


def rows(lines: list[Mapping[str, Any]]) -> list[Mapping[str, str]]:
    """The rows of a table without titles and texts."""
    return [line["row"] for line in lines if "row" in line]


def markdown(lines: list[Mapping[str, Any]]) -> str:
    """A table with its title and texts."""
    return "\n\n".join(_blocks(lines)) + "\n"


def grid(table: list[Mapping[str, str]]) -> str:
    """Rows with the same columns as a table in Markdown."""
    columns = list(table[0])
    cells = [columns, ["---"] * len(columns), *(list(row.values()) for row in table)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _blocks(lines: list[Mapping[str, Any]]) -> Iterator[str]:
    table: list[Mapping[str, str]] = []
    for line in [*lines, {"text": ""}]:
        if table and line.get("row", {}).keys() != table[0].keys():
            yield grid(table)
            table = []
        if "row" in line:
            table.append(line["row"])
        elif "title" in line:
            yield f"## {line['title']}"
        elif line["text"]:
            yield line["text"]


def main(arguments: list[str]) -> int:
    """Print the tables that are named, or the names."""
    found = tables()
    if not arguments:
        for name, lines in found.items():
            print(f"{name:18} {lines[0]['title']}")
        print(f"{RUNS:18} A row for each run of side_by_side.py")
    for name in [*found, RUNS] if arguments == ["all"] else arguments:
        if name == RUNS:
            from side_by_side import RESULTS, table

            print(table(RESULTS))
        elif name in found:
            print(markdown(found[name]))
        else:
            print(f"no table is named {name}. Names: {', '.join([*found, RUNS])}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
