"""Reading records from the files of a private source, plain or compressed, one at a time.

``FORMATS`` has the formats. A header is read for the names of its columns; no other content is
read for it.

Privacy. A record can only be in a run or not. A row that cannot be parsed or decoded, or has no
text, no unit id or an undeclared label, is dropped silently; that decision depends on this row
alone. A CSV whose quotes follow another rule, so that its rows run together, is refused as a whole
(lines.py). Only the shape of the whole file (missing, empty, without a column, rows that run
together) is an error. No error and no count shows the content of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from privsyn.address import Address, Origin, Source, Stream
from privsyn.data.columns import Ask, Column, in_cells, in_file
from privsyn.data.contents import Unusable, content_columns, content_of
from privsyn.data.conversations import messages_of
from privsyn.data.public_files import pieces
from privsyn.data.readers.arrow import (
    IMAGE_COLUMN,
    batch_header,
    batch_rows,
    check_batches,
    fingerprint_rows,
)
from privsyn.data.readers.columns import (
    Header,
    called_after_people,
    fault,
    float_unit,
    looks_like_name,
)
from privsyn.data.readers.image_files import FILE, check_folder, check_npz, folder_rows, npz_rows
from privsyn.data.readers.lines import (
    Row,
    check_csv,
    check_json,
    csv_header,
    csv_rows,
    json_header,
    json_rows,
)
from privsyn.data.readers.streams import (
    COMPRESSIONS,
    WAY_OUT,
    Part,
    bounded_lines,
    check_file,
    explained,
    fingerprint,
    is_folder,
    open_bytes,
    parts,
    refuse_table,
    split_suffix,
    there,
)
from privsyn.data.readers.tables import table_at
from privsyn.data.records import Private, Record
from privsyn.data.row_counts import RowCounts, folded, undeclared
from privsyn.data.settings import NO_UNIT, DatasetConfig
from privsyn.data.unit_key import label_id, lost_digits, spells_nothing, unit_id
from privsyn.errors import DataError, NoRows, StorageError


@dataclass(frozen=True)
class Format:
    """How source files of one format are checked and read.

    Attributes:
        check: Refuses a file whose shape does not fit; given the path and setting -> column.
        rows: Its rows; in place of one that cannot be parsed the reason. DataError if they run
            together.
        header: The names of its columns; None where ``init`` does not ask for them.
        holds: Kinds of records such a file may hold.
        streamed: Whether such a file may be compressed, or lie in an object store.
        headed: Whether each file says what its columns are; else its rows do.
        lines: Whether its bytes are lines of text, in which all columns are looked through for what
            public files must not hold; else its texts alone are. Never by default.
    """

    check: Callable[[Source, Mapping[str, str]], None]
    rows: Callable[[Source, Mapping[str, str]], Iterator[Row | str]]
    header: Callable[[Source], Header] | None = None
    holds: tuple[str, ...] = ("texts",)
    streamed: bool = True
    headed: bool = True
    lines: bool = field(kw_only=True)


_JSON = Format(check_json, json_rows, json_header, headed=False, lines=True)
_CSV = Format(check_csv, csv_rows, csv_header, lines=True)

FORMATS: Mapping[str, Format] = {
    ".jsonl": _JSON,
    ".ndjson": _JSON,
    ".json": _JSON,
    ".csv": _CSV,
    ".tsv": _CSV,
    ".parquet": Format(check_batches, batch_rows, batch_header, ("texts", "images"), lines=False),
    ".npz": Format(check_npz, npz_rows, holds=("images",), streamed=False, lines=False),
}
"""Suffix -> how such a source file is read."""
_FOLDER = Format(check_folder, folder_rows, holds=("images",), lines=False)


def source_of(cfg: DatasetConfig, path: Origin | None = None) -> Origin:
    """Where records are read from: files, or the query, or the table that lies at the path."""
    source = path or cfg.source
    if isinstance(source, Stream):
        return source
    return table_at(source, None if path else cfg.snapshot) or source


def has_come(cfg: DatasetConfig) -> bool:
    """Whether a dataset's file is there, or its query or table has a row.

    Raises:
        DataError: A query or table cannot be read.
        StorageError: The store or database cannot be reached.
    """
    source = source_of(cfg)
    if not isinstance(source, Stream):
        return there(source)
    with suppress(NoRows):
        check_batches(source, {})
        return True
    return False


def fingerprint_of(cfg: DatasetConfig, key: bytes) -> str:
    """Keyed hash of the content of a dataset's source; see ``fingerprint``."""
    source = source_of(cfg)
    if isinstance(source, Stream):
        return fingerprint_rows(source, key)
    return fingerprint(source, key)


