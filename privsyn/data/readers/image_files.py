"""Images in a folder or in the arrays of an .npz file: their rows, and which shapes are refused.

A folder holds a sub-folder per label. Every file in it, at any depth, is one record and one unit,
identified by its path below the folder. So adding or removing a file changes no other unit.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.address import Source
from privsyn.data.readers.columns import float_unit, refuse_missing
from privsyn.errors import DataError

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


# -- .npz --------------------------------------------------------------------------------------


def check_npz(path: Source, columns: Mapping[str, str]) -> None:
    """Refuse arrays that are missing, of the wrong shape or type, or not of one length.

    Raises:
        DataError: Names the array and what it must be.
    """
    (name, images), *others = _arrays(path, columns).values()
    if images.dtype not in (np.uint8, np.bool_) or not _is_images(images.shape[1:]):
        raise DataError(
            f"array {name!r} of {path} has rows of shape {images.shape[1:]} and type "
            f"{images.dtype}, not images.",
            hint="Write uint8 of shape (images, height, width) or (images, height, width, 3). Map "
            "other numbers to 0 to 255 by a range that is known without the file.",
        )
    count = len(images)
    if not count:
        raise DataError(f"{path} holds no image.", hint="Check how it was written.")
    for setting, (other, values) in zip(list(columns)[1:], others, strict=True):
        if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in "biufUS":
            raise DataError(
                f"array {other!r} (dataset.{setting}) of {path} is not one number or string for "
                "each image.",
                hint=f"Write a vector as long as {name}.",
            )
        if setting == "unit" and values.dtype.kind == "b":
            raise DataError(
                f"array {other!r} (dataset.unit) of {path} holds true and false, which identify "
                "nobody.",
                hint="Name an array of ids: whole numbers or strings.",
            )
        if setting == "unit" and values.dtype.kind == "f":
            raise float_unit(f"array {other!r} (dataset.unit) of {path}", str(values.dtype))


def npz_rows(path: Source, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Pixels of every image, then label and unit if configured. Pixels: (height, width[, 3]).

    Args:
        path: A file that check_npz passed.
        columns: Setting -> name, the images first.

    Raises:
        DataError: The file is damaged.
    """
    (_, images), *others = _arrays(path, columns).values()
    for row in zip(images, *(values.ravel().tolist() for _, values in others), strict=True):
        yield _picture(row[0]), *row[1:]


def _arrays(path: Source, columns: Mapping[str, str]) -> dict[str, tuple[str, NDArray[Any]]]:
    """Setting -> name and values of its array in the file, the images first."""
    try:
        with zipfile.ZipFile(path):  # else it may be a pickle, or a single array
            archive = np.load(path, allow_pickle=False)
        with archive:
            names = _array_names(path, columns, archive.files)
            return {setting: (name, archive[name]) for setting, name in names.items()}
    # No cause is attached: a message may quote the file.
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError):
        raise DataError(
            f"{path} is not an .npz file of numbers and strings, or is damaged.",
            hint="Write it with numpy.savez, without Python objects.",
        ) from None


def _array_names(path: Source, columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Setting -> array of the file, by the usual names where the settings have their defaults."""
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
