"""Ways round an approval, tried on the real Airflow: what nobody approved is neither drawn nor out.

The account asks for two people, so nobody approves what they asked for. The method is one with a
student: that the release which taught it is approved is no approval of the student.
"""

import json

import pytest
import yaml

from privsyn.ledger.ledger import Ledger
from privsyn.publishing import DvcPublisher
from privsyn.release import certificate
from privsyn.report import verification
from tests.integration.e2e.small_project import METHODS, STUDENT
from tests.system.dags.conftest import CANARY, make_project
from tests.system.dags.templates import keep_dag

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
TEACHER = "dp_lora"
ASKER = "dag_test"  # whom Airflow names as who triggered the run
YES, NO = ["Approve", "officer", "as agreed"], ["Reject", "officer", "not this month"]
DONE = "preflight|train|distill"
"""Tasks of a run that finds release and student: they would start models to do nothing."""
ORDERS = {
    "rejected": {"answers": {"approve_spend": [NO]}},
    "marked as successful after a rejection": {"mark": "approve_spend"},
    "approved by who asked": {"answers": {"approve_spend": [["Approve", ASKER, ""]]}},
    "not answered in time": {"answers": {"approve_spend": ["timeout"]}},
    "another plan at the same cost": {"answers": {"approve_spend": [{"draw": 7}, YES]}},
    "not approved to publish": {"answers": {"approve_spend": [YES], "approve_publish": [NO]}},
    "marked as published": {"mark": f"{DONE}|approve_publish"},
    "approved": {"mark": DONE, "answers": {"approve_publish": [YES], "approve_student": [NO]}},
    "student marked as successful": {"mark": f"{DONE}|approve_student"},
    "student approved": {"mark": DONE, "answers": {"approve_student": [YES]}},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("approvals"))
    keep_dag(project.root, TEACHER)
    params = yaml.safe_load((project.root / "params.yaml").read_text())
    params |= {"methods": {TEACHER: METHODS[TEACHER], "distill": STUDENT}, "pipeline": [TEACHER]}
    params["schedule"] = {TEACHER: {"dag": {"retries": 1}}}
    params["account"]["approval"] = {"spend_above": 1, "publish": True, "two_people": True}
    params["evaluate"] = {"by": "nothing"}
    params["performance"]["shards"] = 1
    (project.root / "params.yaml").write_text(yaml.safe_dump(params))
    return project


@pytest.fixture(scope="module")
def runs(project):
    orders = [{"method": TEACHER} | order for order in ORDERS.values()]
    outcomes = project.run("approve_dag.py", json.dumps(orders))
    return dict(zip(ORDERS, outcomes, strict=True))


@pytest.fixture(scope="module")
def ledger(project, runs):
    return Ledger(f"sqlite:///{project.root / '.privsyn' / 'ledger.db'}")


@pytest.mark.parametrize(
    "how",
    ["rejected", "approved by who asked", "not answered in time"],
)
def test_what_is_not_approved_ends_the_run_before_anything_is_set_aside(runs, how):
    run = runs[how]
    assert run["state"] == "failed"
    assert run["tasks"]["approve_spend"] == "failed"
    assert run["tries"]["approve_spend"] == 1, "it asked again by itself"
    assert {run["tasks"][task] for task in ("reserve", "partition", "certify", "publish")} == {
        "upstream_failed"
    }


def test_a_plan_that_was_edited_in_xcom_is_not_what_was_approved(runs):
    run = runs["another plan at the same cost"]
    assert run["tasks"]["approve_spend"] == "success"
    assert (run["tasks"]["reserve"], run["tries"]["reserve"]) == ("failed", 1)


def test_a_task_marked_as_successful_approves_nothing(runs):
    run = runs["marked as successful after a rejection"]
    assert run["tasks"]["approve_spend"] == "success"
    assert (run["tasks"]["reserve"], run["tries"]["reserve"]) == ("failed", 1)
    run = runs["marked as published"]
    assert run["tasks"]["approve_publish"] == "success"
    assert (run["tasks"]["publish"], run["tries"]["publish"]) == ("failed", 1)
    assert (run["tasks"]["settle"], run["state"]) == ("failed", "failed")


