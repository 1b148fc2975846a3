"""A release that is worth less than the one before is said to be, inside."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from privsyn.methods.base import Backends
from privsyn.stages.evaluate import evaluate, log_line
from privsyn.stages.lineage import accuracy_drop, paid_drop
from privsyn.tracking import NullTracker
from tests.integration.e2e.small_project import build_project, stand_ins
from tests.integration.e2e.test_report import released
from tests.integration.e2e.weekly_releases import release_id, weekly


@pytest.fixture
def ctx(tmp_path: Path):
    """Three releases of which the first and the second were measured, and the third is new."""
    ctx = build_project(tmp_path / "project").context()
    weekly(ctx, 3)
    measured(ctx, 0, 0.9, 0.85, 0.95)
    measured(ctx, 1, 0.7, 0.65, 0.75)
    return ctx


def measured(ctx, number: int, *values: float) -> None:
    metrics = [{"name": n, "value": v} for n, v in numbers(*values).items()]
    file = ctx.workspace.internal(release_id(number)) / "evaluation.json"
    file.write_text(json.dumps({"metrics": metrics}))


def numbers(accuracy: float, low: float, high: float) -> dict[str, float]:
    return {
        "vectors.accuracy": accuracy,
        "vectors.accuracy_low": low,
        "vectors.accuracy_high": high,
    }


def plan(number: int, method: str = "invisible_ink") -> SimpleNamespace:
    return SimpleNamespace(id=release_id(number), account="letters", method=method)


def test_a_fall_beyond_the_intervals_is_said(ctx) -> None:
    warning = accuracy_drop(ctx, plan(2), numbers(0.5, 0.45, 0.55))
    assert warning is not None
    assert f"0.500 [0.450, 0.550] is below 0.700 [0.650, 0.750] of {release_id(1)}" in warning


@pytest.mark.parametrize("now", [(0.6, 0.55, 0.65), (0.7, 0.65, 0.75), (0.9, 0.8, 0.95)])
def test_within_the_intervals_nothing_fell(ctx, now) -> None:
    assert accuracy_drop(ctx, plan(2), numbers(*now)) is None


def test_only_earlier_releases_of_the_method_count(ctx) -> None:
    assert accuracy_drop(ctx, plan(0), numbers(0.1, 0.05, 0.15)) is None
    assert accuracy_drop(ctx, plan(2, "private_prediction"), numbers(0.1, 0.05, 0.15)) is None
    assert accuracy_drop(ctx, plan(2), {"fid": 1.0}) is None


def test_a_release_that_was_not_measured_is_passed_over(ctx) -> None:
    (ctx.workspace.internal(release_id(1)) / "evaluation.json").write_text("{")
    warning = accuracy_drop(ctx, plan(2), numbers(0.5, 0.45, 0.55))
    assert warning is not None
    assert release_id(0) in warning


def test_the_warning_stays_inside(tmp_path: Path, monkeypatch) -> None:
    class Tags(NullTracker):
        def start_stage(self, release_id: str, stage: str) -> str:
            return f"nested {stage}"

        def set_tags(self, run_id: str, tags) -> None:
            written.append((run_id, dict(tags)))

    written: list[tuple[str, dict[str, object]]] = []
    project, _, planned, folder = released(tmp_path / "project")
    silent = log_line(folder)
    monkeypatch.setattr("privsyn.stages.evaluate.accuracy_drop", lambda *_: "accuracy fell")
    ctx = project.context(tracker=Tags())
    assert log_line(evaluate(ctx, planned, backends=Backends(stand_ins()))) == silent
    assert json.loads((folder / "evaluation.json").read_text())["warning"] == "accuracy fell"
    assert written == [("nested evaluate", {"privsyn.warning": "accuracy fell"})]
    for file in ctx.workspace.release(planned.id).rglob("*"):
        assert file.is_dir() or b"accuracy fell" not in file.read_bytes()


def paid(ctx, number: int, accuracy: float) -> None:
    """An accuracy that a release paid for, in its folder."""
    said = {"value": accuracy, "low": accuracy - 0.05, "high": accuracy + 0.05}
    folder = ctx.workspace.release(release_id(number))
    (folder / "certificate.json").write_text(json.dumps({"accuracy": said}))


def test_a_paid_accuracy_that_fell_beyond_its_interval_is_warned_of(ctx) -> None:
    for number, accuracy in enumerate((0.9, 0.8, 0.6)):
        paid(ctx, number, accuracy)
    warning = paid_drop(ctx, plan(2))
    assert warning is not None
    assert f"0.600 [0.550, 0.650] is below 0.800 [0.750, 0.850] of {release_id(1)}" in warning
    assert paid_drop(ctx, plan(1)) is None, "the intervals meet"
    assert paid_drop(ctx, plan(0)) is None
    assert paid_drop(ctx, plan(2, "private_prediction")) is None
