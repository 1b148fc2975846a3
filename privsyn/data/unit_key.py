"""Where a unit falls: keyed hashes of its own id and records, and of nothing else."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from privsyn.data.records import Record


class Place(NamedTuple):
    """Place of a unit under the key: independent parts of one keyed hash."""

    unit: str
    bucket: int
    share: float


class UnitKey:
    """The secret key of the lineage and the hashes made with it."""

    def __init__(self, key: bytes) -> None:
        if not 16 <= len(key) <= 64:
            raise ValueError(f"key of {len(key)} bytes; it must have 16 to 64")
        self._unit = hashlib.blake2b(key=key, person=b"privsyn unit", digest_size=40)
        self._record = hashlib.blake2b(key=key, person=b"privsyn record", digest_size=16)
        self.check = hashlib.blake2b(key=key, person=b"privsyn check", digest_size=16).hexdigest()

    def place(self, unit: str) -> Place:
        """Name, bucket and share of a unit, by its id alone."""
        hasher = self._unit.copy()
        hasher.update(unit.encode())
        digest = hasher.digest()
        share = (int.from_bytes(digest[32:]) >> 11) / 2.0**53  # uniform in [0, 1), exact
        return Place(digest[:16].hex(), int.from_bytes(digest[16:32]), share)

    def order(self, record: Record) -> str:
        """Decides which of a unit's records are kept, and their order in the bucket."""
        hasher = self._record.copy()
        label = record.label or ""
        lengths = f"{len(record.unit)} {len(label)} "  # so that no two records run together alike
        hasher.update(f"{lengths}{record.unit}{label}{record.content}".encode())
        return hasher.hexdigest()
