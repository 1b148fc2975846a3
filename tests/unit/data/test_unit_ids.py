"""Who is one person: every reader spells an id alike, and nobody's id hangs on another's record."""

import csv
import io
import json
import sqlite3
import unicodedata
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from datasets import Dataset
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from privsyn.api import frames
from privsyn.data.readers.formats import check_rows, read_records
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import DatasetConfig
from privsyn.data.unit_key import label_id, lost_digits, unit_id
from privsyn.errors import DataError

Ids = Sequence[Any]
READERS: dict[str, Callable[[Path, Ids], DatasetConfig]] = {}
"""What writes ids as a file of one format and says how it is read."""


def reader(write):
    def ready(folder, ids):
        path = write(folder, ids)
        if isinstance(path, dict):
            return DatasetConfig(name="d", query=path, unit="id")
        images = {"size": 4, "mode": "L"} if path.suffix == ".npz" else None
        return DatasetConfig(name="d", path=path, unit="id", images=images)

    READERS[write.__name__] = ready
    return ready


def _separated(folder, ids, suffix, delimiter):
    out = io.StringIO(newline="")
    rows = csv.writer(out, delimiter=delimiter)
    rows.writerows([["id", "text"], *([value, f"text {n}"] for n, value in enumerate(ids))])
    path = folder / f"a{suffix}"
    path.write_bytes(out.getvalue().encode())
    return path


@reader
def comma(folder, ids):
    return _separated(folder, ids, ".csv", ",")


@reader
def tab(folder, ids):
    return _separated(folder, ids, ".tsv", "\t")


@reader
def json_lines(folder, ids):
    rows = ({"id": value, "text": f"text {n}"} for n, value in enumerate(ids))
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    return path


@reader
def column_of_parquet(folder, ids):
    path = folder / "a.parquet"
    texts = [f"text {n}" for n in range(len(ids))]
    parquet.write_table(pa.table({"id": pa.array(ids), "text": texts}), path)
    return path


@reader
def frame(folder, ids):
    data = {"id": pd.Series(ids, dtype=object), "text": [f"text {n}" for n in range(len(ids))]}
    return _kept(pd.DataFrame(data), folder)


@reader
def list_of_dicts(folder, ids):
    rows = [{"id": value, "text": f"text {n}"} for n, value in enumerate(ids)]
    return _kept(frames.as_frame(rows), folder)


def _table(ids):
    return pa.table({"id": pa.array(ids), "text": [f"text {n}" for n in range(len(ids))]})


@reader
def polars_frame(folder, ids):
    return _kept(frames.as_frame(polars.DataFrame(_table(ids))), folder)


@reader
def hugging_face(folder, ids):
    return _kept(frames.as_frame(Dataset(_table(ids))), folder)


@reader
def delta(folder, ids):
    write_deltalake(folder / "lake", _table(ids), mode="overwrite", schema_mode="overwrite")
    return folder / "lake"


@reader
def sqlite(folder, ids):
    with closing(sqlite3.connect(folder / "a.db")) as db, db:
        db.execute("drop table if exists t")
        db.execute("create table t (id, text)")
        db.executemany("insert into t values (?, 'a text')", [(value,) for value in ids])
    return {"connection": f"sqlite:///{folder}/a.db", "sql": "select * from t"}


def _kept(data, folder):
    path = folder / "state" / "data" / "a.parquet"
    path.unlink(missing_ok=True)
    frames.write_version(frames.table_of(data, "text", None, "id"), path)
    return path


@reader
def array(folder, ids):
    path = folder / "a.npz"
    np.savez(path, image=np.zeros((len(ids), 4, 4), np.uint8), id=np.array(ids))
    return path


def units(cfg, row_counts=None):
    return [record.reveal().unit for record in read_records(cfg, row_counts=row_counts)]


