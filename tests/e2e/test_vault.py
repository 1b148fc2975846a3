"""Releases whose private intermediates lie in a vault: on machines with no folder in common."""

from __future__ import annotations

import base64
import json
import secrets
import shutil
from pathlib import Path

import numpy as np
import pytest

from privsyn.dp.noise import SeededNoise
from privsyn.methods.base import Backends
from privsyn.stages.certify import certify
from privsyn.stages.generate import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.train import train
from privsyn.vault.deployment_key import VARIABLE
from tests.e2e.small_project import CANARY, METHODS, Project, rows, stand_ins

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(VARIABLE, KEY)


def models() -> Backends:
    return Backends(stand_ins())


@pytest.fixture
def machines(make_project, tmp_path):
    """Homes of a project that share a ledger and a vault, and nothing else."""

    def make(
        count: int,
        name: str = "home-0",
        *,
        vault: str | None = f"file://{tmp_path / 'vault'}",
        ledger: str | None = f"sqlite:///{tmp_path / 'shared' / 'ledger.db'}",
        **changes,
    ):
        services = {"ledger": ledger, "vault": vault}
        first = make_project(name, services=services, **changes)
        first.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
        homes = [first]
        for number in range(1, count):
            homes.append(Project(Path(shutil.copytree(first.root, tmp_path / f"home-{number}"))))
            homes[-1].data.unlink()  # only the first sees the records
        return homes

    return make


def seeded(project: Project, seed: int = 0):
    ctx = project.context()
    ctx.noise = lambda: SeededNoise(seed)
    return ctx


def released(homes) -> Path:
    """A release whose every task runs in the next home, with the same public randomness."""
    with pytest.MonkeyPatch.context() as patch:
        make, own = np.random.default_rng, np.random.Generator(np.random.PCG64(1))
        patch.setattr(np.random, "default_rng", lambda seed=None: make(seed or own.integers(2**63)))
        patch.setattr(secrets, "randbits", lambda bits: int(own.integers(2**62)))
        return _released(homes)


def _released(homes) -> Path:
    turn = 0

    def next_home():
        nonlocal turn
        turn += 1
        return seeded(homes[turn % len(homes)])

    ctx = seeded(homes[0])
    (method,) = ctx.config.methods
    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    shards = partition(ctx, planned)
    train(next_home(), planned, backends=models())
    for shard in range(shards):
        generate(next_home(), planned, shard, models())
    last = next_home()
    folder = certify(last, planned)
    assert settle(last, planned) == "COMMITTED"
    return folder


@pytest.mark.parametrize("method", list(METHODS))
def test_a_release_over_three_homes_is_that_of_one_machine(machines, tmp_path, method):
    homes = machines(3, methods={method: METHODS[method]})
    plan(homes[0].context(), method, open_account=True)
    [alone] = machines(1, name="alone", vault=None, ledger=None, methods={method: METHODS[method]})
    (alone.root / ".privsyn").mkdir()
    shutil.copy(tmp_path / "shared" / "ledger.db", alone.root / ".privsyn")
    folder, expected = released(homes), released([alone])
    assert folder.name == expected.name
    lines = [(where / "synthetic.jsonl").read_text() for where in (folder, expected)]
    assert lines[0] == lines[1]
    a, b = (json.loads((where / "certificate.json").read_text()) for where in (folder, expected))
    assert a["plan"] == b["plan"]