def check_source(cfg: DatasetConfig, path: Origin | None = None) -> None:
    """Refuse a file whose shape does not fit the config; reads its head only.

    A CSV has the columns of its header, Parquet those of its schema. A JSON Lines file lacks a
    column if none of its first 1000 rows has the key, so no single record decides. In a folder
    or an address every part must fit or be empty; of JSON Lines parts, one must fit.

    Args:
        cfg: Path and columns.
        path: Another file with the same columns, instead of ``cfg.path``.

    Raises:
        DataError: Missing, unreadable, of unknown format, without a row, or without a column.
    """
    source = source_of(cfg, path)
    columns, formats = _columns(cfg, source), {}
    if isinstance(source, Stream):
        if cfg.unit is None:
            raise DataError(f"dataset.{NO_UNIT}.", hint="Name the column of the ids.")
        return check_batches(source, columns)
    path = source
    refuse_table(path)
    files = _parts(cfg, path)
    for part in files:
        with explained(part):
            formats[split_suffix(part)[0]] = _format(cfg, part)
    if len(formats) > 1:
        raise DataError(
            f"{path} holds files of several formats: {', '.join(sorted(formats))}.",
            hint="Keep those of the records in a folder of their own.",
        )
    (form,) = formats.values()
    refusals: list[DataError] = []
    for part in files:
        try:
            with explained(part):
                form.check(part, columns)
        except DataError as error:
            # privacy: one record can decide whether a part has a row, and in JSON Lines whether
            # it has a column. So the error is raised only if it holds for every part.
            if isinstance(error, StorageError) or (form.headed and not isinstance(error, NoRows)):
                raise
            refusals.append(error)
        else:
            if not form.headed:
                return
    if len(refusals) == len(files):
        raise refusals[0]


def check_rows(cfg: DatasetConfig) -> None:
    """Refuse ``cfg.path`` and ``cfg.test_path`` if rows run together or ids have lost digits.

    Called before anything is spent; reads every row. A refusal is a fact about the writer of the
    file (lines.py, columns.py:float_unit).

    Raises:
        DataError: As said; names the setting to change.
    """
    for path in [source_of(cfg)] + ([source_of(cfg, cfg.test_path)] if cfg.test_path else []):
        check_source(cfg, path)
        _refuse_asked(cfg, path)
        columns = _columns(cfg, path)
        for row in _rows(cfg, path, columns):
            if "unit" in columns and not isinstance(row, str):
                _refuse_lost(cfg, path, row[-1])


def _refuse_asked(cfg: DatasetConfig, path: Origin) -> None:
    """Refuse a source that has a column for which a model is asked: one of the two is a mistake."""
    # privacy: of JSON Lines the keys of most rows, so that no record decides
    names = _names(cfg, path) if cfg.questions else ()
    if both := [name for name in cfg.questions if name in names]:
        raise DataError(
            f"column {both[0]!r} (dataset.columns, with ask) is in {path}: a model is asked for "
            "what no file has.",
            hint="Leave ask out and take the file's, or give the column another name.",
        )


def _refuse_lost(cfg: DatasetConfig, path: Origin, unit: Any) -> None:
    """Refuse a source for an id that lost digits: its writer made floats of all of them."""
    if lost_digits(unit):
        raise float_unit(f"column {cfg.unit!r} (dataset.unit) of {path}")


