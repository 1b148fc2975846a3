"""Units whose records a process other than rank 0 has read itself, and samples itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data.unit_shard import own_shards, unit_shard
from privsyn.dp.keyed_sample import keyed_sample
from privsyn.errors import ConfigError, VerificationError
from privsyn.models.protocols import Row, Trainer
from privsyn.models.training.distributed.rank import Rank

Units = Mapping[str, Sequence[tuple[str | None, str]]]
"""Name of a unit -> its records: label and text."""

Records = Callable[[Mapping[str, Any], Sequence[int]], Units]
"""What rank 0 says of the records, numbers of shards -> the units that lie in them."""


class HeldUnits:
    """The units of one process. Private: none of it is told but sums.

    Args:
        place: Of this process.
        records: Reads them; None where this process was started without a project.
    """

    def __init__(self, place: Rank, records: Records | None) -> None:
        self._place, self._records = place, records
        self._texts: Units = {}
        self._rows: tuple[Any, dict[str, list[Row]]] = (None, {})

    def read(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Read the shards of this process, and no others; which they are.

        Raises:
            ConfigError: Nobody can read them here.
        """
        if self._records is None:
            raise ConfigError(
                "performance.train_shards: this process was started without a project, and would "
                "have to read records.",
                hint="Start all by torchrun in folders with params.yaml, or unset it.",
            )
        shards = own_shards(self._place.rank, self._place.size, request["shards"])
        units = self._records(request, shards)
        check_own(units, self._place, request["shards"])
        self._texts, self._rows = units, (None, {})
        return {"held": shards}

    def sample(self, request: Mapping[str, Any], trainer: Trainer) -> list[list[Row]]:
        """The units of this process that are in the sample of a key."""
        known, rows = self._rows
        if known is not trainer:
            rows = {
                unit: [trainer.encode(label, text) for label, text in records]
                for unit, records in self._texts.items()
            }
            self._rows = (trainer, rows)
        mask = keyed_sample(list(rows), request["rate"], bytes.fromhex(request["key"]))
        return list(compress(rows.values(), mask))

    def counts(self, labels: Sequence[str | None]) -> NDArray[np.int64]:
        """Records per label of this process's units."""
        place = {label: number for number, label in enumerate(labels)}
        counts = np.zeros(len(labels), np.int64)
        for records in self._texts.values():
            for label, _ in records:
                counts[place[label]] += 1
        return counts


def check_own(units: Units | Mapping[str, Any], place: Rank, shards: int) -> None:
    """Refuse units that another process holds: one that adds twice has twice the sensitivity.

    Raises:
        VerificationError: There are some.
    """
    own = set(own_shards(place.rank, place.size, shards))
    # privacy: the shard of a unit is a function of its name, so whatever was read, of all
    # processes one alone passes for it.
    strangers = sum(unit_shard(unit, shards) not in own for unit in units)
    if strangers:
        raise VerificationError(
            f"rank {place.rank} of {place.size} was given records of units that another rank "
            f"holds, in shards {sorted(own)} of {shards}: a unit would count twice.",
            hint="Restore the partition as it was made. Nothing was drawn from these records.",
        )
