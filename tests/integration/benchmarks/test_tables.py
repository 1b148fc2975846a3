"""What was measured, as data: every row prints, and RESULTS.md shows what is on file."""

import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(BENCHMARKS)
    import tables

ON_FILE = tables.tables()


@pytest.mark.parametrize("name", ON_FILE)
def test_every_row_of_a_table_is_printed(name):
    lines = ON_FILE[name]
    printed = tables.markdown(lines)

    assert list(lines[0]) == ["table", "title"]
    assert all(len(line) == 2 for line in lines)
    for line in lines[1:]:
        row = line.get("row")
        assert (f"| {' | '.join(row.values())} |" if row else line["text"]) in printed


def test_the_tables_of_the_results_are_those_on_file():
    page = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?s)<!-- python benchmarks/tables.py (\w+) -->\n(.*?)\n<!-- end", page)

    assert len(shown) == page.count("<!-- end") > 0
    for name, table in shown:
        assert table == tables.grid(tables.rows(ON_FILE[name]))


def test_the_results_name_every_table():
    index = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8").partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", index)

    assert sorted(named) == sorted([*ON_FILE, tables.RUNS])
