"""The built-in sample is written as it ships."""

import gzip
import hashlib
import json

import numpy as np
import pytest

from privsyn.data.images import decode
from privsyn.data.readers.formats import read_records
from privsyn.data.sample import LABELS, ROWS, SHIPPED, SIZE, write_digits, write_sample
from privsyn.data.settings import DatasetConfig, ImageConfig
from privsyn.errors import ConfigError, StorageError

DIGEST = "11d018a237873df13b163ca4be78d90d56c54f2945fd16e0df7ba75686cd1e72"


def test_all_of_it_for_its_owner_alone(tmp_path):
    path = tmp_path / "new" / "messages.jsonl"
    patients = write_sample(path)
    written = path.read_bytes()
    rows = [json.loads(line) for line in written.splitlines()]
    assert len(rows) == ROWS == 4000
    assert len({row["patient_id"] for row in rows}) == patients == 1500
    assert {row["label"] for row in rows} == set(LABELS)
    assert all(list(row) == ["id", "patient_id", "label", "text"] for row in rows)
    assert path.stat().st_mode & 0o777 == 0o600
    # Another file is another dataset to whoever has releases of this one.
    assert hashlib.sha256(written).hexdigest() == DIGEST


@pytest.mark.parametrize("rows", [1, 50, ROWS - 1])
def test_fewer_are_the_first(tmp_path, rows):
    patients = write_sample(tmp_path / "s.jsonl", rows=rows)
    lines = (tmp_path / "s.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == rows
    assert len({json.loads(line)["patient_id"] for line in lines}) == patients
    assert gzip.decompress(SHIPPED.read_bytes()).startswith(b"".join(lines))


@pytest.mark.parametrize("rows", [0, -1, ROWS + 1])
def test_rows_out_of_bounds_are_refused(tmp_path, rows):
    with pytest.raises(ConfigError, match=rf"rows={rows} must lie between 1 and 4000"):
        write_sample(tmp_path / "s.jsonl", rows=rows)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file(tmp_path, full_disk):
    path = tmp_path / "s.jsonl"
    path.write_text("old")
    with full_disk(2000), pytest.raises(StorageError, match="cannot write"):
        write_sample(path)
    assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]
    assert path.read_text() == "old"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "new" / "digits.npz"
    assert write_digits(path) == 1797
    return path


def test_images_are_white_on_black_and_centered(digits):
    images = np.load(digits)["image"]
    assert images.shape == (1797, SIZE, SIZE)
    assert images.dtype == np.uint8
    assert (images.max((1, 2)) > 200).all()
    assert images[:, [0, -1]].mean() < 3
    assert images[:, :, [0, -1]].mean() < 3
    weights = images / images.sum((1, 2), keepdims=True)
    for axis in (1, 2):
        centers = weights.sum(3 - axis) @ np.arange(SIZE)
        assert np.abs(centers - 13.5).max() < 1


def test_the_same_file_every_time_and_only_its_owner_reads_it(digits):
    again = digits.with_name("again.npz")
    write_digits(again)
    assert again.read_bytes() == digits.read_bytes()
    assert digits.stat().st_mode & 0o777 == 0o600


def test_the_reader_takes_all_of_it_as_it_is(digits):
    cfg = DatasetConfig(
        name="digits",
        path=digits,
        images=ImageConfig(size=SIZE, mode="L"),
        label="label",
        labels=tuple("0123456789"),
        unit="scan",
    )
    records = [record.reveal() for record in read_records(cfg)]
    file = np.load(digits)
    assert len({record.unit for record in records}) == 1797
    assert [record.label for record in records] == [str(label) for label in file["label"]]
    for number in range(0, 1797, 211):
        assert (decode(records[number].content) == file["image"][number]).all()
