"""A data frame, or a list of dicts, as private data: written to the state folder for its owner."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from privsyn.data.artifacts import private_folder, storage_error, write_jsonl_atomic
from privsyn.data.readers.columns import float_unit, refuse_index, refuse_missing
from privsyn.data.row_counts import JOIN
from privsyn.data.settings import PLACEHOLDER
from privsyn.data.unit_key import is_readable, label_id, lost_digits, unit_id
from privsyn.errors import ConfigError, DataError
from privsyn.files import open_file
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

FRAME = Path("the frame")
"""What messages call it."""


Rows = Sequence[Mapping[str, Any]]
"""Records as dicts; a ``datasets.Dataset`` is one, too."""


def are_rows(data: Any) -> bool:
    """Whether data are a list of dicts, or a ``datasets.Dataset``."""
    # By name of the module, so that Hugging Face's datasets need not be installed.
    if any(base.__module__.startswith("datasets.") for base in type(data).__mro__):
        return hasattr(data, "to_list")
    listed = isinstance(data, list | tuple) and len(data) > 0
    return listed and all(isinstance(row, Mapping) for row in data)


def as_frame(data: Any) -> pd.DataFrame:
    """The data as a frame. Of dicts every value stays what it is: a missing id makes no floats.

    Raises:
        ConfigError: It is of another type.
    """
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return data
    if are_rows(data):
        rows = data if isinstance(data, list | tuple) else data.to_list()
        names = dict.fromkeys(name for row in rows for name in row)
        values = {name: [row.get(name) for row in rows] for name in names}
        # dtype=object: pandas would turn whole numbers into floats where one is missing.
        return pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in values.items()})
    raise ConfigError(
        f"data is of type {type(data).__name__}.",
        hint="Pass the path of a file, a pandas DataFrame, a list of dicts or a datasets.Dataset "
        "(of a DatasetDict one split: data['train']).",
    )


def check_columns(
    frame: pd.DataFrame,
    text: str,
    label: str | None,
    unit: str | None,
    *,
    prefix: str = "dataset.",
) -> dict[str, str]:
    """The columns that are wanted of a frame, by setting. By names and types.

    Privacy: of a column of type object, whose type says nothing, it is looked at whether any value
    can be used; no single one decides.

    Args:
        frame: The data.
        text: Column of the text, or a form over several.
        label: Column of the label.
        unit: Column of the unit id.
        prefix: What stands before a setting where the user gives it, for messages.

    Raises:
        ConfigError: The unit is the frame's index, whose numbers shift with the rows, or names are
            not strings or come twice.
        DataError: A column is missing, or of a type that holds no texts, labels or ids.
    """
    # Names are looked at before any value: a wrong call reads no record.
    names = list(frame.columns)
    if frame.columns.nlevels > 1 or len(set(names)) < len(names):
        raise ConfigError(
            "the frame has columns of several levels, or two of one name.",
            hint="Give every column one name of its own.",
        )
    _refuse_index(unit, names, [name for name in frame.index.names if name is not None])
    in_text = list(dict.fromkeys(PLACEHOLDER.findall(text))) if text not in names else []
    columns_needed = {f"text ({n})": name for n, name in enumerate(in_text, 1)} or {"text": text}
    further = {"label": label, "unit": unit}
    columns_needed |= {setting: name for setting, name in further.items() if name is not None}
    missing = {setting: name for setting, name in columns_needed.items() if name not in names}
    listed = [name for name in names if isinstance(name, str)]
    refuse_missing(FRAME, missing, listed, prefix=prefix)
    for setting, name in columns_needed.items():
        _check_type(frame[name], setting, f"column {name!r} ({prefix}{setting}) of the frame")
    return columns_needed


_TAKEN = {"label": "OUSMiufb", "unit": "OUSMiu"}
"""Setting -> kinds of numpy types that a column of it may have."""
_WANTED = {
    "label": "labels: strings, whole numbers, dates or truth values",
    "unit": "ids: strings, whole numbers, dates or UUIDs",
}


def _check_type(column: pd.Series[Any], setting: str, called: str) -> None:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    elif isinstance(dtype, pd.ArrowDtype):
        dtype = _values_of(dtype)
    # A missing id turns a column of whole numbers to floats, and large ids lose digits: two people
    # may then have one id.
    if setting == "unit" and dtype.kind == "f":
        raise float_unit(called, str(dtype))
    type_name = str(dtype)
    if dtype.kind in _TAKEN.get(setting, "OUS"):
        if dtype.kind not in "OU":
            return
        # An object column holds anything. All of it is looked at, so that no single record decides.
        values = [value for value in map(_plain, column) if value is not None]
        if setting == "unit" and any(map(lost_digits, values)):
            raise float_unit(called)
        if not values or any(_is_usable(value, setting) for value in values):
            return
        # Names of types alone, never a value.
        type_name = " or ".join(sorted({type(value).__name__ for value in column[column.notna()]}))
    way_out = f", or write it as text: frame[{column.name!r}].astype('string')"
    listed = setting not in _WANTED and type_name in ("list", "ndarray")
    raise DataError(
        f"{called} is of type {type_name}; it must hold {_WANTED.get(setting, 'texts: strings')}.",
        hint=JOIN if listed else f"Name another column{'' if setting == 'unit' else way_out}.",
    )


def _values_of(dtype: pd.ArrowDtype) -> pd.ArrowDtype:
    """The type of a column's values, which a dictionary of them has one of, too."""
    import pandas as pd
    from pyarrow import types

    stored = dtype.pyarrow_dtype
    return pd.ArrowDtype(stored.value_type) if types.is_dictionary(stored) else dtype


