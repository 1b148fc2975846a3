"""A training by several processes through the stages: by processes of our own, and by torchrun."""

from __future__ import annotations

import subprocess
import sys

import pytest

from privsyn.cli import options
from privsyn.errors import ConfigError, TrainingInterrupted
from privsyn.models.training import processes
from privsyn.release import verification
from privsyn.stages.draw import load_models, train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.run import draw
from tests.integration.e2e.small_project import environment

DP_LORA = {
    "sampling_rate": 0.3,
    "steps": 6,
    "expected_batch": 4,
    "noise_multiplier": 1.0,
    "rank": 1,
    "target_modules": ["q_proj"],
    "max_tokens": 8,
    "micro_batch": 4,
    "texts_per_label": 3,
}


@pytest.fixture
def project(make_project):
    return make_project(
        methods={"dp_lora": DP_LORA}, performance={"device": "cpu", "checkpoint_steps": 2}
    )


def state(ctx, planned):
    return ctx.ledger.releases.get(planned.id).state


def test_what_a_release_costs_and_is_called_knows_no_processes(project):
    one = project.context()
    planned = plan(one, "dp_lora", open_account=True)
    many = plan(project.context("performance.processes=3"), "dp_lora", open_account=True)
    assert many.id == planned.id
    assert many == planned


@pytest.mark.slow
def test_a_training_goes_on_after_a_process_died(project, monkeypatch):
    ctx = project.context("performance.processes=2")
    children = []
    start = processes._start
    monkeypatch.setattr(
        processes, "_start", lambda *x: (children.append(start(*x)), children[-1])[1]
    )
    steps = []

    def dies(stage, step, total, counted):
        steps.append(step)
        if len(steps) == 4:
            children[0].kill()

    ctx.progress = dies
    planned = plan(ctx, "dp_lora", open_account=True)
    reserve(ctx, planned)
    backends = load_models(ctx, planned)
    partition(ctx, planned)
    with pytest.raises(TrainingInterrupted, match="is gone"):
        train(ctx, planned, backends=backends)
    assert state(ctx, planned) == "BEGUN"
    assert steps == [0, 1, 2, 3]
    train(ctx, planned, backends=backends)
    assert steps == [0, 1, 2, 3, 2, 3, 4, 5], "from the last checkpoint on"
    assert len(children) == 2
    assert None not in [child.returncode for child in children], "none is left"
    draw(ctx, planned)
    assert state(ctx, planned) == "COMMITTED"
    checks = verification.verify(ctx.workspace.release(planned.id), ctx.ledger)
    assert all(check.passed is not False for check in checks)


@pytest.mark.slow
def test_torchrun_starts_the_processes(project):
    project.cli("stage", "plan", "--method", "dp_lora")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "privsyn", "stage", "generate", "--plan", "plans/dp_lora.json"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=project.root,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("train: 0 of 6") == 1, "one process draws"
    (entry,) = project.context().ledger.releases.all()
    assert entry.state == "COMMITTED"


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_command_refuses_several_machines_before_it_does_anything(project, monkeypatch, rank):
    """Each machine by itself, whatever the other says."""
    here = {"RANK": rank, "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"4 processes, 2 of them .* on one machine"):
        with options.ranks():
            raise AssertionError("nothing is done")
