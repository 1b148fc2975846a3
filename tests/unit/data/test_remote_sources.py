"""Records that lie in several files, or in an object store, read as one source."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from privsyn.data.address import Address
from privsyn.data.partition import partition
from privsyn.data.public_files import PublicFiles
from privsyn.data.readers.formats import check_source, lines_and_values, read_records
from privsyn.data.records import Cell
from privsyn.data.settings import DatasetConfig, of_any_day
from privsyn.errors import ConfigError, DataError

KEY = bytes(range(32))
ROWS = [{"user": f"u{n % 7}", "text": f"text {n}"} for n in range(20)]
CELLS = Cell.grid((), 3)


def config(path: Any, **settings: Any) -> DatasetConfig:
    return DatasetConfig(
        **{"name": "d", "path": path, "unit": "user", "max_records_per_unit": 2} | settings
    )


def as_lines(rows: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def texts(cfg: DatasetConfig) -> list[str]:
    return [record.reveal().content for record in read_records(cfg)]


def shards(cfg: DatasetConfig, out: Path) -> list[bytes]:
    partition(cfg, KEY, CELLS, out, 2, seed="s")
    return [file.read_bytes() for file in sorted(out.iterdir())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """JSON Lines in parts, an empty one and others packed or below among them."""
    folder = tmp_path / "parts"
    (folder / "day=2").mkdir(parents=True)
    (folder / "part-0.jsonl").write_bytes(as_lines(ROWS[:8]))
    (folder / "part-1.jsonl").write_bytes(b"")
    (folder / "part-2.jsonl.gz").write_bytes(gzip.compress(as_lines(ROWS[8:])))
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.jsonl.crc").write_bytes(b"sum")
    return folder


def test_a_folder_of_parts_is_read_as_one_file(folder: Path, tmp_path: Path) -> None:
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


def test_whether_one_part_holds_a_fitting_row_decides_nothing(folder: Path) -> None:
    for content in (b"", b"{}\n", b"no JSON\n", as_lines(ROWS[:1])):
        (folder / "part-3.jsonl").write_bytes(content)
        check_source(config(folder))
    for file in folder.glob("part*"):
        file.unlink()
    (folder / "part-3.jsonl").write_bytes(b"")
    (folder / "part-4.jsonl").write_bytes(b"{}\n")
    with pytest.raises(DataError, match=r"part-3\.jsonl holds no line"):
        check_source(config(folder))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_parts_that_name_their_columns_all_must_fit_or_be_empty(
    tmp_path: Path, suffix: str
) -> None:
    def write(name: str, rows: list[dict[str, str]], columns: tuple[str, ...]) -> None:
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


def test_formats_are_not_mixed_and_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no file"):
        check_source(config(tmp_path))
    (tmp_path / "a.jsonl").write_bytes(as_lines(ROWS))
    (tmp_path / "b.csv").write_text("user,text\nu,t\n")
    with pytest.raises(DataError, match=r"several formats: \.csv, \.jsonl"):
        check_source(config(tmp_path))


# -- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/raw/part-*.parquet", "gs://bucket/a.jsonl.gz", "az://box/raw", "S3://bucket/a/b"],
)
def test_an_address_survives_the_config(address: str) -> None:
    cfg = config(address)
    assert isinstance(cfg.path, Address)
    assert str(cfg.path) == address.replace("S3:", "s3:")
    assert DatasetConfig.model_validate(cfg.model_dump(mode="json")) == cfg
    assert cfg.with_dates(cfg.dates(None)).path == cfg.path  # type: ignore[arg-type]


def test_a_date_goes_into_an_address() -> None:
    from datetime import date

    cfg = config("s3://bucket/{date:%Y}/{version}-*.jsonl", version="{date:%Y-%m}")
    assert str(cfg.resolved(date(2026, 3, 1)).path) == "s3://bucket/2026/2026-03-*.jsonl"
    assert of_any_day(cfg.path) == [cfg.path]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://key:hunter2@bucket/a.jsonl", "no user"),
        ("s3://bucket/a.jsonl?X-Amz-Signature=hunter2", "no user"),
        ("https://bucket.example/a.jsonl?sig=hunter2", "no user"),
        ("https://bucket.example/a.jsonl", "from https:// addresses"),
        ("s3://bucket", "an object or a folder below"),
        ("s3://bucket/a/../b.jsonl", "an object or a folder below"),
        ("s3://buck*/a.jsonl", "bucket"),
        ("s3://bucket/*/a.jsonl", "last part"),
        ("file://server/share/a.jsonl", "file:///"),
    ],
)
def test_what_is_no_address_is_refused_and_no_secret_is_quoted(address: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Address.parse(address) if not address.startswith("file") else config(address)
    if "hunter2" in address:
        assert "hunter2" not in str(caught.value)


def test_a_file_url_is_a_path_of_this_machine() -> None:
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
def test_no_public_setting_may_name_what_is_private(
    tmp_path: Path, private: str, public: str, refused: bool
) -> None:
    door = PublicFiles(tmp_path, private=[("the private file", Address(private))])
    if refused:
        with pytest.raises(ConfigError, match="the private file"):
            door.check("models.language", public)
    else:
        door.check("models.language", public)
