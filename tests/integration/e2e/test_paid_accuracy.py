"""The accuracy that a release pays for: priced with it, drawn once, on its certificate."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from privsyn.data.images import encode, to_content
from privsyn.data.partition import keep_holdout
from privsyn.data.readers.formats import read_records
from privsyn.data.settings import ImageConfig
from privsyn.data.unit_key import UnitKey
from privsyn.display.releases import outcome
from privsyn.dp.accountant import guarantee
from privsyn.dp.events import Composed, Pure, RandomAllocation, load
from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import ConfigError, ReleaseLost, VerificationError
from privsyn.modalities.images import Images
from privsyn.modalities.text import Texts
from privsyn.release import certificate
from privsyn.release.facts import ReleaseFacts
from privsyn.release.workdir import ACCURACY, HELD_OUT, journal_file, part_name
from privsyn.report import verification
from privsyn.stages import draw as stage
from privsyn.stages.base import open_plan
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan, report
from privsyn.stages.plan import preview as previewed
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from tests.integration.e2e.neighbors import assert_alike, published_by_neighbors
from tests.integration.e2e.small_project import (
    CANARY,
    LABELS,
    finish,
    reseal,
    reserve_release,
    rows,
)
from tests.noise import Constant, NeverDraws, NoNoise

PAID = {"by": "nothing", "paid": {"epsilon": 1.0}}
NAME = "invisible_ink"


def begun(project, fake, **noise):
    ctx = project.context()
    for name, source in noise.items():
        setattr(ctx, name, source)
    planned = reserve_release(ctx, NAME)
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, fake)
    return ctx, planned


def test_generator_and_accuracy_are_one_event_within_the_target(make_project):
    project = make_project(evaluate=PAID)
    ctx = project.context()
    planned = plan(ctx, NAME, open_account=True)
    event = load(planned.event)
    assert isinstance(event, Composed)
    assert event.events[1] == Pure(1.0)
    assert guarantee(event, 1e-6).epsilon == planned.epsilon <= planned.target_epsilon == 8.0
    assert planned.epsilon == pytest.approx(8.0, rel=1e-6)
    assert guarantee(event.events[0], 1e-6).epsilon > 7.0  # solved together
    told = report(planned, previewed(ctx, planned))
    assert told["paid_epsilon"] == 1.0
    free = plan(project.context("evaluate.paid=null"), NAME, open_account=True)
    assert free.release_id != planned.release_id
    assert free.epsilon == pytest.approx(8.0, rel=1e-3)
    assert free.model_dump(mode="json")["paid_epsilon"] is None


def test_a_release_that_counts_on_secret_buckets_pays_for_an_accuracy_too(make_project):
    project = make_project(evaluate=PAID | {"paid": {"epsilon": 0.5}})
    ctx = project.context("privacy.epsilon=3", "methods.invisible_ink.texts_per_label=20")
    planned = plan(ctx, NAME, open_account=True)
    generator, accuracy = load(planned.event).events
    assert isinstance(generator, RandomAllocation)
    assert accuracy == Pure(0.5)
    assert planned.amplified
    assert planned.epsilon <= 3 < planned.epsilon_without_secret


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("dataset.holdout=0",), "dataset.holdout is 0"),
        (("dataset.holdout=0", "dataset.test_path=private.jsonl"), "dataset.holdout is 0"),
        (("dataset.label=null", "dataset.labels=[]"), "has no labels"),
        (("evaluate.paid.epsilon=8",), "leaves nothing"),
        (("evaluate.paid.epsilon=0",), "evaluate.paid.epsilon"),
    ],
)
def test_what_cannot_be_tested_is_refused_before_anything_is_spent(make_project, changes, said):
    project = make_project(evaluate=PAID)
    with pytest.raises(ConfigError, match=said):
        plan(project.context(*changes), NAME, open_account=True)
    assert not (project.root / ".privsyn" / "ledger.db").exists()


def test_a_release_carries_its_accuracy_and_verify_recomputes_it(make_project, fake):
    project = make_project(evaluate=PAID)
    ctx, planned = begun(project, fake)
    folder = certify(ctx, planned)
    _, sealed = certificate.read(folder)
    said = sealed["accuracy"]
    assert sealed["class"] == "dp-release"
    assert said["noise"] == {"kind": "discrete laplace", "scale": 1.0}
    assert 0 <= said["low"] <= said["noise_low"] <= said["noise_high"] <= said["high"] <= 1
    checks = {check.name: check.passed for check in verification.verify(folder, ctx.ledger)}
    assert checks["accuracy"]
    assert set(checks.values()) == {True, None}  # its suite did not run
    validate(ctx, planned)
    page = (ctx.workspace.locate(planned.id) / "report.html").read_text()
    for sentence in ReleaseFacts(sealed).accuracy_sentences:
        assert sentence[1:] in page
    inside = ctx.workspace.internal(planned.id) / "check.json"
    assert outcome(ctx, planned)["accuracy"] == "; ".join(ReleaseFacts(sealed).accuracy_sentences)
    shutil.move(inside, project.root / "away.json")  # counts of records have no part in it
    assert "accuracy" in outcome(ctx, planned)
    shutil.move(project.root / "away.json", inside)
    shutil.move(ctx.workspace.locate(planned.id), project.root / "away")
    assert "accuracy" not in outcome(ctx, planned)
    settle(ctx, planned)


def test_an_edited_accuracy_does_not_verify(make_project, fake):
    ctx, planned = begun(make_project(evaluate=PAID), fake)
    folder = certify(ctx, planned)
    raw, sealed = certificate.read(folder)

    def fails(**changes):
        other = sealed | {"accuracy": sealed["accuracy"] | changes}
        if not changes:
            del other["accuracy"]
        reseal(folder, other)
        checks = {check.name: check.passed for check in verification.verify(folder, None)}
        assert checks["certificate is sealed"]
        return checks.get("accuracy", checks.get("privsyn reads it")) is False

    assert fails(high=0.123)
    assert fails(value=0.99)
    assert fails(right=sealed["accuracy"]["right"] + 2**20)
    assert fails(right="1")
    assert fails(epsilon=0.5)
    assert fails(noise={"kind": "discrete laplace", "scale": 0.5})
    assert fails(more=1)
    assert fails()
    (folder / "certificate.json").write_bytes(raw)
    verification.raise_on_failure(folder, verification.verify(folder, None))


def test_an_accuracy_that_nobody_paid_for_does_not_verify(make_project, fake):
    ctx, planned = begun(make_project(), fake)
    folder = certify(ctx, planned)
    _, sealed = certificate.read(folder)
    assert "accuracy" not in sealed
    sealed["accuracy"] = {"value": 0.9}
    reseal(folder, sealed)
    assert not {c.name: c.passed for c in verification.verify(folder, None)}["accuracy"]


def test_held_out_units_alone_are_counted_once_each_whatever_test_path_says(make_project, fake):
    project = make_project(evaluate=PAID)
    (project.root / "others.jsonl").write_text(project.data.read_text())
    noise = NoNoise()
    ctx = project.context("dataset.test_path=others.jsonl")
    ctx.noise = lambda: noise
    planned = reserve_release(ctx, NAME)
    finish(ctx, planned, fake)
    key = ctx.open_account().partition_key.reveal()
    held = {f"u{i}" for i in range(20) if UnitKey(key).name(f"u{i}")[1] < 0.25}
    assert held
    [total] = [drawn.values for drawn in noise.drawn if drawn.draw == "laplace"]
    assert sum(total) == len(held) * 2**20


def test_a_killed_run_gives_the_same_accuracy_and_draws_no_second_one(
    make_project, fake, monkeypatch
):
    project = make_project(evaluate=PAID)
    ctx, planned = begun(project, fake)
    project.write(rows(8, 8))  # the file changed since: the held-out records are kept

    class Killed(BaseException):
        pass

    def dies(*arguments, **keywords):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("privsyn.stages.certify.certificate.build", dies)
        with pytest.raises(Killed):
            certify(ctx, planned)
    file = journal_file(ctx.workspace.scratch(planned.id), ACCURACY)
    before = file.read_bytes()
    again = project.context()

    class SameKind(NeverDraws):
        kind = "opendp"

    again.noise = SameKind
    monkeypatch.setattr(stage, "held_units", dies)  # nor are the records read again
    folder = certify(again, planned)
    assert b"right and wrong" in before
    _, sealed = certificate.read(folder)
    assert sealed["class"] == "dp-release"
    assert sealed["accuracy"]["units"] == pytest.approx(
        (sealed["accuracy"]["right"] + sealed["accuracy"]["wrong"]) / 2**20
    )


def test_a_lost_journal_is_no_reason_to_draw_again(make_project, fake):
    ctx, planned = begun(make_project(evaluate=PAID), fake)
    os.unlink(journal_file(ctx.workspace.scratch(planned.id), ACCURACY))
    with pytest.raises(ReleaseLost):
        certify(ctx, planned)
    assert ctx.ledger.releases.get(planned.id).state == "LOST"


def test_a_draw_that_raises_loses_the_release(make_project, fake):
    class Breaks(OpenDPNoise):
        def laplace(self, values, scale):
            raise ValueError(f"{values}")

    ctx, planned = begun(make_project(evaluate=PAID), fake)
    ctx.noise = Breaks
    with pytest.raises(ReleaseLost) as raised:
        certify(ctx, planned)
    assert "ValueError" in str(raised.value)
    assert "[" not in str(raised.value)
    assert ctx.ledger.releases.get(planned.id).state == "LOST"


def test_a_record_the_classifier_cannot_take_is_wrong_and_ends_nothing(
    make_project, fake, monkeypatch
):
    def fragile(self, artifact):
        def answer(content):
            if "visit" in content:
                raise RuntimeError(content)
            return "nothing"

        return answer

    monkeypatch.setattr(Texts, "classifier", fragile)
    noise = NoNoise()
    ctx, planned = begun(make_project(evaluate=PAID), fake, noise=lambda: noise)
    certify(ctx, planned)
    [right, wrong] = next(drawn.values for drawn in noise.drawn if drawn.draw == "laplace")
    assert right == 0
    assert wrong > 0


def test_a_release_of_images_is_learnt_from_and_asked_image_by_image(tmp_path):
    images = Images(ImageConfig(size=8, mode="L"))
    pictures = [np.full((8, 8), value, np.uint8) for value in (0, 10, 20, 200, 210, 220)]
    drawn = [
        {"id": str(i), "label": LABELS[i // 3], **images.entry(encode(picture))}
        for i, picture in enumerate(pictures)
    ]
    images.write(tmp_path, drawn)
    answer = images.classifier(tmp_path / "synthetic.jsonl")
    asked = [to_content(np.full((8, 8), value, np.uint8)) for value in (5, 215, 15, 205)]
    assert [answer(one) for one in asked] == [LABELS[0], LABELS[1], LABELS[0], LABELS[1]]
    assert not stage._is_right(answer, "no image", LABELS[0])


def test_held_out_records_lie_in_the_scratch_alone_and_go_with_it(make_project, fake):
    project = make_project(evaluate=PAID)
    project.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
    ctx, planned = begun(project, fake)
    kept = ctx.workspace.scratch(planned.id) / HELD_OUT
    assert kept.stat().st_mode & 0o777 == 0o600
    assert CANARY in kept.read_text()
    certify(ctx, planned)
    validate(ctx, planned)
    settle(ctx, planned)
    leaking = [
        path
        for path in project.root.rglob("*")
        if path.is_file() and path != project.data and CANARY.encode() in path.read_bytes()
    ]
    assert leaking == []


def test_held_out_records_are_on_file_whole_or_not_at_all(make_project, fake, monkeypatch):
    ctx, planned = begun(make_project(evaluate=PAID), fake)
    kept = ctx.workspace.scratch(planned.id) / HELD_OUT
    before = kept.read_bytes()

    def torn(cfg):
        yield from list(read_records(cfg))[:24]
        raise KeyboardInterrupt

    monkeypatch.setattr("privsyn.data.partition.read_records", torn)
    key = ctx.open_account().partition_key.reveal()
    with pytest.raises(KeyboardInterrupt):
        keep_holdout(open_plan(ctx, planned).source, key, kept)
    assert kept.read_bytes() == before
    assert kept.stat().st_mode & 0o777 == 0o600


def test_neighbors_publish_the_same_with_a_constant_mechanism(make_project, fake):
    """Also those that differ in who is held out: of these nothing else than the draw is said."""

    def release(ctx):
        planned = reserve_release(ctx, NAME)
        return planned, finish(ctx, planned, fake)

    found = published_by_neighbors(make_project(evaluate=PAID), NAME, Constant, release)
    assert_alike(found)
    assert json.loads(found["base"]["certificate.json"])["accuracy"]["epsilon"] == 1.0


def test_an_edited_plan_draws_no_accuracy(make_project, fake):
    noise = NoNoise()
    ctx, planned = begun(make_project(evaluate=PAID), fake, noise=lambda: noise)
    with pytest.raises(VerificationError, match="edited"):
        certify(ctx, planned.model_copy(update={"paid_epsilon": 2.0}))
    assert not [drawn for drawn in noise.drawn if drawn.draw == "laplace"]


def test_an_accuracy_is_counted_before_it_is_handed_on(make_project, fake, monkeypatch):
    ctx, planned = begun(make_project(evaluate=PAID), fake)
    figures, counted = stage.accuracy_figures, []

    def watched(*drawn):
        counted.append(ctx.ledger.leases.parts(planned.id)[part_name(ACCURACY)])
        return figures(*drawn)

    monkeypatch.setattr(stage, "accuracy_figures", watched)
    certify(ctx, planned)
    assert counted == [1]