def test_a_rejection_of_the_release_leaves_it_settled_and_unpublished(runs):
    run = runs["not approved to publish"]
    assert run["tasks"]["validate"] == "success"
    assert run["tasks"]["approve_publish"] == "failed"
    assert run["tasks"]["publish"] == "upstream_failed"
    assert run["tries"]["settle"] == 1, "settle did not run"
    assert run["state"] == "failed"


def test_an_approval_is_of_exactly_what_was_asked_and_is_not_asked_again(runs):
    assert list(runs["approved"]["asked"]) == ["approve_publish", "approve_student"]
    assert runs["approved"]["tasks"]["publish"] == "success"
    assert list(runs["student approved"]["asked"]) == ["approve_student"]
    assert runs["student approved"]["state"] == "success"


def test_a_student_waits_for_an_answer_of_its_own(runs):
    run = runs["approved"]
    release, student = (run["asked"][task] for task in run["asked"])
    assert ".student-" in student["subject"]
    assert ".student-" not in release["subject"]
    assert not student["defaults"]
    assert (run["tasks"]["publish"], run["tasks"]["approve_student"]) == ("success", "failed")
    assert (run["tasks"]["publish_student"], run["state"]) == ("upstream_failed", "failed")
    assert run["tries"]["settle"] == 1, "settle did not run"


def test_no_state_of_a_task_lets_a_student_out(runs):
    run = runs["student marked as successful"]
    assert run["tasks"]["approve_student"] == "success"
    assert (run["tasks"]["publish_student"], run["tries"]["publish_student"]) == ("failed", 1)


def test_an_approved_student_is_published(project, runs, ledger):
    assert runs["student approved"]["tasks"]["publish_student"] == "success"
    (folder,) = project.root.glob("releases/*.student-????????")
    assert folder.name in DvcPublisher(project.root).published_ids()
    (entry,) = ledger.releases.all()
    _, sealed = certificate.read(folder)
    last = ledger.approvals.decisions(entry.release_id)[-1]
    assert (last.name, last.digest) == (folder.name, certificate.digest(sealed))


def test_the_ledger_says_who_decided_what_and_when(project, runs, ledger):
    (entry,) = ledger.releases.all()
    (student,) = project.root.glob("releases/*.student-????????")
    said = [
        (one.what, one.name, one.approved, one.approver, one.comment)
        for one in ledger.approvals.decisions(entry.release_id)
    ]
    assert said == [
        ("spend", entry.release_id, False, "officer", "not this month"),
        ("spend", entry.release_id, True, "officer", "as agreed"),
        ("publish", entry.release_id, False, "officer", "not this month"),
        ("publish", entry.release_id, True, "officer", "as agreed"),
        ("publish", student.name, False, "officer", "not this month"),
        ("publish", student.name, True, "officer", "as agreed"),
    ]
    folder = project.root / "releases" / entry.release_id
    checks = {check.name: check for check in verification.verify(folder, ledger)}
    assert all(check.passed for check in checks.values())
    assert "approved by officer" in checks["approval to publish"].detail
    _, sealed = certificate.read(folder)
    approved = ledger.approvals.decisions(entry.release_id)[1]
    assert sealed["ledger"]["approval"] == {"hash": approved.hash}
    assert "officer" not in json.dumps(sealed)
    assert ledger.verify().entries == 1


def test_the_page_tells_what_is_public_and_nothing_else(project, runs):
    assert CANARY.encode() not in (project.root / "airflow" / "airflow.db").read_bytes()
    spend = runs["rejected"]["asked"]["approve_spend"]
    assert spend["options"] == ["Approve", "Reject"]
    assert not spend["defaults"]
    for fact in (
        "balance before",
        "balance after",
        "risk in words",
        "epsilon 8",
        "| asked by |",
    ):
        assert fact in spend["body"]
    publish = runs["approved"]["asked"]["approve_publish"]
    for fact in ("| validation | passed", "dp-release", "digest of the certificate"):
        assert fact in publish["body"]
    for run in runs.values():
        assert CANARY not in json.dumps(run)
        assert not any(key.startswith("approve") for key in run["xcoms"]), "an answer is in XCom"
