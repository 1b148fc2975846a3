"""Keyphrase seeding through the stages: phrases as records, neighbours, what is published."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from neighbours import assert_alike, published_by_neighbours
from small_project import environment

from privsyn import certificate
from privsyn.stages.certify import certify
from privsyn.stages.generate import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.summary import facts
from privsyn.stages.validate import validate

NAME = "keyphrase_seeding"
SETTINGS = {
    "vocabulary_size": 20, "features": 32, "sequence_length": 3, "sequences_per_label": 4,
    "use_llm": False, "ensemble": "logarithmic",
}  # fmt: skip


@pytest.fixture
def project(make_project):
    return make_project(methods={NAME: SETTINGS})


def release(ctx):
    planned = plan(ctx, NAME, open_account=True)
    reserve(ctx, planned)
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard)
    return planned, certify(ctx, planned)


def test_phrases_become_a_release(project):
    ctx = project.context()
    planned, folder = release(ctx)
    assert planned.epsilon <= 8.0
    assert planned.shards == 1
    lines = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == ["Billing"] * 4 + ["Symptoms"] * 4
    assert all(len(line["text"].split(", ")) == 3 for line in lines)
    _, sealed = certificate.read(folder)
    assert sealed["drawn"]["phrases"] == 24
    assert sealed["plan"]["derived"]["structures"] == 2
    assert set(planned.models) == {"embedder"}
    assert facts(ctx, planned)["rows"] == "8"
    assert all(check.passed for check in certificate.verify(folder, ctx.ledger))
    validate(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"
    (entry,) = ctx.ledger.entries()
    assert dict(entry.event) == planned.event


class Constant:
    """The mechanism replaced by a constant."""

    kind = "opendp"

    def laplace(self, values, scale):
        return np.arange(len(values))[::-1].astype(np.int64)

    def gaussian(self, values, sigma):
        return np.full(len(values), 2**24, np.int64)


def test_neighbouring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(project):
    found = published_by_neighbours(project, NAME, Constant, release)
    assert_alike(found)


def test_draws_survive_kills(make_project, tmp_path):
    """Draws on file never change, and a kill costs one call of the mechanism at most."""
    project = make_project(methods={NAME: SETTINGS})
    counter = tmp_path / "calls"
    script = Path(__file__).with_name("dying_run.py")
    seen: dict[str, object] = {}
    kills = 0
    for kill_at in (1, 2, 0):
        done = subprocess.run(
            [sys.executable, str(script), str(project.root), str(counter), str(kill_at)],
            env=environment(project), check=False, capture_output=True,
        )  # fmt: skip
        assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2000:]
        kills += done.returncode != 0
        scratch = list(project.root.glob(".privsyn/**/journal-00000"))
        if scratch:
            lines = [json.loads(line[9:]) for line in scratch[0].read_text().splitlines()[1:]]
            drawn = {line["k"]: line["v"] for line in lines}
            assert drawn.items() >= seen.items(), "a draw on file changed"
            seen = drawn
    assert kills == 2
    assert "vocabulary" in seen
    assert counter.stat().st_size <= 5 + kills
    ctx = project.context()
    assert [entry.state for entry in ctx.ledger.entries()] == ["COMMITTED"]
