"""Partition: sort the records of the private file into buckets, one file per shard.

Two passes in bounded memory. The lines are sorted by unit, so that the bound on records per unit
sees all records of a unit together. Then each line goes to the shard of its bucket. The marker
``complete.json`` is written last and names what the partition was made of.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby, islice
from json.encoder import encode_basestring_ascii as as_json
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from privsyn.data.artifacts import (
    atomic_file,
    private_folder,
    private_opener,
    storage_error,
    storage_errors,
    sync_folder,
    wipe,
    write_json_atomic,
)
from privsyn.data.columns import Ask
from privsyn.data.readers.formats import read_records
from privsyn.data.records import Bucket, Cell, Private, Record, Row
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import DatasetConfig
from privsyn.data.unit_key import UnitKey
from privsyn.errors import DataError, VerificationError

MARKER = "complete.json"
"""Its presence says that the partition is whole: it is written last."""

FORMAT = 3

RESTORE_HINT = "Restore the file, or mark the release as lost: it is never partitioned again."


def is_finished(out: Path, marker: dict[str, Any]) -> bool:
    """Whether the partition is there and whole, judged by its marker.

    Raises:
        VerificationError: It was made with other settings, or one of its files is gone.
    """
    occupied = out.is_dir() and any(out.iterdir())
    on_disk = read_marker(out)
    if on_disk is None:
        if occupied:  # a partition arrives by one rename, with its marker
            raise missing_file_error(out / MARKER)
        return False
    # Draws may have been made from it: another layout under the same release would redraw them.
    refuse_other(out, on_disk, marker)
    for shard in range(marker["shards"]):
        path = out / shard_name(shard)
        if not path.is_file():
            raise missing_file_error(path)
    return True


def missing_file_error(path: Path) -> VerificationError:
    """The error for a file of a partition that is no longer there."""
    return VerificationError(f"{path} is gone.", hint=RESTORE_HINT)


def read_marker(out: Path) -> dict[str, Any] | None:
    """Content of the marker file; None if there is no such file.

    Raises:
        VerificationError: It is damaged.
    """
    path = out / MARKER
    try:
        marker = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error("read", path, error) from error
    except ValueError:
        raise VerificationError(f"{path} is damaged.") from None
    return marker if isinstance(marker, dict) else {}


def refuse_other(out: Path, marker: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse a partition that was made with other settings.

    Raises:
        VerificationError: Names what differs.
    """
    # Only names are reported: the marker holds a hash made with the secret key.
    differing = sorted(name for name, value in expected.items() if marker.get(name) != value)
    if differing:
        raise VerificationError(
            f"the partition in {out} was made with another value of {', '.join(differing)}.",
            hint="Keep the settings of a release until it is finished.",
        )


def cells_digest(cells: Sequence[Cell]) -> str:
    """Digest of the cells of a release, in their order."""
    rows = [[cell.index, cell.label, cell.bucket] for cell in cells]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def shard_name(shard: int) -> str:
    """File of a shard's records."""
    return f"shard-{shard:05d}.jsonl"


HEX = 32
"""Width of the two keyed hashes, unit and record, that a line begins with."""

_SORTED_TOGETHER = 1 << 25
"""Bytes of lines that are sorted in memory; more are sorted runs in files."""
_MERGED_TOGETHER = 500
"""Runs that are open at once."""


def sort_lines(lines: Iterable[bytes], most: int, folder: Path) -> Iterator[bytes]:
    """Lines in order, of each unit the ``most`` with the smallest records' hashes.

    The order is part of the format of a partition: the same for any amount of memory.

    Args:
        lines: Each begins with the hashes of its unit and of its record.
        most: Lines of a unit.
        folder: A private folder. Files in it have no name, so a kill leaves none.

    Raises:
        OSError: Disk full or no permission.
    """
    with ExitStack() as stack:

        def run(ordered: Iterable[bytes]) -> IO[bytes]:
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            file.writelines(ordered)
            file.seek(0)
            return file

        runs, gathered, size = list[IO[bytes]](), list[bytes](), 0
        for line in lines:
            gathered.append(line)
            size += len(line)
            if size > _SORTED_TOGETHER:
                # One unit may have any number of records: a run has no more of it than are used.
                runs.append(run(_bound(sorted(gathered), most)))
                gathered, size = [], 0
            if len(runs) == _MERGED_TOGETHER:
                merged = run(_bound(heapq.merge(*runs), most))
                for one in runs:
                    one.close()
                runs = [merged]
        yield from _bound(heapq.merge(sorted(gathered), *runs), most)


