"""Images in a folder or in the arrays of an .npz file: their rows, and which shapes are refused.

A folder holds a sub-folder per label. Every file in it, at any depth, is one record and one unit,
identified by its path below the folder. So adding or removing a file changes no other unit.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from privsyn.address import Source
from privsyn.data.images import MOST_BYTES
from privsyn.data.readers.columns import float_unit, refuse_missing
from privsyn.errors import DataError
from privsyn.files import open_file

FILE = "file"
"""Unit of a folder of images: ``dataset.unit=file``."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
USUAL_NAMES = {
    "image": "label",
    "images": "labels",
    "train_images": "train_labels",
    "x_train": "y_train",
    "data": "target",
    "x": "y",
}
"""Array of images -> array of labels: common pairs of names, tried if params.yaml says ``image``
and ``label``."""
_BATCH_BYTES = 1 << 24


# -- folders -----------------------------------------------------------------------------------


def check_folder(path: Source, columns: Mapping[str, str]) -> None:
    """Refuse a folder that is not readable, holds no image, or has another unit in the config.

    Raises:
        DataError: As said.
    """
    if not os.access(path, os.R_OK | os.X_OK):
        raise DataError(f"{path} may not be read.", hint="Check the folder's permissions.")
    if columns["unit"] != FILE:
        raise DataError(
            f"dataset.unit={columns['unit']!r} does not fit a folder of images.",
            hint=f"Set dataset.unit={FILE}: every file is its own unit. For images of one person "
            "use Parquet with a column of unit ids.",
        )
    if not any(is_image(row[0]) for row in folder_rows(path, columns)):
        below = "a sub-folder per label with " if "label" in columns else ""
        raise DataError(
            f"{path} holds no image.", hint=f"It must hold {below}files {', '.join(SUFFIXES)}."
        )


def folder_rows(path: Source, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Path, label where there are labels, and unit id of every file; none is opened.

    Files with another suffix are included, so that they are counted when they are dropped.

    Args:
        path: The folder.
        columns: Setting -> column; with ``label`` if there are labels.
    """
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.startswith("."):
                continue
            file = Path(folder, name)
            inside = file.relative_to(path)
            if "label" not in columns:
                yield file, inside.as_posix()
            elif len(inside.parts) > 1:
                yield file, inside.parts[0], inside.as_posix()


def is_image(path: Path) -> bool:
    """Whether a file has the suffix of an image."""
    return path.suffix.lower() in SUFFIXES


def read_file(path: Path) -> bytes | None:
    """The bytes of an image file; None if it cannot be read or is too large.

    A pipe or device gives None at once: reading it could wait forever.
    """
    try:
        with open_file(path) as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError:
        return None
    return raw if len(raw) <= MOST_BYTES else None


# -- .npz --------------------------------------------------------------------------------------


def check_npz(path: Source, columns: Mapping[str, str]) -> None:
    """Refuse arrays that are missing, of the wrong shape or type, or not of one length.

    Raises:
        DataError: As said, or the file is damaged. Values are never shown.
    """
    with _open_zip(path) as archive:
        heads = {
            setting: (name, *_head(archive, name, path))
            for setting, name in _arrays(archive, path, columns).items()
        }
    name, shape, _, kind = next(iter(heads.values()))
    if kind not in (np.uint8, np.bool_) or not _is_images(shape[1:]):
        raise DataError(
            f"array {name!r} of {path} has rows of shape {shape[1:]} and type {kind}, not images.",
            hint="Write uint8 of shape (images, height, width) or (images, height, width, 3). Map "
            "other numbers to 0 to 255 by a range that is known without the file.",
        )
    if not shape[0]:
        raise DataError(f"{path} holds no image.", hint="Check how it was written.")
    for setting, (other, size, _, type_) in list(heads.items())[1:]:
        if size not in (shape[:1], (shape[0], 1)) or type_.kind not in "biufUS":
            raise DataError(
                f"array {other!r} (dataset.{setting}) of {path} is not one number or string for "
                "each image.",
                hint=f"Write a vector as long as {name}.",
            )
        if setting == "unit" and type_.kind == "b":
            raise DataError(
                f"array {other!r} (dataset.unit) of {path} holds true and false, which identify "
                "nobody.",
                hint="Name an array of ids: whole numbers or strings.",
            )
        if setting == "unit" and type_.kind == "f":
            raise float_unit(f"array {other!r} (dataset.unit) of {path}", str(type_))


def npz_rows(path: Source, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Pixels of every image, then label and unit if configured. Pixels: (height, width[, 3]).

    Args:
        path: A file that check_npz passed.
        columns: Setting -> array wanted.

    Raises:
        DataError: The file turns out to be damaged.
    """
    with _open_zip(path) as archive:
        # Labels and ids are small and held whole; pixels come in batches.
        images, *others = _arrays(archive, path, columns).values()
        values = [
            np.concatenate(list(_batches(archive, name, path))).ravel().tolist() for name in others
        ]
        number = 0
        for batch in _batches(archive, images, path):
            for pixels in batch:
                yield _picture(pixels), *(column[number] for column in values)
                number += 1


@contextmanager
def _open_zip(path: Source) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    # No cause is attached: a message may quote the file.
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError):
        raise DataError(
            f"{path} is not an .npz file, or is damaged.", hint="Write it with numpy.savez."
        ) from None


