"""The stages over the toy model: idempotence, budget, loss, quarantine, neighbouring data."""

from __future__ import annotations

import json
import shutil

import pytest
from neighbours import assert_alike, published_by_neighbours
from small_project import rows, stand_in

from privsyn import certificate
from privsyn.dp.noise import OpenDPNoise, SeededNoise
from privsyn.errors import (
    BudgetExceeded,
    ConfigError,
    DataError,
    ReleaseLost,
    ValidationFailed,
    VerificationError,
)
from privsyn.methods.base import Backends
from privsyn.stages.certify import certify
from privsyn.stages.evaluate import evaluate
from privsyn.stages.generate import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan, preview, report
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate


def release(ctx, backends):
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, backends)
    return planned, certify(ctx, planned)


def test_a_release_is_whole_certified_and_settled(make_project, fake):
    ctx = make_project().context()
    planned, folder = release(ctx, fake)
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["Billing"] * 3 + ["Symptoms"] * 3
    assert [row["id"] for row in rows] == [f"{planned.id}-{i:06d}" for i in range(6)]
    checks = certificate.verify(folder, ctx.ledger)
    assert all(check.passed for check in checks), checks
    assert settle(ctx, planned) == "COMMITTED"
    assert not ctx.workspace.scratch(planned.id).exists()
    assert ctx.ledger.verify().entries == 1


def test_planning_writes_nothing_and_needs_no_data(make_project):
    project = make_project()
    project.data.unlink()
    ctx = project.context()
    planned = plan(ctx, "invisible_ink")
    answer = report(planned, preview(ctx, planned))
    assert answer["account"]["fits"] is True
    assert answer["release_id"] is None
    assert not (project.root / ".privsyn" / "ledger.db").exists()


def test_the_same_config_is_the_same_release_at_no_cost(make_project, fake):
    project = make_project()
    first, folder = release(project.context(), fake)
    spent = project.context().ledger.balance("letters").spent
    bytes_before = (folder / "certificate.json").read_bytes()
    settle(project.context(), first)

    ctx = project.context()
    ctx.noise = lambda: pytest.fail("drew again")
    again, folder_again = release(ctx, None)
    assert (again.id, folder_again) == (first.id, folder)
    assert (folder / "certificate.json").read_bytes() == bytes_before
    assert ctx.ledger.balance("letters").spent == spent


@pytest.mark.parametrize(
    "change",
    [
        "dataset.version=v2",
        "privacy.draw=1",
        "privacy.epsilon=7.9",
        "methods.invisible_ink.top_k=50",
        "methods.invisible_ink.prompt={private: 'Hm {reference} so', public: 'Hm so'}",
        "models.dtype=bfloat16",
        "dataset.max_records_per_unit=1",
        "dataset.holdout=0.3",
    ],
)
def test_what_shapes_the_output_changes_the_release_id(make_project, change):
    project = make_project()
    one = plan(project.context(), "invisible_ink", open_account=True)
    assert plan(project.context(change), "invisible_ink", open_account=True).id != one.id


@pytest.mark.parametrize("change", ["performance.shards=1", "performance.rows_per_pass=4"])
def test_what_changes_no_output_keeps_the_release_id(make_project, change):
    project = make_project()
    one = plan(project.context(), "invisible_ink", open_account=True)
    assert plan(project.context(change), "invisible_ink", open_account=True).id == one.id


def test_new_versions_are_charged_until_the_account_is_empty(make_project, fake):
    project = make_project()
    for version in ("v1", "v2", "v3", "v4", "v5", "v6"):
        ctx = project.context(f"dataset.version={version}")
        planned = plan(ctx, "invisible_ink", open_account=True)
        if not preview(ctx, planned).fits:
            break
        release(ctx, fake)
    else:
        pytest.fail("the cap never held")
    with pytest.raises(BudgetExceeded) as refused:
        reserve(ctx, planned)
    assert refused.value.short == pytest.approx(refused.value.asked - refused.value.left)
    assert refused.value.exit_code == 3
    assert report(planned, preview(ctx, planned))["account"]["fits"] is False


