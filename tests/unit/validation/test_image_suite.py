"""The shipped suite of images: every defect is found by its own check, and shown without harm."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privsyn.data.images import decode_png, encode
from privsyn.data.profile import COLUMNS, read_image_rows, sample_sheet
from privsyn.data.settings import ImageConfig
from privsyn.modalities.images import Images
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import validate_file

LABELS = ("cat", "dog")
FORM = ImageConfig(size=8, mode="L")
COUNT = 40

Rows = list[dict[str, Any]]


def picture(number):
    return encode(np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(COUNT):
        (tmp_path / "images" / f"{number:06d}.png").write_bytes(picture(number))
    return tmp_path


def good_rows(folder):
    return [
        {
            "id": f"tiny-00ff-{number:06d}",
            "label": LABELS[2 * number // COUNT],
            "file": f"images/{number:06d}.png",
            "sha256": hashlib.sha256(picture(number)).hexdigest(),
        }
        for number in range(COUNT)
    ]


def write(folder, rows):
    path = folder / "synthetic.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def put(folder, row, content):
    (folder / row["file"]).write_bytes(content)
    row["sha256"] = hashlib.sha256(content).hexdigest()


def check(folder, rows, **settings):
    cfg = ValidationConfig(**settings)
    return validate_file(write(folder, rows), cfg, LABELS, (COUNT, COUNT), modality=Images(FORM))


def failed(result):
    return {item.title.split(",")[0].split(":")[0] for item in result.failures}


def resized(folder, rows):
    put(folder, rows[3], encode(np.random.default_rng(1).integers(0, 256, (8, 9), np.uint8)))


def colored(folder, rows):
    put(folder, rows[3], encode(np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)))


def torn(folder, rows):
    put(folder, rows[3], picture(3)[:60])


def changed(folder, rows):
    (folder / rows[3]["file"]).write_bytes(picture(99))


def gone(folder, rows):
    (folder / rows[3]["file"]).unlink()


def outside(folder, rows):
    rows[3]["file"] = "../images/000003.png"


def single_shades(folder, rows):
    for number in range(5):
        put(folder, rows[number], encode(np.full((8, 8), number, np.uint8)))


def repeats(folder, rows):
    for number in range(5):
        put(folder, rows[number], picture(39))


def named_twice(folder, rows):
    rows[3] |= {"file": rows[4]["file"], "sha256": rows[4]["sha256"]}


def one_label(folder, rows):
    for row in rows:
        row["label"] = "cat"


def other_label(folder, rows):
    rows[3]["label"] = "cow"


DEFECTS: dict[Callable[[Path, Rows], None], set[str]] = {
    resized: {"Every image has the width the dataset declares"},
    colored: {"Every image is gray or colored as the dataset declares"},
    torn: {"Every image can be decoded and has the digest its row gives"},
    changed: {"Every image can be decoded and has the digest its row gives"},
    gone: {"Every image can be decoded and has the digest its row gives"},
    outside: {
        "Every line names an image of the release and its digest",
        "Every image can be decoded and has the digest its row gives",
    },
    single_shades: {"Hardly any image is a single shade"},
    repeats: {"Few images repeat another one"},
    named_twice: {"No image file is named twice"},
    one_label: {"Every declared label has images"},
    other_label: {"Every label is a declared one"},
}


@pytest.mark.slow
def test_a_good_file_passes_and_every_defect_is_found(folder):
    result = check(folder, good_rows(folder))
    assert result.success, result.failures
    assert result.suite == "images"
    assert result.left_out == ()
    for defect, expected in DEFECTS.items():
        for number in range(COUNT):
            (folder / "images" / f"{number:06d}.png").write_bytes(picture(number))
        rows = good_rows(folder)
        defect(folder, rows)
        assert failed(check(folder, rows)) == expected, defect.__name__


def test_lines_that_are_no_rows_are_no_images(folder):
    lines = [b"\xff\xfe\n", b"[1]\n", b'{"id": 3}\n', b'{"id": "a", "file": "images/\\u0000"}\n']
    path = folder / "synthetic.jsonl"
    path.write_bytes(b"".join(lines) + json.dumps(good_rows(folder)[0]).encode() + b"\n")
    rows = read_image_rows(path)
    assert [row.well_formed for row in rows] == [False] * 4 + [True]
    assert [row.readable for row in rows] == [False] * 4 + [True]


def test_equal_pixels_are_one_image_however_compressed(folder):
    rows = good_rows(folder)[:2]
    with Image.open(folder / rows[0]["file"]) as image:
        image.save(folder / rows[1]["file"], compress_level=0)
    rows[1]["sha256"] = hashlib.sha256((folder / rows[1]["file"]).read_bytes()).hexdigest()
    one, two = read_image_rows(write(folder, rows))
    assert rows[0]["sha256"] != rows[1]["sha256"]
    assert one.pixels_sha256 == two.pixels_sha256


def test_the_sheet_has_a_row_per_label_in_declared_order(folder):
    rows = good_rows(folder)
    for row in rows:
        put(folder, row, encode(np.full((8, 8), 40 if row["label"] == "cat" else 160, np.uint8)))
    rows = rows[:3] + rows[20:]  # three cats
    sheet = decode_png(sample_sheet(folder, read_image_rows(write(folder, rows)), LABELS))
    side = (sheet.shape[1] - 2) // COLUMNS
    assert sheet.shape[0] == 2 * side + 2
    top, bottom = sheet[side // 2, side // 2 :: side], sheet[side + side // 2, side // 2 :: side]
    assert top[:COLUMNS].tolist() == [40] * 3 + [255] * (COLUMNS - 3)
    assert bottom[:COLUMNS].tolist() == [160] * COLUMNS
