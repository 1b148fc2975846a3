"""Held-out records, the disclosure audit by them, and what it holds back. Internal."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from privsyn import layout
from privsyn.data.partition import read_holdout, read_training
from privsyn.data.records import Record
from privsyn.errors import PolicyBroken, ValidationFailed
from privsyn.evaluation.audit import (
    IMAGES,
    TABLES,
    TEXTS,
    AuditResult,
    Claim,
    Detector,
    audit,
    gather,
)
from privsyn.evaluation.metrics import read_evaluation
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, open_plan

DETECTORS: Mapping[str, Mapping[str, Detector]] = {"text": TEXTS, "image": IMAGES, "table": TABLES}
"""By the modality's name."""


def audit_release(ctx: Context, plan: Plan, folder: Path) -> AuditResult | None:
    """Audit a finished release; None where evaluate.audit is off.

    Args:
        ctx: Config and ledger.
        plan: The release.
        folder: Where it lies.
    """
    release = open_plan(ctx, plan)
    if ctx.config.evaluate.audit == "off":
        return None
    if not release.source.holdout:
        return AuditResult(
            "no units are held out by keyed hash (dataset.holdout): those of a dataset.test_path "
            "may differ from the others for reasons of their own, so they bound nothing"
        )
    kind = release.modality
    with (folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
        contents = [kind.read_released(folder, json.loads(line)) for line in stream]
    return audit(
        [
            base64.b64encode(content).decode("ascii") if isinstance(content, bytes) else content
            for content in contents
        ],
        gather(either_side(ctx, plan)),
        Claim(plan.epsilon, plan.delta, plan.adjacency, release.source.holdout),
        DETECTORS[kind.name],
    )


def held_back(ctx: Context, plan: Plan) -> bool:
    """Whether an audit that blocks has spoken, and not let a release through."""
    return ctx.config.evaluate.audit == "block" and _let_through(ctx, plan.id) is False


def withheld(ctx: Context, plan: Plan) -> bool:
    """Whether an audit that blocks has not let a release through, or not yet."""
    return ctx.config.evaluate.audit == "block" and _let_through(ctx, plan.id) is not True


def refuse_to_hand_out(ctx: Context, release_id: str) -> None:
    """Refuse the records of a release that an audit that blocks has not let through.

    One that was brought back from its DVC remote was let through where it was published.

    Raises:
        ValidationFailed: See ``refuse_withheld``.
    """
    if _let_through(ctx, release_id) is None and ctx.workspace.pointer(release_id).is_file():
        return
    refuse_withheld(ctx, release_id)


def refuse_withheld(ctx: Context, release_id: str) -> None:
    """Refuse a release that an audit that blocks has not let through.

    Nothing of what was found is in the message, nor whether something could be found.

    Raises:
        ValidationFailed: It was found to exceed its claim, could not be audited, or was not audited
            here.
    """
    passed = _let_through(ctx, release_id)
    if ctx.config.evaluate.audit != "block" or passed:
        return
    if passed is None:
        raise ValidationFailed(
            f"release {release_id} was not audited here, and evaluate.audit is block.",
            hint=f"Run: privsyn stage evaluate --plan {release_id}",
        )
    raise ValidationFailed(
        f"release {release_id} is held back by its disclosure audit (evaluate.audit: block).",
        hint=f"Its cost stays charged. See `privsyn report {release_id}`, inside; "
        "evaluate.audit=report takes it out of quarantine again.",
    )


def _let_through(ctx: Context, release_id: str) -> bool | None:
    """Whether the last audit let a release through; None where there was none.

    One that was not available bounds nothing, so it lets nothing through.
    """
    written = read_evaluation(ctx.workspace.internal(release_id))
    audited = written.get("audit") if written.get("release_id") == release_id else None
    if not isinstance(audited, dict):
        return None
    return audited.get("unavailable", "") is None and audited.get("exceeds") is False


def held_out(ctx: Context, plan: Plan) -> list[Record]:
    """The real records no release was made from.

    Raises:
        PolicyBroken: The account is held to a policy that allows no internal metrics.
    """
    # The rules that the ledger remembers, and the config's: a laxer config lifts none of them.
    for terms in (ctx.ledger.accounts.terms(plan.account), ctx.account.terms):
        if not terms.internal_metrics:
            raise PolicyBroken(
                f"account {plan.account} ({terms.source}) does not allow that releases are "
                "measured beside held-out records.",
                hint="Set evaluate.by=nothing.",
            )
    dataset = open_plan(ctx, plan).source
    if not dataset.has_holdout:
        return []
    key = ctx.charged_account().partition_key.reveal()
    return [private.reveal() for private in read_holdout(dataset, key)]


def either_side(ctx: Context, plan: Plan) -> Iterator[tuple[bool, Record]]:
    """All records of the private file, each with whether releases are made from its unit.

    Those of a file set aside for testing are not among them.
    """
    # Only the hash decides who is on which side here: records of test_path were never at stake.
    dataset = open_plan(ctx, plan).source.model_copy(update={"test_path": None})
    key = ctx.charged_account().partition_key.reveal()
    for inside, read in ((True, read_training), (False, read_holdout)):
        for private in read(dataset, key):
            yield inside, private.reveal()


def refuse_unapproved(ctx: Context, folder: Path) -> None:
    """Refuse to publish a folder whose certificate nobody has approved, where that is asked for.

    Raises:
        ApprovalNeeded: Nobody has, or somebody said no.
    """
    release = ReleaseFacts.read(folder)
    spec = ctx.account
    # The ledger knows what the settings ask for. Where it asks for no less already, its rules
    # apply, and settings that are older than those are no attempt to weaken them.
    if spec.terms.approvals.publish and ctx.ledger.accounts.terms(spec.name).laxer_than(spec.terms):
        ctx.open_account()
    ctx.ledger.approvals.check_publication(
        release.release_id, release.certificate_sha256, name=release.name
    )