def _bound(ordered: Iterable[bytes], most: int) -> Iterator[bytes]:
    # By keyed hashes, so which records a unit keeps depends on the key and that unit's records
    # alone, not on the order of the file or on other units.
    for _, group in groupby(ordered, key=itemgetter(slice(HEX))):
        yield from islice(group, most)


_WRITTEN_TOGETHER = 1 << 25
"""Bytes of lines in memory before they are appended to their shards."""

_SOME = 10_000
"""Lines of a file of buckets that are read at once where their texts are not wanted."""
_SHARD = slice(2 * HEX, 2 * HEX + 5)


def partition(
    cfg: DatasetConfig,
    key: bytes,
    cells: Sequence[Cell],
    out: Path,
    n_shards: int,
    *,
    seed: str,
    before_finish: Callable[[], None] | None = None,
    row_counts: RowCounts | None = None,
    ask: Ask | None = None,
) -> None:
    """Split the private file into one file per shard, in memory independent of its size.

    Held-out units are left out. Cell ``i`` is in shard ``i mod n_shards``. Does nothing if
    ``out`` holds the finished partition already. A killed attempt leaves its own hidden folder
    beside ``out``, which nothing reads.

    Args:
        cfg: The private file and its columns, the bound on records per unit, the hold-out share.
        key: Secret of the lineage, drawn before any record was read.
        cells: All cells of the release; per label their buckets are numbered from 0 without gaps.
        out: Folder to write, mode 0700; the files in it have mode 0600.
        n_shards: Number of shards.
        seed: Secret of the release, drawn before any record was read: buckets are filled by it.
        before_finish: Called once, when the files of the shards are durable and before the
            partition counts as finished. Not called if another attempt finished first. If it
            raises, the partition is not finished.
        row_counts: Filled in while the file is read; stays empty if the partition is already there.
            Internal.
        ask: Answers the columns that are asked, of the records that are used.

    Raises:
        DataError: The private file is missing, empty, lacks a column, or is damaged.
        StorageError: Disk full or no permission; nothing is left behind.
        VerificationError: ``out`` is finished, but was made with other settings or lacks a file of
            a shard; or it holds something else.
    """
    if not 1 <= n_shards < 10**5:
        raise ValueError(f"n_shards={n_shards} must be in 1..99999")
    if not seed:  # privacy: buckets would be those of every other release [B19]
        raise ValueError("a partition needs the seed of its release")
    secret = UnitKey(key, seed)
    marker = _marker(cfg, secret, cells, n_shards)
    groups = _groups(cells)
    if is_finished(out, marker):
        return
    if cfg.questions and ask is None:
        raise ValueError("a partition with columns that are asked needs their answers")
    # Each attempt has its own draft: two processes may partition at the same time, and the first
    # rename wins.
    draft = out.with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        private_folder(draft)
        with storage_errors("write", draft):
            lines = _lines(cfg, secret, groups, n_shards, row_counts)
            ordered = sort_lines(lines, cfg.max_records_per_unit, draft)
            if ask is not None:  # behind the bound: a unit's other records need no answer
                ordered = (_answered(line, ask) for line in ordered)
            _write_shards(ordered, draft, n_shards)
        # Another attempt may have finished while this one was reading.
        if not is_finished(out, marker):
            if before_finish is not None:
                before_finish()
            write_json_atomic(draft / MARKER, marker, mode=0o600)
            _move(draft, out, marker)
    finally:
        wipe(draft)


def read_holdout(cfg: DatasetConfig, key: bytes) -> Iterator[Private[Record]]:
    """Records from which no release of the dataset is made, for internal evaluation only.

    The held-out units of ``cfg.path`` (all their records), then all of ``cfg.test_path``.

    Raises:
        DataError: As for partition, and for ``test_path`` likewise.
    """
    secret = UnitKey(key)
    if cfg.holdout:
        for record in read_records(cfg):
            if secret.name(record.reveal().unit)[1] < cfg.holdout:
                yield record
    if cfg.test_path is not None:
        yield from read_records(cfg, cfg.test_path)


def keep_holdout(cfg: DatasetConfig, key: bytes, file: Path) -> None:
    """Write the records of held-out units of ``cfg.path`` to a private file, for ``held_units``.

    The file appears whole or not at all, so a slow attempt cannot change it under a later one.

    Records of ``cfg.test_path`` are left out: the dataset's account protects nobody in that file.

    Raises:
        DataError: As for partition.
        StorageError: Disk full or no permission.
    """
    secret = UnitKey(key)
    with atomic_file(file) as stream:
        for private in read_records(cfg):
            record = private.reveal()
            unit, share = secret.name(record.unit)
            if share < cfg.holdout:
                order = secret.order(record.unit, record.label, record.content, record.row)
                row = json.dumps([record.label, record.content, record.row])
                stream.write(f"{unit}{order}{row}\n".encode("ascii"))


