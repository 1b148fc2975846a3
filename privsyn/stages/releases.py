"""The stages of `privsyn stage` for releases; what is made from releases has its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.certify import export
from privsyn.stages.evaluate import evaluate
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish
from privsyn.stages.reserve import settle
from privsyn.stages.run import draw
from privsyn.stages.validate import validate

P = TypeVar("P")


class Work(Protocol[P]):
    """What dvc.yaml makes of a section of ``methods``, stage by stage."""

    one_process: ClassVar[bool]
    """Whether processes that torchrun started beside this one have nothing to do."""

    def described(self, ctx: Context) -> P:
        """The plan of what the config describes, opening the account."""

    def draw(self, ctx: Context, planned: P) -> Path | None:
        """Make it, with all that it needs, and file it under synthetic/ where dvc.yaml looks."""

    def validate(self, ctx: Context, planned: P) -> Path:
        """Check it, and file the reports under reports/; its folder.

        Raises:
            ValidationFailed: It fails.
        """

    def evaluate(self, ctx: Context, planned: P) -> Path | None:
        """Measure it against held-out real records; the folder, None where that is off."""

    def publish(self, ctx: Context, planned: P) -> dict[str, Any]:
        """Version it with DVC and push it; public facts."""


class Releases:
    """Releases of a method. See Work."""

    one_process: ClassVar[bool] = False

    def __init__(self, method: str) -> None:
        self._method = method

    def described(self, ctx: Context) -> Plan:
        """See Work."""
        return plan(ctx, self._method, open_account=True)

    def draw(self, ctx: Context, planned: Plan) -> None:
        """See Work. Settles whatever happens."""
        try:
            draw(ctx, planned)
        finally:
            settle(ctx, planned)
        if ctx.as_filed:
            export(ctx, planned)

    def validate(self, ctx: Context, planned: Plan) -> Path:
        """See Work."""
        return validate(ctx, planned)

    def evaluate(self, ctx: Context, planned: Plan) -> Path | None:
        """See Work."""
        return evaluate(ctx, planned)

    def publish(self, ctx: Context, planned: Plan) -> dict[str, Any]:
        """See Work."""
        return publish(ctx, planned)
