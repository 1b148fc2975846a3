"""Columns beside the text: every value of every record has one cell, in every format alike."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from privsyn.data.columns import Column
from privsyn.data.partition import held_units, keep_holdout, load_shard, partition
from privsyn.data.readers.formats import check_source, read_records
from privsyn.data.records import Cell
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import DatasetConfig
from privsyn.errors import DataError

AGE = {"range": [18, 95], "bins": 7}
VISITED = {"dates": ["2024-01-15", "2024-03-10"]}
COLUMNS: dict[str, Any] = {"age": AGE, "channel": {"values": ["web", "phone"]}, "visited": VISITED}


def dataset(path, columns=COLUMNS, **settings):
    return DatasetConfig(name="d", path=path, columns=columns, **settings)


@pytest.mark.parametrize(
    ("declared", "value", "cell"),
    [
        (AGE, 18, "18 to 28"),
        (AGE, "29", "29 to 39"),
        (AGE, 95.0, "84 to 95"),
        (AGE, Decimal("29.5"), "29 to 39"),
        ({"range": [1, 5], "bins": 5}, 3, "3"),
        ({"range": [0, 1], "bins": 2, "decimals": 1}, 0.5, "0.5 to 1.0"),
        (AGE, 95.1, "other"),
        (AGE, "old", "other"),
        (AGE, True, "other"),
        (AGE, [30], "other"),
        (AGE, 10**400, "other"),
        (AGE, float("inf"), "other"),
        (AGE, float("nan"), "missing"),
        (AGE, Decimal("sNaN"), "other"),
        (AGE, "[deleted]", "missing"),
        (AGE, " ", "missing"),
        (AGE, None, "missing"),
        ({"values": ["web", "7"]}, "web ", "web"),
        ({"values": ["web", "7"]}, 7.0, "7"),
        ({"values": ["web", "7"]}, "Web", "web"),
        ({"values": ["web", "7"]}, "fax", "other"),
        ({"values": ["web", "7"]}, {}, "other"),
        ({"values": ["web", "7"]}, "1.3e+18", "other"),
        ({"values": [True, False]}, "TRUE", "yes"),
        ({"values": ["true", "false"]}, "no", "false"),
        ({"values": ["yes", "no"]}, False, "no"),
        (VISITED, "2024-01-15", "January 2024"),
        (VISITED, "2024-03-10T23:00:00Z", "March 2024"),
        (VISITED, "2024-01-14", "other"),
        (VISITED, "10.03.2024", "other"),
        (VISITED, 20240310, "other"),
    ],
)
def test_a_value_has_one_cell(declared, value, cell):
    column = Column.model_validate(declared)
    assert column.cells[column.cell(value)] == cell


@pytest.mark.parametrize(
    "declared",
    [
        *COLUMNS.values(),
        {"range": [-0.3, 0.7], "decimals": 2},
        {"range": [-5, 5]},
        {"range": [1, 5], "bins": 5},
        {"range": [-30, -8], "bins": 22},
        {"range": [0, 1], "bins": 100, "decimals": 2},
    ],
)
def test_a_drawn_value_is_in_its_cell_and_none_of_other_cells(declared):
    column, rng = Column.model_validate(declared), np.random.default_rng(0)
    last = len(column.cells) - 1
    for cell in range(last - 1):
        for _ in range(30):
            value = column.draw(cell, rng)
            assert column.cell(json.loads(json.dumps(value))) == cell
    assert column.draw(last, rng) is None
    assert column.draw(last - 1, rng) == ("other" if column.values else None)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({}, "one of values, range and dates"),
        ({"values": ["a"], "range": [1, 2]}, "one of values, range and dates"),
        ({"range": [2, 1]}, "must rise"),
        ({"range": [0, 5], "bins": 7}, "holds no number of decimals=0: take fewer than bins=7"),
        ({"range": [-1.7e308, 1.7e308]}, "more digits than a number keeps"),
        ({"dates": ["2024-01-01", "9999-12-31"]}, "no day of a record"),
        ({"dates": ["2024-01-02", "2024-01-01"]}, "2024-01-02 is after 2024-01-01"),
        ({"values": ["a", "a "]}, "twice"),
        ({"values": ["12", "12.0"]}, "twice"),
        ({"values": ["Web", "phone", "web"]}, "'Web' and 'web' are one"),
        ({"values": ["yes", "TRUE"]}, "'yes' and 'TRUE' are one"),
        ({"values": ["web", "Other"]}, "'Other', which is a cell of every column: leave it out"),
        ({"values": ["a", "NA"]}, "cell of every column"),
        ({"values": ["1.3e+18"]}, "no record can have"),
        ({"values": [str(n) for n in range(10_000)]}, "10,000 cells.*leave it out"),
        ({"dates": ["1990-01-01", "2020-12-31"]}, "by=year"),
    ],
)
def test_a_declaration_that_cannot_be_drawn_is_refused(declared, message):
    with pytest.raises(ValidationError, match=message):
        Column.model_validate(declared)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": AGE}, "'id', which is dataset.unit already"),
        ({"kind": AGE}, "'kind', which is dataset.label already"),
        ({"body": AGE}, "'body', which is dataset.text already"),
        ({"label": AGE}, "a released row has a field 'label'"),
        ({"a {b}": AGE}, "no braces"),
        ({f"c{n}": AGE for n in range(13)}, "at most 12"),
    ],
)
def test_a_column_stands_beside_text_label_and_unit(columns, message):
    with pytest.raises(ValidationError, match=message):
        dataset(Path("a.csv"), columns, unit="id", label="kind", labels=("a",), text="{body} {x}")


ROWS: list[dict[str, Any]] = [
    {"id": "1", "text": "one", "age": 20, "channel": "web", "visited": "2024-02-01"},
    {"id": "2", "text": "two", "age": None, "channel": "fax", "visited": "2025-02-01"},
    {"id": "3", "text": "three", "age": 99, "channel": "", "visited": "soon"},
]
CELLS = [(0, 0, 1), (8, 2, 3), (7, 3, 3)]
"""Cells of age, channel and visited."""


def write(path, rows):
    names = list(rows[0])
    if path.suffix == ".parquet":
        parquet.write_table(pa.table({n: [row[n] for row in rows] for n in names}), path)
    elif path.suffix == ".csv":
        lines = [",".join("" if row[n] is None else str(row[n]) for n in names) for row in rows]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_no_value_drops_its_record_in_any_format(tmp_path, suffix):
    path, row_counts = write(tmp_path / f"a{suffix}", ROWS), RowCounts()
    cfg = dataset(path, unit="id")
    assert [one.reveal().row for one in read_records(cfg, row_counts=row_counts)] == CELLS
    assert row_counts.report((), 1)["columns"] == {
        "age": {"missing": 1, "other": 1, "prose": 0},
        "channel": {"other": 1, "missing": 1, "prose": 0},
        "visited": {"other": 2, "prose": 0},
    }
    with pytest.raises(DataError, match=r"'Age' \(dataset.columns.Age\).*not in") as caught:
        check_source(dataset(path, {"Age": AGE}))
    assert caught.value.hint == "Did you mean 'age'?"


def test_a_partition_carries_rows_and_orders_records_that_differ_in_them_alone(tmp_path):
    rows = [{"id": "1", "text": "alike", "age": 18 + n, "channel": "web"} for n in range(60)]
    columns = {"age": {"range": [18, 95], "bins": 77}, "channel": COLUMNS["channel"]}
    kept = []
    for order in (rows, rows[::-1]):
        path = write(tmp_path / f"{len(kept)}.jsonl", order)
        cfg = dataset(path, columns, unit="id", max_records_per_unit=20)
        cell, out = Cell(0, None, 0), tmp_path / f"out{len(kept)}"
        partition(cfg, bytes(32), [cell], out, 1, seed="s")
        [bucket] = load_shard(out, 0, [cell], 1)
        kept.append(bucket.rows.reveal())
    assert kept[0] == kept[1]
    # By a keyed hash: not those whose cells come first.
    assert len(kept[0]) == 20
    assert max(row[0] for row in kept[0]) > 40
    holdout = cfg.model_copy(update={"holdout": 0.999999})
    keep_holdout(holdout, bytes(32), tmp_path / "held")
    [unit] = held_units(tmp_path / "held", 20)
    assert {record.row for record in unit.reveal()} == set(kept[0])
