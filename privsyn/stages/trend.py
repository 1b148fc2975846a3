"""Consecutive releases side by side: whether one is worth less than the one before it.

What reads held-out records is internal and stays in the nested run of ``evaluate``. What a release
says of itself is public: an accuracy that it paid for, which is in its certificate, and numbers of
its synthetic file alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from privsyn.errors import PrivsynError
from privsyn.evaluation.metrics import Metric
from privsyn.files import read_json
from privsyn.ledger.entries import Entry, State
from privsyn.release import certificate, layout
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.held import EVALUATION

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


@dataclass(frozen=True)
class Course:
    """A public number of the releases by a method.

    Attributes:
        method: Which.
        name: Of the number.
        note: What it is.
        points: Oldest first; two at least.
    """

    method: str
    name: str
    note: str
    points: tuple[Point, ...]

    @property
    def warning(self) -> str | None:
        """That the newest is below the one before by more than both intervals."""
        return _below(self.points[-1], self.points[-2], self.name)

    @property
    def range(self) -> str:
        """What the picture's lowest and highest point stand for."""
        values = [point.value for point in self.points]
        least, most = f"{min(values):.4g}", f"{max(values):.4g}"
        said = f"always {least}" if min(values) == max(values) else f"{least} to {most}"
        return f"{said}, {len(values)} releases"

    @property
    def line(self) -> tuple[tuple[float, float], ...]:
        """The points as a picture 100 wide and 20 high has them, from its upper left."""
        values = [point.value for point in self.points]
        least, room = min(values), max(values) - min(values)
        return tuple(
            (100 * at / (len(values) - 1), 10 if room == 0 else 18 - 16 * (value - least) / room)
            for at, value in enumerate(values)
        )


def courses(ctx: Context, entries: Sequence[Entry]) -> tuple[Course, ...]:
    """The public numbers of releases that may be seen, by method and name.

    Of a release that failed its suite, or that an audit which blocks has not let out, none is read.

    Args:
        ctx: Where the releases lie, and whether an audit blocks.
        entries: The releases, oldest first.
    """
    found: dict[tuple[str, str], tuple[str, list[Point]]] = {}
    for entry in entries:
        if entry.state is not State.COMMITTED or not _shown(ctx, entry.release_id):
            continue
        paid = _paid(ctx, entry.release_id)
        if paid is not None:
            said = found.setdefault((entry.method, PAID), ("of a classifier on real records", []))
            said[1].append(paid)
        for metric in _numbers(ctx, entry.release_id):
            said = found.setdefault((entry.method, metric.name), (metric.note, []))
            said[1].append(Point(entry.release_id, metric.value))
    return tuple(
        Course(method, name, note, tuple(points))
        for (method, name), (note, points) in found.items()
        if len(points) > 1
    )


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
            found = read_json(ctx.workspace.internal(earlier.release_id) / EVALUATION)["metrics"]
            before = {metric["name"]: float(metric["value"]) for metric in found}
            return _below(
                Point(plan.id, numbers[ACCURACY], numbers[LOW], numbers[HIGH]),
                Point(earlier.release_id, before[ACCURACY], before[LOW], before[HIGH]),
                "accuracy",
            )
    return None


def _before(ctx: Context, plan: Plan) -> list[Entry]:
    """Finished releases before one by its method on its account, newest first."""
    own = ctx.ledger.entry(plan.id).number
    return [
        entry
        for entry in reversed(ctx.ledger.entries(plan.account))
        if entry.number < own and entry.method == plan.method and entry.state is State.COMMITTED
    ]


def _below(now: Point, before: Point, name: str) -> str | None:
    if now.high is None or before.low is None or now.high >= before.low:
        return None
    return (
        f"{name}: {now.said} is below {before.said} of {before.release_id}, the release before, by "
        "more than the intervals"
    )


def _shown(ctx: Context, release_id: str) -> bool:
    """Whether what a release says of itself may be seen by its checks alone."""
    folder = ctx.workspace.release(release_id)
    try:
        passed = read_json(folder / layout.VALIDATION)["success"] is True
    except (OSError, ValueError, LookupError, TypeError):
        return False
    blocks = ctx.config.evaluate.audit == "block"
    return passed and (not blocks or ctx.workspace.pointer(release_id).is_file())


def _paid(ctx: Context, release_id: str) -> Point | None:
    try:
        said: Any = certificate.read(ctx.workspace.release(release_id))[1]["accuracy"]
        point = Point(release_id, float(said["value"]), float(said["low"]), float(said["high"]))
    except (PrivsynError, OSError, ValueError, LookupError, TypeError):
        return None
    return point if math.isfinite(point.value) else None


def _numbers(ctx: Context, release_id: str) -> list[Metric]:
    """Numbers of the synthetic file alone, as the release's validation has them."""
    file = ctx.workspace.release(release_id) / layout.VALIDATION
    found = []
    with suppress(OSError, ValueError, LookupError, TypeError):
        for one in json.loads(file.read_bytes())["numbers"]:
            if one["class"] == "dp-release" and one.get("label") is None:
                found.append(
                    Metric(str(one["name"]), float(one["value"]), one["class"], str(one["note"]))
                )
    return found
