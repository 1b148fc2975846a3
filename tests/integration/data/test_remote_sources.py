"""Records in an object store, read from an S3 server of its own."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.store import S3Store
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog

from privsyn.address import Address
from privsyn.data.readers.formats import check_source
from privsyn.data.readers.streams import fingerprint, open_object
from privsyn.errors import DataError, StorageError
from tests.integration.vault.s3_server import reached_at, s3_server
from tests.unit.data.test_remote_sources import KEY, ROWS, as_lines, config, shards, texts


@pytest.fixture(scope="module")
def server():
    with s3_server(bucket="records") as url:
        yield url


@pytest.fixture
def bucket(server, monkeypatch):
    for name, value in reached_at(server, "secret").items():
        monkeypatch.setenv(name, value)
    return S3Store("records", client_options={"allow_http": True})


def test_a_fingerprint_follows_the_content_of_objects(bucket):
    address = Address("s3://records/moving/a.jsonl")
    bucket.put("moving/a.jsonl", as_lines(ROWS[:3]))
    first = fingerprint(address, KEY)
    assert fingerprint(address, KEY) == first
    bucket.put("moving/a.jsonl", as_lines(ROWS[3:6]))  # of the same length
    second = fingerprint(address, KEY)
    assert second not in (first, fingerprint(address, bytes(32)))


def test_what_is_not_there_or_not_allowed_is_told_without_a_secret(bucket, monkeypatch):
    for address in ("s3://records/none.jsonl", "s3://records/none/part-*.jsonl"):
        with pytest.raises(DataError, match=r"s3://records/none.* holds no file"):
            check_source(config(address))
        with pytest.raises(DataError, match="does not exist"):
            fingerprint(Address(address), KEY)
    bucket.put("scans/a.npz", b"PK")
    with pytest.raises(DataError, match="cannot be read from an object store"):
        check_source(config("s3://records/scans/a.npz", images={"size": 8}))
    with pytest.raises(StorageError, match="nowhere"):
        check_source(config("s3://nowhere/a/part-*.jsonl"))


def test_objects_are_read_as_the_files_they_are_copies_of(bucket, folder, tmp_path):
    for file in folder.rglob("*"):
        if file.is_file():
            bucket.put(f"raw/{file.relative_to(folder).as_posix()}", file.read_bytes())
    expected = [row["text"] for row in ROWS]
    assert texts(config("s3://records/raw")) == expected
    assert texts(config("s3://records/raw/part-*")) == expected
    assert texts(config("s3://records/raw/part-0.jsonl")) == expected[:8]
    local, remote = shards(config(folder), tmp_path / "1"), tmp_path / "2"
    assert shards(config("s3://records/raw"), remote) == local
    # A folder and its copy in a store are one source: a budget is not spent twice on it.
    address = Address("s3://records/raw")
    assert fingerprint(address, KEY) == fingerprint(folder, KEY)
    table = pa.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet")
    bucket.put("rows/a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert texts(config("s3://records/rows/a.parquet")) == expected


@pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/x", "metadata/v1.metadata.json"])
def test_a_table_with_a_log_is_refused_in_a_store_and_no_key_is_named(bucket, tmp_path, mark):
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    lake, key = f"lake{mark[:3]}", "patients/user=Heliotrope/part-0.parquet"
    bucket.put(f"{lake}/{key}", (tmp_path / "a.parquet").read_bytes())
    places = ("", "/patients", f"/{key}", "/patients/user=Heliotrope/part-*.parquet")
    for place in places:
        assert len(texts(config(f"s3://records/{lake}{place}"))) == len(ROWS)
    bucket.put(f"{lake}/patients/{mark}", b"{}")
    for place in places:
        # The table itself is read by its log, which says nothing here.
        is_table = (mark[:3], place) == ("_de", "/patients")
        said = "cannot be read" if is_table else "its log says which of the files count"
        with pytest.raises((DataError, StorageError), match=said):
            check_source(config(f"s3://records/{lake}{place}"))


def test_tables_are_read_in_a_store(bucket, tmp_path):
    """Delta by its folder; Iceberg by catalog, metadata file and folder; their deletes applied."""
    here, kept = pa.Table.from_pylist(ROWS), [row["text"] for row in ROWS if row["user"] != "u1"]
    plain = {"AWS_ALLOW_HTTP": "true", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    write_deltalake("s3://records/delta/notes", here, storage_options=plain)
    DeltaTable("s3://records/delta/notes", storage_options=plain).delete("\"user\" = 'u1'")
    catalog = SqlCatalog(
        "store",
        **{
            "uri": f"sqlite:///{tmp_path}/lake.db",
            "warehouse": "s3://records/iceberg",
            "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "s3.access-key-id": "none",
            "s3.secret-access-key": "none",
            "s3.region": "us-east-1",
        },
    )
    catalog.create_namespace("clinic")
    table = catalog.create_table("clinic.notes", here.schema)
    table.append(here)
    table.delete("user == 'u1'")
    metadata = table.metadata_location
    folder, _, name = metadata.rpartition("/metadata/")
    hint = name.removesuffix(".metadata.json").encode()
    bucket.put(f"{Address(folder).key}/metadata/version-hint.text", hint)
    for place in ("s3://records/delta/notes", metadata, folder):
        assert sorted(texts(config(place))) == sorted(kept)
        check_source(config(place))
    bucket.put("delta/empty/_delta_log/0.json", b"{}")
    with pytest.raises(StorageError, match="Check region, endpoint and credentials"):
        check_source(config("s3://records/delta/empty"))


def test_no_message_names_an_object_of_a_source(bucket):
    for name, content in {
        "csv": b"user\n1\n",
        "jsonl": b"no\n",
        "parquet": b"PAR1",
        "x": b"",
    }.items():
        bucket.put(f"broken-{name}/Heliotrope/Heliotrope.{name}", content)
        with pytest.raises(DataError, match=f"part 1 of 1 of s3://records/broken-{name}") as caught:
            check_source(config(f"s3://records/broken-{name}"))
        assert "Heliotrope" not in str(caught.value)
    with (
        pytest.raises(StorageError, match="s3://records has no such object") as gone,
        open_object(Address("s3://records/gone/Heliotrope")) as stream,
    ):
        stream.read()
    assert "Heliotrope" not in str(gone.value)
