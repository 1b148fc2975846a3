"""Records that lie in several files, or in an object store, read as one source."""

import gzip
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from privsyn.address import Address
from privsyn.data.partition import partition
from privsyn.data.public_files import PublicFiles
from privsyn.data.readers.formats import (
    check_rows,
    check_source,
    lines_and_values,
    read_header,
    read_records,
)
from privsyn.data.readers.streams import fingerprint
from privsyn.data.records import Cell
from privsyn.data.settings import DatasetConfig, of_any_day
from privsyn.errors import ConfigError, DataError

KEY = bytes(range(32))
ROWS = [{"user": f"u{n % 7}", "text": f"text {n}"} for n in range(20)]
CELLS = Cell.grid((), 3)


def config(path, **settings):
    return DatasetConfig(
        **{"name": "d", "path": path, "unit": "user", "max_records_per_unit": 2} | settings
    )


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def texts(cfg):
    return [record.reveal().content for record in read_records(cfg)]


def shards(cfg, out):
    partition(cfg, KEY, CELLS, out, 2, seed="s")
    return [file.read_bytes() for file in sorted(out.iterdir())]


@pytest.fixture
def folder(tmp_path):
    """JSON Lines in parts, an empty one and others packed or below among them."""
    folder = tmp_path / "parts"
    (folder / "day=2").mkdir(parents=True)
    (folder / "part-0.jsonl").write_bytes(as_lines(ROWS[:8]))
    (folder / "part-1.jsonl").write_bytes(b"")
    (folder / "part-2.jsonl.gz").write_bytes(gzip.compress(as_lines(ROWS[8:])))
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.jsonl.crc").write_bytes(b"sum")
    return folder


def test_a_folder_of_parts_is_read_as_one_file(folder, tmp_path):
    whole = tmp_path / "a.jsonl"
    whole.write_bytes(as_lines(ROWS))
    assert texts(config(folder)) == [row["text"] for row in ROWS]
    assert shards(config(folder), tmp_path / "1") == shards(config(whole), tmp_path / "2")
    for unit in ("user", None):  # a row's number counts on over the parts
        of_parts, of_one = (
            [record.reveal().unit for record in read_records(config(path, unit=unit))]
            for path in (folder, whole)
        )
        assert of_parts == of_one
    looked = [piece for row in lines_and_values(config(folder)) for piece in row.reveal()]
    assert {"text 0", "text 19"} <= set(looked)


def test_whether_one_part_holds_a_fitting_row_decides_nothing(folder):
    for content in (b"", b"{}\n", b"no JSON\n", as_lines(ROWS[:1])):
        (folder / "part-3.jsonl").write_bytes(content)
        check_source(config(folder))
    for file in folder.glob("part*"):
        file.unlink()
    (folder / "part-3.jsonl").write_bytes(b"")
    (folder / "part-4.jsonl").write_bytes(b"{}\n")
    with pytest.raises(DataError, match=r"part 1 of 2 of .*parts holds no JSON"):
        check_source(config(folder))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_parts_that_name_their_columns_all_must_fit_or_be_empty(tmp_path, suffix):
    def write(name, rows, columns):
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "csv":
            lines = [columns, *(row.values() for row in rows)]
            path.write_text("".join(",".join(line) + "\n" for line in lines))
        else:
            schema = pa.schema([(column, pa.string()) for column in columns])
            parquet.write_table(pa.Table.from_pylist(rows, schema), path)

    write("1", [], ("user", "text"))
    with pytest.raises(DataError, match="holds no row"):
        check_source(config(tmp_path))
    write("2", ROWS, ("user", "text"))
    if suffix == "csv":
        (tmp_path / "3.csv").touch()
    assert texts(config(tmp_path)) == [row["text"] for row in ROWS]
    write("4", [], ("user", "words"))
    with pytest.raises(DataError, match="'text'"):
        check_source(config(tmp_path))


def test_formats_are_not_mixed_and_an_empty_folder_is_told(tmp_path):
    with pytest.raises(DataError, match="holds no file"):
        check_source(config(tmp_path))
    (tmp_path / "a.jsonl").write_bytes(as_lines(ROWS))
    (tmp_path / "b.csv").write_text("user,text\nu,t\n")
    with pytest.raises(DataError, match=r"several formats: \.csv, \.jsonl"):
        check_source(config(tmp_path))


# -- tables with a log, and names of parts ------------------------------------------------------

TABLES = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/00002-9c12d441.metadata.json",
    "Paimon": "schema/schema-0",
    "Spark": "_spark_metadata/0",
    "DuckLake": "ducklake-0197c1f2.parquet",
}
FURTHER = ["_started_81", "_committed_81", ".hoodie_partition_metadata", "base_0000005/a.csv",
           "delete_delta_0000006_0000006/a", "metadata/snap-3.avro", "metadata/a-m0.avro",
           "metadata/version-hint.text"]  # fmt: skip


