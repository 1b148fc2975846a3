"""Models of students, where people approve what is published: no door is open before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from privsyn.errors import ApprovalNeeded, VerificationError
from privsyn.methods.base import Backends
from privsyn.stages.approval import decide, publication
from privsyn.stages.run import run
from privsyn.students.release import make_student, plan_student, publish_student, validate_student
from tests.integration.e2e.small_project import METHODS, build_project, stand_ins
from tests.integration.e2e.test_distill_stage import save_tiny, settings

APPROVAL = {"publish": True, "two_people": True}
TEACHER = "private_evolution"


def say(ctx, folder, user, approved=True):
    by = replace(ctx, origin={"driver": "cli", "user": user})
    return decide(by, publication(by, folder), approved=approved, approver=user)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A student that passed its checks and waits for a person, in a project of alice's."""
    root = tmp_path_factory.mktemp("approved")
    methods = {TEACHER: METHODS[TEACHER], "distill": settings(save_tiny(root / "tiny"))}
    project = build_project(
        root / "project", methods=methods, account={"approval": APPROVAL, "public_size": 1000}
    )
    ctx = project.context("evaluate.by=nothing")
    ctx.origin = {"driver": "cli", "user": "alice"}
    with pytest.MonkeyPatch.context() as patch:
        toys = Backends(stand_ins())
        patch.setattr("privsyn.stages.run.load_models", lambda ctx, plan: toys)
        parent = run(ctx, TEACHER, published=False)
    planned = plan_student(ctx, parent)
    make_student(ctx, planned)
    return project, ctx, planned, validate_student(ctx, planned)


def test_a_student_waits_for_a_person_by_every_door(taught):
    project, ctx, planned, folder = taught
    with pytest.raises(ApprovalNeeded, match=f"approve {planned.id} --publish"):
        publish_student(ctx, planned)
    told = project.cli("distill", planned.parent.id, "-S", "evaluate.by=nothing", check=False)
    assert (told.returncode, "privsyn approve" in told.stderr) == (8, True)
    assert not ctx.workspace.pointer(planned.id).exists()
    with pytest.raises(ApprovalNeeded, match="alice asked for it"):
        say(ctx, folder, "alice")
    # An approval of the release is none of the student.
    say(ctx, ctx.workspace.release(planned.parent.id), "bob")
    with pytest.raises(ApprovalNeeded):
        publish_student(ctx, planned)


def test_a_student_that_was_exchanged_after_its_approval_is_not_published(taught):
    _, ctx, planned, folder = taught
    say(ctx, folder, "bob")
    weights = folder / "model" / "model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(VerificationError, match="model is unchanged"):
        publish_student(ctx, planned)
    weights.write_bytes(kept)
    assert not ctx.workspace.pointer(planned.id).exists()
    publish_student(ctx, planned)
    assert ctx.workspace.pointer(planned.id).exists()


@pytest.mark.airflow
def test_in_airflow_the_student_is_asked_about_by_its_own_certificate(taught):
    from privsyn.airflow.approval import AskOperator
    from privsyn.airflow.failures import StageFailed

    _, ctx, planned, folder = taught
    say(ctx, folder, "carol", approved=False)
    ctx = replace(ctx, origin={"driver": "airflow", "user": "alice"})
    task = AskOperator(
        task_id="approve_student",
        stage="approve_student",
        plan=planned.parent.model_dump(mode="json"),
    )
    question = task.question(ctx)
    assert (question.name, question.release_id) == (planned.id, planned.parent.id)
    of_parent = publication(ctx, ctx.workspace.release(planned.parent.id)).digest
    event = {"chosen_options": ["Approve"], "responded_by_user": {"id": "7", "name": "bob"}}
    with pytest.raises(StageFailed, match="has changed since bob was asked"):
        task._decide(ctx, {}, event=event, digest=of_parent)
    nobody = [event | {"responded_by_user": {"id": "7", "name": name}} for name in ("", None)]
    neither, both = (
        event | {"chosen_options": chosen, "responded_by_user": {"id": "9", "name": "carol"}}
        for chosen in ([], ["Approve", "Reject"])
    )
    for answer in ({"error": "timeout"}, *nobody, neither, both):
        with pytest.raises(StageFailed):
            task._decide(ctx, {}, event=answer, digest=question.digest)
    for asker in ({"id": "1", "name": "alice"}, {"id": "alice", "name": "Alice Roe"}):
        answer = event | {"responded_by_user": asker}
        with pytest.raises(ApprovalNeeded, match="alice asked for it"):
            task._decide(ctx, {}, event=answer, digest=question.digest)
    with pytest.raises(ApprovalNeeded, match="carol rejected it"):
        publish_student(ctx, planned)
    task._decide(ctx, {}, event=event, digest=question.digest)
    assert task.question(ctx) is None
    publish_student(ctx, planned)


def test_the_settings_alone_cannot_drop_what_the_account_is_held_to(taught):
    project, ctx, planned, folder = taught
    say(ctx, folder, "carol", approved=False)
    params = yaml.safe_load(project.params.read_text())
    params["account"]["approval"] = None
    kept = project.params.read_text()
    project.params.write_text(yaml.safe_dump(params))
    laxer = project.context("evaluate.by=nothing")
    project.params.write_text(kept)
    with pytest.raises(ApprovalNeeded):
        publish_student(laxer, planned)
