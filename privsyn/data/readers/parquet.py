"""Rows of a Parquet file, batch by batch. pyarrow is imported on first use."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from privsyn.address import Address, Source
from privsyn.data.artifacts import storage_error
from privsyn.data.readers.columns import Header, check_header, float_unit
from privsyn.data.readers.streams import open_bytes, split_suffix
from privsyn.data.row_counts import JOIN
from privsyn.errors import DataError, NoRows

if TYPE_CHECKING:
    import pyarrow as pa

IMAGE_COLUMN = "images.column"
"""The setting under ``dataset.`` that names a column of image files."""
_WANTED = {
    "unit": ("ids", "strings, whole numbers, dates or UUIDs"),
    "label": ("labels", "strings, whole numbers, dates or truth values"),
    "columns": ("values", "strings, numbers, dates or truth values"),
}
"""Setting -> what its column holds, and the types that it may have."""
_BATCH_ROWS = 512
_BATCH_IMAGES = 16


def check_parquet(path: Source, columns: Mapping[str, str]) -> None:
    """Refuse a file whose schema does not fit; reads no row.

    Args:
        path: The file, plain or compressed as a whole.
        columns: Setting under ``dataset.`` -> column wanted.

    Raises:
        DataError: It is not Parquet, has no row, or a column is missing or has the wrong type.
    """
    with ExitStack() as stack:
        file = _open(path, stack)
        schema, rows = file.schema_arrow, file.metadata.num_rows
    check_schema(path, schema, columns)
    if not rows:
        raise NoRows(f"{path} holds no row.", hint="Check how it was exported.")


def check_schema(path: Source, schema: pa.Schema, columns: Mapping[str, str]) -> None:
    """Refuse a schema that does not fit.

    Args:
        path: Whose it is, for messages.
        schema: Names and types of its columns.
        columns: Setting under ``dataset.`` -> column wanted.

    Raises:
        DataError: A column is missing or has the wrong type.
    """
    from pyarrow import types as t

    check_header(path, columns, schema.names, may_be_record=False)
    for setting, name in columns.items():
        kind = schema.field(name).type
        # pandas writes categories as dictionaries.
        kind = kind.value_type if t.is_dictionary(kind) else kind
        if setting == IMAGE_COLUMN:
            _check_images(path, name, kind)
            continue
        if setting == "unit" and t.is_floating(kind):
            raise float_unit(f"column {name!r} (dataset.unit) of {path}", str(kind))
        setting = "columns" if setting.startswith("columns.") else setting
        if not _is_taken(kind, setting):
            outer = str(kind).partition("<")[0]  # keys of a struct may be content
            what, expected = _WANTED.get(setting, ("text", "strings"))
            listed = what == "text" and "list" in outer
            raise DataError(
                f"column {name!r} (dataset.{setting}) of {path} is of type {outer}, not {what}.",
                hint=JOIN if listed else f"Choose or write a column of {expected}.",
            )


def parquet_rows(path: Source, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Values of the wanted columns, row by row; structs come as mappings.

    Args:
        path: A file that check_parquet passed.
        columns: Setting -> column wanted.

    Raises:
        DataError: The file turns out to be damaged.
    """
    import pyarrow as pa

    names = list(dict.fromkeys(columns.values()))
    with ExitStack() as stack:
        file = _open(path, stack)
        size = _BATCH_IMAGES if IMAGE_COLUMN in columns else _BATCH_ROWS
        leaves = [_leaf(file.schema_arrow.field(name)) for name in names]
        batches = file.iter_batches(size, columns=leaves, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError):
                raise DataError(f"{path} is damaged.", hint="Export the file again.") from None
            if batch is None:
                return
            values = {name: _plain(batch.column(name)) for name in names}
            del batch
            pa.default_memory_pool().release_unused()  # or memory grows with the largest batch
            yield from zip(*(values[name] for name in columns.values()), strict=True)


def parquet_header(path: Source) -> Header:
    """The names in a file's schema.

    Raises:
        DataError: It is not a Parquet file.
    """
    with ExitStack() as stack:
        return Header(tuple(_open(path, stack).schema_arrow.names))


def _leaf(field: Any) -> str:
    """The part of a column that is read: an image's bytes, not its path."""
    from pyarrow import types as t

    return f"{field.name}.bytes" if t.is_struct(field.type) else str(field.name)


def _check_images(path: Source, name: str, kind: Any) -> None:
    from pyarrow import types as t

    if t.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if not (t.is_binary(kind) or t.is_large_binary(kind) or t.is_null(kind)):
        outer = str(kind).partition("<")[0]
        raise DataError(
            f"column {name!r} (dataset.{IMAGE_COLUMN}) of {path} is of type {outer}, not bytes.",
            hint="Write the image files as bytes, or as a struct with a field bytes.",
        )


def _open(path: Source, stack: ExitStack) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    remote = isinstance(path, Address)
    source = _unpack(path, stack) if remote or split_suffix(path)[1] else path
    try:  # pre_buffer, on by default, would hold a whole row group in memory
        file = parquet.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
        return stack.enter_context(file)
    except (pa.ArrowException, OSError):
        raise DataError(
            f"{path} is not a Parquet file, or is damaged.", hint="Export the file again."
        ) from None


def _unpack(path: Source, stack: ExitStack) -> Any:
    """An uncompressed copy on this machine, without a name: Parquet is read from its end."""
    copy = stack.enter_context(tempfile.TemporaryFile())
    with open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            try:
                copy.write(block)
            except OSError as error:
                raise storage_error("write", Path(tempfile.gettempdir()), error) from error
    copy.seek(0)
    return copy


def _is_taken(kind: Any, setting: str) -> bool:
    """Whether a column of this type may hold texts, labels or unit ids."""
    from pyarrow import types as t

    kind = _storage_type(kind)
    if _is_text(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_null(kind):
        return True
    if setting not in _WANTED:
        return False
    if setting != "unit" and (t.is_floating(kind) or t.is_boolean(kind)):
        return True
    moment = t.is_date(kind) or t.is_timestamp(kind)
    return bool(t.is_integer(kind) or t.is_decimal(kind) or moment or _is_uuid(kind))


def _plain(column: Any) -> list[Any]:
    """Values of a column, (rows,), converted one by one. A value that Python cannot hold is a list.

    A list is neither text nor an id, so its row is dropped by itself. Parquet does not guarantee
    UTF-8: other bytes become surrogates, which ``as_text`` refuses.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type != (kind := _storage_type(column.type)):
        column = column.storage
    if _is_text(kind):
        values = column.cast(pa.large_binary()).to_pylist()
        return [v if v is None else v.decode("utf-8", "surrogateescape") for v in values]
    if _is_uuid(kind):
        return [value and UUID(bytes=value) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        column = column.cast(pa.timestamp(kind.unit))  # in UTC
        return [_moment(value, zone) for value in column]
    if pa.types.is_date(kind):
        return [_moment(value) for value in column]
    return list(column.to_pylist())


def _moment(value: Any, zone: str = "") -> Any:
    """A date or time as text; a list if Python's calendar does not reach it."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        return []
    return plain and plain.isoformat() + zone


def _storage_type(kind: Any) -> Any:
    """The type that values of an extension type are stored in."""
    return getattr(kind, "storage_type", kind)


def _is_uuid(kind: Any) -> bool:
    from pyarrow import types as t

    return bool(t.is_fixed_size_binary(kind) and kind.byte_width == 16)


def _is_text(kind: Any) -> bool:
    from pyarrow import types as t

    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))