@pytest.mark.parametrize("inside", ["", "data/label=A/"])
@pytest.mark.parametrize("kind", TABLES)
def test_a_folder_with_a_log_is_not_its_files(tmp_path, kind, inside):
    """The table, a folder above it, one in it, and a single file of it."""
    table = tmp_path / "lake" / "patients"
    part = table / inside / "part-0.parquet"
    part.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(ROWS), part)
    for path in (table.parent, table, part.parent, part):
        assert len(texts(config(path))) == len(ROWS)
    mark = (part.parent if kind == "DuckLake" else table) / TABLES[kind]
    mark.parent.mkdir(exist_ok=True)
    mark.write_bytes(part.read_bytes() if kind == "DuckLake" else b"{}")
    link = tmp_path / "link"
    link.symlink_to(table)
    single = mark if kind == "DuckLake" else part
    for path in (table.parent, table, part.parent, single, link, link / single.relative_to(table)):
        for look in (lambda: check_source(config(path)), lambda: texts(config(path))):  # noqa: B023
            with pytest.raises(DataError, match=r"in a table with a log|\(DeltaError"):
                look()
    with pytest.raises(DataError, match="snapshot"):
        read_header(single)


@pytest.mark.parametrize("mark", FURTHER)
def test_a_part_of_a_log_and_a_link_into_its_table_are_refused(tmp_path, mark):
    part, links = tmp_path / "table" / "a.jsonl", tmp_path / "links"
    for file in (part, tmp_path / "table" / mark, links / "b.jsonl"):
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(as_lines(ROWS))
    (links / "a.jsonl").symlink_to(tmp_path / "table" / mark if mark.endswith("csv") else part)
    for path in (part.parent, links, links / "a.jsonl"):
        with pytest.raises(DataError, match="snapshot"):
            check_source(config(path))


def test_what_only_looks_like_a_log_is_read(tmp_path):
    own = "snapshot/snapshot-20240501/delta_20240501/base_20240501/a.jsonl"
    for name in (own, "metadata/about.json", "schema/a.json", "_delta_log2/x", "schema-0/y"):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_bytes(as_lines(ROWS))
    assert len(texts(config(tmp_path / own))) == len(ROWS)


CANARY = "Heliotrope"
BROKEN: dict[str, bytes] = {
    "jsonl": b"no JSON\n", "JSONL": b'{"a": 1}\n', "json": b'[\n{"user": 1}]',
    "ndjson": b'{\n "user": 1,\n "text": "a"\n}\n', "jsonl.gz": b"not packed",
    "jsonl.bz2": b"not packed", "jsonl.zst": b"not packed", "jsonl.xz": b"not packed",
    "csv": b"user,words\n1,a\n", "tsv": b'user\ttext\n1\t"a"b\n',
    "csv.gz": gzip.compress(b"user;text\n1;a\n"), "parquet": b"PAR1 and nothing else",
    "parquet.gz": gzip.compress(b"PAR1")[:-4], "xlsx": b"PK\3\4", CANARY: b"", f"{CANARY}.gz": b"",
}  # fmt: skip
"""Ending of a part -> content that is refused."""
PACKED = gzip.compress(as_lines(ROWS))
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
KINDS = {
    ("a.jsonl", PACKED): "packed by gzip, whatever.*Rename it",
    ("a", PACKED): "packed by gzip",
    ("a.csv", lzma.compress(b"user,text")): "packed by xz",
    ("a.csv", b"PAR1\x15\x04..."): "Parquet, whatever its name",
    ("a.csv", b"PK\3\4..."): "a zip archive or a workbook",
    ("a.csv.gz", POINTER): "Git LFS.*git lfs pull",
    ("a.jsonl", b"/annex/objects/MD5-s1--2\n"): "git annex get",
    ("a.jsonl", '{"text": "a"}'.encode("utf-16")): "in UTF-16",
    ("a.jsonl.dvc", b"outs:\n- md5: 0\n"): "dvc pull",
    ("a.json", b'{\n  "user": "1"\n}\n'): "jq -c",
}


@pytest.mark.parametrize("content", ["broken", "id", "pointer", "packed", "empty", "unreadable"])
@pytest.mark.parametrize("ending", BROKEN)
def test_no_message_names_a_part(tmp_path, ending, content, monkeypatch, caplog):
    """Files and partition folders may be named after people."""
    rounded = {"csv": b"user,text\n1e+18,a\n", "jsonl": b'{"user": 1e18, "text": "a"}\n'}
    source = tmp_path / "records"
    part = source / f"patient_id={CANARY}" / f"{CANARY}.{ending}"
    part.parent.mkdir(parents=True)
    part.write_bytes(
        {"broken": BROKEN[ending], "id": rounded.get(ending, b""), "pointer": POINTER,
         "packed": PACKED}.get(content, b"")
    )  # fmt: skip
    if content == "unreadable":
        monkeypatch.setattr("os.access", lambda *_: False)
    said = []
    for look in (
        lambda: check_source(config(source)),
        lambda: check_rows(config(source)),
        lambda: texts(config(source)),
        lambda: texts(config(source, unit="patient_id")),
        lambda: list(lines_and_values(config(source))),
        lambda: fingerprint(source, KEY),
        lambda: partition(config(source), KEY, CELLS, tmp_path / "out", 2, seed="s"),
    ):
        try:
            look()
        except DataError as error:
            assert error.__suppress_context__ or error.__context__ is None  # noqa: PT017
            said.append(str(error))
    assert said
    assert CANARY.casefold() not in ("".join(said) + caplog.text).casefold()
    assert all(f"of {source}" in one for one in said)