def held_units(file: Path, most: int) -> Iterator[Private[list[Record]]]:
    """Each held-out unit's records: at most ``most``, those with the smallest keyed hashes.

    Raises:
        DataError: The file is not there.
        StorageError: It cannot be read.
    """
    try:
        with file.open("rb") as stream:
            lines = list(_bound(sorted(stream), most))
    except FileNotFoundError:
        raise DataError(f"the held-out records of {file} are gone.", hint=RESTORE_HINT) from None
    except OSError as error:
        raise storage_error("read", file, error) from error
    for unit, group in groupby(lines, key=itemgetter(slice(HEX))):
        rows = [json.loads(line[2 * HEX :]) for line in group]
        name = unit.decode("ascii")
        yield Private([Record(name, label, text, tuple(row)) for label, text, row in rows])


def read_training(cfg: DatasetConfig, key: bytes) -> Iterator[Private[Record]]:
    """Records that are not held out: for internal baselines, and to ask whether there is any.

    These are all records of a unit, not only those that a release may use.

    Raises:
        DataError: As for partition.
    """
    secret = UnitKey(key)
    for record in read_records(cfg):
        if secret.name(record.reveal().unit)[1] >= cfg.holdout:
            yield record


def _lines(
    cfg: DatasetConfig,
    key: UnitKey,
    groups: dict[str | None, list[Cell]],
    n_shards: int,
    row_counts: RowCounts | None,
) -> Iterator[bytes]:
    """First pass: each record as a line behind its unit's hash, its own hash and its shard."""
    prefixes = {
        label: [(f"{cell.index % n_shards:05d}", f'{{"cell":{cell.index},') for cell in group]
        for label, group in groups.items()
    }
    for private in read_records(cfg, row_counts=row_counts):
        record = private.reveal()
        group = prefixes.get(record.label)
        if not group:
            continue
        unit, share = key.name(record.unit)
        if share < cfg.holdout:
            continue
        # One number for all labels: a unit's records are in buckets of one number [B19].
        shard, cell = group[key.bucket(record.unit) % len(group)]
        order = key.order(record.unit, record.label, record.content, record.row)
        line = f'{unit}{order}{shard}{cell}"order":"{order}","unit":"{unit}",'
        if record.row:
            line += f'"row":{list(record.row)},'
        yield f'{line}"text":{as_json(record.content)}}}\n'.encode("ascii")


def _answered(line: bytes, ask: Ask) -> bytes:
    """A line with the answers of its record, which follow from this record alone [C1]."""
    fields = json.loads(line[_SHARD.stop :])
    fields["row"] = ask(fields["text"], fields["row"])
    return line[: _SHARD.stop] + json.dumps(fields).encode("ascii") + b"\n"


def _write_shards(lines: Iterator[bytes], out: Path, n_shards: int) -> None:
    """Second pass: append the lines, in the order of their units, to the shards."""
    shards = [out / shard_name(shard) for shard in range(n_shards)]
    for path in shards:
        # Every shard exists, also an empty one: a missing file then always means loss.
        open(path, "xb", opener=private_opener).close()
    waiting: dict[bytes, list[bytes]] = {}
    size = 0
    for line in lines:
        waiting.setdefault(line[_SHARD], []).append(line[_SHARD.stop :])
        size += len(line)
        if size > _WRITTEN_TOGETHER:
            _append(waiting, shards)
            size = 0
    _append(waiting, shards)
    for path in shards:
        with path.open("ab") as stream:
            os.fsync(stream.fileno())
    sync_folder(out)


def _append(waiting: dict[bytes, list[bytes]], shards: Sequence[Path]) -> None:
    for shard, lines in waiting.items():
        # Opened per batch: 99,999 shards would exceed the limit on open files.
        with shards[int(shard)].open("ab") as stream:
            stream.writelines(lines)
    waiting.clear()


def _move(draft: Path, out: Path, marker: dict[str, Any]) -> None:
    """Rename a finished draft into place, unless another attempt was faster."""
    try:
        draft.rename(out)  # replaces nothing but an empty folder
    except OSError as error:
        # An equal partition of another attempt is as good; one with other settings raises in
        # finished.
        overtaken = error.errno in (errno.ENOTEMPTY, errno.EEXIST) and is_finished(out, marker)
        if not overtaken:
            raise storage_error("write", out, error) from error
    with storage_errors("write", out):
        sync_folder(out.parent)


def _groups(cells: Sequence[Cell]) -> dict[str | None, list[Cell]]:
    """Label -> its cells by bucket number."""
    groups: dict[str | None, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.bucket):
        groups.setdefault(cell.label, []).append(cell)
    for label, group in groups.items():
        if [cell.bucket for cell in group] != list(range(len(group))):
            raise ValueError(f"buckets of label {label!r} are not numbered 0..{len(group) - 1}")
    if len({cell.index for cell in cells}) != len(cells):
        raise ValueError("two cells have the same index")
    return groups


