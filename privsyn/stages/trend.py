"""Whether a release is worth less than the one before it.

What reads held-out records is internal and stays in the nested run of ``evaluate``. An accuracy
that a release paid for is in its certificate, and public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from privsyn.errors import PrivsynError
from privsyn.files import read_json
from privsyn.ledger.entries import Entry, State
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.holdout import EVALUATION

ACCURACY = "vectors.accuracy"
LOW, HIGH = f"{ACCURACY}_low", f"{ACCURACY}_high"
PAID = "accuracy, paid for"


@dataclass(frozen=True)
class Point:
    """A number of a release, with the ends of its 95% interval where it has one."""

    release_id: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def said(self) -> str:
        """The number, and its interval in brackets."""
        interval = "" if self.low is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{interval}" if interval else f"{self.value:.4g}"


def paid_fell(ctx: Context, plan: Plan) -> str | None:
    """A warning where the accuracy that a release paid for fell since the release before.

    Public: both numbers are in certificates. Before it is the newest earlier release by the same
    method on the same account that paid for one.
    """
    now = _paid(ctx, plan.id)
    if now is None:
        return None
    for earlier in _before(ctx, plan):
        before = _paid(ctx, earlier.release_id)
        if before is not None:
            return _below(now, before, PAID)
    return None


def fallen(ctx: Context, plan: Plan, numbers: Mapping[str, float]) -> str | None:
    """A warning where accuracy fell by more than the intervals since the release before. Internal.

    Before it is the newest earlier release by the same method on the same account that was measured
    here. Intervals that overlap are no fall.

    Args:
        ctx: Ledger and workspace.
        plan: The release.
        numbers: What was measured of it, by name.
    """
    if not {ACCURACY, LOW, HIGH} <= numbers.keys():
        return None
    for earlier in _before(ctx, plan):
        with suppress(OSError, ValueError, LookupError, TypeError):
            metrics = read_json(ctx.workspace.internal(earlier.release_id) / EVALUATION)["metrics"]
            before = {metric["name"]: float(metric["value"]) for metric in metrics}
            return _below(
                Point(plan.id, numbers[ACCURACY], numbers[LOW], numbers[HIGH]),
                Point(earlier.release_id, before[ACCURACY], before[LOW], before[HIGH]),
                "accuracy",
            )
    return None


def _before(ctx: Context, plan: Plan) -> list[Entry]:
    """Finished releases before one by its method on its account, newest first."""
    number = ctx.ledger.releases.get(plan.id).number
    return [
        entry
        for entry in reversed(ctx.ledger.releases.all(plan.account))
        if entry.number < number and entry.method == plan.method and entry.state is State.COMMITTED
    ]


def _below(now: Point, before: Point, name: str) -> str | None:
    if now.high is None or before.low is None or now.high >= before.low:
        return None
    return (
        f"{name}: {now.said} is below {before.said} of {before.release_id}, the release before, by "
        "more than the intervals"
    )


def _paid(ctx: Context, release_id: str) -> Point | None:
    try:
        paid = ReleaseFacts.read(ctx.workspace.release(release_id)).accuracy
        point = Point(release_id, float(paid["value"]), float(paid["low"]), float(paid["high"]))
    except (PrivsynError, OSError, ValueError, LookupError, TypeError):
        return None
    return point if math.isfinite(point.value) else None
