"""The sample of images: whole, centered, and what the reader makes of it."""

import numpy as np
import pytest

from privsyn.data.images import decode
from privsyn.data.readers.formats import read_records
from privsyn.data.sample import DIGITS, SIZE, write_digits
from privsyn.data.settings import DatasetConfig, ImageConfig


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
        labels=DIGITS,
        unit="scan",
    )
    records = [record.reveal() for record in read_records(cfg)]
    file = np.load(digits)
    assert len({record.unit for record in records}) == 1797
    assert [record.label for record in records] == [str(label) for label in file["label"]]
    for number in range(0, 1797, 211):
        assert (decode(records[number].content) == file["image"][number]).all()
