"""What must not slip between stages: edited settings, forged plans, other models, losses."""

from __future__ import annotations

import json

import pytest

from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import (
    BudgetError,
    ConfigError,
    LeaseHeld,
    ModelError,
    PrivsynError,
    ReleaseLost,
    ValidationFailed,
    VerificationError,
)
from privsyn.methods.base import Backends
from privsyn.release.workdir import BUCKETS, journal_file
from privsyn.report import verification
from privsyn.stages.base import open_context
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate, load_models
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish
from privsyn.stages.validate import validate
from tests.fakes import FakeLogitModel
from tests.integration.e2e.small_project import begin_release, reserve_release, rows
from tests.noise import Dies


def kept_records(project, planned):
    buckets = project.context().workspace.scratch(planned.id) / BUCKETS
    return sum(len(file.read_text().splitlines()) for file in buckets.glob("shard-*"))


def test_the_bound_on_records_is_the_plans_even_if_params_change_meanwhile(make_project):
    project = make_project(dataset={"max_records_per_unit": 1, "holdout": 0.0})
    project.write([row | {"label": "Billing"} for row in rows(60, 10)])
    planned = reserve_release(project.context())
    partition(project.context("dataset.max_records_per_unit=6"), planned)
    assert kept_records(project, planned) == 10


def test_another_unit_meanwhile_is_refused_before_a_record_is_opened(make_project):
    project = make_project(dataset={"max_records_per_unit": 1, "holdout": 0.0})
    project.write(
        [row | {"label": "Billing", "message": f"m{i}"} for i, row in enumerate(rows(60, 10))]
    )
    planned = reserve_release(project.context())
    with pytest.raises(BudgetError, match="fixed for its life"):
        partition(project.context("dataset.unit=message"), planned)
    assert project.context().ledger.releases.get(planned.id).state == "RESERVED"


def test_another_unit_column_is_another_account(make_project):
    project = make_project()
    reserve_release(project.context())
    with pytest.raises(BudgetError, match="label"):
        plan(project.context("dataset.unit=label"), "invisible_ink", open_account=True)


def test_another_model_than_planned_draws_nothing(make_project):
    ctx = make_project().context()
    planned = begin_release(ctx)
    with pytest.raises(ModelError, match="its files changed") as refused:
        generate(ctx, planned, 0, Backends({"language": FakeLogitModel()}))
    use = planned.models["language"]
    assert f"models.language={use.source} " in refused.value.hint
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"


def test_models_are_loaded_in_the_dtype_that_was_planned(make_project):
    # The demo writes in bfloat16 where the CPU is made for it; its params.yaml says float32.
    project = make_project()
    planned = plan(project.context("models.dtype=bfloat16"), "invisible_ink", open_account=True)
    model = load_models(project.context(), planned).models["language"]
    assert model.revision == planned.models["language"].revision
    assert model.revision.endswith("+bfloat16")


def test_a_missing_journal_is_not_a_new_one(make_project, fake):
    ctx = make_project().context()
    planned = begin_release(ctx)
    generate(ctx, planned, 0, fake)
    scratch = ctx.workspace.scratch(planned.id)
    journal_file(scratch, 1).unlink()
    with pytest.raises(ReleaseLost):
        generate(ctx, planned, 1, fake)
    assert ctx.ledger.releases.get(planned.id).state == "LOST"


def test_seeded_draws_cannot_be_finished_as_private_ones(make_project, fake):
    project = make_project()
    ctx = project.context()
    ctx.noise = lambda: Dies(1, at=9)
    planned = begin_release(ctx)
    with pytest.raises(MemoryError):
        generate(ctx, planned, 0, fake)
    honest = project.context()
    honest.noise = OpenDPNoise
    with pytest.raises(VerificationError):
        generate(honest, planned, 0, fake)


def test_a_worker_elsewhere_waits_and_destroys_nothing(make_project, fake, tmp_path):
    """A second machine with the shared ledger and no scratch of its own."""
    project = make_project()
    shared = f"services.ledger=sqlite:///{tmp_path / 'shared.db'}"
    ctx = project.context(shared)
    planned = begin_release(ctx)
    other = project.copy(tmp_path / "other")
    (tmp_path / "other" / ".privsyn").rename(tmp_path / "other" / "gone")
    stranger = other.context(shared)
    with pytest.raises(LeaseHeld):
        generate(stranger, planned, 1, fake)
    with pytest.raises(LeaseHeld):
        certify(stranger, planned)
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"
    for shard in range(2):
        generate(ctx, planned, shard, fake)
    assert certify(ctx, planned).is_dir()


def test_a_label_too_long_for_the_prompt_is_refused_before_it_costs(make_project):
    long = "x y z " * 60
    project = make_project(
        dataset={"labels": ["Billing", long]},
        methods={
            "invisible_ink": {"prompt": {"private": "{label}: {reference} so", "public": "so"}}
        },
    )
    ctx = project.context()
    with pytest.raises(PrivsynError):
        reserve_release(ctx)
    assert ctx.ledger.accounts.balance("letters").spent == 0


def finished(project, fake):
    ctx = project.context()
    planned = reserve_release(ctx)
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, fake)
    return ctx, planned, certify(ctx, planned)


@pytest.mark.parametrize("kind", ["never validated", "failed", "changed"])
def test_nothing_unproved_is_published(make_project, fake, kind):
    ctx, planned, folder = finished(make_project(), fake)
    if kind != "never validated":
        validate(ctx, planned)
    if kind == "failed":
        result = json.loads((folder / "validation.json").read_text()) | {"success": False}
        (folder / "validation.json").write_text(json.dumps(result))
    if kind == "changed":
        artifact = folder / "synthetic.jsonl"
        artifact.write_text(artifact.read_text() + "\n")
    with pytest.raises((ValidationFailed, VerificationError)):
        publish(ctx, planned)
    assert not folder.with_suffix(".dvc").exists()


def test_a_lost_release_is_not_published(make_project, fake):
    project = make_project()
    ctx = project.context()
    planned = reserve_release(ctx)
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, fake)
    commit = ctx.ledger.releases.commit
    ctx.ledger.releases.commit = lambda *a, **k: None
    folder = certify(ctx, planned)
    ctx.ledger.releases.commit = commit
    ctx.ledger.releases.lose(planned.id, "given up")
    checks = {check.name: check.passed for check in verification.verify(folder, ctx.ledger)}
    assert checks["ledger row"] is False


def test_a_weaker_suite_is_not_what_params_says(make_project):
    project = make_project()
    assert open_context(project.params, ["performance.shards=1"]).as_filed
    assert open_context(project.params, ["privacy.epsilon=8"]).as_filed
    assert not open_context(project.params, ["validation.max_chars=3998"]).as_filed
    assert not open_context(project.params, ["privacy.epsilon=7"]).as_filed


def test_a_copy_made_by_dvc_for_experiments_has_no_ledger_of_its_own(make_project, tmp_path):
    project = make_project()
    copy = tmp_path / ".dvc" / "tmp" / "exps"
    copy.mkdir(parents=True)
    temporary = project.copy(copy / "standalone")
    with pytest.raises(ConfigError, match="forget what is spent"):
        plan(temporary.context(), "invisible_ink", open_account=True)
