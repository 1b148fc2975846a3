"""Ways round the approval of a student, tried on the real Airflow: it is out once it is approved.

The release that taught it is approved; that is no approval of the student.
"""

import json

import pytest

from privsyn.ledger.ledger import Ledger
from privsyn.publishing import DvcPublisher
from privsyn.release import certificate
from tests.integration.e2e.small_project import METHODS, STUDENT, build_project
from tests.system.dags.conftest import DagProject
from tests.system.dags.templates import keep_dag
from tests.system.dags.test_approval_dag import NO, YES

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
TEACHER = "dp_lora"
ORDERS = {  # every run finds the release and the student of the first, and draws nothing
    "rejected": {"answers": {"approve_publish": [YES], "approve_student": [NO]}},
    "marked as successful": {"mark": "approve_student"},
    "approved": {"answers": {"approve_student": [YES]}},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = build_project(
        tmp_path_factory.mktemp("students") / "project",
        methods={TEACHER: METHODS[TEACHER], "distill": STUDENT},
        account={"approval": {"publish": True, "two_people": True}},
        evaluate={"by": "nothing"},
        performance={"shards": 1},
        schedule={TEACHER: {"dag": {"retries": 0}}},
    )
    keep_dag(project.root, TEACHER)
    return DagProject(project.root)


@pytest.fixture(scope="module")
def runs(project):
    orders = [{"method": TEACHER} | order for order in ORDERS.values()]
    return dict(zip(ORDERS, project.run("approve_dag.py", json.dumps(orders)), strict=True))


def test_a_student_waits_for_an_answer_of_its_own(runs):
    run = runs["rejected"]
    assert list(run["asked"]) == ["approve_publish", "approve_student"]
    release, student = (run["asked"][task] for task in run["asked"])
    assert ".student-" in student["subject"]
    assert ".student-" not in release["subject"]
    assert not student["defaults"]
    assert (run["tasks"]["publish"], run["tasks"]["approve_student"]) == ("success", "failed")
    assert (run["tasks"]["publish_student"], run["state"]) == ("upstream_failed", "failed")
    assert run["tries"]["settle"] == 1, "settle did not run"


def test_no_state_of_a_task_lets_a_student_out(runs):
    run = runs["marked as successful"]
    assert run["tasks"]["approve_student"] == "success"
    assert (run["tasks"]["publish_student"], run["tries"]["publish_student"]) == ("failed", 1)


def test_an_approved_student_is_published(project, runs):
    assert list(runs["approved"]["asked"]) == ["approve_student"]
    assert runs["approved"]["tasks"]["publish_student"] == "success"
    (folder,) = project.root.glob("releases/*.student-????????")
    assert folder.name in DvcPublisher(project.root).published_ids()
    ledger = Ledger(f"sqlite:///{project.root / '.privsyn' / 'ledger.db'}")
    (entry,) = ledger.releases.all()
    said = [(one.name, one.approved) for one in ledger.approvals.decisions(entry.release_id)]
    assert said == [(entry.release_id, True), (folder.name, False), (folder.name, True)]
    _, sealed = certificate.read(folder)
    assert ledger.approvals.decisions(entry.release_id)[-1].digest == certificate.digest(sealed)