def _is_usable(value: Any, setting: str) -> bool:
    if setting == "unit":
        return unit_id(value) is not None
    return label_id(value) is not None if setting == "label" else isinstance(value, str | bytes)


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
            f"version={version!r} is a template; a DataFrame needs one concrete version.",
            hint="Write the version itself, such as 2026-12.",
        )
    return str(Workspace(Path()).state / "data" / f"{name}-{version}.jsonl")


def write_version(frame: pd.DataFrame, columns: Mapping[str, str], target: Path) -> None:
    """Write the wanted columns (setting -> column) of a frame, mode 0600, whole or not at all.

    The file of a version is never written over: releases were made from it. What is no text and no
    identifier stays recognizable as such, so that rows are dropped and counted by the same rule as
    those of a file.

    Raises:
        ConfigError: There is a file of that version with other records.
        StorageError: Disk full or no permission.
    """
    # Each level for itself: a parent that mkdir makes on the way would be readable by all.
    private_folder(target.parent.parent)
    private_folder(target.parent)
    # With the process id: two processes that write one version do not share a draft.
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        write_jsonl_atomic(draft, _rows(frame, columns), mode=0o600)
        # A link never overwrites, as a rename would: a version is written once.
        os.link(draft, target)  # fails where another process was faster
    except FileExistsError:
        if not _same(draft, target):
            raise ConfigError(
                f"{target}: this version exists with different data; versions are immutable.",
                hint="Name another version=, which is a new charge.",
            ) from None
    except OSError as error:
        raise storage_error("write", target, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _same(one: Path, other: Path) -> bool:
    # Most versions differ in size, which needs no reading.
    if one.stat().st_size != other.stat().st_size:
        return False
    with open_file(one) as first, open_file(other) as second:
        while block := first.read(1 << 20):
            if block != second.read(1 << 20):
                return False
    return True


def _rows(frame: pd.DataFrame, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    texts = {name for setting, name in columns.items() if setting not in ("label", "unit")}
    # A column may be both text and label, and is written once.
    names = list(dict.fromkeys(columns.values()))
    for values in zip(*(frame[name] for name in names), strict=True):
        yield {
            name: _as_json(value, text=name in texts)
            for name, value in zip(names, map(_plain, values), strict=True)
        }


def _plain(value: Any) -> Any:
    """A cell without numpy and pandas: frames hold missing values as NaN, NaT or NA."""
    import numpy as np
    import pandas as pd

    if value is pd.NA or value is pd.NaT or (isinstance(value, float | Decimal) and value != value):
        return None
    if isinstance(value, np.datetime64):
        return _plain(pd.Timestamp(value))
    if isinstance(value, np.floating) and value.itemsize < 8:  # it has fewer digits than a float
        return float(value) if abs(value) < 1 << np.finfo(value.dtype).nmant + 1 else float("inf")
    return value.item() if isinstance(value, np.generic) else value


def _as_json(value: Any, *, text: bool) -> Any:
    """A cell as JSON: texts, numbers and nothing as they are, ids as text; of others that they are.

    Args:
        value: Of the frame, plain.
        text: It is of a column of texts, where an id is none.
    """
    if isinstance(value, bytes) and text:
        # Bytes that are not UTF-8 survive as surrogates, which the reader drops and counts.
        value = value.decode("utf-8", "surrogateescape")
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        # An empty list is no text, label or id for the reader, which drops the row and counts it.
        return value if is_readable(value) else []
    if isinstance(value, float):
        return value if abs(value) < float("inf") else []
    if not text and isinstance(value, bytes | Decimal | UUID | date):
        return unit_id(value) or []
    return []