def test_a_seeded_source_taints_the_certificate(make_project, fake):
    ctx = make_project().context()
    ctx.noise = lambda: SeededNoise(1)
    _, folder = release(ctx, fake)
    _, sealed = certificate.read(folder)
    assert (sealed["class"], sealed["noise"]) == ("not-private", "seeded")


def test_an_exception_of_ours_after_a_draw_loses_the_release(make_project, fake):
    class Breaks(type(fake.language)):
        def decode(self, tokens):
            raise RuntimeError("the text was: CANARY")

    ctx = make_project().context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    with pytest.raises(ReleaseLost) as lost:
        generate(ctx, planned, 0, Backends({"language": stand_in(Breaks)}))
    assert "CANARY" not in str(lost.value)
    assert "RuntimeError" in str(lost.value)
    assert ctx.ledger.entry(planned.id).state == "LOST"
    assert ctx.ledger.balance("letters").spent > 0
    with pytest.raises(ReleaseLost, match=r"privacy\.draw=1"):
        reserve(ctx, planned)
    assert settle(ctx, planned) == "LOST"


def test_a_failure_from_outside_is_resumed_at_no_cost(make_project, fake):
    class Dies(OpenDPNoise):
        left = 7

        def noisy_max(self, *args):
            Dies.left -= 1
            if Dies.left == 0:
                raise MemoryError
            return super().noisy_max(*args)

    project = make_project()
    ctx = project.context()
    ctx.noise = Dies
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    with pytest.raises(MemoryError):
        generate(ctx, planned, 0, fake)
    assert settle(ctx, planned) == "BEGUN"
    spent = ctx.ledger.balance("letters").spent
    kept = (ctx.workspace.scratch(planned.id) / "journal-00000").read_bytes()

    again, folder = release(project.context("performance.shards=1"), fake)
    assert again.id == planned.id
    assert project.context().ledger.balance("letters").spent == spent
    assert (ctx.workspace.scratch(planned.id) / "journal-00000").read_bytes().startswith(kept)
    assert len((folder / "synthetic.jsonl").read_text().splitlines()) == 6


def test_scratch_that_is_gone_loses_the_release(make_project, fake):
    ctx = make_project().context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    shutil.rmtree(ctx.workspace.scratch(planned.id))
    with pytest.raises(ReleaseLost):
        generate(ctx, planned, 0, fake)
    assert ctx.ledger.entry(planned.id).state == "LOST"


def test_scratch_that_is_gone_loses_the_release_at_the_next_run(make_project):
    ctx = make_project().context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    shutil.rmtree(ctx.workspace.scratch(planned.id))
    with pytest.raises(ReleaseLost):
        partition(ctx, planned)
    assert ctx.ledger.entry(planned.id).state == "LOST"


def test_an_untouched_reservation_is_given_back(make_project):
    ctx = make_project().context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    assert settle(ctx, planned) == "VOID"
    assert ctx.ledger.balance("letters").spent == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda project: project.data.unlink(), "private.jsonl"),
        (lambda project: project.data.write_text(""), "private.jsonl"),
        (lambda project: project.write([{"text": "a", "label": "Billing"}]), "unit"),
        (lambda project: project.data.write_bytes(b"\xff\xfe\n\n"), "private.jsonl"),
    ],
)
def test_a_bad_input_file_reserves_nothing(make_project, damage, message):
    project = make_project()
    damage(project)
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    with pytest.raises(DataError, match=message) as caught:
        reserve(ctx, planned)
    assert caught.value.exit_code == 2
    assert ctx.ledger.find(planned.id) is None
    assert ctx.ledger.balance("letters").spent == 0


def test_a_plan_of_other_settings_is_refused(make_project):
    project = make_project()
    planned = plan(project.context(), "invisible_ink", open_account=True)
    with pytest.raises(ConfigError, match="other settings"):
        reserve(project.context("methods.invisible_ink.top_k=7"), planned)


