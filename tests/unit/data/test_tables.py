"""Tables of Delta and Iceberg and queries of SQLite, read as their libraries and we write them."""

import json
import sqlite3
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config
from pyroaring import BitMap

from privsyn.data.readers.arrow import PrivateCopy, copy_batches, fingerprint_rows
from privsyn.data.readers.formats import (
    check_rows,
    check_source,
    fingerprint_of,
    has_come,
    read_records,
    source_of,
)
from privsyn.data.readers.tables import newest, table_at
from privsyn.data.row_counts import RowCounts
from privsyn.errors import ConfigError, DataError, MissingExtra
from tests.unit.data.test_remote_sources import KEY, ROWS, config, texts

HERE = pa.Table.from_pylist(ROWS)
TEXTS = [row["text"] for row in ROWS]


def commit(table, *actions):
    """A commit of another writer: deltalake itself makes no deletion vector and renames nothing."""
    log = table / "_delta_log"
    number = len(list(log.glob("*.json")))
    (log / f"{number:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))


def logged(table, kind):
    first = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return next(one[kind] for one in map(json.loads, first) if kind in one)


def deleted(at):
    write_deltalake(at, HERE)
    DeltaTable(at).delete("\"user\" = 'u1'")


def masked(at, *, inline=True):
    """Rows of u1 by a deletion vector, in the log or in a file: the data still holds them."""
    write_deltalake(at, HERE, configuration={"delta.enableDeletionVectors": "true"})
    rows = BitMap(n for n, row in enumerate(ROWS) if row["user"] == "u1")
    raw = struct.pack("<iqi", 1681511377, 1, 0) + rows.serialize()
    if not inline:  # as Spark writes: version, size, vector, its checksum
        whole = b"\x01" + struct.pack(">I", len(raw)) + raw + struct.pack(">I", zlib.crc32(raw))
        (at / "deletion_vector_gone.bin").write_bytes(whole)
    size = len(raw)
    raw += bytes(-len(raw) % 4)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    text = "".join(digits[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(raw)}
    if not inline:
        place = f"file://{at}/deletion_vector_gone.bin"
        vector = {"storageType": "p", "pathOrInlineDv": place, "offset": 1, "sizeInBytes": size}
    whole = logged(at, "add")
    gone = {"path": whole["path"], "dataChange": True, "deletionTimestamp": 1}
    added = whole | {"deletionVector": vector | {"cardinality": len(rows)}}
    commit(at, {"remove": gone}, {"add": added})


def masked_by_file(at):
    masked(at, inline=False)


def compacted(at):
    for part in (HERE[:5], HERE[5:12], HERE[12:]):
        write_deltalake(at, part, mode="append")
    DeltaTable(at).delete("\"user\" = 'u1'")
    DeltaTable(at).optimize.compact()


def evolved(at):
    write_deltalake(at, HERE[:9])
    wider = HERE[9:].append_column("seen", pa.array([True] * 11))
    write_deltalake(at, wider, mode="append", schema_mode="merge")
    DeltaTable(at).delete("\"user\" = 'u1'")


def renamed(at, by="name"):
    named = HERE.rename_columns(["user", "words"])
    write_deltalake(at, named, configuration={"delta.columnMapping.mode": by})
    meta = logged(at, "metaData")
    commit(at, {"metaData": meta | {"schemaString": meta["schemaString"].replace("words", "text")}})
    DeltaTable(at).delete("\"user\" = 'u1'")


def renamed_by_id(at):
    renamed(at, "id")


MAKERS = [deleted, masked, masked_by_file, compacted, evolved, renamed, renamed_by_id]


@pytest.mark.parametrize("make", MAKERS)
def test_a_delta_table_is_its_snapshot(tmp_path, make):
    make(tmp_path / "notes")
    cfg = config(tmp_path / "notes")
    assert sorted(texts(cfg)) == sorted(row["text"] for row in ROWS if row["user"] != "u1")
    check_rows(cfg)
    assert has_come(cfg)


def test_the_content_of_a_table_is_its_rows(tmp_path):
    """Another order, other files and an empty column are no new content; a row more or twice is."""

    def content(table, name, parts=1):
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


FINE = (pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns"), pa.timestamp("s"), pa.date64())
LISTED = (*map(pa.list_, FINE), pa.list_(pa.string()), pa.list_(pa.string(), 1))


@pytest.mark.parametrize("kind", [*FINE, *LISTED], ids=str)
def test_content_is_compared_as_fine_and_as_far_as_it_is(tmp_path, kind):
    """Python's times end at microseconds and at the year 9999, and its texts at UTF-8."""

    def content(number):
        inner = kind.value_type if kind in LISTED else kind
        if pa.types.is_string(inner):
            buffers = [None, pa.py_buffer(struct.pack("<ii", 0, 1)), pa.py_buffer(bytes([number]))]
            array = pa.Array.from_buffers(inner, 1, buffers)
        else:
            array = pa.array([number * (86400000 if inner == pa.date64() else 1)]).cast(inner)
        if inner != kind:
            array = pa.ListArray.from_arrays([0, 1], array).cast(kind)
        with pa.ipc.new_stream(tmp_path / "kept", pa.schema({"seen": kind})) as writer:
            writer.write_batch(pa.record_batch([array], ["seen"]))
        return fingerprint_rows(PrivateCopy(tmp_path / "kept", "kept"), KEY)

    far = 10**12 if kind in (pa.timestamp("s"), pa.list_(pa.timestamp("s"))) else 10**7
    far = 200 if "string" in str(kind) else far
    assert len({content(far), content(far + 1), content(far)}) == 2


def test_a_moment_is_one_in_every_unit(tmp_path):
    """Else two accounts could pay for one table that two libraries read."""

    def content(number, kind):
        batch = pa.record_batch([pa.array([number, None], kind)], ["seen"])
        with pa.ipc.new_stream(tmp_path / "kept", batch.schema) as writer:
            writer.write_batch(batch)
        return fingerprint_rows(PrivateCopy(tmp_path / "kept", "kept"), KEY)

    moments = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
    assert len({content(n, pa.timestamp(unit, "UTC")) for unit, n in moments.items()}) == 1
    assert content(1, pa.date32()) == content(86_400_000, pa.date64())
    assert content(1, pa.timestamp("us")) != content(1, pa.timestamp("ns"))


def test_a_snapshot_is_read_as_it_was(tmp_path):
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
def catalog(tmp_path, monkeypatch):
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


def test_an_iceberg_table_is_its_snapshot(tmp_path, catalog):
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


class Deletes(ManifestWriterV2):
    """A manifest of delete files: pyiceberg itself writes none."""

    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return super()._meta | {"content": "deletes"}


def delete_by_file(table, kind):
    """The metadata of a table after another writer has deleted the rows of u1 by a file of them."""
    place = Path(table.location().removeprefix("file://"))
    (whole,) = table.inspect.data_files()["file_path"].to_pylist()
    rows = [n for n, row in enumerate(ROWS) if row["user"] == "u1"]
    if kind is DataFileContent.EQUALITY_DELETES:
        held = pa.table({"user": ["u1"]})
    else:
        held = pa.table({"file_path": [whole] * len(rows), "pos": rows})
    number = table.schema().find_field("user").field_id
    numbers = {"user": number, "file_path": 2147483546, "pos": 2147483545}
    held = held.cast(
        pa.schema(
            one.with_metadata({"PARQUET:field_id": str(numbers[one.name])}) for one in held.schema
        )
    )
    parquet.write_table(held, place / "gone.parquet")
    deleting = DataFile.from_args(
        content=kind,
        file_path=f"{place}/gone.parquet",
        file_format="PARQUET",
        partition=Record(),
        record_count=len(held),
        file_size_in_bytes=(place / "gone.parquet").stat().st_size,
        equality_ids=[number] if kind is DataFileContent.EQUALITY_DELETES else None,
    )
    before, new = table.current_snapshot(), 77
    to = {name: table.io.new_output(f"{place}/metadata/{name}.avro") for name in ("gone", "all")}
    with Deletes(table.spec(), table.schema(), to["gone"], new, "null") as manifest:
        manifest.add(ManifestEntry.from_args(snapshot_id=new, data_file=deleting))
    with write_manifest_list(2, to["all"], new, before.snapshot_id, 2, "null") as whole_list:
        whole_list.add_manifests([manifest.to_manifest_file(), *before.manifests(table.io)])
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    added = metadata["snapshots"][-1] | {
        "snapshot-id": new, "sequence-number": 2, "manifest-list": f"{place}/metadata/all.avro"
    }  # fmt: skip
    metadata |= {"snapshots": [*metadata["snapshots"], added], "current-snapshot-id": new}
    metadata |= {"last-sequence-number": 2, "refs": {}}
    (place / "metadata" / "2.metadata.json").write_text(json.dumps(metadata))
    return place / "metadata" / "2.metadata.json"


def test_rows_that_a_file_deletes_are_never_read(catalog):
    """Positions are applied; equality deletes, which pyiceberg cannot apply, refuse the table."""
    positions, values = (catalog.create_table(f"clinic.{name}", HERE.schema) for name in "pv")
    positions.append(HERE)
    values.append(HERE)
    kept = [row["text"] for row in ROWS if row["user"] != "u1"]
    assert len(kept) < len(ROWS)
    place = delete_by_file(positions, DataFileContent.POSITION_DELETES)
    assert sorted(texts(config(place))) == sorted(kept)
    place = delete_by_file(values, DataFileContent.EQUALITY_DELETES)
    first = str(values.current_snapshot().snapshot_id)
    for reads in (check_source, texts, lambda one: fingerprint_of(one, KEY)):
        with pytest.raises(
            DataError, match=r"has equality deletes, which pyiceberg does not apply"
        ):
            reads(config(place))
    assert sorted(texts(config(place, snapshot=first))) == sorted(TEXTS)


def test_a_table_names_its_units_and_needs_its_reader(tmp_path, monkeypatch):
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


def query(connection, sql="select * from notes", **settings):
    return config(None, query={"connection": connection, "sql": sql}, **settings)


@pytest.fixture
def notes(tmp_path):
    with sqlite3.connect(tmp_path / 'no"tes ?.db') as db:
        db.execute('create table notes ("user", text, "odd ""name")')
        rows = [(n, f"text {n}", None) for n in range(1500)]
        rows[1400:1404] = [(1.5, b"\xff", 7), ("ann", 12, "x"), (None, "a", b"b"), (2**60, None, 1)]
        db.executemany("insert into notes values (?, ?, ?)", rows)
    return f"sqlite:///{tmp_path}/no%22tes%20%3F.db"


def test_a_value_of_another_type_drops_its_own_record(notes):
    counts, cfg = RowCounts(), query(notes, max_records_per_unit=1)

    used = {record.reveal().unit for record in read_records(cfg, row_counts=counts)}
    assert (counts.rows, len(used)) == (1500, 1497)
    assert {"0", "1399", "1404", "ann"} <= used
    assert has_come(cfg)
    assert not has_come(query(notes, "select * from notes where false"))
    turned = query(notes, "select * from notes order by 2")
    assert fingerprint_of(turned, KEY) == fingerprint_of(cfg, KEY)


@pytest.mark.parametrize("sql", ["delete from notes", "create table t (a)", "select 1; select 2"])
def test_a_query_is_one_select(notes, sql):
    with pytest.raises(DataError, match="fails: "):
        texts(query(notes, sql))
    assert len(texts(query(notes))) == 1497
