"""Refusing a file that lacks a column, without showing what may be somebody's record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from privsyn.config import nearest
from privsyn.errors import DataError


def check_header(path: Path, columns: Mapping[str, str], header: Sequence[str]) -> None:
    """Refuse a header or schema that lacks a wanted column or has it twice.

    Args:
        path: The file.
        columns: Setting under ``dataset.`` -> column wanted.
        header: The names as the file gives them. The first line of a CSV may be a record instead,
            so names are shown only where they all look like names.

    Raises:
        DataError: Names the first column that is missing or doubled.
    """
    missing = {setting: name for setting, name in columns.items() if name not in header}
    if missing:
        hit = len(missing) < len(columns)
        if not all(_is_name(name, words=3 if hit else 1) for name in header):
            setting, column = next(iter(missing.items()))
            raise DataError(
                f"column {column!r} (dataset.{setting}) is not in {path}, whose first line does "
                "not look like column names.",
                hint="Write a header line in UTF-8, with commas between the names.",
            )
        refuse_missing(path, missing, header)
    for setting, column in columns.items():
        if list(header).count(column) > 1:
            raise DataError(
                f"column {column!r} (dataset.{setting}) occurs twice in {path}.",
                hint="Rename or remove one.",
            )


def refuse_missing(path: Path, missing: Mapping[str, str], names: Sequence[str]) -> None:
    """Say which wanted column is missing and which there are.

    Args:
        path: The file.
        missing: Setting -> column that is not there; does nothing where empty.
        names: Columns of the file; those that do not look like names are not shown.

    Raises:
        DataError: ``missing`` is not empty.
    """
    for setting, column in missing.items():
        names = [name for name in names if _is_name(name, words=3)]
        shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        near = nearest(column, names)
        raise DataError(
            f"column {column!r} (dataset.{setting}) is not in {path}; columns: {shown or 'none'}.",
            hint=f"Did you mean {near!r}?" if near else f"Set dataset.{setting} to one of them.",
        )


def _is_name(name: str, words: int) -> bool:
    pattern = r"[^\W\d][\w.:/()-]*( [\w.:/()-]+)*"
    return len(name) <= 40 and name.count(" ") < words and bool(re.fullmatch(pattern, name))