def test_a_failed_suite_keeps_the_artifact_in_quarantine(make_project, fake):
    project = make_project()
    ctx = project.context("validation.min_chars=3000", "validation.min_share=1.0")
    planned, folder = release(ctx, fake)
    with pytest.raises(ValidationFailed) as failed:
        validate(ctx, planned)
    assert failed.value.exit_code == 5
    quarantine = ctx.workspace.quarantine(planned.id)
    assert not folder.exists()
    assert (quarantine / "validation.html").is_file()
    assert ctx.ledger.entry(planned.id).state == "COMMITTED"
    # A mended suite lets the same artifact out, at no cost.
    mended = project.context()
    assert validate(mended, planned) == folder
    assert not quarantine.exists()


def test_evaluation_is_internal_and_reads_only_what_was_held_out(make_project, fake):
    ctx = make_project().context()
    planned, folder = release(ctx, fake)
    internal = evaluate(ctx, planned)
    assert internal == ctx.workspace.internal(planned.id)
    metrics = json.loads((internal / "evaluation.json").read_text())["metrics"]
    assert {metric["class"] for metric in metrics} == {"internal"}
    assert (internal / "evaluation.json").stat().st_mode & 0o077 == 0
    assert not (folder / "evaluation.json").exists()


def test_the_classifier_over_vectors_is_internal_too_and_off_unless_asked_for(make_project, fake):
    project = make_project()
    project.write(rows(300, 150))
    settings = ("dataset.holdout=0.5", "methods.invisible_ink.texts_per_label=20")
    names = {}
    for asked in ("false", "true"):
        ctx = project.context(*settings, f"evaluate.classifier={asked}")
        planned, folder = release(ctx, fake)
        found = json.loads((evaluate(ctx, planned) / "evaluation.json").read_text())["metrics"]
        assert {metric["class"] for metric in found} == {"internal"}
        assert "mlp" not in "".join(path.read_text() for path in folder.glob("*.json"))
        names[asked] = {metric["name"] for metric in found}
    assert names["true"] - names["false"] == {"mlp.accuracy", "mlp_coral.accuracy", "mlp.records"}
    assert names["false"] - names["true"] == set()


class Constant:
    """The mechanism replaced by a constant."""

    kind = "opendp"

    def noisy_max(self, scores, scale, sensitivity):
        return 0


def test_neighbouring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(
    make_project, fake
):
    """Plan, certificate, validation and artifact: nothing else of the data comes through."""
    assert_alike(
        published_by_neighbours(
            make_project(), "invisible_ink", Constant, lambda ctx: release(ctx, fake)
        )
    )


@pytest.mark.parametrize("name", ["synthetic.jsonl", "certificate.json"])
def test_one_changed_byte_fails_verification(make_project, fake, name):
    ctx = make_project().context()
    _, folder = release(ctx, fake)
    file = folder / name
    original = file.read_bytes()
    for place in range(0, len(original), max(1, len(original) // 40)):
        changed = bytearray(original)
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(VerificationError) as caught:
            certificate.raise_failed(folder, certificate.verify(folder, None))
        assert caught.value.exit_code == 4


def test_a_resealed_lie_is_found_by_recomputing_or_by_the_ledger(make_project, fake):
    ctx = make_project().context()
    _, folder = release(ctx, fake)
    _, sealed = certificate.read(folder)

    def forged(edit):
        body = json.loads(json.dumps({k: v for k, v in sealed.items() if k != "seal"}))
        edit(body)
        (folder / "certificate.json").write_bytes(
            certificate.canonical(body | {"seal": certificate._seal(body)})
        )
        return {check.name for check in certificate.verify(folder, ctx.ledger) if not check.passed}

    def event(body):
        body["plan"]["event"]["events"][0]["rho"] /= 2

    def epsilon(body):
        body["plan"]["epsilon"] = 0.5

    def unit(body):
        body["plan"]["max_records_per_unit"] = 1

    def created(body):
        body["created"] = "2020-01-01T00:00:00+00:00"

    assert "event" in forged(event)
    assert "guarantee" in forged(epsilon)
    assert {"release id", "event"} <= forged(unit)
    assert forged(created) == {"ledger digests"}
