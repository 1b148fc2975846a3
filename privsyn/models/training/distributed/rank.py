"""Which of several processes this one is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """A process among those that train together.

    Attributes:
        rank: Its number, 0-based; 0 leads.
        size: How many there are.
        local: Its number among those of its machine.
        local_size: How many there are on its machine; 0 where nobody says.
    """

    rank: int
    size: int
    local: int
    local_size: int

    @property
    def alone(self) -> bool:
        """Whether all of them are on one machine."""
        return self.local_size == self.size
