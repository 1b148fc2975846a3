"""Whether a release is worth less than the one before it. Internal, as what it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from privsyn.files import read_json
from privsyn.ledger.entries import State
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.held import EVALUATION

ACCURACY = "vectors.accuracy"
LOW, HIGH = f"{ACCURACY}_low", f"{ACCURACY}_high"


def fallen(ctx: Context, plan: Plan, numbers: Mapping[str, float]) -> str | None:
    """A warning where accuracy fell by more than the intervals since the release before.

    Before it is the newest earlier release by the same method on the same account that was measured
    here. Intervals that overlap are no fall.

    Args:
        ctx: Ledger and workspace.
        plan: The release.
        numbers: What was measured of it, by name.
    """
    if not {ACCURACY, LOW, HIGH} <= numbers.keys():
        return None
    own = ctx.ledger.entry(plan.id).number
    for entry in reversed(ctx.ledger.entries(plan.account)):
        if entry.number >= own or entry.method != plan.method or entry.state != State.COMMITTED:
            continue
        with suppress(OSError, ValueError, LookupError, TypeError):
            found = read_json(ctx.workspace.internal(entry.release_id) / EVALUATION)["metrics"]
            before = {metric["name"]: float(metric["value"]) for metric in found}
            if numbers[HIGH] >= before[LOW]:
                return None
            return (
                f"accuracy {_said(numbers)} is below {_said(before)} of {entry.release_id}, the "
                "release before, by more than the intervals"
            )
    return None


def _said(numbers: Mapping[str, float]) -> str:
    return f"{numbers[ACCURACY]:.3f} [{numbers[LOW]:.3f}, {numbers[HIGH]:.3f}]"
