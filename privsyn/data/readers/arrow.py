"""Rows of Parquet, queries and tables, batch by batch. pyarrow is imported on first use."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from privsyn.address import Address, Origin, Source, Stream
from privsyn.data.artifacts import atomic_file, storage_errors
from privsyn.data.readers.columns import Header, check_header, float_unit
from privsyn.data.readers.streams import open_bytes, split_suffix
from privsyn.data.readers.tables import open_stream, refusal
from privsyn.data.row_counts import JOIN
from privsyn.errors import DataError, NoRows

if TYPE_CHECKING:
    import pyarrow as pa

TURNS = "text of turns"
"""Stands for the setting ``dataset.text`` where records are conversations."""
IMAGE_COLUMN = "images.column"
"""The setting under ``dataset.`` that names a column of image files."""
_WANTED = {
    "unit": ("ids", "strings, whole numbers, dates or UUIDs"),
    "label": ("labels", "strings, whole numbers, dates or truth values"),
    "columns": ("values", "strings, numbers, dates or truth values"),
    TURNS: ("turns", "lists of role and content, or their JSON"),
}
"""Setting -> what its column holds, and the types that it may have."""
_BATCH_ROWS = 512
_BATCH_IMAGES = 16


@dataclass(frozen=True)
class PrivateCopy(Stream):
    """What was read of a query or a table, in a private file: its one snapshot.

    Attributes:
        file: The file.
        name: What messages call it.
    """

    file: Path
    name: str

    def __str__(self) -> str:
        return self.name


def copy_batches(source: Stream, file: Path) -> PrivateCopy:
    """Read a query or a table once, into a private file, which appears whole or not at all.

    Raises:
        DataError: As ``check_batches``.
        StorageError: Disk full or no permission, or the source cannot be reached.
    """
    import pyarrow as pa

    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with open_batches(source) as (schema, batches), atomic_file(file) as stream:
        with pa.ipc.new_stream(stream, schema, options=packed) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return PrivateCopy(file, f"{source}")


def check_batches(source: Origin, columns: Mapping[str, str]) -> None:
    """Refuse a source whose schema does not fit; reads no column, and of a stream one row.

    Args:
        source: A query, a table, or a Parquet file, plain or compressed as a whole.
        columns: Setting under ``dataset.`` -> column wanted.

    Raises:
        DataError: It is not Parquet, has no row, or a column is missing or has the wrong type.
    """
    with open_batches(source, (), most=1) as (schema, batches):
        check_schema(source, schema, columns)
        if not any(batch.num_rows for batch in batches):
            raise NoRows(f"{source} holds no row.", hint="Check how it was exported.")


def check_schema(path: Origin, schema: pa.Schema, columns: Mapping[str, str]) -> None:
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
        kind, origin = schema.field(name).type, schema.field(name).metadata or {}
        # pandas writes categories as dictionaries.
        kind = kind.value_type if t.is_dictionary(kind) else kind
        if setting == IMAGE_COLUMN:
            _check_images(path, name, kind)
            continue
        if setting == "unit" and t.is_floating(kind):
            raise float_unit(f"column {name!r} (dataset.unit) of {path}", str(kind))
        setting = "columns" if setting.startswith("columns.") else setting
        money = origin.get(b"POSTGRESQL:type") == b"money"  # its driver gives cents
        if money or not _is_taken(kind, setting):
            # Keys of a struct may be content.
            outer = "money" if money else str(kind).partition("<")[0]
            what, expected = _WANTED.get(setting, ("text", "strings"))
            listed = what == "text" and "list" in outer
            raise DataError(
                f"column {name!r} (dataset.{setting}) of {path} is of type {outer}, not {what}.",
                hint=JOIN if listed else f"Choose or write a column of {expected}.",
            )


def batch_rows(source: Origin, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Values of the wanted columns, row by row; structs come as mappings.

    Args:
        source: One that check_batches passed.
        columns: Setting -> column wanted.

    Raises:
        DataError: The source turns out to be damaged.
    """
    import pyarrow as pa

    names = list(dict.fromkeys(columns.values()))
    size = _BATCH_IMAGES if IMAGE_COLUMN in columns else _BATCH_ROWS
    with open_batches(source, names, size) as (_, batches):
        for batch in batches:
            values = {name: _plain(batch.column(name)) for name in names}
            del batch
            pa.default_memory_pool().release_unused()  # or memory grows with the largest batch
            yield from zip(*(values[name] for name in columns.values()), strict=True)


def batch_header(source: Origin) -> Header:
    """The names in a schema.

    Raises:
        DataError: The source cannot be read.
    """
    with open_batches(source, (), most=1) as (schema, _):
        return Header(tuple(schema.names))


