"""Gradients of records that lie on several machines, each with units of its own. Of rank 0.

No machine needs the records of another: each samples among its own units by the key of the step
(``dp/keyed_sample.py``), adds their clipped gradients up, and sends a sum of integers. Noise is
drawn once, by rank 0, on the sum of all. So a step is that of one machine which holds all units,
with the same sensitivity; the sums, which are not noisy yet, are sealed on their way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.dp.keyed_sample import keyed_sample
from privsyn.errors import TrainingInterrupted
from privsyn.models.protocols import Row, TrainableModel, Training
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training.distributed.held_units import check_own
from privsyn.models.training.distributed.rank_group import Command, Group
from privsyn.models.training.distributed.ranks import RanksModel, RanksTrainer


class SpreadModel(RanksModel):
    """A TrainableModel whose other processes have read their own units before a trainer is made.

    Args:
        base: This process's own model.
        group: The processes.
        models: What the others load.
        performance: Where to.
        request: Tells the others which records: ``shards`` is how many parts they are cut into.

    Raises:
        PrivsynError: One of them cannot load the model, or not read its records.
    """

    def __init__(
        self,
        base: TrainableModel,
        group: Group,
        models: ModelsConfig,
        performance: PerformanceConfig,
        request: Mapping[str, Any],
    ) -> None:
        super().__init__(base, group, models, performance)
        self._shards = int(request["shards"])
        group.ask(Command.HOLD, json.dumps(request).encode())
        held = [shard for answer in group.answers() for shard in answer["held"]]
        rest = range(0, self._shards, group.place.size)
        if sorted([*held, *rest]) != list(range(self._shards)):
            raise TrainingInterrupted("the ranks hold other shards than there are, each once.")

    def trainer(self, training: Training) -> SpreadTrainer:
        """See protocols.TrainableModel."""
        return SpreadTrainer(*self._parts(training), self._shards)


class SpreadTrainer(RanksTrainer):
    """See protocols.SpreadTrainer."""

    def __init__(
        self,
        trainer: Any,
        group: Group,
        training: Training,
        answers: Sequence[Mapping[str, Any]],
        shards: int,
    ) -> None:
        super().__init__(trainer, group, training, answers)
        self._shards = shards
        self._units: Mapping[str, Sequence[Row]] = {}

    def hold(self, units: Mapping[str, Sequence[Row]]) -> None:
        """See protocols.SpreadTrainer."""
        check_own(units, self._group.place, self._shards)
        self._units = units

    def sampled_sum(self, rate: float, key: bytes) -> NDArray[np.int64]:
        """See protocols.SpreadTrainer."""
        mask = keyed_sample(list(self._units), rate, key)
        request = json.dumps({"rate": rate, "key": key.hex()}).encode()
        return self._summed(Command.SAMPLE, [request], list(compress(self._units.values(), mask)))

    def counted(self, labels: Sequence[str | None], own: NDArray[np.int64]) -> NDArray[np.int64]:
        """See protocols.SpreadTrainer."""
        self._group.ask(Command.COUNT, json.dumps(labels).encode())
        return self._group.add(own)
