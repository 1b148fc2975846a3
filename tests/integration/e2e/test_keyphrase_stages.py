"""Keyphrase seeding through the stages: phrases as records, neighbors, what is published."""

import hashlib
import json
from functools import partial

import numpy as np
import pytest

from privsyn.display.releases import outcome
from privsyn.errors import ConfigError
from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages.draw import generate
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate
from tests.integration.e2e.neighbors import assert_alike, published_by_neighbors
from tests.integration.e2e.small_project import begin_release, finish, reserve_release
from tests.integration.e2e.test_kills import ended, killed
from tests.noise import Constant

NAME = "keyphrase_seeding"
SETTINGS = {
    "vocabulary_size": 20, "features": 32, "sequence_length": 3, "sequences_per_label": 4,
    "use_llm": False, "ensemble": "logarithmic",
}  # fmt: skip


@pytest.fixture
def project(make_project):
    return make_project(methods={NAME: SETTINGS})


def release(ctx):
    planned = reserve_release(ctx, NAME)
    return planned, finish(ctx, planned, None)


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
    assert outcome(ctx, planned)[planned.things] == "8"
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    validate(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"
    (entry,) = ctx.ledger.releases.all()
    assert dict(entry.event) == planned.event


def named(project, *overrides):
    """The plan under these overrides; a file of terms lies in the project, by any name."""
    return plan(project.context(*overrides), NAME, open_account=True)


def test_the_same_terms_by_another_path_are_the_same_release(project):
    terms = "\n".join(f"term{i}" for i in range(30)).encode()
    digest = hashlib.sha256(terms).hexdigest()
    for place in ("terms.txt", "elsewhere-of-alice.txt"):
        (project.root / place).write_bytes(terms)
    setting = f"methods.{NAME}.vocabulary"
    plans = [
        named(project, f"{setting}=terms.txt"),
        named(project, f"{setting}={project.root / 'elsewhere-of-alice.txt'}"),
    ]
    assert len({planned.id for planned in plans}) == 1
    assert plans[0].settings["vocabulary"] == f"sha256:{digest}"
    for planned in plans:
        for where in ("terms.txt", "alice", str(project.root)):
            assert where not in planned.model_dump_json()


def test_terms_that_moved_are_found_where_the_config_says(project):
    first, second = project.root / "first.txt", project.root / "second.txt"
    first.write_text("\n".join(f"term{i}" for i in range(30)))
    ctx = project.context(f"methods.{NAME}.vocabulary=first.txt")
    planned = reserve_release(ctx, NAME)
    first.rename(second)
    ctx = project.context(f"methods.{NAME}.vocabulary=second.txt")
    reserve(ctx, planned)
    folder = finish(ctx, planned, None)
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    assert "first.txt" not in (folder / "certificate.json").read_text()


def test_planned_terms_that_the_config_names_no_more_are_asked_for(project):
    terms = project.root / "terms.txt"
    terms.write_text("\n".join(f"term{i}" for i in range(30)))
    ctx = project.context(f"methods.{NAME}.vocabulary=terms.txt")
    planned = begin_release(ctx, NAME)
    with pytest.raises(ConfigError, match=r"vocabulary=builtin has the digest .*, not "):
        generate(project.context(), planned, 0)


def test_neighboring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(project):
    alike = partial(np.full_like, fill_value=2**24)
    constant = partial(Constant, laplace=np.flip, gaussian=alike)
    found = published_by_neighbors(project, NAME, constant, release)
    assert_alike(found)


def test_draws_survive_kills(make_project, tmp_path):
    """Draws on file never change, and a kill costs one call of the mechanism at most."""
    project = make_project(methods={NAME: SETTINGS})
    counter = tmp_path / "calls"
    kills, seen = killed(project, counter, (1, 2, 0))
    assert kills == 2
    assert "vocabulary" in seen
    assert counter.stat().st_size <= 5 + kills
    ended(project)