def read_records(
    cfg: DatasetConfig,
    path: Origin | None = None,
    row_counts: RowCounts | None = None,
    ask: Ask | None = None,
) -> Iterator[Private[Record]]:
    """The usable records of the private file, streaming, in file order.

    Without ``cfg.unit`` the unit is the row's number. Unusable rows are counted, too, so a row that
    becomes unusable does not renumber the others.

    Args:
        cfg: Path, columns and declared labels.
        path: Another file with the same columns, instead of ``cfg.path``.
        row_counts: Filled in while reading. Internal.
        ask: Answers the columns that are asked, of every record; without it they are missing.

    Returns:
        An iterator; it also raises DataError if the file turns out to be cut off.

    Raises:
        DataError: As check_source, before the first record.
    """
    source = source_of(cfg, path)
    check_source(cfg, source)
    if ask is not None:
        _refuse_asked(cfg, source)
    return _records(cfg, source, _columns(cfg, source), row_counts or RowCounts(), ask)


def _rows(cfg: DatasetConfig, path: Origin, columns: Mapping[str, str]) -> Iterator[Row | str]:
    if isinstance(path, Stream):
        yield from batch_rows(path, columns)
        return
    for part in _parts(cfg, path):
        yield from _format(cfg, part).rows(part, columns)


def _parts(cfg: DatasetConfig, path: Source) -> list[Source]:
    """The files of a source; a folder of images is one source."""
    return [path] if _holds_images(cfg) and is_folder(path) else parts(path)


def _holds_images(cfg: DatasetConfig) -> bool:
    return IMAGE_COLUMN in content_columns(cfg)


def lines_and_values(
    cfg: DatasetConfig, path: Origin | None = None
) -> Iterator[Private[list[str]]]:
    """Lines of the private file and the values in them as texts, row by row, used or not.

    From a format that is no lines only the texts of records and their turns; from images nothing.

    Raises:
        DataError: As read_records.
    """
    source = source_of(cfg, path)
    check_source(cfg, source)
    if _holds_images(cfg):
        return
    files = [] if isinstance(source, Stream) else _parts(cfg, source)
    if not (files and FORMATS[split_suffix(files[0])[0]].lines):
        for record in read_records(cfg, source):
            text = record.reveal().content
            turns = [turn["content"] for turn in messages_of(text, cfg.roles)] if cfg.roles else []
            yield Private(
                [piece for part in (text, *turns) for piece in (part, *part.splitlines())]
            )
        return
    for part in files:
        with open_bytes(part) as stream:
            for line in bounded_lines(stream.readline):
                if line is not None:
                    yield Private(list(pieces([line.decode("utf-8", "replace")])))


def columns_of_people(cfg: DatasetConfig, path: Origin | None) -> list[str]:
    """Columns whose names say that they hold ids of people, besides those of the settings."""
    path = source_of(cfg, path)
    if isinstance(path, Address):  # a header would cost a request to the object store
        return []
    named, names = {*_columns(cfg, path).values()}, _names(cfg, path)
    return [name for name in names if name not in named and called_after_people(name)]


def _names(cfg: DatasetConfig, path: Origin) -> tuple[str, ...]:
    """Columns of a source by its first file; none where that has no header."""
    try:
        return read_header(path if isinstance(path, Stream) else _parts(cfg, path)[0]).names
    except DataError:
        return ()


def _columns(cfg: DatasetConfig, path: Origin) -> Mapping[str, str]:
    """Setting -> column. The content comes first, the unit last."""
    # In a folder of images every file is a unit.
    unit = FILE if cfg.unit is None and _holds_images(cfg) and is_folder(path) else cfg.unit
    beside = {f"columns.{name}": name for name in in_file(cfg.columns)}
    columns = {**content_columns(cfg), "label": cfg.label, **beside, "unit": unit}
    return {setting: column for setting, column in columns.items() if column is not None}


