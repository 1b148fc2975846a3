"""The disclosure audit of a release, and what it holds back. Internal."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.errors import ValidationFailed
from privsyn.evaluation.audit import IMAGES, TEXTS, Audit, Claim, Detector, audit, gather
from privsyn.modalities.registry import modality_of
from privsyn.release import layout
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.held import EVALUATION, either_side, sets_aside

DETECTORS: Mapping[str, Mapping[str, Detector]] = {"text": TEXTS, "image": IMAGES}
"""By the modality's name."""

_HINT = (
    "Its cost stays charged. See `privsyn report {id}`, inside; evaluate.audit=report takes it out "
    "of quarantine again."
)


def audit_release(ctx: Context, plan: Plan, folder: Path) -> Audit | None:
    """Audit a finished release; None where evaluate.audit is off.

    Args:
        ctx: Config and ledger.
        plan: The release.
        folder: Where it lies.
    """
    dataset = ctx.source(plan)
    if ctx.config.evaluate.audit == "off":
        return None
    if not dataset.holdout:
        return Audit(
            "no units are held out by keyed hash (dataset.holdout): those of a dataset.test_path "
            "may differ from the others for reasons of their own, so they bound nothing"
        )
    kind = modality_of(plan.dataset)
    with (folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
        contents = [kind.released(folder, json.loads(line)) for line in stream]
    return audit(
        [
            base64.b64encode(content).decode("ascii") if isinstance(content, bytes) else content
            for content in contents
        ],
        gather(either_side(ctx, plan)),
        Claim(plan.epsilon, plan.delta, plan.adjacency, dataset.holdout),
        DETECTORS[kind.name],
    )


def held_back(ctx: Context, plan: Plan) -> bool:
    """Whether an audit that blocks has found more than the release claims."""
    return ctx.config.evaluate.audit == "block" and _exceeds(ctx, plan) is True


def withheld(ctx: Context, plan: Plan) -> bool:
    """Whether an audit that blocks has not let a release through, or not yet."""
    if ctx.config.evaluate.audit != "block" or not sets_aside(ctx.source(plan)):
        return False
    return _exceeds(ctx, plan) is not False


def refuse_held_back(ctx: Context, plan: Plan) -> None:
    """Refuse a release that an audit that blocks has not let through.

    Nothing of what was found is in the message.

    Raises:
        ValidationFailed: It was found to exceed its claim, or was not audited here.
    """
    if ctx.config.evaluate.audit != "block" or not sets_aside(ctx.source(plan)):
        return
    exceeds = _exceeds(ctx, plan)
    if exceeds is None:
        raise ValidationFailed(
            f"release {plan.id} was not audited here, and evaluate.audit is block.",
            hint="Run evaluate first.",
        )
    if exceeds:
        raise ValidationFailed(
            f"release {plan.id} is held back by its disclosure audit (evaluate.audit: block).",
            hint=_HINT.format(id=plan.id),
        )


def _exceeds(ctx: Context, plan: Plan) -> bool | None:
    """What the last audit said; None where there was none."""
    found = audit_on_file(ctx, plan)
    return None if found is None else bool(found["exceeds"])


def audit_on_file(ctx: Context, plan: Plan) -> dict[str, Any] | None:
    """The last audit of a release; None where it was not evaluated, or without an audit."""
    try:
        written = json.loads((ctx.workspace.internal(plan.id) / EVALUATION).read_bytes())
    except (OSError, ValueError):
        return None
    found = written.get("audit") if written.get("release_id") == plan.id else None
    return found if isinstance(found, dict) else None
