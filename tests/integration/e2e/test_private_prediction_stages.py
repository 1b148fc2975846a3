"""Private prediction through the stages: as many texts as came out, neighbors, structured data."""

import json
from functools import partial

import pytest

from privsyn.display.releases import outcome
from privsyn.methods.base import Backends
from privsyn.methods.private_prediction.method import PrivatePrediction
from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages.evaluate import evaluate
from privsyn.stages.measure import public_alone
from privsyn.stages.plan import plan
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from tests.fakes import FakeLogitModel, FakeTextModel
from tests.integration.e2e.neighbors import assert_alike, published_by_neighbors
from tests.integration.e2e.small_project import (
    CANARY,
    METHODS,
    finish,
    reserve_release,
    rows,
    stand_in,
)
from tests.noise import Constant

NAME = "private_prediction"


@pytest.fixture
def project(make_project):
    return make_project(methods={NAME: METHODS[NAME]})


def release(ctx, backends=None):
    planned = reserve_release(ctx, NAME)
    return planned, finish(ctx, planned, backends)


def lines(folder):
    return [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]


def test_holds_as_many_texts_as_the_private_tokens_gave(project, fake):
    ctx = project.context()
    planned, folder = release(ctx, fake)
    found = lines(folder)
    assert 2 <= len(found) <= planned.rows == 2 * 5
    assert [row["id"] for row in found] == [f"{planned.id}-{i:06d}" for i in range(len(found))]
    labels = [row["label"] for row in found]
    assert labels == sorted(labels)
    _, sealed = certificate.read(folder)
    assert sealed["artifact"]["rows"] == len(found)
    assert sealed["plan"]["derived"]["private_tokens"] == 12
    assert 0 <= sealed["drawn"]["public_tokens"] <= sealed["drawn"]["tokens"]
    assert sealed["drawn"]["tokens"] - sealed["drawn"]["public_tokens"] <= 2 * 12
    assert "of" in outcome(ctx, planned)["public tokens"]
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    assert validate(ctx, planned) == folder
    assert settle(ctx, planned) == "COMMITTED"
    assert planned.epsilon < 8.0
    (entry,) = ctx.ledger.releases.all()
    assert dict(entry.event) == planned.event


def test_neighboring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(
    project, fake, monkeypatch
):
    expected, run = set(), PrivatePrediction.run

    def note(self, settings, mechanism, buckets, draw):
        expected.add(draw.expected_records)
        return run(self, settings, mechanism, buckets, draw)

    monkeypatch.setattr(PrivatePrediction, "run", note)
    found = published_by_neighbors(
        project, NAME, partial(Constant, choice=2), lambda ctx: release(ctx, fake)
    )
    assert_alike(found)
    assert len(expected) == 1, "thresholds follow from it, which a constant does not show"


SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["bill", "visit"]}, "late": {"type": "boolean"}},
    "required": ["kind", "late"],
    "additionalProperties": False,
}


def test_neighbors_of_structured_records_show_the_same(make_project):
    """What the outward report shows comes from the drawn records alone."""
    one = {"max_tokens": 1, "whole_sentences": False}
    made = make_project(methods={NAME: METHODS[NAME] | one})
    said = ["<end>", '{"kind": "bill"}', '{"kind": "visit", "n": 7}', '{"kind": "visit"}']
    revision = stand_in().revision
    toy = Backends({"language": FakeLogitModel(said, revision=revision)})
    made.write(
        [r | {"text": json.dumps({"kind": CANARY, CANARY: i})} for i, r in enumerate(rows(48, 20))]
    )
    found = published_by_neighbors(
        made, NAME, partial(Constant, choice=2), lambda ctx: release(ctx, toy)
    )
    assert_alike(found)
    assert not any(CANARY.encode() in content for content in found["base"].values())


def structured(make_project, **settings):
    own = {"private_tokens": 30, "svt_noise": 4.0} | settings
    made = make_project(
        "structured", methods={NAME: METHODS[NAME] | own}, validation={"min_share": 0.0}
    )
    records = rows(240, 120)
    for number, record in enumerate(records):
        kind = CANARY if number % 5 == 0 else "bill" if number % 2 else "visit"
        record["text"] = json.dumps({"kind": kind, "late": bool(number % 3), CANARY: number})
    made.write(records)
    return made.context()


def test_records_of_a_public_schema(make_project):
    """Under the grammar every text is a record, and the suite checks them."""
    ctx = structured(make_project, json_schema=SCHEMA, max_tokens=32)
    planned, folder = release(ctx)
    assert lines(folder)
    for row in lines(folder):
        assert set(json.loads(row["text"])) == {"kind", "late"}
    validate(ctx, planned)
    checks = json.loads((folder / "validation.json").read_text())["expectations"]
    assert {one["title"]: one["success"] for one in checks}["Texts are JSON"]
    internal = evaluate(ctx, planned)
    for place in (folder, internal):  # of fields and values that real records alone have, nothing
        assert not any(CANARY.encode() in f.read_bytes() for f in place.rglob("*") if f.is_file())


def test_public_texts_have_default_prompts_and_json_records_have_none(
    project, make_project, monkeypatch
):
    """A method that reads logits has no prompts of its own for a text model."""
    text = FakeTextModel()
    monkeypatch.setattr("privsyn.stages.measure.load_role", lambda *_: text)
    ctx = project.context()
    planned = plan(ctx, NAME, open_account=True)
    texts = public_alone(ctx, planned, ["Billing", "Symptoms"])
    assert len(texts) == 2 <= len(text.prompts)
    assert all("Billing" in prompt or "Symptoms" in prompt for prompt in text.prompts)
    ctx = structured(make_project, json_schema=SCHEMA, max_tokens=32)
    records = plan(ctx, NAME, open_account=True)
    assert public_alone(ctx, records, ["Billing"]) is None