TYPED = [name for name in READERS if name not in ("comma", "tab", "array")]
"""Readers that hold a missing id, and ids of several types."""


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ids=st.lists(st.integers(-(10**18), 10**18), min_size=1, max_size=6))
def test_whole_numbers_are_one_id_by_every_reader(tmp_path, name, ids):
    """As numbers and as texts; no two become one."""
    wanted = [str(value) for value in ids]
    assert units(READERS[name](tmp_path, ids)) == wanted
    spelled = [f"{value}.0" if abs(value) < 2**53 else f" {value}\u200b" for value in ids]
    assert units(READERS[name](tmp_path, spelled)) == wanted


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ids=st.lists(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=6)
        | st.sampled_from(["1", "1.0", "1e0", "+1", "01", "1.5", "M\u00fcller", "Mu\u0308ller",
                           "\ufeffx ", "1.3e+18", "4873214862074861312.0", "2024-05-01 00:00:00",
                           "550E8400-E29B-41D4-A716-446655440000", "123e45678", "-0", "\u00a0",
                           "ID7", "2024-05-01", "NULL", " #N/A", "[deleted]", "--", "1.23457E+11"]),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_every_reader_spells_a_text_alike_and_each_by_itself(tmp_path, name, ids):
    ids = ["a person", *ids, "last"]  # a frame without any id is refused
    if any(map(lost_digits, ids)):
        with pytest.raises(DataError, match="lose the last digits"):
            units(READERS[name](tmp_path, ids))
        return
    wanted = [one for one in map(unit_id, ids) if one is not None]
    assert units(READERS[name](tmp_path, ids)) == wanted


MOMENT = datetime(2024, 5, 1, 10, 30, tzinfo=UTC)
SAME = [
    ([12, 12.0, "12", "12.0", "1.2e1", "+12", " 12\u00a0", Decimal("12.00"), np.int32(12)], "12"),
    ([0, -0.0, "-0", "0.0", Decimal("0E+3")], "0"),
    (["M\u00fcller", "Mu\u0308ller", "\ufeffM\u00fcller ", b"M\xc3\xbcller"], "M\u00fcller"),
    (
        [uuid.UUID(int=7 << 120), uuid.UUID(int=7 << 120).bytes,
         str(uuid.UUID(int=7 << 120)).upper()],
        "07000000-0000-0000-0000-000000000000",
    ),
    ([date(2024, 5, 1), datetime(2024, 5, 1), "2024-05-01 00:00:00", "2024-05-01"], "2024-05-01"),
    (
        [MOMENT, "2024-05-01 12:30:00+02:00", "2024-05-01T10:30Z", "2024-05-01T10:30:00.000Z"],
        "2024-05-01T10:30:00Z",
    ),
    (["patient-00000012", b"patient-00000012"], "patient-00000012"),
]  # fmt: skip


@pytest.mark.parametrize(("spellings", "wanted"), SAME, ids=[wanted for _, wanted in SAME])
def test_spellings_of_one_id(spellings, wanted):
    plain = [value.item() if isinstance(value, np.generic) else value for value in spellings]
    assert [unit_id(value) for value in plain] == [wanted] * len(plain)


def test_what_is_an_id_of_its_own_and_what_is_none():
    own = [
        "007", "7", "7.5", "7.50", "m\u00fcller", "M\u00fcller", "12e45678", "1-2", "true",
        "1" * 400,
    ]  # fmt: skip
    assert [unit_id(value) for value in own] == own
    none = [None, "", " \u200b", True, 1.5, float("nan"), float("inf"), Decimal("1.5"), [1], {},
            "\udcff", b"\xff", Decimal("1E+99999999"), Decimal("sNaN"), 2.0**53,
            "9007199254740992.0", "9.007199254740992e15",
            "1.3e+18", "-1.3E18", 10**5000]  # fmt: skip
    assert [unit_id(value) for value in none] == [None] * len(none)


@pytest.mark.parametrize("digits", [2, 16, 17, 19])
@pytest.mark.parametrize("name", TYPED)
def test_a_missing_id_leaves_every_other_unit_what_it_was(tmp_path, name, digits):
    """The added record is dropped, and nothing else happens: nobody's id becomes a float."""
    ids = [10 ** (digits - 1) + n for n in range(20)]
    before = units(READERS[name](tmp_path, ids))
    assert before == [str(value) for value in ids]
    row_counts = RowCounts()
    assert units(READERS[name](tmp_path, [*ids, None]), row_counts) == before
    assert dict(row_counts.dropped) == {"unit: missing or empty": 1}


