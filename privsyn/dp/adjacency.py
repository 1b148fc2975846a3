"""Adjacency of datasets, the privacy unit, and what a guarantee is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum


class Adjacency(StrEnum):
    """When two datasets are neighbors.

    ``ADD_REMOVE``: one unit is added or removed. ``REPLACE_NULL``: one unit is replaced by a marker
    that contributes exactly nothing and never reaches a model. ``REPLACE_ONE``: one unit is
    replaced by any other unit.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_NULL = "replace_null"
    REPLACE_ONE = "replace_one"

    @property
    def moves(self) -> int:
        """Units whose contributions differ between neighbors: 2 for ``REPLACE_ONE``, else 1."""
        # One unit leaves and another arrives; a null marker contributes nothing.
        return 2 if self is Adjacency.REPLACE_ONE else 1


@dataclass(frozen=True)
class PrivacyUnit:
    """The protected unit.

    Attributes:
        name: Its name: ``record``, ``patient``, ``user``.
        max_records: Most records of a unit that are used (m). Sensitivities that add over records
            are multiplied by it.
    """

    name: str = "record"
    max_records: int = 1

    def __post_init__(self) -> None:
        if self.max_records < 1:
            raise ValueError(f"max_records={self.max_records} must be at least 1")


def plural(unit: str) -> str:
    """Several of a protected unit, in English.

    >>> [plural(unit) for unit in ("patient", "story", "child", "boss", "policy-holder", "boy")]
    ['patients', 'stories', 'children', 'bosses', 'policy-holders', 'boys']
    """
    start, word = re.fullmatch(r"(.*?)([^-_ ]*)", unit).groups()  # type: ignore[union-attr]
    if word in _IRREGULAR:
        return start + _IRREGULAR[word]
    if re.search("[^aeiou]y$", word):
        return f"{unit[:-1]}ies"
    return f"{unit}es" if re.search("(s|x|z|ch|sh)$", word) else f"{unit}s"


_IRREGULAR = {"person": "people", "child": "children", "man": "men", "woman": "women"}


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP.

    Attributes:
        epsilon: At least 0, finite.
        delta: In [0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon={self.epsilon!r} must be a finite number of at least 0")
        check_delta(self.delta)


def check_delta(delta: float) -> None:
    """Raise ValueError unless delta is in [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in [0, 1)")
