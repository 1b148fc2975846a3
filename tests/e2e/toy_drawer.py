"""A sixth method that draws: noisy counts of the records, said in words. It needs no model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from privsyn.data.records import Cell
from privsyn.dp.events import Disjoint
from privsyn.dp.mechanisms import Laplace
from privsyn.methods.base import ANYTHING, MethodPlan, Sample
from privsyn.section import Section

NAME = "toy_drawer"


class ToyDrawerConfig(Section):
    texts_per_label: int = Field(default=3, ge=1, le=100, description="Texts a label.")


class ToyDrawer:
    """A Laplace draw per text."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "Toy drawer"
    paper: ClassVar[str] = "none"
    Config: ClassVar[type[ToyDrawerConfig]] = ToyDrawerConfig
    whole: ClassVar[bool] = False
    samples: ClassVar[bool] = False
    counts: ClassVar[str] = "texts"

    def roles(self, cfg):
        return ()

    def resolve(self, cfg, models, subject=ANYTHING):
        return cfg

    def cells(self, cfg, labels):
        return Cell.grid(labels, cfg.texts_per_label)

    def prompt(self, cfg):
        return None

    def preflight(self, cfg, unit, labels, models):
        return None

    def _mechanism(self, unit):
        return Laplace(2 * unit.max_records, 2.0 * unit.max_records)

    def plan(self, cfg, target, adjacency, unit, labels, solved=None):
        event = Disjoint((self._mechanism(unit).event,), len(self.cells(cfg, labels)))
        return MethodPlan(event, {})

    def run(
        self, cfg, plan, adjacency, unit, buckets, models, noise, journal, performance,
        progress=lambda done, total: None,
    ) -> Iterator[Sample]:  # fmt: skip
        mechanism = self._mechanism(unit)
        for number, bucket in enumerate(buckets):
            progress(number, len(buckets))
            count = np.array([len(bucket.texts.reveal())], np.int64)
            key = f"{bucket.cell.index}"
            (drawn,) = journal.draw_all([(key, lambda c=count: int(mechanism.draw(c, noise)[0]))])
            yield Sample(bucket.cell, f"about {drawn} notes like number {bucket.cell.index}")
