"""What is protected: adjacency of datasets and the privacy unit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Adjacency(StrEnum):
    """When two datasets count as neighbours.

    ``ADD_REMOVE``: one unit more or fewer. ``REPLACE_NULL``: one unit swapped for a marker that
    contributes exactly nothing and never reaches a model. ``REPLACE_ONE``: one unit swapped for any
    other unit.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_NULL = "replace_null"
    REPLACE_ONE = "replace_one"

    @property
    def moves(self) -> int:
        """Units whose contributions differ between neighbours: 2 under ``REPLACE_ONE``, else 1."""
        return 2 if self is Adjacency.REPLACE_ONE else 1


@dataclass(frozen=True)
class PrivacyUnit:
    """Whose presence is hidden.

    Attributes:
        name: What the unit is called: ``record``, ``patient``, ``user``.
        max_records: At most this many records of a unit are used (m). Sensitivities that add over
            records are multiplied by it.
    """

    name: str = "record"
    max_records: int = 1

    def __post_init__(self) -> None:
        if self.max_records < 1:
            raise ValueError(f"max_records={self.max_records} must be at least 1")
