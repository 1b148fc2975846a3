"""A training by several processes through the stages: by processes of our own, and by torchrun."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from privsyn.cli import options
from privsyn.data.partition_marker import shard_name
from privsyn.data.unit_shard import own_shards, unit_shard
from privsyn.errors import ConfigError, TrainingInterrupted
from privsyn.models.training.distributed import rank_processes
from privsyn.models.training.distributed.rank import Rank
from privsyn.models.training.distributed.rank_group import Command
from privsyn.release import verification
from privsyn.stages.drawing import load_models
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.run import draw
from privsyn.stages.spread import read_units, request_of
from privsyn.stages.train import train
from privsyn.vault.deployment_key import VARIABLE
from privsyn.vault.release import ReleaseVault
from tests.e2e.small_project import Project, environment

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


KEY = base64.b64encode(bytes(range(32))).decode()


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


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_command_refuses_before_it_does_anything(project, monkeypatch, rank):
    """Each machine by itself, whatever the other says; a key or the user's word lets it go on."""
    here = {"RANK": rank, "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    met = []

    @contextmanager
    def joined(place, secret):
        met.append(secret)
        yield SimpleNamespace(place=Rank(0, 4, 0, 2), asked=lambda: (Command.STOP, b""))

    monkeypatch.setattr(options, "joined", joined)
    params = project.root / "params.yaml"

    def start(*said, file=params):
        with suppress(typer.Exit), options.ranks(file, list(said)):
            pass

    for file in (params, project.root / "none.yaml"):
        with pytest.raises(ConfigError, match="rendezvous_insecure"):
            start(file=file)
        start("performance.rendezvous_insecure=true", file=file)
        assert met.pop() is None
        with monkeypatch.context() as patched:
            patched.setenv(VARIABLE, KEY)
            start(file=file)
            assert met.pop() == bytes(range(32))
            start("performance.rendezvous_insecure=true", file=file)
            assert met.pop() is None
    assert not met


def over_two_homes(project, homes, *settings: str, **variables: str) -> None:
    """Draw a planned release by torchrun, as on two machines."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = ["-m", "privsyn", "stage", "generate", "--plan", "plans/dp_lora.json"]
    command += [word for setting in settings for word in ("-S", setting)]
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--node-rank", str(rank), "--nproc-per-node", "1"),
                *("--master-addr", "127.0.0.1", "--master-port", port, *command),
            ],
            cwd=home,
            env=environment(project) | variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, home in enumerate(homes)
    ]
    said = [node.communicate(timeout=600)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said[0][-2000:] + said[1][-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [True, False])
def test_machines_with_nothing_in_common_but_a_network_train_together(project, tmp_path, sealed):
    """The second home holds no project: what it computes with comes from rank 0."""
    project.cli("stage", "plan", "--method", "dp_lora")
    homes = (project.root, tmp_path / "other")
    homes[1].mkdir()
    if sealed:
        over_two_homes(project, homes, **{VARIABLE: KEY})
    else:
        over_two_homes(project, homes, "performance.rendezvous_insecure=true")
    assert list(homes[1].iterdir()) == []
    (entry,) = project.context().ledger.entries()
    assert entry.state == "COMMITTED"


@pytest.fixture
def spread(make_project, tmp_path):
    """Two homes that share a ledger and a vault; the second has no private file."""
    services = {
        "ledger": f"sqlite:///{tmp_path / 'shared' / 'ledger.db'}",
        "vault": f"file://{tmp_path / 'vault'}",
    }
    first = make_project(
        methods={"dp_lora": DP_LORA},
        services=services,
        performance={"device": "cpu", "checkpoint_steps": 2, "train_shards": 3},
    )
    first.cli("stage", "plan", "--method", "dp_lora")
    other = Project(Path(shutil.copytree(first.root, tmp_path / "other")))
    other.data.unlink()
    shutil.rmtree(other.root / "plans")
    return first, other


@pytest.mark.slow
def test_two_machines_train_each_on_records_of_its_own(spread):
    first, other = spread
    over_two_homes(first, (first.root, other.root), **{VARIABLE: KEY})
    ctx = first.context()
    (entry,) = ctx.ledger.entries()
    assert entry.state == "COMMITTED"
    checks = verification.verify(ctx.workspace.release(entry.release_id), ctx.ledger)
    assert all(check.passed is not False for check in checks)
    assert not list(other.root.rglob("shard-*")), "its cache is wiped"


def test_a_machine_fetches_the_shards_of_its_own_units_alone(spread, monkeypatch):
    """The objects of other shards are gone from the vault, and it is not missed."""
    monkeypatch.setenv(VARIABLE, KEY)
    first, other = spread
    ctx = first.context()
    planned = plan(ctx, "dp_lora", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    method, settings = ctx.planned(planned)
    request = request_of(planned, method.cells(settings, planned.dataset.labels), 3)
    request = json.loads(json.dumps(request))
    everybody = read_units(other.context(), request, [0, 1, 2])
    assert len(everybody) > 10
    fetched = []
    get = ReleaseVault.get
    monkeypatch.setattr(
        ReleaseVault,
        "get",
        lambda self, name, file: (fetched.append(file.name), get(self, name, file)),
    )
    for rank in range(2):
        fetched.clear()
        shards = own_shards(rank, 2, 3)
        units = read_units(other.context(), request, shards)
        assert fetched == ["complete.json", *map(shard_name, shards)]
        assert units == {u: everybody[u] for u in everybody if unit_shard(u, 3) in shards}
        assert units
    assert not list(other.root.rglob("shard-*")), "the cache is wiped"
    assert not list(other.root.rglob("complete.json"))


def test_more_machines_than_shards_are_refused_before_a_draw(spread, monkeypatch):
    monkeypatch.setenv(VARIABLE, KEY)
    ctx = spread[0].context()
    planned = plan(ctx, "dp_lora", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    ctx.group = SimpleNamespace(place=Rank(0, 4, 0, 1))
    with pytest.raises(ConfigError, match=r"4 processes, .* into 3 shards"):
        train(ctx, planned)
    assert state(ctx, planned) == "BEGUN"
