"""What RESULTS.md says of five methods side by side is what is on file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(BENCHMARKS)
    from side_by_side import METHODS, RESULTS, SETS, own_settings, table


def test_the_table_of_the_results_is_that_of_the_rows_on_file() -> None:
    written = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    start = written.index("--table -->\n") + len("--table -->\n")
    assert written[start : written.index("\n<!-- end", start)] == table(RESULTS)


def test_rows_are_of_known_sets_and_methods_and_none_is_there_twice() -> None:
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    runs = [json.dumps(row["run"], sort_keys=True) for row in rows]
    assert len(set(runs)) == len(runs)
    assert all(row["run"]["set"] in SETS and row["run"]["method"] in METHODS for row in rows)


def test_a_row_names_the_settings_that_are_its_own() -> None:
    run = {
        "method": "dp_lora",
        "set_also": [
            "models.dtype=bfloat16",
            "performance.threads=1",
            "methods.dp_lora.rank=4",  # as in METHODS
            "methods.dp_lora.sampling_rate=0.02",
        ],
    }
    assert own_settings(run) == "sampling_rate 0.02"