def _arrays(archive: zipfile.ZipFile, path: Source, columns: Mapping[str, str]) -> dict[str, str]:
    """Setting -> array of the file, the images first."""
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    arrays = dict(columns)
    content = next(iter(arrays))
    if arrays[content] == "image":
        arrays[content] = next((name for name in USUAL_NAMES if name in names), "image")
    if arrays.get("label") == "label" and "label" not in names:
        arrays["label"] = USUAL_NAMES.get(arrays[content], "label")
    missing = {s: name for s, name in arrays.items() if name not in names}
    # privacy: an archive of many arrays may hold one a person, and their names would be listed
    refuse_missing(path, missing, names if len(names) <= 12 else ())
    return arrays


def _head(
    archive: zipfile.ZipFile, name: str, path: Source
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    with archive.open(f"{name}.npy") as stream:
        return _header(stream, name, path)


def _header(stream: IO[bytes], name: str, path: Source) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether the array is in Fortran order, and type."""
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise DataError(f"array {name!r} of {path} is of .npy version {version}.")
    shape, columns_first, kind = readers[version](stream)
    if kind.hasobject:
        raise DataError(
            f"array {name!r} of {path} holds Python objects, which are never loaded.",
            hint="Write an array of numbers or of fixed-width strings.",
        )
    return shape, columns_first, kind


def _batches(archive: zipfile.ZipFile, name: str, path: Source) -> Iterator[NDArray[Any]]:
    """The array in pieces along its first axis, in memory independent of its length.

    An array in Fortran order is read as a whole: its rows are spread over the file.
    """
    with archive.open(f"{name}.npy") as stream:
        shape, columns_first, kind = _header(stream, name, path)
        row = kind.itemsize * math.prod(shape[1:])
        if columns_first and len(shape) > 1:
            raw = _exactly(stream, row * shape[0])
            yield np.frombuffer(raw, kind).reshape(shape, order="F")
            return
        rows = max(1, _BATCH_BYTES // max(1, row))
        for start in range(0, shape[0], rows):
            count = min(rows, shape[0] - start)
            yield np.frombuffer(_exactly(stream, row * count), kind).reshape(count, *shape[1:])


def _exactly(stream: IO[bytes], count: int) -> bytes:
    raw = stream.read(count)
    if len(raw) != count:
        raise EOFError
    return raw


def _is_images(shape: tuple[int, ...]) -> bool:
    """Whether rows of this shape are images."""
    match shape:
        case (flat,):
            return flat > 0 and math.isqrt(flat) ** 2 == flat
        case (height, width):
            return height > 0 and width > 0
        case (first, second, third):
            return 0 not in shape and (third in (1, 3, 4) or first in (1, 3, 4)) and second > 0
    return False


def _picture(pixels: NDArray[Any]) -> NDArray[Any]:
    """A row as an image; a flat row is a square, row by row: (side * side,) -> (side, side)."""
    if pixels.ndim > 1:
        return pixels
    side = math.isqrt(len(pixels))
    return pixels.reshape(side, side)
