"""Tables of Delta and Iceberg and queries of SQLite, read as their libraries and we write them."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config
from pyroaring import BitMap

from privsyn.data.readers.arrow import PrivateCopy, copy_batches
from privsyn.data.readers.formats import (
    check_rows,
    check_source,
    fingerprint_of,
    read_records,
    source_of,
)
from privsyn.data.readers.tables import newest, table_at
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import DatasetConfig
from privsyn.errors import ConfigError, DataError, MissingExtra
from tests.unit.data.test_remote_sources import KEY, ROWS, config, texts

HERE = pa.Table.from_pylist(ROWS)
TEXTS = [row["text"] for row in ROWS]


def commit(table: Path, *actions: dict[str, Any]) -> None:
    """A commit of another writer: deltalake itself makes no deletion vector and renames nothing."""
    log = table / "_delta_log"
    number = len(list(log.glob("*.json")))
    (log / f"{number:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))


def logged(table: Path, kind: str) -> dict[str, Any]:
    """The first action of a kind in the log of a table."""
    first = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return next(one[kind] for one in map(json.loads, first) if kind in one)


def deleted(at: Path) -> None:
    write_deltalake(at, HERE)
    DeltaTable(at).delete("\"user\" = 'u1'")


def masked(at: Path) -> None:
    """Rows of u1 by a deletion vector: the file still holds them."""
    write_deltalake(at, HERE, configuration={"delta.enableDeletionVectors": "true"})
    rows = BitMap(n for n, row in enumerate(ROWS) if row["user"] == "u1")
    raw = struct.pack("<iqi", 1681511377, 1, 0) + rows.serialize()
    raw += bytes(-len(raw) % 4)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    inline = "".join(digits[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
    vector = {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(raw)}
    whole = logged(at, "add")
    gone = {"path": whole["path"], "dataChange": True, "deletionTimestamp": 1}
    added = whole | {"deletionVector": vector | {"cardinality": len(rows)}}
    commit(at, {"remove": gone}, {"add": added})


def compacted(at: Path) -> None:
    for part in (HERE[:5], HERE[5:12], HERE[12:]):
        write_deltalake(at, part, mode="append")
    DeltaTable(at).delete("\"user\" = 'u1'")
    DeltaTable(at).optimize.compact()


def evolved(at: Path) -> None:
    write_deltalake(at, HERE[:9])
    wider = HERE[9:].append_column("seen", pa.array([True] * 11))
    write_deltalake(at, wider, mode="append", schema_mode="merge")
    DeltaTable(at).delete("\"user\" = 'u1'")


def renamed(at: Path) -> None:
    """By column mapping: in the files the column has another name."""
    named = HERE.rename_columns(["user", "words"])
    write_deltalake(at, named, configuration={"delta.columnMapping.mode": "name"})
    meta = logged(at, "metaData")
    commit(at, {"metaData": meta | {"schemaString": meta["schemaString"].replace("words", "text")}})
    DeltaTable(at).delete("\"user\" = 'u1'")


@pytest.mark.parametrize("make", [deleted, masked, compacted, evolved, renamed])
def test_a_delta_table_is_its_snapshot(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "notes")
    cfg = config(tmp_path / "notes")
    assert sorted(texts(cfg)) == sorted(row["text"] for row in ROWS if row["user"] != "u1")
    check_rows(cfg)


def test_the_content_of_a_table_is_its_rows(tmp_path: Path) -> None:
    """Another order, other files and an empty column are no new content; a row more or twice is."""

    def content(table: pa.Table, name: str, parts: int = 1) -> str:
        for start in range(0, len(table), -(-len(table) // parts)):
            part = table[start : start - (-len(table) // parts)]
            write_deltalake(tmp_path / name, part, mode="append")
        return fingerprint_of(config(tmp_path / name), KEY)

    first = content(HERE, "first")
    assert content(HERE[::1].sort_by([("text", "descending")]), "order", parts=3) == first
    assert content(HERE.append_column("empty", pa.nulls(20, pa.string())), "wide") == first
    others = [
        content(HERE[:-1], "less"),
        content(pa.concat_tables([HERE, HERE[:1]]), "twice"),
        content(HERE.rename_columns(["text", "user"]), "swapped"),
        content(HERE.append_column("x", pa.array(range(20))), "more"),
        fingerprint_of(config(tmp_path / "first"), KEY[::-1]),
    ]
    assert len({first, *others}) == 6
    kept = copy_batches(source_of(config(tmp_path / "order")), tmp_path / "kept")
    assert isinstance(kept, PrivateCopy)
    again = config(tmp_path / "order").model_copy(update={"query": kept})
    assert fingerprint_of(again, KEY) == first
    assert sorted(texts(again)) == sorted(TEXTS)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600
    (tmp_path / "kept").write_bytes((tmp_path / "kept").read_bytes()[:-60])
    with pytest.raises(DataError, match="order is damaged"):
        texts(again)


def test_a_snapshot_is_read_as_it_was(tmp_path: Path) -> None:
    deleted(tmp_path / "notes")
    assert newest(tmp_path / "notes") == "1"
    assert sorted(texts(config(tmp_path / "notes", snapshot="0"))) == sorted(TEXTS)
    DeltaTable(tmp_path / "notes").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(texts(config(tmp_path / "notes", snapshot=1))) < len(TEXTS)
    for gone in ("0", "7"):
        with pytest.raises(DataError, match=rf"notes cannot be read at dataset\.snapshot={gone}"):
            texts(config(tmp_path / "notes", snapshot=gone))
    with pytest.raises(ConfigError, match="is no table"):
        newest(tmp_path)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """A catalog that the environment names."""
    held = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/lake.db",
        "warehouse": f"file://{tmp_path}",
    }
    for key, value in held.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read once, at import
    catalog = SqlCatalog("lake", **held)
    catalog.create_namespace("clinic")
    return catalog


def test_an_iceberg_table_is_its_snapshot(tmp_path: Path, catalog: SqlCatalog) -> None:
    """Deletes, a renamed and a new column; by catalog, by metadata file and by folder with hint."""
    table = catalog.create_table("clinic.notes", HERE.rename_columns(["user", "words"]).schema)
    where = "iceberg://lake/clinic.notes"
    with pytest.raises(DataError, match="cannot be read"):  # it was never written to
        newest(config(where).path)
    table.append(HERE.rename_columns(["user", "words"]))
    first = newest(config(where).path)
    table.delete("user == 'u1'")
    with table.update_schema() as change:
        change.rename_column("words", "text")
        change.add_column("kind", StringType())
    new = pa.table({"user": ["u9"], "text": ["new"], "kind": ["k"]})
    table.append(new)
    kept = sorted(["new", *(row["text"] for row in ROWS if row["user"] != "u1")])
    metadata = Path(table.metadata_location.removeprefix("file://"))
    folder = metadata.parent.parent
    with pytest.raises(DataError, match="in a table with a log"):
        texts(config(folder))
    (metadata.parent / "version-hint.text").write_text(metadata.name.removesuffix(".metadata.json"))
    for place in (where, metadata, folder):
        assert sorted(texts(config(place))) == kept
    contents = {fingerprint_of(config(place), KEY) for place in (where, metadata, folder)}
    assert len(contents) == 1
    assert sorted(texts(config(where, snapshot=first, text="words"))) == sorted(TEXTS)
    with pytest.raises(DataError, match=r"cannot be read at dataset\.snapshot=5 \(ValueError"):
        texts(config(where, snapshot="5"))
    with pytest.raises(DataError, match=r"clinic\.none cannot be read.*Name the catalog"):
        texts(config("iceberg://lake/clinic.none"))


def test_a_table_names_its_units_and_needs_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(tmp_path / "notes", HERE)
    with pytest.raises(DataError, match=r"dataset\.unit is missing: .* no order"):
        check_source(config(tmp_path / "notes", unit=None, max_records_per_unit=1))
    with pytest.raises(DataError, match="column 'person'"):
        check_source(config(tmp_path / "notes", unit="person"))
    monkeypatch.setattr("privsyn.data.readers.tables.is_installed", lambda _: False)
    with pytest.raises(MissingExtra, match=r"pip install \"privsyn\[delta\]\""):
        texts(config(tmp_path / "notes"))
    assert table_at(tmp_path) is None


# -- queries --------------------------------------------------------------------------------------


def query(connection: str, sql: str = "select * from notes", **settings: Any) -> DatasetConfig:
    return config(None, query={"connection": connection, "sql": sql}, **settings)


@pytest.fixture
def notes(tmp_path: Path) -> str:
    """A database of SQLite whose columns hold values of every type."""
    with sqlite3.connect(tmp_path / 'no"tes ?.db') as db:
        db.execute('create table notes ("user", text, "odd ""name")')
        rows = [(n, f"text {n}", None) for n in range(1500)]
        rows[1400:1404] = [(1.5, b"\xff", 7), ("ann", 12, "x"), (None, "a", b"b"), (2**60, None, 1)]
        db.executemany("insert into notes values (?, ?, ?)", rows)
    return f"sqlite:///{tmp_path}/no%22tes%20%3F.db"


def test_a_value_of_another_type_drops_its_own_record(notes: str) -> None:
    counts, cfg = RowCounts(), query(notes, max_records_per_unit=1)

    used = {record.reveal().unit for record in read_records(cfg, row_counts=counts)}
    assert (counts.rows, len(used)) == (1500, 1497)
    assert {"0", "1399", "1404", "ann"} <= used
    turned = query(notes, "select * from notes order by 2")
    assert fingerprint_of(turned, KEY) == fingerprint_of(cfg, KEY)


@pytest.mark.parametrize("sql", ["delete from notes", "create table t (a)", "select 1; select 2"])
def test_a_query_is_one_select(notes: str, sql: str) -> None:
    with pytest.raises(DataError, match="fails: "):
        texts(query(notes, sql))
    assert len(texts(query(notes))) == 1497
