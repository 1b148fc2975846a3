"""A table alone: the rows that follow from the noisy counts of declared columns, without a text.

There is no generator of its own: the draw of the columns (``columns/guarantee.md``) has the whole
target, and the rows are post-processing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from privsyn.data.records import Bucket
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Composed, Event
from privsyn.methods.base import (
    Backends,
    Draw,
    Finished,
    Mechanism,
    Method,
    PricingFacts,
    Record,
    Role,
    Sample,
    Size,
)
from privsyn.methods.columns_alone.settings import ColumnsAloneConfig
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.rows import ANYTHING, Subject


@dataclass(frozen=True, kw_only=True)
class ColumnsAloneMechanism(Mechanism):
    """The draw of the columns, which ``facts`` has before every generator, and nothing after it."""

    @property
    def event(self) -> Event:
        """The draw of the columns."""
        first, *others = self.facts.before
        return Composed((first, *others)) if others else first

    @property
    def whole(self) -> Event:
        """The same, and what is paid for after it."""
        return replace(self.facts, before=()).whole(self.event)

    @property
    def derived(self) -> Mapping[str, float]:
        """Nothing is solved for here: the noise follows from the target."""
        return {}


class ColumnsAlone(Method[ColumnsAloneConfig]):
    """Rows of the declared columns; no model, and no text.

    Guarantee: that of the columns' draw, which is all that reads a record.
    """

    name: ClassVar[str] = "columns_alone"
    title: ClassVar[str] = "Columns alone"
    paper: ClassVar[str] = "McKenna, Miklau, Sheldon 2021, Winning the NIST contest, section 3"
    Config: ClassVar[type[ColumnsAloneConfig]] = ColumnsAloneConfig
    Settings: ClassVar[type[ColumnsAloneConfig]] = ColumnsAloneConfig

    counts: ClassVar[str] = "rows"
    columns_alone: ClassVar[bool] = True
    tuning_hint: ClassVar[str] = "columns.pairs, or fewer cells in dataset.columns"

    def roles(self, cfg: Any) -> tuple[Role, ...]:
        """None."""
        return ()

    def resolve(
        self, cfg: Any, models: Mapping[Role, ModelIdentity], subject: Subject = ANYTHING
    ) -> ColumnsAloneConfig:
        """The settings as they are."""
        return ColumnsAloneConfig.model_validate(cfg.model_dump())

    def calibrate(
        self, settings: ColumnsAloneConfig, target: Guarantee, facts: PricingFacts
    ) -> ColumnsAloneMechanism:
        """The draw that ``facts`` was made with: its noise has the whole target already."""
        rows = settings.rows_per_label * max(1, len(facts.labels))
        return ColumnsAloneMechanism(facts=facts, rows=(rows, rows))

    def rebuild(
        self,
        settings: ColumnsAloneConfig,
        target: Guarantee,
        facts: PricingFacts,
        derived: Mapping[str, float],
    ) -> ColumnsAloneMechanism:
        """The same."""
        return self.calibrate(settings, target, facts)

    def for_texts(self, cfg: Any, size: Size) -> Mapping[str, Any]:
        """As many rows."""
        return {"rows_per_label": size.each}

    def more(self, cfg: Any, models: Backends, release: Finished, count: int) -> Iterator[Record]:
        """Further rows; each label keeps its share."""
        for number in range(count):
            yield release.records[number * len(release.records) // count][0], ""

    def run(
        self,
        settings: ColumnsAloneConfig,
        mechanism: ColumnsAloneMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Iterator[Sample]:
        """The rows of every label; no record of the buckets is looked at."""
        total = settings.rows_per_label * len(buckets)
        for place, bucket in enumerate(buckets):
            draw.progress(place * settings.rows_per_label, total)
            for number in range(settings.rows_per_label):
                row = draw.rows.row(bucket.cell.label, number)
                yield Sample(bucket.cell, "", row=row)
