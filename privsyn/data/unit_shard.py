"""Which part of the records a unit lies in, where they are cut by unit."""

from __future__ import annotations


def unit_shard(unit: str, shards: int) -> int:
    """The one shard of a unit, by its keyed hash alone: no two hold records of the same unit.

    >>> unit_shard("00000000000000050123456789abcdef", 4)
    1
    """
    return int(unit[:16], 16) % shards


def own_shards(rank: int, ranks: int, shards: int) -> list[int]:
    """The shards of one among several processes: each is somebody's, and nobody else's."""
    return list(range(rank, shards, ranks))
