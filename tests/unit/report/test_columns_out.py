"""Columns on their way out: typed in every format, declared on every page, checked by the suite."""

import csv
import json
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from privsyn.api.released import Release
from privsyn.data.columns import Column
from privsyn.export import FORMATS, dataset_card
from privsyn.release.facts import ReleaseFacts
from privsyn.release.metadata import croissant, deployment, markdown
from privsyn.report.outward import outward
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import validate_file
from tests.unit.report.release_folder import note_checks, seal_folder, write_rows

DECLARED: dict[str, Any] = {
    "age": {"range": [-18, 95], "bins": 8},
    "channel": {"values": ["web", "phone"]},
    "cost": {"range": [0, 9], "decimals": 2},
    "visited": {"dates": ["2024-01-01", "2024-12-31"]},
}
COLUMNS = {name: Column.model_validate(one) for name, one in DECLARED.items()}


def drawn(count):
    rng = np.random.default_rng(1)
    rows = []
    for n in range(count):
        # The last two are other and missing.
        cells = {name: (n if n < 3 else -n % 3 - 1) % len(c.cells) for name, c in COLUMNS.items()}
        values = {name: one.draw(cells[name], rng) for name, one in COLUMNS.items()}
        rows.append({"id": f"r-{n}", **values, "text": f"text {n}"})
    return rows


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "invisible_ink-00ff"
    file = write_rows(made, drawn(9))
    seal_folder(made, 9, plan={"dataset": {"columns": DECLARED}, "columns": {}})
    note_checks(made, validate_file(file, ValidationConfig(), (), (9, 9), columns=COLUMNS))
    return made


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({}, set()),
        ({"age": 96}, {"age"}),
        ({"age": "old"}, {"age"}),
        ({"channel": "fax"}, {"channel"}),
        ({"channel": None, "visited": None, "age": None}, set()),
        ({"visited": "2025-01-01"}, {"visited"}),
        ({"visited": "2024-01"}, {"visited"}),
        ({"cost": "gone"}, {"row_has_columns"}),
    ],
)
def test_a_suite_holds_what_was_declared(tmp_path, changes, failing):
    rows = drawn(9)
    rows[4] |= changes
    if changes.get("cost"):
        del rows[4]["cost"]
    file = write_rows(tmp_path / "r", rows)
    result = validate_file(file, ValidationConfig(), (), (9, 9), columns=COLUMNS)
    assert {check.column for check in result.failures} == failing


def test_every_format_has_types(folder, tmp_path, monkeypatch):
    rows = drawn(9)
    for form in ("parquet", "csv", "webdataset"):
        (tmp_path / form).mkdir()
        FORMATS[form][0](rows, tmp_path / form, folder)
    table = parquet.read_table(tmp_path / "parquet" / "data" / "train.parquet")
    assert table.column_names == list(rows[0])
    types = [table.schema.field(name).type for name in COLUMNS]
    assert types == [pa.int64(), pa.string(), pa.float64(), pa.date32()]
    visited = [row["visited"] and date.fromisoformat(row["visited"]) for row in rows]
    assert table["visited"].to_pylist() == visited
    with (tmp_path / "csv" / "train.csv").open(newline="") as stream:
        cells = list(csv.DictReader(stream))
    numbers = ["" if row["age"] is None else str(row["age"]) for row in rows]
    assert [cell["age"] for cell in cells] == numbers
    assert any(number.startswith("-") for number in numbers)
    assert "'" not in "".join(numbers)
    monkeypatch.setattr(Release, "_verified_rows", lambda _: rows)
    frame = Release.open(folder).frame()
    assert [str(kind) for kind in frame.dtypes[["age", "cost"]]] == ["Int64", "float64"]
    assert frame["visited"].dt.year.dropna().eq(2024).all()


def test_pages_declare_and_show_them(folder):
    facts = ReleaseFacts.read(folder)
    described = croissant(facts)
    assert described is not None
    kinds = {one["name"]: one["dataType"] for one in described["recordSet"][0]["field"]}
    assert list(kinds.items())[1:] == [
        ("age", "sc:Integer"),
        ("channel", "sc:Text"),
        ("cost", "sc:Float"),
        ("visited", "sc:Date"),
        ("text", "sc:Text"),
    ]
    domain = "channel: web, phone or other"
    assert domain in dataset_card(facts, "hf", None)
    assert "dtype: date32" in dataset_card(facts, "hf", None)
    assert domain in markdown(facts)
    assert domain in json.dumps(deployment(facts))
    html = outward(folder).to_html()
    assert "texts by channel (declared: web, phone or other)" in html
    assert "February 2024" in html
