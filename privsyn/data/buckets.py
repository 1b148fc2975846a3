"""Buckets of a finished partition, read back from the files of its shards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from privsyn.data.artifacts import storage_error
from privsyn.data.partition_marker import (
    FORMAT,
    RESTORE_HINT,
    cells_digest,
    gone,
    read_marker,
    refuse_other,
    shard_name,
)
from privsyn.data.records import Bucket, Cell, Private
from privsyn.errors import DataError, VerificationError


def load_shard(out: Path, shard: int, cells: Sequence[Cell], n_shards: int) -> list[Bucket]:
    """The buckets of one shard in the order of ``cells``, the empty ones too.

    Texts of a bucket are in the order of their keyed hashes. Beside each is the keyed hash of its
    unit, so that a method can bound what a unit does to all of its texts together.

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
    if not 0 <= shard < n_shards:
        raise ValueError(f"shard={shard} must be in 0..{n_shards - 1}")
    marker = read_marker(out)
    if marker is None:
        raise DataError(f"the partition in {out} is not finished.", hint="Run partition first.")
    expected = {"format": FORMAT, "cells": cells_digest(cells), "shards": n_shards}
    refuse_other(out, marker, expected)
    rows: dict[int, list[tuple[str, str, str]]] = {
        cell.index: [] for cell in cells if cell.index % n_shards == shard
    }
    path = out / shard_name(shard)
    try:
        with path.open("rb") as stream:
            for line in stream:
                row = json.loads(line)
                rows[row["cell"]].append((row["order"], row["text"], row["unit"]))
    except FileNotFoundError:
        raise gone(path) from None
    except OSError as error:
        raise storage_error("read", path, error) from error
    except (ValueError, LookupError, TypeError):
        raise VerificationError(f"{path} is damaged.", hint=RESTORE_HINT) from None
    buckets = []
    for cell in cells:
        if cell.index in rows:
            triples = sorted(rows[cell.index])
            texts, units = [text for _, text, _ in triples], [unit for _, _, unit in triples]
            buckets.append(Bucket(cell, Private(texts), Private(units)))
    return buckets
