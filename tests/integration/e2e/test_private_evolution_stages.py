"""Private evolution of texts through the stages: rows, exhibits, neighbors, kills, scratch."""

import base64
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from privsyn.methods.base import Backends
from privsyn.methods.private_evolution import method as private_evolution
from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages import certify as certify_stage
from privsyn.stages.draw import generate, public_file
from privsyn.stages.measure import public_alone
from privsyn.stages.plan import plan
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from tests.fakes import FakeTextModel
from tests.integration.e2e.neighbors import assert_alike, published_by_neighbors
from tests.integration.e2e.small_project import (
    begin_release,
    finish,
    measured_by,
    reserve_release,
    stand_ins,
)
from tests.integration.e2e.test_kills import ended, killed
from tests.noise import Constant

NAME = "private_evolution"
SETTINGS = {
    "modality": "text",
    "rounds": 3,
    "lookahead": 1,
    "population": 5,
    "text": {"max_tokens": 8},
}


@pytest.fixture
def project(make_project):
    return make_project(methods={NAME: SETTINGS})


def release(ctx, models=None):
    planned = reserve_release(ctx, NAME)
    assert planned.shards == 1
    return planned, finish(ctx, planned, Backends(models or stand_ins()))


def test_the_public_model_alone_is_the_generator_without_votes(project):
    """The prompt of the first population, kept once written; None where the model is silent."""
    ctx = project.context()
    planned = plan(ctx, NAME, open_account=True)
    models = stand_ins()
    labels = ["Billing", "Symptoms", "Billing"]
    with measured_by(Backends(models)):
        texts = public_alone(ctx, planned, labels)
    prompt = planned.settings["text"]["random_prompt"]
    prompts = len(models["text"].prompts)  # with those asked again for a text that broke off
    assert len(texts) == 3 <= prompts
    assert all(asked.startswith(prompt.partition("{")[0]) for asked in models["text"].prompts)
    with measured_by(Backends(models)):
        assert public_alone(ctx, planned, labels) == texts
    assert len(models["text"].prompts) == prompts

    models["text"] = FakeTextModel(script=lambda prompt, before: "", revision="silent")
    with measured_by(Backends(models)):
        assert public_alone(ctx, planned, labels[:2]) is None
    assert list((ctx.workspace.cache / "alone").iterdir()) != []


def test_releases_the_population_of_every_label_and_what_the_rounds_told(project):
    ctx = project.context()
    planned, folder = release(ctx)
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["Billing"] * 5 + ["Symptoms"] * 5
    assert all(row["text"].strip() for row in rows)
    _, sealed = certificate.read(folder)
    assert set(sealed["exhibits"]) == {"rounds.json"}
    assert len(json.loads((folder / "exhibits" / "rounds.json").read_text())) == 3
    assert sealed["plan"]["derived"]["histograms"] == 3
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    validate(ctx, planned)
    (entry,) = ctx.ledger.releases.all()
    assert dict(entry.event) == planned.event
    assert 7.99 < planned.epsilon <= 8.0
    assert settle(ctx, planned) == "COMMITTED"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"expansion": 3},
        {"word_share": 0.3, "expansion": 3},
        {"word_share": 0.3, "mean_share": 0.3, "expansion": 3},
    ],
)
def test_neighboring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(
    make_project, monkeypatch, changes
):
    """Also what the language model hears: its prompts, settings and log ratios."""
    models = []

    def watched(ctx):
        models.append(stand_ins())
        return release(ctx, models[-1])

    seeded = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed=0: seeded(seed))
    project = make_project(methods={NAME: SETTINGS | changes})
    constant = partial(Constant, gaussian=lambda place: place << 22)
    found = published_by_neighbors(project, NAME, constant, watched)
    assert_alike(found)
    first, *others = [one["text"].heard for one in models]
    assert len(others) > 5
    assert all(heard == first for heard in others)
    assert any(request["log_ratios"] for request in first) == ("word_share" in changes)
    assert "exhibits/rounds.json" in found["base"]


def test_no_clean_histogram_lies_anywhere_in_the_project(project, monkeypatch):
    clean = []
    votes = private_evolution._Private.votes

    def watched(self, vectors):
        clean.append(votes(self, vectors))
        return clean[-1]

    monkeypatch.setattr(private_evolution._Private, "votes", watched)
    monkeypatch.setattr(certify_stage, "wipe_workdir", lambda ctx, entry: None)  # the scratch stays
    ctx = project.context()
    release(ctx)
    assert len(clean) == 3
    assert any(path.name == "journal-00000" for path in project.root.rglob("*"))
    arrays = [counts for v in clean for counts in (v, v // private_evolution.LATTICE)]
    forms = [a.astype(kind).tobytes() for a in arrays for kind in ("<i8", "<i4", "<f8", "<f4")]
    forms += [base64.b64encode(form) for form in forms]
    forms += [json.dumps(a.tolist()).encode() for a in arrays]
    for path in project.root.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in forms), path.name


def test_killed_after_a_draw_it_goes_on_with_every_draw_on_file(make_project, tmp_path):
    project = make_project(methods={NAME: SETTINGS})
    counter = tmp_path / "calls"
    kills, seen = killed(project, counter, (1, 1, 2, 0))
    assert "kept population/1/0" in seen
    # Planned: three rounds; a kill adds at most the unwritten one.
    assert counter.stat().st_size <= 3 + kills
    ended(project)


def test_its_first_population_is_the_baseline_of_its_evaluation(project):
    """Texts that no record has had a say in; nothing else is kept of a run."""
    ctx = project.context()
    planned, _ = release(ctx)
    kept = json.loads(public_file(ctx, planned).read_text())
    assert [label for label, _ in kept] == ["Billing"] * 5 + ["Symptoms"] * 5
    assert all(isinstance(text, str) and text for _, text in kept)


def test_a_resumed_run_says_that_reading_again_is_free_and_of_what_the_parts_are(project):
    ctx = project.context()
    planned = begin_release(ctx, NAME)
    told = []

    def stop(stage, done, total, things=""):
        told.append((stage, things))
        if "reading" not in stage and done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(replace(ctx, on_progress=stop), planned, 0, Backends(stand_ins()))
    reading = {one for one in told if "parts" in one[1]}
    assert reading == {("generate 1/1, reading", "parts of the records")}
    told.clear()
    generate(
        replace(ctx, on_progress=lambda stage, *_, things="": told.append((stage, things))),
        planned,
        0,
        Backends(stand_ins()),
    )
    assert [stage for stage, _ in told if "reading again, at no cost: " in stage]