# -- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/raw/part-*.parquet", "gs://bucket/a.jsonl.gz", "az://box/raw", "S3://bucket/a/b"],
)
def test_an_address_survives_the_config(address):
    cfg = config(address)
    assert isinstance(cfg.path, Address)
    assert str(cfg.path) == address.replace("S3:", "s3:")
    assert DatasetConfig.model_validate(cfg.model_dump(mode="json")) == cfg
    assert cfg.with_dates(cfg.dates(None)).path == cfg.path


def test_a_date_goes_into_an_address():
    from datetime import date

    cfg = config("s3://bucket/{date:%Y}/{version}-*.jsonl", version="{date:%Y-%m}")
    assert str(cfg.resolved(date(2026, 3, 1)).path) == "s3://bucket/2026/2026-03-*.jsonl"
    assert of_any_day(cfg.path) == [cfg.path]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://key:hunter2@bucket/a.jsonl", "no user"),
        ("s3://bucket/a.jsonl?X-Amz-Signature=hunter2", "no user"),
        ("https://bucket.example/a.jsonl?sig=hunter2", "from https://"),
        ("https://bucket.example/a.jsonl", "from https:// addresses"),
        ("s3://bucket", "an object or a folder below"),
        ("s3://bucket/a/../b.jsonl", "an object or a folder below"),
        ("s3://buck*/a.jsonl", "bucket"),
        ("s3://bucket/*/a.jsonl", "last part"),
        ("file://server/share/a.jsonl", "file:///"),
        ("s3a://b/raw", "from s3a:// addresses"),
        ("s3a://key:hunter2@b/raw", "from s3a://"),
        ("abfss://box:hunter2@acct.dfs.core.windows.net/raw", "from abfss://"),
    ],
)
def test_what_is_no_address_is_refused_and_no_secret_is_quoted(address, message):
    with pytest.raises(ValueError, match=message) as caught:
        Address.parse(address) if not address.startswith("file") else config(address)
    if "hunter2" in address:
        assert "hunter2" not in str(caught.value)


def test_a_file_url_is_a_path_of_this_machine():
    assert config("file:///secure/a%20b.jsonl").path == Path("/secure/a b.jsonl")


@pytest.mark.parametrize(
    ("public", "refused"),
    [
        ("s3://bucket/raw/part-1.jsonl", True),
        ("S3://bucket//raw/deeper/words.txt", True),
        ("s3://bucket/raw", True),
        ("s3://bucket", True),
        ("s3://bucket/words.txt", False),
        ("s3://other/raw/part-1.jsonl", False),
        ("gs://bucket/raw/part-1.jsonl", False),
        ("raw/part-1.jsonl", False),
    ],
)
@pytest.mark.parametrize("private", ["s3://bucket/raw/part-*.jsonl", "s3://bucket/raw/{date:%Y}/a"])
def test_no_public_setting_may_name_what_is_private(tmp_path, private, public, refused):
    door = PublicFiles(tmp_path, private=[("the private file", Address(private))])
    if refused:
        with pytest.raises(ConfigError, match="the private file"):
            door.check("models.language", public)
    else:
        door.check("models.language", public)


def test_a_file_or_a_folder_that_dvc_holds_is_told(tmp_path):
    (tmp_path / "a.jsonl.dvc").write_text("outs:\n")
    (tmp_path / "raw.dvc").write_text("outs:\n")
    for name, pointer in {
        "a.jsonl": "a.jsonl.dvc",
        "raw/b.csv": "raw.dvc",
        "raw": "raw.dvc",
    }.items():
        with pytest.raises(DataError, match=f"dvc pull .*{pointer}"):
            check_source(config(tmp_path / name))
    with pytest.raises(DataError, match="does not exist"):
        check_source(config(tmp_path / "c.jsonl"))


@pytest.mark.parametrize(("name", "content"), KINDS)
def test_what_lies_in_place_of_a_file_is_told(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for look in (
        lambda: check_source(config(tmp_path / name)),
        lambda: read_header(tmp_path / name),
    ):
        with pytest.raises(DataError, match=KINDS[name, content]):
            look()
