"""A training by several processes through the stages: by processes of our own, and by torchrun."""

from __future__ import annotations

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from privsyn.cli.options import context_of
from privsyn.errors import ConfigError, TrainingInterrupted
from privsyn.models.training.distributed import rank_processes
from privsyn.models.training.distributed.rank import Rank
from privsyn.release import verification
from privsyn.stages.drawing import load_models
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.run import draw
from privsyn.stages.train import train
from tests.e2e.small_project import environment

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
    return ctx.ledger.entry(planned.id).state


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
    start = rank_processes._start
    monkeypatch.setattr(
        rank_processes, "_start", lambda *x: (children.append(start(*x)), children[-1])[1]
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
    (entry,) = project.context().ledger.entries()
    assert entry.state == "COMMITTED"


def test_a_command_refuses_before_it_does_anything(project):
    group = SimpleNamespace(place=Rank(0, 4, 0, 2))
    with pytest.raises(ConfigError, match="rendezvous_insecure"):
        context_of(project.root / "params.yaml", None, group=group)
    settings = ["performance.rendezvous_insecure=true"]
    assert context_of(project.root / "params.yaml", settings, group=group).group is group


@pytest.mark.slow
def test_machines_with_nothing_in_common_but_a_network_train_together(project, tmp_path):
    """The second home holds no project: what it computes with comes from rank 0."""
    project.cli("stage", "plan", "--method", "dp_lora")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    homes = (project.root, tmp_path / "other")
    homes[1].mkdir()
    command = ["-m", "privsyn", "stage", "generate", "--plan", "plans/dp_lora.json"]
    command += ["-S", "performance.rendezvous_insecure=true"]
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--node-rank", str(rank), "--nproc-per-node", "1"),
                *("--master-addr", "127.0.0.1", "--master-port", port, *command),
            ],
            cwd=home,
            env=environment(project),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, home in enumerate(homes)
    ]
    said = [node.communicate(timeout=600)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said[0][-2000:]
    assert list(homes[1].iterdir()) == []
    (entry,) = project.context().ledger.entries()
    assert entry.state == "COMMITTED"
