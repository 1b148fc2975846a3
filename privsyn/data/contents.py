"""The content of a record: which columns it is made of, and what their values make: text or image.

Privacy. It depends on one row's values and public settings alone, and never raises on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privsyn.data.conversations import messages_of, text_of
from privsyn.data.images import from_array, read_image, read_image_file, to_content
from privsyn.data.readers.arrow import IMAGE_COLUMN, TURNS
from privsyn.data.readers.columns import as_text, fault
from privsyn.data.readers.image_files import is_image
from privsyn.data.row_counts import IMAGE, NO_TURN, OTHER_FILE, RowCounts
from privsyn.data.settings import PLACEHOLDER, DatasetConfig, ImageConfig, text_columns


@dataclass(frozen=True)
class Unusable:
    """A record that is dropped, and why, in words of row_counts.py that hold nothing of it."""

    reason: str


def content_columns(cfg: DatasetConfig) -> Mapping[str, str]:
    """Setting -> column of the content, in the order in which they are first named."""
    if cfg.images is not None:
        return {IMAGE_COLUMN: cfg.images.column}
    if cfg.roles:
        return {TURNS: str(cfg.text)}
    # A column that a form names twice is read once.
    names = text_columns(cfg.text)
    return {"text" if not n else f"text ({n + 1})": name for n, name in enumerate(names)}


def content_of(
    cfg: DatasetConfig, values: Sequence[Any], counts: RowCounts | None = None
) -> str | Unusable:
    """The content from the values of ``content_columns``, in their order; counts lost turns.

    Of a table alone it is empty.
    """
    if cfg.images is not None:
        return _image(cfg.images, values[0])
    if cfg.roles:
        text, left_out = text_of(values[0], cfg.roles)
        if counts is not None:
            counts.turns_left_out += left_out
            counts.turns[len(messages_of(text or "", cfg.roles))] += 1
        return Unusable(NO_TURN) if text is None else text
    if cfg.text is None:
        return ""
    columns = content_columns(cfg).values()
    # A column may hold braces in its values: only `dataset.text` is read as a form.
    form = cfg.text if PLACEHOLDER.search(cfg.text) else None
    texts: dict[str, str] = {}
    for column, value in zip(columns, values, strict=True):
        text = as_text(value)
        if text is None:
            return Unusable(f"text: {fault(value)}" if form is None else
                            f"text ({column}): {fault(value)}")  # fmt: skip
        texts[column] = text
    if form is None:
        return texts[cfg.text]
    # A function and not a template: backslashes in a record would be read as references. One
    # pass, so that braces in a record are not filled in again.
    return PLACEHOLDER.sub(lambda match: texts[match[1]], form)


def _image(form: ImageConfig, value: Any) -> str | Unusable:
    """An image file or an array of pixels in canonical form: its PNG file in base64."""
    if isinstance(value, dict):  # as the datasets library writes images
        value = value.get("bytes")
    if isinstance(value, Path):
        # A folder holds other files, too, such as notes; those are counted and not opened.
        if not is_image(value):
            return Unusable(OTHER_FILE)
        value = read_image_file(value)
    pixels = None
    if isinstance(value, bytes):
        pixels = read_image(value, form.size, form.mode)
    elif isinstance(value, np.ndarray):
        pixels = from_array(value, form.size, form.mode)
    return Unusable(IMAGE) if pixels is None else to_content(pixels)