def _marker(
    cfg: DatasetConfig, key: UnitKey, cells: Sequence[Cell], n_shards: int
) -> dict[str, Any]:
    # Everything that decides which record lies in which bucket, and in what order. The path is not
    # in it: a file may be moved between attempts.
    return {
        "format": FORMAT,
        "cells": cells_digest(cells),
        "shards": n_shards,
        "key": key.check,
        "text": cfg.text,
        "label": cfg.label,
        "labels": sorted(cfg.labels),
        "unit": cfg.unit,
        "max_records_per_unit": cfg.max_records_per_unit,
        "holdout": cfg.holdout,
        # Without columns a partition is what it was before there were any.
        **({"columns": _declared(cfg)} if cfg.columns else {}),
        **({"roles": list(cfg.roles)} if cfg.roles else {}),
    }


def _declared(cfg: DatasetConfig) -> list[Any]:
    return [[name, column.model_dump(mode="json")] for name, column in cfg.columns.items()]


def load_shard(out: Path, shard: int, cells: Sequence[Cell], n_shards: int) -> list[Bucket]:
    """The buckets of one shard in the order of ``cells``, including empty ones.

    Texts of a bucket are in the order of their keyed hashes. Beside each are the cells of its
    columns, and the keyed hash of its unit, so that a method can bound what a unit does to all of
    its texts together.

    Args:
        out: Folder that partition filled.
        shard: Number of the shard, 0-based.
        cells: All cells of the release, as given to partition.
        n_shards: Number of shards, as given to partition.

    Raises:
        DataError: The partition is not there or not finished.
        VerificationError: It was made with other cells or another number of shards, is damaged, or
            the shard's file is gone.
    """
    rows: dict[int, list[tuple[str, str, str, Row]]] = {
        cell.index: [] for cell in cells if cell.index % n_shards == shard
    }
    for row in _read_shard(out, shard, cells, n_shards):
        rows[row["cell"]].append(
            (row["order"], row["text"], row["unit"], tuple(row.get("row", ())))
        )
    buckets = []
    for cell in cells:
        if cell.index in rows:
            # One order for every attempt, whatever the order of the lines.
            ordered = sorted(rows[cell.index])
            texts, units = [text for _, text, *_ in ordered], [unit for *_, unit, _ in ordered]
            codes = [row for *_, row in ordered]
            buckets.append(Bucket(cell, Private(texts), Private(units), Private(codes)))
    return buckets


def beside(out: Path, shard: int, cells: Sequence[Cell], n_shards: int) -> Iterator[Bucket]:
    """The records of one shard without their texts, some at a time: units, and cells of columns.

    Arguments and errors are those of ``load_shard``.
    """
    by_index = {cell.index: cell for cell in cells}
    lines = _read_shard(out, shard, cells, n_shards)
    while some := list(islice(lines, _SOME)):
        for index in dict.fromkeys(line["cell"] for line in some):
            of_cell = [line for line in some if line["cell"] == index]
            texts, units = [""] * len(of_cell), [line["unit"] for line in of_cell]
            codes = [tuple(line.get("row", ())) for line in of_cell]
            yield Bucket(by_index[index], Private(texts), Private(units), Private(codes))


def _read_shard(
    out: Path, shard: int, cells: Sequence[Cell], n_shards: int
) -> Iterator[dict[str, Any]]:
    """The lines of a shard's file of buckets, of which each is one record in one of its cells."""
    if not 0 <= shard < n_shards:
        raise ValueError(f"shard={shard} must be in 0..{n_shards - 1}")
    marker = read_marker(out)
    if marker is None:
        raise DataError(f"the partition in {out} is not finished.", hint="Run partition first.")
    expected = {"format": FORMAT, "cells": cells_digest(cells), "shards": n_shards}
    refuse_other(out, marker, expected)
    known = {cell.index for cell in cells if cell.index % n_shards == shard}
    path = out / shard_name(shard)
    try:
        with path.open("rb") as stream:
            for line in stream:
                row = json.loads(line)
                if row["cell"] not in known or not {"order", "text", "unit"} <= row.keys():
                    raise ValueError
                yield row
    except FileNotFoundError:
        raise missing_file_error(path) from None
    except OSError as error:
        raise storage_error("read", path, error) from error
    except (ValueError, LookupError, TypeError, AttributeError):
        # No cause is attached: a JSON error quotes the line, which is a record.
        raise VerificationError(f"{path} is damaged.", hint=RESTORE_HINT) from None