def fingerprint_rows(source: Stream, key: bytes) -> str:
    """Keyed hash of all rows of a query or a table, whatever their order, as ``fingerprint``.

    It is a sum of keyed hashes of rows, of the names and values in them that are not missing
    [MSet-Add-Hash, Clarke et al. 2003]. So a compaction, another order and an empty column change
    nothing; a row that comes twice counts twice.

    Args:
        source: The query or table.
        key: As for ``fingerprint``.

    Returns:
        40 hex digits.
    """
    total = count = 0
    with open_batches(source) as (schema, batches):
        for batch in batches:
            for values in zip(*map(_comparable, batch.columns), strict=True):
                cells = [
                    cell for cell in zip(schema.names, values, strict=True) if cell[1] is not None
                ]
                row = repr(sorted(cells, key=itemgetter(0))).encode()
                digest = hashlib.blake2b(row, key=key, person=b"privsyn row").digest()
                total, count = total + int.from_bytes(digest), count + 1
    whole = f"{count} {total % 2**512}".encode()
    return hashlib.blake2b(whole, key=key, person=b"privsyn rows", digest_size=20).hexdigest()


def _comparable(column: Any) -> list[Any]:
    """Values of a column as they are compared, (rows,): moments in nanoseconds, of any unit."""
    kind = getattr(column, "dictionary", column).type
    values = column.cast(_exact(kind)).to_pylist()
    unit = re.match(r"(?:date|time|timestamp|duration)\d*\[(\w+)", str(kind))
    if unit is None:
        return list(values)
    # The same rows may be read by another library, whose times have another unit.
    return [value and value * _NANOSECONDS[unit[1]] for value in values]


_NANOSECONDS = {"day": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_LISTS = {"list", "large_list", "fixed_size_list", "list_view", "large_list_view"}


def _exact(kind: Any) -> Any:
    """The type that values are compared in: Python's texts and times are coarser than Arrow's."""
    import pyarrow as pa
    from pyarrow import types as t

    kind = _storage_type(kind)
    if t.is_dictionary(kind):
        return _exact(kind.value_type)
    if _is_text(kind):
        return pa.large_binary()
    if t.is_temporal(kind) and not t.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if t.is_map(kind):
        return pa.map_(_exact(kind.key_type), _exact(kind.item_type))
    if str(kind).partition("<")[0] in _LISTS:
        return pa.large_list(_exact(kind.value_type))
    if t.is_struct(kind):
        return pa.struct([field.with_type(_exact(field.type)) for field in kind])
    return kind


@contextmanager
def open_batches(
    source: Origin,
    names: Sequence[str] | None = None,
    size: int = _BATCH_ROWS,
    *,
    most: int | None = None,
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Schema and batches of a source.

    Args:
        source: A query, a table, what was kept of one, or a Parquet file.
        names: Columns that are needed; a stream gives all. None: all.
        size: Rows of a batch at most.
        most: Rows that are needed; there may be more.

    Raises:
        DataError: It cannot be read, or is damaged. Raised while reading, too.
        StorageError: The same, where trying again may help.
    """
    import pyarrow as pa

    with ExitStack() as stack:
        if isinstance(source, PrivateCopy):
            file = stack.enter_context(open_bytes(source.file))
            reader = stack.enter_context(pa.ipc.open_stream(file))
            schema, batches = reader.schema, iter(reader)
        elif isinstance(source, Stream):
            schema, batches = stack.enter_context(open_stream(source, most))
        else:
            parquet = _open(source, stack)
            schema = parquet.schema_arrow
            leaves = None if names is None else [_leaf(schema.field(name)) for name in names]
            batches = parquet.iter_batches(size, columns=leaves, use_threads=False)
        yield schema, _sliced(source, batches, size)


def _sliced(source: Origin, batches: Iterator[Any], size: int) -> Iterator[Any]:
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:  # foreign: its message may quote a value
            raise refusal(source, error) from None
        if batch is None:
            return
        yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def _leaf(field: Any) -> str:
    """The part of a column that is read: an image's bytes, not its path."""
    from pyarrow import types as t

    return f"{field.name}.bytes" if t.is_struct(field.type) else str(field.name)


def _check_images(path: Origin, name: str, kind: Any) -> None:
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
            with storage_errors("write", Path(tempfile.gettempdir())):
                copy.write(block)
    copy.seek(0)
    return copy


def _is_taken(kind: Any, setting: str) -> bool:
    """Whether a column of this type may hold texts, labels or unit ids."""
    from pyarrow import types as t

    if str(kind).startswith("extension<arrow.opaque") and not _is_text(_storage_type(kind)):
        return False  # a database's own form of a value
    kind = _storage_type(kind)
    if _is_text(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_null(kind):
        return True
    if setting == TURNS:
        return bool(t.is_list(kind) or t.is_large_list(kind))
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
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # a moment or bytes within a list, say
        return [_nested(value) for value in column]


def _nested(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return []


def _moment(value: Any, zone: str = "") -> Any:
    """A date or time as text; a list if Python's calendar does not reach it."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        return []
    return plain.isoformat() + zone if isinstance(plain, date) else plain


def _storage_type(kind: Any) -> Any:
    """The type that values of an extension type are stored in."""
    return getattr(kind, "storage_type", kind)


def _is_uuid(kind: Any) -> bool:
    from pyarrow import types as t

    return bool(t.is_fixed_size_binary(kind) and kind.byte_width == 16)


def _is_text(kind: Any) -> bool:
    from pyarrow import types as t

    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))
