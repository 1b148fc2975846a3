"""A data frame as private data: written to the state folder, for its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.data.artifacts import private_folder, storage_error, write_jsonl_atomic
from privsyn.data.readers.columns import refuse_index, refuse_missing
from privsyn.data.settings import PLACEHOLDER
from privsyn.errors import ConfigError
from privsyn.files import open_file
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

FRAME = Path("the frame")
"""What messages call it."""


def as_frame(data: Any) -> pd.DataFrame:
    """The data as a frame.

    Raises:
        ConfigError: It is none.
    """
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        raise ConfigError(
            f"data is of type {type(data).__name__}.",
            hint="Pass the path of a file, or a pandas DataFrame.",
        )
    return data


def check_columns(
    frame: pd.DataFrame,
    text: str,
    label: str | None,
    unit: str | None,
    *,
    prefix: str = "dataset.",
) -> dict[str, str]:
    """The columns that are wanted of a frame, by setting. By names alone; no value is looked at.

    Args:
        frame: The data.
        text: Column of the text, or a form over several.
        label: Column of the label.
        unit: Column of the unit id.
        prefix: What stands before a setting where the user gives it, for messages.

    Raises:
        ConfigError: The unit is the frame's index, whose numbers shift with the rows, or names are
            not strings or come twice.
        DataError: A column is missing.
    """
    names = list(frame.columns)
    if frame.columns.nlevels > 1 or len(set(names)) < len(names):
        raise ConfigError(
            "the frame has columns of several levels, or two of one name.",
            hint="Give every column one name of its own.",
        )
    _refuse_index(unit, names, [name for name in frame.index.names if name is not None])
    in_text = list(dict.fromkeys(PLACEHOLDER.findall(text))) if text not in names else []
    wanted = {f"text ({n})": name for n, name in enumerate(in_text, 1)} or {"text": text}
    further = {"label": label, "unit": unit}
    wanted |= {setting: name for setting, name in further.items() if name is not None}
    missing = {setting: name for setting, name in wanted.items() if name not in names}
    listed = [name for name in names if isinstance(name, str)]
    refuse_missing(FRAME, missing, listed, prefix=prefix)
    return wanted


def _refuse_index(unit: str | None, columns: Sequence[Any], index: Sequence[Any]) -> None:
    if unit is None:
        return
    refuse_index(unit)
    if unit in index and unit not in columns:
        refuse_index(unit, index=True)


def place(name: str, version: str) -> str:
    """Where a frame is kept, by public names: relative to the project's folder.

    Raises:
        ConfigError: The version is that of any day; a frame is of one.
    """
    if "{" in version:
        raise ConfigError(
            f"version={version!r} stands for many, and a frame is one.",
            hint="Write the version itself, such as 2026-12.",
        )
    return str(Workspace(Path()).state / "data" / f"{name}-{version}.jsonl")


def keep(frame: pd.DataFrame, columns: Sequence[str], target: Path) -> None:
    """Write the wanted columns of a frame, mode 0600, whole or not at all.

    The file of a version is never written over: releases were made from it. What is no text and no
    identifier stays recognisable as such, so that rows are dropped and counted by the same rule as
    those of a file.

    Raises:
        ConfigError: There is a file of that version with other records.
        StorageError: Disk full or no permission.
    """
    private_folder(target.parent.parent)
    private_folder(target.parent)
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        write_jsonl_atomic(draft, _rows(frame, list(dict.fromkeys(columns))), mode=0o600)
        os.link(draft, target)  # fails where another process was faster
    except FileExistsError:
        if not _same(draft, target):
            raise ConfigError(
                f"{target} holds another frame: what a version is made of does not change.",
                hint="Name another version=, which is a new charge.",
            ) from None
    except OSError as error:
        raise storage_error("write", target, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with open_file(one) as first, open_file(other) as second:
        while block := first.read(1 << 20):
            if block != second.read(1 << 20):
                return False
    return True


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    for values in zip(*(frame[name] for name in columns), strict=True):
        yield {name: _plain(value) for name, value in zip(columns, values, strict=True)}


def _plain(value: Any) -> Any:
    """A cell as JSON: texts, numbers and nothing as they are; of anything else that it is neither.

    Frames hold missing values as NaN, NaT or NA, and numbers as numpy's.
    """
    import numpy as np
    import pandas as pd

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None if np.isnan(value) else []
    return None if value is None or value is pd.NA or value is pd.NaT else []