def _by_pandas(path, ids):
    """Written by pandas, which makes floats of all ids where one is missing."""
    data = pd.DataFrame({"id": ids, "text": [f"text {n}" for n in range(len(ids))]})
    if path.suffix == ".csv":
        data.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        data.to_json(path, orient="records", lines=True)
    else:
        data.to_parquet(path)
    return DatasetConfig(name="d", path=path, unit="id")


@pytest.mark.parametrize("half", [False, True], ids=["all long", "half of them"])
@pytest.mark.parametrize("digits", [2, 15, 16, 17, 19])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_missing_id_leaves_people_what_they_were_or_refuses_the_file(
    tmp_path, suffix, digits, half
):
    """Never fewer of them: one row decides about no other."""
    ids = [n + 10 ** (2 if half and n % 2 else digits - 1) for n in range(20)]
    cfg = _by_pandas(tmp_path / f"a.{suffix}", ids)
    assert units(cfg) == [str(value) for value in ids]
    check_rows(cfg)
    cfg = _by_pandas(tmp_path / f"b.{suffix}", [*ids, None])
    if digits < 17 and suffix != "parquet":
        assert units(cfg) == [str(value) for value in ids]
        check_rows(cfg)
        return
    for read in (units, check_rows) if digits > 16 else (units,):
        with pytest.raises(
            DataError, match=r"'id' \(dataset\.unit\).*lose the last digits.*'Int64'"
        ):
            read(cfg)


ROUNDED = ["1.23457E+11", "1,23457E+11", "-1.2E+12", "1.23457e+11", "1.23457e+011", "1E+15", "9e15",
           "1.23456789012346e+15", "+1.3E18", "1,2345678901234568e+16", "12345678901234567,0",
           "12,345,678,901,234,567.0", "{'id': 1.0000000000000002e+16}", "'1.5e+16'"]  # fmt: skip
"""Of spreadsheets, printf, R and SQL Server; decimal commas of pandas, dicts, quotes."""


@pytest.mark.parametrize("rounded", ROUNDED[:6] + ROUNDED[7:])
@pytest.mark.parametrize("name", READERS)
def test_one_rounded_id_refuses_the_file(tmp_path, name, rounded):
    """Wherever it stands, and whatever else is wrong with its row."""
    with pytest.raises(DataError, match="lose the last digits") as caught:
        units(READERS[name](tmp_path, ["1", "ann", rounded, "2"]))
    assert rounded not in str(caught.value)


def test_a_rounded_number_of_json_and_one_in_a_row_of_another_label(tmp_path):
    for value in ("1.23457e+11", "1e400", "-1E+22"):
        path = tmp_path / "a.jsonl"
        path.write_text(f'{{"id": 1, "text": "a", "l": "A"}}\n{{"id": {value}, "l": "B"}}\n')
        with pytest.raises(DataError, match="lose the last digits"):
            units(DatasetConfig(name="d", path=path, unit="id", label="l", labels=["A"]))
    path.write_text('{"id": 1.5e2, "text": "a", "x": 1e300}\n{"id": 150.0, "text": "a"}\n')
    assert units(DatasetConfig(name="d", path=path, unit="id")) == ["150", "150"]


def test_what_floats_spell_exactly_stays_an_id():
    """R writes 1e+05 for 100000, Java 1.0E7, numpy all digits of a mantissa."""
    exact = {
        "1e+05": "100000", "1.2e+07": "12000000", "1.0E7": "10000000", "1.234567E7": "12345670",
        "1.234560000000000000e+05": "123456", "1.23456789E+8": "123456789", "-2.0": "-2",
        "12,0": "12", "1,2e5": "120000", "1,234.00": "1234", "1,000": "1,000",
    }  # fmt: skip
    assert {text: unit_id(text) for text in exact} == exact
    assert lost_digits(2.0**53)
    assert not lost_digits(2.0**53 - 1)
    assert not any(map(lost_digits, [*exact, "12e45678", "1,5", "1E", 2**70, str(2**70)]))


