"""Images from folders, .npz and Parquet: each alone decides whether it is in."""

import contextlib
import io
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from privsyn.config import Config
from privsyn.data.images import decode, encode
from privsyn.data.partition import load_shard, partition, read_holdout
from privsyn.data.readers.formats import check_source, read_records
from privsyn.data.records import Cell
from privsyn.data.row_counts import OTHER_FILE, RowCounts, advice
from privsyn.data.settings import DatasetConfig, ImageConfig
from privsyn.errors import DataError

LABELS = ("0", "1")


def config(path, **changes):
    fields = {"name": "scans", "path": path, "images": form(), "label": "label", "labels": LABELS}
    return DatasetConfig(**(fields | changes))


def form(**changes):
    return ImageConfig(size=8, mode="L", **changes)


def records(cfg):
    """Unit -> label and brightest value."""
    found = [record.reveal() for record in read_records(cfg)]
    assert len({record.unit for record in found}) == len(found)
    return {record.unit: (record.label, int(decode(record.content).max())) for record in found}


def image(value, size=8):
    return np.full((size, size), value, np.uint8)


def put(path, value=9):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(image(value)))


# -- folders -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name, value in {"0/a.png": 1, "0/b.PNG": 2, "1/a.png": 3, "1/deep/c.jpeg": 4}.items():
        put(tmp_path / "scans" / name, value)
    return tmp_path / "scans"


def test_a_folder_s_sub_folders_are_labels_and_paths_units(folder):
    assert records(config(folder)) == {
        "0/a.png": ("0", 1),
        "0/b.PNG": ("0", 2),
        "1/a.png": ("1", 3),
        "1/deep/c.jpeg": ("1", 4),
    }
    assert records(config(folder, unit="file")) == records(config(folder))


def test_what_is_no_record_of_a_folder_changes_no_other(folder):
    before = records(config(folder))
    put(folder / "other" / "a.png")
    put(folder / "top.png")
    put(folder / ".hidden" / "a.png")
    put(folder / "0" / "._b.png")
    (folder / "0" / "notes.txt").write_text("0")
    (folder / "0" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    (folder / "0" / "empty.png").write_bytes(b"")
    (folder / "0" / "gone.png").symlink_to(folder / "nowhere.png")
    (folder / "0" / "dir.png").mkdir()
    os.mkfifo(folder / "0" / "pipe.png")  # nobody ever writes into it
    (folder / "0" / "endless.png").symlink_to("/dev/zero")
    with open(os.fsencode(folder / "0") + b"/\xff.png", "wb") as stream:
        stream.write(encode(image(7)))
    assert records(config(folder)) == before


def test_removing_a_file_changes_no_other_unit(folder):
    before = records(config(folder))
    (folder / "0" / "a.png").unlink()
    after = records(config(folder))
    assert after == {unit: value for unit, value in before.items() if unit != "0/a.png"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "patient"}, "dataset.unit='patient'"),
        ({"images": None}, r"part 1 of \d of .*scans ends otherwise.*dataset\.images"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(folder, changes, message):
    with pytest.raises(DataError, match=message):
        check_source(config(folder, **changes))


def test_a_folder_without_an_image_is_refused(tmp_path):
    (tmp_path / "Ann has flu").mkdir()
    (tmp_path / "Ann has flu" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="holds no image") as caught:
        check_source(config(tmp_path))
    assert "Ann" not in str(caught.value)


def params(**dataset):
    return {
        "dataset": {"name": "scans", "path": "scans", "images": {"size": 8}} | dataset,
        "account": {"name": "scans", "adjacency": "add_remove", "epsilon": 1, "delta": 1e-6},
        "privacy": {"epsilon": 1, "delta": 1e-6},
    }


def test_a_folder_may_protect_added_and_removed_files():
    assert Config.model_validate(params(unit="file")).dataset.unit == "file"
    with pytest.raises(ValueError, match=r"add_remove needs dataset\.unit"):
        Config.model_validate(params())


# -- .npz --------------------------------------------------------------------------------------


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("image", "label"),
        ("images", "labels"),
        ("train_images", "train_labels"),
        ("x_train", "y_train"),
        ("data", "target"),
        ("x", "y"),
    ],
)
def test_usual_names_of_arrays(tmp_path, images, labels):
    path = npz(
        tmp_path / "a.npz", **{images: np.stack([image(5), image(6)]), labels: np.array([1, 0])}
    )
    assert records(config(path)) == {"0": ("1", 5), "1": ("0", 6)}


