"""What the documents say of five methods side by side is what is on file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(BENCHMARKS)
    from side_by_side import METHODS, RESULTS, SETS, own_settings


def test_what_the_readme_says_of_accuracy_is_on_file():
    """Each row is one of RESULTS.md: what the judge and what word counts say, in every column."""

    def rows(page):
        """The readings of each line of a table, first and last of each cell."""
        cells = [
            re.findall(r"\| (\.\d+(?: / [.\d-]+)+) (?=\|)", line) for line in page.splitlines()
        ]
        return [
            [f"{c.split(' / ')[0]} / {c.split(' / ')[-1]}" for c in row] for row in cells if row
        ]

    readme = (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8")
    section = readme[readme.index("## Does it work?\n") :].partition("\n## ")[0]
    shown = rows(section)
    assert len(shown) == section.count("\n|") - 2 >= 2  # less the header and its rule
    on_file = rows((BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8"))
    assert [row for row in shown if row not in [known[: len(row)] for known in on_file]] == []


def test_rows_are_of_known_sets_and_methods_and_none_is_there_twice():
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    runs = [json.dumps(row["run"], sort_keys=True) for row in rows]
    assert len(set(runs)) == len(runs)
    assert all(row["run"]["set"] in SETS and row["run"]["method"] in METHODS for row in rows)


def test_a_row_names_the_settings_that_are_its_own():
    run = {
        "method": "dp_lora",
        "set_also": [
            "models.dtype=bfloat16",
            "performance.rows_per_pass=16",
            "methods.dp_lora.rank=4",  # as in METHODS
            "methods.dp_lora.sampling_rate=0.02",
        ],
    }
    assert own_settings(run) == "sampling_rate 0.02"