def _records(
    cfg: DatasetConfig,
    path: Origin,
    columns: Mapping[str, str],
    row_counts: RowCounts,
    ask: Ask | None,
) -> Iterator[Private[Record]]:
    labels = {folded(label): label for label in reversed(cfg.labels) if folded(label)}
    declared = {label_id(label): label for label in cfg.labels}
    width = len(content_columns(cfg))
    has_labels, has_units = cfg.label is not None, "unit" in columns
    for number, row in enumerate(_rows(cfg, path, columns)):
        row_counts.rows += 1
        if isinstance(row, str):
            row_counts.count_dropped(row)
            continue
        unit = unit_id(row[-1] if has_units else number)
        if unit is None:  # before all that could drop the row
            _refuse_lost(cfg, path, row[-1])
        label = None
        if has_labels:  # before the content: decoding an image is slow
            spelled = label_id(row[width])
            label = declared.get(spelled)
            if label is None and (spelled is None or spells_nothing(spelled)):
                row_counts.count_dropped(f"label: {fault(row[width])}")
                continue
            if label is None:
                row_counts.count_dropped(undeclared(labels.get(folded(spelled or ""))))
                continue
        if unit is None:
            row_counts.count_dropped(f"unit: {fault(row[-1])}")
            continue
        content = content_of(cfg, row[:width], row_counts)
        if isinstance(content, Unusable):
            row_counts.count_dropped(content.reason)
            continue
        values = dict(zip(in_file(cfg.columns), row[width + has_labels :], strict=False))
        beside = [values.get(name) for name in cfg.columns]
        cells = tuple(map(Column.cell, cfg.columns.values(), beside))
        cells = ask(content, cells) if ask else cells
        record = Record(unit, label, content or in_cells(cfg.columns, cells), cells)
        row_counts.count_used(record)
        row_counts.count_columns(cfg.columns, record.row, beside)
        yield Private(record)


def _format(cfg: DatasetConfig, path: Source) -> Format:
    """The reader of a file.

    Raises:
        DataError: It is missing, not readable, or of an unknown format.
    """
    images = _holds_images(cfg)
    if images and is_folder(path):
        return _FOLDER
    check_file(path)
    return _format_by_name(path, "images" if images else "texts")


def _format_by_name(path: Source, records: str) -> Format:
    suffix, packed = split_suffix(path)
    file_format = FORMATS.get(suffix)
    if file_format is not None and isinstance(path, Address) and not file_format.streamed:
        raise DataError(
            f"{path} has a format that cannot be read from an object store.",
            hint="Copy it to this machine, or write the records as Parquet.",
        )
    if (
        file_format is None
        or records not in file_format.holds
        or (packed and not file_format.streamed)
    ):
        # Behind a point in the name of a part a name may stand, too.
        ending = "otherwise" if isinstance(path, Part) else f"in {suffix!r}"
        known = {name: form for name, form in FORMATS.items() if records in form.holds}
        packed_too = ", ".join(name for name, form in known.items() if form.streamed)
        raise DataError(
            f"{path} ends {ending}; known for {records} are {', '.join(known)} and, for images, a "
            f"folder; {packed_too} also with {', '.join(COMPRESSIONS)}.",
            hint=WAY_OUT.get(suffix, "Convert the file; if its name is wrong, rename it."),
        )
    return file_format


def read_header(path: Origin, *, setting: str = "dataset.path") -> Header:
    """The columns of a file of texts, a query or a table: as its format says them.

    Args:
        path: The file, query or table.
        setting: The setting that names the file, for messages.

    Raises:
        DataError: The file cannot be read, or names no columns.
    """
    if isinstance(path, Stream):
        header = batch_header(path)
    else:
        refuse_table(path)
        with explained(path):
            check_file(path, setting)
            read = _format_by_name(path, "texts").header
            header = Header(()) if read is None else read(path)
    names = tuple(name for name in header.names if looks_like_name(name))
    if not names and not header.rare:
        raise DataError(f"{path} has no columns with names.", hint="Is it the right file?")
    return Header(names, header.rare)
