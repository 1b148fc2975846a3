"""A sixth method that draws: noisy counts of the records, said in words. It needs no model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import Field

from privsyn.data.records import Cell
from privsyn.dp.events import Disjoint
from privsyn.dp.mechanisms import Laplace
from privsyn.methods.base import Mechanism, Method, Sample
from privsyn.models.rows import ANYTHING
from privsyn.section import Section

NAME = "toy_drawer"


class ToyDrawerConfig(Section):
    texts_per_label: int = Field(default=3, ge=1, le=100, description="Texts a label.")


@dataclass(frozen=True, kw_only=True)
class ToyDrawerMechanism(Mechanism):
    count: Laplace
    cells: int
    derived: ClassVar[dict[str, float]] = {}

    @property
    def event(self):
        return Disjoint((self.count.event,), self.cells)


class ToyDrawer(Method[ToyDrawerConfig]):
    """A Laplace draw per text."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "Toy drawer"
    paper: ClassVar[str] = "none"
    Config: ClassVar[type[ToyDrawerConfig]] = ToyDrawerConfig
    Settings: ClassVar[type[ToyDrawerConfig]] = ToyDrawerConfig
    whole: ClassVar[bool] = False
    counts: ClassVar[str] = "texts"
    tuning_hint: ClassVar[str] = "nothing"

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

    def calibrate(self, cfg, target, facts):
        most = facts.unit.max_records
        return ToyDrawerMechanism(
            facts=facts,
            count=Laplace(2 * most, 2.0 * most),
            cells=len(self.cells(cfg, facts.labels)),
        )

    def rebuild(self, cfg, target, facts, derived):
        return self.calibrate(cfg, target, facts)

    def run(self, cfg, mechanism, buckets, draw):
        for number, bucket in enumerate(buckets):
            draw.progress(number, len(buckets))
            records = np.array([len(bucket.contents.reveal())], np.int64)
            noisy = partial(mechanism.count.draw, records, draw.noise)
            (drawn,) = draw.journal.draw_array(f"{bucket.cell.index}", noisy, 1)
            yield Sample(bucket.cell, f"about {drawn} notes like number {bucket.cell.index}")
