"""A release before it is made, as the API shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date as Date

from privsyn.display.plans import cost_rows
from privsyn.display.tables import Displayable, Table
from privsyn.ledger.statements import Preview
from privsyn.ledger.terms import NONE, Terms
from privsyn.release.plan import Plan
from privsyn.stages.pace import Pace


@dataclass(frozen=True, repr=False)
class Planned(Displayable):
    """What a release would cost, and whether its account pays for it. Shows itself as a table.

    Attributes:
        plan: The plan: all public.
        account: What its reservation would meet.
        earlier: The last release like it here, and how long it took: internal, so the table leaves
            it out.
        cron: Schedule of its DAG.
        settings: What was asked for on top of the project's settings.
        day: Its logical date.
        terms: What its account is held to: who has to approve it, say.
    """

    plan: Plan
    account: Preview
    earlier: Pace | None
    cron: str | None
    settings: tuple[str, ...]
    day: Date
    terms: Terms = NONE

    @property
    def epsilon(self) -> float:
        """Its cost in epsilon, at ``delta``."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """Its delta."""
        return self.plan.delta

    @property
    def fits(self) -> bool:
        """Whether the account could pay for it now, or has."""
        return self.account.entry is not None or self.account.fits

    def _tables(self) -> tuple[Table, ...]:
        """One table: cost, guarantee and account."""
        rows = cost_rows(self.plan, self.account, None, self.cron, self.terms)
        return (Table.of(f"{self.plan.method}: what it would cost", rows, self.plan.warnings),)