NOBODY = ["NULL", "null", r"\N", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "nan", "NaN", "-nan",
          "None", "<NA>", "NaT", "nil", "undefined", "(null)", "[NULL]", "#REF!",
          "[deleted]", "[removed]", "0000-00-00", "00000000-0000-0000-0000-000000000000",
          "__HIVE_DEFAULT_PARTITION__",
          "n.a.", '"NULL"', "<missing>", "(blank)", "Unknown", "#NV", r"\\N", "[REDACTED]", "-inf",
          "\uff2e\uff35\uff2c\uff2c", "\u00a0Null ", "", "-", "?", "..."]  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_another_tool_s_nothing_is_nobody_s_id(tmp_path, name):
    """Each row by itself; nobody is a person more, and nobody counts twice."""
    row_counts = RowCounts()
    ids = ["ann", *NOBODY, "Nadia", "nullsson", "n", "0"]
    assert units(READERS[name](tmp_path, ids), row_counts) == ["ann", "Nadia", "nullsson", "n", "0"]
    assert row_counts.dropped["unit: a word or sign for nothing (NULL, NA, [deleted], ...)"] == len(
        NOBODY
    ) - NOBODY.count("")
    assert row_counts.dropped["unit: missing or empty"] == 1
    nobody = uuid.UUID(int=0)
    assert unit_id(nobody) is unit_id(nobody.bytes) is None


@pytest.mark.parametrize("name", ["comma", "json_lines", "column_of_parquet"])
def test_another_tool_s_nothing_is_no_text_and_no_label(tmp_path, name):
    words = [word for word in NOBODY if any(letter.isalnum() for letter in word)]
    path = READERS[name](tmp_path, ["a text", *words, "None of it", "?"]).path
    row_counts = RowCounts()
    cfg = DatasetConfig(name="d", path=path, text="id")
    found = [one.reveal().content for one in read_records(cfg, row_counts=row_counts)]
    assert found == ["a text", "None of it", "?"]
    assert set(row_counts.dropped) == {
        "text: a word or sign for nothing (NULL, NA, [deleted], ...)"
    }
    # A label that the public list declares is one.
    row_counts = RowCounts()
    cfg = DatasetConfig(name="d", path=path, label="id", labels=("a text", "None"))
    labels = [one.reveal().label for one in read_records(cfg, row_counts=row_counts)]
    assert labels == ["a text", "None"]
    said = row_counts.dropped["label: a word or sign for nothing (NULL, NA, [deleted], ...)"]
    assert said == len(words) - 1


