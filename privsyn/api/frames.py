"""A data frame, or a list of dicts, as private data: written to the state folder for its owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.data.artifacts import atomic_file, private_folder
from privsyn.data.readers.arrow import check_schema
from privsyn.data.readers.columns import refuse_index, refuse_missing
from privsyn.data.settings import text_columns
from privsyn.errors import ConfigError, DataError
from privsyn.release.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FRAME = Path("the frame")
"""What messages call it."""


Frame = Any
"""A frame of pandas, polars or pyarrow, or a ``datasets.Dataset``: see ``is_frame``."""
Rows = Sequence[Mapping[str, Any]]
"""Records as dicts."""


def are_rows(data: Any) -> bool:
    """Whether data are a list of dicts."""
    listed = isinstance(data, list | tuple) and len(data) > 0
    return listed and all(isinstance(row, Mapping) for row in data)


def is_frame(data: Any) -> bool:
    """Whether data are a ``datasets.Dataset``, or give Arrow as pandas and polars do."""
    # A column gives Arrow, too, and has no columns.
    named = hasattr(data, "columns") or hasattr(data, "schema")
    return _is_dataset(data) or (named and hasattr(data, "__arrow_c_stream__"))


def _is_dataset(data: Any) -> bool:
    # By name of the module, so that Hugging Face's datasets need not be installed.
    named = any(base.__module__.startswith("datasets.") for base in type(data).__mro__)
    return named and hasattr(data, "to_list")


def as_frame(data: Any) -> pd.DataFrame | pa.Table:
    """The data as a frame. Of dicts every value stays what it is: a missing id makes no floats.

    Raises:
        ConfigError: It is of another type.
        DataError: It holds what Arrow has no type for.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(data, pd.DataFrame):
        return data
    if are_rows(data):
        names = dict.fromkeys(name for row in data for name in row)
        values = {name: [row.get(name) for row in data] for name in names}
        # dtype=object: pandas would turn whole numbers into floats where one is missing.
        return pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in values.items()})
    if not is_frame(data):
        raise ConfigError(
            f"data is of type {type(data).__name__}.",
            hint="Pass the path of a file, a data frame, a list of dicts or a datasets.Dataset "
            "(of a DatasetDict one split: data['train']).",
        )
    try:
        return pa.table(data.with_format("arrow")[:] if _is_dataset(data) else data)
    except Exception as error:  # its message may quote a value
        kind = type(error).__name__
    raise DataError(
        f"the frame holds what cannot be written as Arrow ({kind}).",
        hint="Pass the wanted columns alone, of strings, numbers and dates.",
    )


def table_of(
    frame: pd.DataFrame | pa.Table,
    text: str | None,
    label: str | None,
    unit: str | None,
    beside: Iterable[str] = (),
    *,
    prefix: str = "dataset.",
) -> pa.Table:
    """The columns that are wanted of a frame, as a table that Parquet holds.

    Privacy: of a column of type object, all values decide together which type it has; no message
    shows one.

    Args:
        frame: The data.
        text: Column of the text, or a form over several; None: none.
        label: Column of the label.
        unit: Column of the unit id.
        beside: Columns beside the text.
        prefix: What stands before a setting where the user gives it, for messages.

    Raises:
        ConfigError: The unit is the frame's index, whose numbers shift with the rows, or names are
            not strings or come twice.
        DataError: A column is missing, or of a type that holds no texts, labels or ids.
    """
    import pyarrow as pa

    # Names are looked at before any value: a wrong call reads no record.
    arrow = isinstance(frame, pa.Table)
    names = frame.column_names if arrow else list(frame.columns)
    if not (arrow or frame.columns.nlevels == 1) or len(set(names)) < len(names):
        raise ConfigError(
            "the frame has columns of several levels, or two of one name.",
            hint="Give every column one name of its own.",
        )
    if unit is not None:
        refuse_index(unit, index=not arrow and unit in {*frame.index.names} - {*names})
    in_text = (text,) if text and text in names else text_columns(text)
    several = len(in_text) > 1
    columns = {f"text ({n})" if several else "text": name for n, name in enumerate(in_text, 1)}
    further = {"label": label, "unit": unit} | {f"columns.{name}": name for name in beside}
    columns |= {setting: name for setting, name in further.items() if name is not None}
    missing = {setting: name for setting, name in columns.items() if name not in names}
    listed = [name for name in names if isinstance(name, str)]
    refuse_missing(FRAME, missing, listed, prefix=prefix)
    arrays = {}
    for setting, name in columns.items():
        try:
            arrays[name] = frame[name] if arrow else pa.array(frame[name], from_pandas=True)
        # Their messages may quote a value.
        except (pa.ArrowException, UnicodeError, OverflowError):
            raise DataError(
                f"column {name!r} ({prefix}{setting}) of the frame holds values of several types, "
                "or text that is no UTF-8.",
                hint=f"Make them one: frame[{name!r}].astype('string').",
            ) from None
    table = pa.table(arrays)
    check_schema(FRAME, table.schema, columns)
    return table


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
    return str(Workspace(Path()).state / "data" / f"{name}-{version}.parquet")


def write_version(table: pa.Table, target: Path) -> None:
    """Write a table, mode 0600, whole or not at all.

    The file of a version is never written over: releases were made from it.

    Raises:
        ConfigError: There is a file of that version with other records.
        StorageError: Disk full or no permission.
    """
    from pyarrow import parquet

    # Each level for itself: a parent that mkdir makes on the way would be readable by all.
    private_folder(target.parent.parent)
    private_folder(target.parent)
    try:
        with atomic_file(target, replace=False) as stream:
            parquet.write_table(table, stream)
    except FileExistsError:
        if not parquet.read_table(target).equals(table):
            raise ConfigError(
                f"{target}: this version exists with different data; versions are immutable.",
                hint="Name another version=, which is a new charge.",
            ) from None