def test_arrays_by_name(tmp_path):
    pixels = np.stack([image(5), image(6), image(7)])
    path = npz(
        tmp_path / "a.npz",
        image=np.zeros_like(pixels),
        scan=pixels,
        digit=np.array(["0", "1", "0"]),
        who=np.array([b"ann", b"bob", b"ann"]),
    )
    cfg = config(
        path, images=ImageConfig(size=8, mode="L", column="scan"), label="digit", unit="who"
    )
    found = [record.reveal() for record in read_records(cfg)]
    assert [(r.unit, r.label, decode(r.content).max()) for r in found] == [
        ("ann", "0", 5),
        ("bob", "1", 6),
        ("ann", "0", 7),
    ]


@pytest.mark.parametrize(
    "array",
    [
        np.full((2, 8, 8), 64, np.uint8),
        np.full((2, 64), 64, np.uint8),
        np.full((2, 8, 8, 1), 64, np.uint8),
        np.full((2, 3, 8, 8), 64, np.uint8),
        np.full((2, 5, 9, 3), 64, np.uint8),
        np.asfortranarray(np.full((2, 8, 8), 64, np.uint8)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_shapes_and_types_of_arrays(tmp_path, array):
    path = npz(tmp_path / "a.npz", image=array, label=np.array([0, 1]))
    assert records(config(path)) == {"0": ("0", 64), "1": ("1", 64)}


def test_files_of_other_kinds_are_counted_and_change_nothing(folder):
    before = records(config(folder))
    for name in ("0/scan.heic", "1/scan.dcm", "0/.hidden", "1/deep/notes.txt"):
        (folder / name).write_bytes(b"none of ours")
    row_counts = RowCounts()
    assert len(list(read_records(config(folder), row_counts=row_counts))) == len(before)
    assert records(config(folder)) == before
    found = row_counts.report(LABELS, 1)
    assert found["reasons"] == {OTHER_FILE: 3}
    assert found["rows"] == len(before) + 3
    assert "convert" in advice(OTHER_FILE, {})


BAD_ARRAYS = {
    "not images": {"image": np.zeros((2, 5), np.uint8), "label": np.zeros(2)},
    "no image\\.": {"image": np.zeros((0, 8, 8), np.uint8), "label": np.zeros(0)},
    "not one number or string for ": {"image": np.zeros((2, 8, 8), np.uint8), "label": np.zeros(3)},
    "is not in": {"pictures": np.zeros((2, 8, 8), np.uint8), "label": np.zeros(2)},
    "dataset.label": {"image": np.zeros((2, 8, 8), np.uint8), "kind": np.zeros(2)},
    "numbers and strings": {
        "image": np.zeros((2, 8, 8), np.uint8),
        "label": np.array([{}], object),
    },
    "type uint16": {"image": np.zeros((2, 8, 8), np.uint16), "label": np.zeros(2)},
    "type complex128": {"image": np.zeros((2, 8, 8), complex), "label": np.zeros(2)},
}


@pytest.mark.parametrize("message", BAD_ARRAYS)
def test_arrays_that_do_not_fit_are_refused(tmp_path, message):
    path = npz(tmp_path / "a.npz", **BAD_ARRAYS[message])
    with pytest.raises(DataError, match=message):
        check_source(config(path))


def test_damage_inside_is_found_while_reading(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (50, 8, 8), np.uint8)
    path = npz(tmp_path / "a.npz", image=pixels, label=np.zeros(50))
    raw = bytearray(path.read_bytes())
    raw[1500] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(DataError, match="damaged"):
        list(read_records(config(path)))


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_damage_is_an_error_of_ours_or_none(tmp_path_factory, data):
    out = io.BytesIO()
    np.savez_compressed(out, image=np.zeros((2, 8, 8), np.uint8), label=np.zeros(2))
    raw = bytearray(out.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "mutated.npz"
    path.write_bytes(raw)
    with contextlib.suppress(DataError):
        list(read_records(config(path)))


# -- Parquet -----------------------------------------------------------------------------------


def table(path, images, kind=None):
    labels = [str(number % 2) for number in range(len(images))]
    parquet.write_table(pa.table({"image": pa.array(images, kind), "label": labels}), path)
    return path


def test_a_column_as_the_datasets_library_writes_it(tmp_path):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [
        {"bytes": encode(image(3)), "path": "a.png"},
        {"bytes": None, "path": "outside.png"},
        None,
        {"bytes": encode(image(4)), "path": None},
    ]
    assert records(config(table(tmp_path / "a.parquet", rows, kind))) == {
        "0": ("0", 3),
        "3": ("1", 4),
    }


def test_a_path_that_is_no_utf8_stops_nothing(tmp_path):
    paths = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    column = pa.StructArray.from_arrays([pa.array([encode(image(3))]), paths], ["bytes", "path"])
    parquet.write_table(pa.table({"image": column, "label": ["0"]}), tmp_path / "a.parquet")
    assert records(config(tmp_path / "a.parquet")) == {"0": ("0", 3)}


def test_a_column_of_something_else_is_refused(tmp_path):
    for values in (["text"], [3], [{"path": "a.png"}]):
        with pytest.raises(DataError, match=r"dataset\.images\.column.*not bytes"):
            check_source(config(table(tmp_path / "a.parquet", values)))


# -- through the partition ---------------------------------------------------------------------


def test_partition_and_hold_out_share_the_images_of_a_folder(tmp_path):
    values = range(60)
    for value in values:
        put(tmp_path / "scans" / str(value % 2) / f"{value}.png", value)
    cfg, key = config(tmp_path / "scans", unit="file", holdout=0.3), b"0123456789abcdef"
    cells = Cell.grid(LABELS, 2)
    partition(cfg, key, cells, tmp_path / "out", 1, seed="s")
    trained = [
        int(decode(text).max())
        for bucket in load_shard(tmp_path / "out", 0, cells, 1)
        for text in bucket.contents.reveal()
    ]
    held = [int(decode(record.reveal().content).max()) for record in read_holdout(cfg, key)]
    assert sorted(trained + held) == list(values)
    assert 5 < len(held) < 35


def test_a_column_of_bytes(tmp_path):
    path = table(tmp_path / "a.parquet", [encode(image(3)), b"junk", None, encode(image(4))])
    assert records(config(path)) == {"0": ("0", 3), "3": ("1", 4)}


@pytest.mark.parametrize("length", [0, 10, 400, -30])
def test_a_damaged_file_is_refused(tmp_path, length):
    path = npz(tmp_path / "a.npz", image=np.zeros((2, 8, 8), np.uint8), label=np.zeros(2))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match="damaged"):
        check_source(config(path))


def test_a_folder_without_labels(folder):
    put(folder / "top.png", 5)
    found = records(config(folder, label=None, labels=()))
    assert found["top.png"] == (None, 5)
    assert len(found) == 5


def test_columns_first_arrays_keep_their_rows(tmp_path):
    pixels = np.random.default_rng(3).integers(0, 256, (5, 8, 8), np.uint8)
    labels = np.zeros(5, int)
    one = npz(tmp_path / "a.npz", image=pixels, label=labels)
    two = npz(tmp_path / "b.npz", image=np.asfortranarray(pixels), label=labels)
    assert [r.reveal() for r in read_records(config(one))] == [
        r.reveal() for r in read_records(config(two))
    ]


def test_files_of_text_hold_no_images(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"image": "x", "label": "0"}\n')
    with pytest.raises(DataError, match=r"images are \.parquet, \.npz and"):
        check_source(config(path))


def test_opacity_of_an_array_is_over_white(tmp_path):
    clear = np.zeros((1, 8, 8, 4), np.uint8)
    path = npz(tmp_path / "a.npz", image=clear, label=np.array([0]))
    assert records(config(path)) == {"0": ("0", 255)}
