"""From the private file to buckets: by keyed hash of the unit, with bounded contributions.

Guarantee. Which cell a unit's records fall into, which of them are kept, whether the unit is held
out, and the order of a text in its bucket are functions of that unit's own records and of the
secret key. Adding, removing or replacing a unit therefore changes nothing of any other unit, and
the unit itself touches at most ``max_records_per_unit`` texts (twice that where it is replaced).
Buckets are not filled up, evened out or truncated: each of those would let one unit move another.

A unit with records under several labels is in one cell of each of those labels.

Files. An attempt builds its own folder and renames it into place whole, so attempts that overlap
never touch each other's files; the first to finish wins. A partition that is there is never made
again: draws may have been made from it, and another layout would be a second look at the data.

Source: the partition that Amin et al. 2024 (*Private prediction for large-scale synthetic text
generation*) and Vinod et al. 2025 (*InvisibleInk*) take for granted.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from json.encoder import encode_basestring_ascii as as_json
from operator import itemgetter
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import (
    atomic_file,
    private_folder,
    private_opener,
    storage_error,
    sync_folder,
    wipe,
    write_json_atomic,
)
from privsyn.data.partition_marker import (
    FORMAT,
    MARKER,
    RESTORE_HINT,
    cells_digest,
    finished,
    shard_name,
)
from privsyn.data.readers.formats import read_records
from privsyn.data.records import Cell, Private, Record
from privsyn.data.settings import DatasetConfig
from privsyn.data.spill import HEX, Spill, smallest
from privsyn.data.tally import Tally
from privsyn.data.unit_key import UnitKey
from privsyn.errors import DataError

_SPILL = "spill"

_WRITTEN_TOGETHER = 1 << 25
"""Bytes of lines in memory before they are appended to their shards."""

_SHARD = slice(2 * HEX, 2 * HEX + 5)


def partition(
    cfg: DatasetConfig,
    key: bytes,
    cells: Sequence[Cell],
    out: Path,
    n_shards: int,
    *,
    before_finish: Callable[[], None] = lambda: None,
    tally: Tally | None = None,
) -> None:
    """Split the private file into one file per shard, in memory independent of its size.

    Held-out units are left out. Cell ``i`` is in shard ``i mod n_shards``. Does nothing where
    ``out`` holds the finished partition already. A killed attempt leaves its own hidden folder
    beside ``out``, which nothing reads.

    Args:
        cfg: The private file and its columns, the bound on records per unit, the hold-out share.
        key: Secret of the lineage, drawn before any record was read.
        cells: All cells of the release; per label their buckets are numbered from 0 without gaps.
        out: Folder to write, mode 0700; the files in it have mode 0600.
        n_shards: Number of shards.
        before_finish: Called once, when the files of the shards are durable and before the
            partition counts as finished; not where another attempt finished before. If it raises,
            the partition is not finished.
        tally: Filled in while the file is read; stays empty where the partition is there already.
            Internal.

    Raises:
        DataError: The private file is missing, empty, lacks a column, or is damaged.
        StorageError: Disk full or no permission; nothing is left behind.
        VerificationError: ``out`` is finished, but was made with other settings or lacks a file of
            a shard; or it holds something else.
    """
    if not 1 <= n_shards < 10**5:
        raise ValueError(f"n_shards={n_shards} must be in 1..99999")
    secret = UnitKey(key)
    marker = _marker(cfg, secret, cells, n_shards)
    groups = _groups(cells)
    if finished(out, marker):
        return
    draft = out.with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        private_folder(draft)
        private_folder(draft / _SPILL)
        spill = Spill(draft / _SPILL)
        try:
            _spill(cfg, secret, groups, spill, n_shards, tally)
            _write_shards(spill.bounded(cfg.max_records_per_unit), draft, n_shards)
        except OSError as error:
            raise storage_error("write", draft, error) from error
        wipe(draft / _SPILL)
        if not finished(out, marker):
            before_finish()
            write_json_atomic(draft / MARKER, marker, mode=0o600)
            _move(draft, out, marker)
    finally:
        wipe(draft)


def read_holdout(cfg: DatasetConfig, key: bytes) -> Iterator[Private[Record]]:
    """Records that no release of the dataset was made from, for internal evaluation only.

    The held-out units of ``cfg.path`` (all their records), then all of ``cfg.test_path``.

    Raises:
        DataError: As for partition, and for ``test_path`` likewise.
    """
    secret = UnitKey(key)
    if cfg.holdout:
        for record in read_records(cfg):
            if secret.place(record.reveal().unit).share < cfg.holdout:
                yield record
    if cfg.test_path is not None:
        yield from read_records(cfg, cfg.test_path)


def keep_holdout(cfg: DatasetConfig, key: bytes, file: Path) -> None:
    """Write the records of held-out units of ``cfg.path`` to a private file, for ``held_units``.

    Whole or not at all: an attempt that was overtaken changes nothing under a later one.

    Not those of ``cfg.test_path``: nobody there is protected by the account of the dataset.

    Raises:
        DataError: As for partition.
        StorageError: Disk full or no permission.
    """
    secret = UnitKey(key)
    with atomic_file(file) as stream:
        for private in read_records(cfg):
            record = private.reveal()
            place = secret.place(record.unit)
            if place.share < cfg.holdout:
                row = json.dumps([record.label, record.content])
                stream.write(f"{place.unit}{secret.order(record)}{row}\n".encode("ascii"))


def held_units(file: Path, most: int) -> Iterator[Private[list[Record]]]:
    """Of each held-out unit its records, ``most`` at most, those with the smallest keyed hashes.

    Raises:
        DataError: The file is not there.
        StorageError: It cannot be read.
    """
    try:
        with file.open("rb") as stream:
            lines = smallest(list(stream), most)
    except FileNotFoundError:
        raise DataError(f"the held-out records of {file} are gone.", hint=RESTORE_HINT) from None
    except OSError as error:
        raise storage_error("read", file, error) from error
    for unit, group in groupby(lines, key=itemgetter(slice(HEX))):
        rows = [json.loads(line[2 * HEX :]) for line in group]
        yield Private([Record(unit.decode("ascii"), label, content) for label, content in rows])


def read_training(cfg: DatasetConfig, key: bytes) -> Iterator[Private[Record]]:
    """Records that releases are made from, for internal baselines only: those not held out.

    All of a unit's records, not only the most that a release may use.

    Raises:
        DataError: As for partition.
    """
    secret = UnitKey(key)
    for record in read_records(cfg):
        if secret.place(record.reveal().unit).share >= cfg.holdout:
            yield record


def has_training(cfg: DatasetConfig, key: bytes) -> bool:
    """Whether there is any record that releases are made from: the first one answers. Internal.

    Raises:
        DataError: As for partition.
    """
    return next(read_training(cfg, key), None) is not None


def _spill(
    cfg: DatasetConfig,
    key: UnitKey,
    groups: dict[str | None, list[Cell]],
    spill: Spill,
    n_shards: int,
    tally: Tally | None,
) -> None:
    """First pass: each record to its unit's place, behind its hashes and its shard."""
    held_out, order_of, add = cfg.holdout, key.order, spill.add
    prefixes = {
        label: [(f"{cell.index % n_shards:05d}", f'{{"cell":{cell.index},') for cell in group]
        for label, group in groups.items()
    }
    for private in read_records(cfg, tally=tally):
        record = private.reveal()
        group = prefixes.get(record.label)
        if not group:
            continue
        unit, bucket, share = key.place(record.unit)
        if share < held_out:
            continue
        shard, cell = group[bucket % len(group)]
        order = order_of(record)
        add(
            f'{unit}{order}{shard}{cell}"order":"{order}","unit":"{unit}",'
            f'"text":{as_json(record.content)}}}\n'.encode("ascii")
        )


def _write_shards(lines: Iterator[bytes], out: Path, n_shards: int) -> None:
    """Second pass: append the lines, in the order of their units, to the shards."""
    shards = [out / shard_name(shard) for shard in range(n_shards)]
    for path in shards:
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
        with shards[int(shard)].open("ab") as stream:
            stream.writelines(lines)
    waiting.clear()


def _move(draft: Path, out: Path, marker: dict[str, Any]) -> None:
    """Rename a finished draft into place, unless another attempt was faster."""
    try:
        draft.rename(out)  # replaces nothing but an empty folder
    except OSError as error:
        overtaken = error.errno in (errno.ENOTEMPTY, errno.EEXIST) and finished(out, marker)
        if not overtaken:
            raise storage_error("write", out, error) from error
    try:
        sync_folder(out.parent)
    except OSError as error:
        raise storage_error("write", out, error) from error


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
    }