@pytest.mark.parametrize("ids", [[1.0, 2.0], [1e18, 2.0], [1.0, None], [float("nan")] * 2])
def test_a_unit_column_of_floats_is_refused_by_its_type_alone(tmp_path, ids):
    """Whatever it holds: one record decides nothing."""
    floats = np.array([np.nan if value is None else value for value in ids])
    table = pa.table({"id": pa.array(floats, pa.float64()), "text": ["a", "b"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"float.*lose the last digits") as caught:
        units(DatasetConfig(name="d", path=tmp_path / "a.parquet", unit="id"))
    assert "as text or as whole numbers" in str(caught.value)
    coded = table.set_column(0, "id", table["id"].dictionary_encode())
    parquet.write_table(coded, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="lose the last digits"):
        units(DatasetConfig(name="d", path=tmp_path / "a.parquet", unit="id"))
    columns = [
        pd.Series(floats, dtype=dtype)
        for dtype in ("float64", "float32", "Float64", "category", "double[pyarrow]")
    ]
    coded = pa.array(floats).dictionary_encode()  # as pandas reads it with dtype_backend="pyarrow"
    for column in (*columns, pd.Series(pd.arrays.ArrowExtensionArray(coded))):
        data = pd.DataFrame({"id": column, "text": ["a", "b"]})
        with pytest.raises(DataError, match=r"lose the last digits.*'Int64'"):
            frames.table_of(data, "text", None, "id")
    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        with np.errstate(over="ignore"):
            path = READERS["array"](tmp_path, floats.astype(kind))
        with pytest.raises(DataError, match="lose the last digits"):
            units(path)


@pytest.mark.parametrize(
    "kind",
    [pa.decimal128(20, 0), pa.decimal128(20, 2), pa.int64(), pa.uint32(), pa.string(), pa.binary(),
     pa.large_string(), pa.string_view()],
    ids=str,
)  # fmt: skip
def test_parquet_types_of_whole_numbers(tmp_path, kind):
    values = [b"12", b"7"] if kind == pa.binary() else ["12", "7"]
    column = pa.array(values).cast(kind) if kind != pa.binary() else pa.array(values, kind)
    parquet.write_table(pa.table({"id": column, "text": ["a", "b"]}), tmp_path / "a.parquet")
    assert units(DatasetConfig(name="d", path=tmp_path / "a.parquet", unit="id")) == ["12", "7"]


def test_parquet_dates_and_uuids_and_one_beyond_the_calendar(tmp_path):
    """A moment that Python cannot hold is one dropped record, and no error."""
    one = uuid.uuid4()
    for values, wanted in [
        (pa.array([date(2024, 5, 1), None], pa.date32()), ["2024-05-01"]),
        (pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32()), ["1970-01-01"]),
        (pa.array([10**18, 0], pa.timestamp("us")), ["1970-01-01"]),
        (pa.array([10**15, 0], pa.timestamp("s", "Europe/Berlin")), ["1970-01-01T00:00:00Z"]),
        (pa.array([1, 0], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001", "1970-01-01"]),
        (pa.array([one.bytes, None], pa.binary(16)), [str(one)]),
        (pa.array([b"p" * 16, None], pa.binary(16)), [str(uuid.UUID(bytes=b"p" * 16))]),
        (pa.array([one.bytes, None], pa.binary()), [str(one)]),
        (pa.array([one.bytes, None], pa.uuid()), [str(one)]),
    ]:  # fmt: skip
        table = pa.table({"id": values, "text": ["a", "b"]})
        parquet.write_table(table, tmp_path / "a.parquet")
        cfg = DatasetConfig(name="d", path=tmp_path / "a.parquet", unit="id")
        assert units(cfg) == wanted


def test_a_folder_of_parts_that_spell_ids_in_two_ways_counts_nobody_twice(tmp_path):
    """pandas writes 1.0 in a part where one id is missing."""
    for part, ids in (("a", "1 2 3"), ("b", "1.0 2.0 ")):
        rows = [f"{value},text of {part}" for value in ids.split(" ")]
        (tmp_path / f"{part}.csv").write_text("\n".join(["id,text", *rows]) + "\n")
    row_counts = RowCounts()
    found = units(DatasetConfig(name="d", path=tmp_path, unit="id"), row_counts)
    assert found == ["1", "2", "3", "1", "2"]
    assert row_counts.report((), 1)["records_above_the_bound"] == 2


COMPOSED, APART = "R\u00fcckgabe", "Ru\u0308ckgabe"


@pytest.mark.parametrize("declared", [COMPOSED, APART])
@pytest.mark.parametrize("name", ["comma", "json_lines", "column_of_parquet", "frame"])
def test_labels_are_compared_in_composed_form(tmp_path, declared, name):
    values = [COMPOSED, APART, f"{APART} ", "7.0", "7", "True", "true"]
    cfg = READERS[name](tmp_path, values)
    cfg = DatasetConfig(name="d", path=cfg.path, label="id", labels=(declared, "7", "True"))
    found = [record.reveal().label for record in read_records(cfg)]
    assert found == [COMPOSED] * 3 + ["7", "7", "True", "True"]


def test_labels_that_are_one_are_refused_and_truth_values_have_one_spelling(tmp_path):
    for labels in ([COMPOSED, APART], ["1", "1.0"], ["true", "True"], ["a", "a"], ["a", " a"]):
        with pytest.raises(ValueError, match="twice"):
            DatasetConfig(name="d", path=tmp_path, label="l", labels=labels)
    assert label_id(True) == label_id("True") == label_id("TRUE") == "true"
    said = DatasetConfig(name="d", path=tmp_path, label="l", labels=[APART],
                         label_descriptions={APART: "a return"})  # fmt: skip
    assert said.label_descriptions == {COMPOSED: "a return"}


def test_names_of_folders_are_labels_in_composed_form(tmp_path):
    for label in (COMPOSED, APART):
        folder = tmp_path / label
        folder.mkdir()
        Image.new("L", (4, 4)).save(folder / f"{len(label)}.png")
    for declared in (COMPOSED, APART):
        cfg = DatasetConfig(name="d", path=tmp_path, label="label", labels=[declared], unit="file",
                            images={"size": 4, "mode": "L"})  # fmt: skip
        records = [record.reveal() for record in read_records(cfg)]
        assert [record.label for record in records] == [COMPOSED] * 2
        assert all(unicodedata.is_normalized("NFC", record.unit) for record in records)
