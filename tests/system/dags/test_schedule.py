"""Airflow's scheduler starts runs on events of an asset, by partition, and for older dates; and it
goes on where people have answered, or tried to get round an answer.
"""

import copy
import json
import shutil
import subprocess
from datetime import UTC, datetime

import pytest
import yaml

from privsyn.ledger.ledger import Ledger
from tests.system.dags.conftest import make_project

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
NAMES = ("parts", "extra", "dated", "asked")
PARTS, EXTRA, DATED, ASKED = (f"privsyn_{name}_invisible_ink" for name in NAMES)
MONTHS = ("2026-07", "2026-08", "2026-09", "2026-10")
YEAR = datetime.now(UTC).year
YEARS = (str(YEAR - 1), str(YEAR))
DAGS = """\
from pathlib import Path

from privsyn.airflow.factory import method_dag
from privsyn.airflow.project import Project

for name in {names}:
    dag = method_dag("invisible_ink", Project(Path("{place}") / f"{{name}}.yaml", name))
    for task in dag.tasks:
        if task.task_id in {paying}:
            task.is_setup = False
            task.upstream_task_ids &= {paying}
            task.downstream_task_ids &= {paying}
        else:
            del dag.task_dict[task.task_id], dag.task_group.children[task.task_id]
    globals()[name] = dag
del dag
"""
PAYING = {"plan", "approve_spend", "reserve"}
"""The tasks that pay. What follows is the same for every run, and tested by runs of its own."""


def event(name, **said):
    return {"what": "event", "asset": f"warehouse://{name}", **said}


def backfill(dag, *more):
    dates = ("--from-date", f"{YEAR - 1}-01-01", "--to-date", f"{YEAR}-01-01")
    return {"what": "backfill", "words": ["--dag-id", dag, *dates, *more]}


def asked(what, **said):
    return {"what": what, "dag": ASKED, **said}


def answer(option, user):
    return asked("answer", task="approve_spend", option=option, user=user)


TWICE = ["approve_spend", "reserve"]
ORDERS = {
    "events": [
        event("parts", partition_key="2026-09"),
        event("parts", partition_key="2026-10"),
        event("extra", extra={"month": "2026-09"}),
        asked("trigger"),
    ],
    "the same again": [
        event("parts", partition_key="2026-09"),
        event("extra", extra={"month": "2026-09"}),
    ],
    "by hand, and two at once": [
        {"what": "trigger", "dag": PARTS, "partition_key": "2026-08"},
        {"what": "trigger", "dag": EXTRA, "conf": {"dataset.version": "2026-07"}},
        event("extra", extra={"month": "2026-08"}),
        event("extra", extra={"month": "2026-10"}),
    ],
    "no version": [
        event("parts", partition_key="2026-09 or so"),
        event("extra", extra={"year": "2026"}),
    ],
    "backfills": [backfill(PARTS), backfill(EXTRA), backfill(DATED), answer("Reject", "officer")],
    "backfilled again": [
        backfill(DATED, "--reprocess-behavior", "completed"),
        asked("mark", task="approve_spend"),
        asked("clear", tasks=["reserve"]),
    ],
    "asked again": [asked("clear", tasks=TWICE)],
    "approved, and another plan": [
        asked("write over", task="plan", by={"draw": 7}),
        answer("Approve", "officer"),
    ],
    "planned again": [asked("clear", tasks=["plan", *TWICE])],
}


def settings(of, name, schedule, version="v1", **account):
    """params.yaml of a project in the folder: an account and a dataset of its own."""
    params = copy.deepcopy(of)
    params["dataset"] |= {
        "name": name,
        "path": f"private.{name}.{{version}}.jsonl",  # no two accounts pay for one file
        "version": version,
    }
    params["account"] |= {"name": name, **account}
    params["evaluate"] = {"by": "nothing"}
    params["performance"]["shards"] = 1
    params["schedule"] = {"invisible_ink": {"dag": {"retries": 0}, **schedule}}
    return yaml.safe_dump(params)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Projects that share a folder and a ledger; a bundle that is a git repository, one that is a
    folder."""
    project = make_project(tmp_path_factory.mktemp("schedule"))
    root, place = project.root, project.root / "projects"
    place.mkdir()
    of = yaml.safe_load((root / "params.yaml").read_text())
    by_key = {"version": "partition_key"}
    made = {
        "parts": settings(of, "parts", {"asset": "warehouse://parts", **by_key}),
        "extra": settings(
            of, "extra", {"asset": "warehouse://extra", "version": "extra.month"}, epsilon=40.0
        ),
        "dated": settings(of, "dated", {"cron": "0 0 1 1 *"}, "{date:%Y}", epsilon=40.0),
        "asked": settings(
            of, "asked", {}, "2026-09", approval={"spend_above": 1, "two_people": True}
        ),
    }
    made["parts"] = made["parts"].replace("epsilon: 20.0", "epsilon: 40.0")
    for name, text in made.items():
        (place / f"{name}.yaml").write_text(text)
    for name in made:
        for version in (*MONTHS, *YEARS):
            text = f"of {name} in {version}"
            more = json.dumps({"unit": f"u-{name}", "label": "Billing", "text": text})
            records = (root / "private.jsonl").read_text()
            (place / f"private.{name}.{version}.jsonl").write_text(f"{records}{more}\n")
    shutil.copytree(root / ".dvc", place / ".dvc")
    for file, *names in (
        ("repository/parts.py", "parts"),
        *((f"folder/{name}.py", name) for name in ("extra", "dated", "asked")),
    ):
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text(DAGS.format(names=names, place=place, paying=PAYING))
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "DAGs"]):
        subprocess.run(["git", *words], cwd=root / "repository", check=True)
    return project


@pytest.fixture(scope="module")
def answers(project):
    orders = json.dumps(list(ORDERS.values()))
    found = project.run("schedule_dag.py", orders, params=project.root / "projects")
    return dict(zip(ORDERS, found, strict=True))


@pytest.fixture(scope="module")
def ledger(project, answers):
    return Ledger(f"sqlite:///{project.root / 'projects' / '.privsyn' / 'ledger.db'}")


@pytest.fixture(scope="module")
def runs(answers):
    """The runs of a DAG after an order."""

    def of(dag, after="planned again"):
        return [run for run in answers[after]["runs"] if run["dag"] == dag]

    return of


def versions(runs):
    return [run["plan"] and run["plan"]["dataset"]["version"] for run in runs]


def paid(ledger, account):
    """State of what each release of an account stands for, by the name of the release."""
    return {entry.release_id: str(entry.state) for entry in ledger.releases.all(account)}


@pytest.mark.parametrize(("dag", "account", "first"), [(PARTS, "parts", 2), (EXTRA, "extra", 1)])
def test_every_version_is_charged_once_however_often_it_is_announced(
    runs, ledger, dag, account, first
):
    before, after = runs(dag, "events"), runs(dag, "the same again")
    assert versions(before) == ["2026-09", "2026-10"][:first]
    assert versions(after) == [*versions(before), "2026-09"]
    assert {run["tasks"]["reserve"] for run in after} == {"success"}
    done = [run for run in runs(dag) if run["plan"]]
    assert len(done) > len(after)
    by_version = {run["plan"]["dataset"]["version"]: run["plan"]["release_id"] for run in done}
    assert paid(ledger, account) == dict.fromkeys(by_version.values(), "RESERVED")
    assert len(set(by_version.values())) == len(by_version)


def test_older_versions_are_made_up_for_by_hand_one_run_each(runs, answers):
    assert [code for code, _ in answers["by hand, and two at once"]["said"]] == [200] * 4
    assert versions(runs(PARTS, "by hand, and two at once"))[3:] == ["2026-08"]
    # Of two events that came at once Airflow makes one run, with or without the second.
    by_hand, of_both = sorted(versions(runs(EXTRA, "by hand, and two at once"))[2:])
    assert by_hand == "2026-07"
    assert of_both in ("2026-08", "2026-10")


@pytest.mark.parametrize("dag", [PARTS, EXTRA])
def test_an_event_that_says_no_version_is_refused(runs, dag):
    odd = runs(dag)[-1]
    assert (odd["tasks"]["plan"], odd["plan"]) == ("failed", None)
    assert odd["tasks"]["reserve"] == "upstream_failed"


def test_a_backfill_over_dates_charges_every_version_once(runs, ledger):
    scheduled = [run for run in runs(DATED, "events") if run["type"] == "scheduled"]
    assert versions(scheduled) == [str(YEAR)], "the newest date alone: no catch-up unasked"
    filled = runs(DATED, "backfills")
    assert sorted(versions(filled)) == list(YEARS)
    again = runs(DATED)
    assert {run["type"] for run in again} == {"backfill"}
    assert {run["tasks"]["reserve"] for run in again} == {"success"}
    ids = {run["plan"]["release_id"] for run in again}
    assert paid(ledger, "dated") == dict.fromkeys(ids, "RESERVED")
    assert len(ids) == 2


def test_airflow_backfills_no_dag_that_waits_for_an_asset(answers):
    said = [answer for answer, _ in answers["backfills"]["said"][:3]]
    assert said == ["DagNonPeriodicScheduleException"] * 2 + [0]


def test_the_ledger_says_which_version_of_the_code_asked(project, runs, ledger):
    repository = project.root / "repository"
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.strip()
    by = ledger.releases.all("parts")[0].reserved_by
    assert (by["bundle"], by["bundle_version"]) == ("committed", head)
    assert runs(PARTS)[0]["version"] == head
    by = ledger.releases.all("extra")[0].reserved_by  # a folder has no version, the DAG has
    assert by["bundle"] == "folder"
    assert by["dag_version"]
    assert "bundle_version" not in by


def of_asked(runs, after):
    (run,) = runs(ASKED, after)
    return run["tasks"]["approve_spend"], run["tasks"]["reserve"]


def test_no_state_of_a_task_stands_for_an_approval(runs, answers, ledger):
    assert of_asked(runs, "events")[0] == "awaiting_input"
    assert of_asked(runs, "backfills") == ("failed", "upstream_failed")
    assert of_asked(runs, "backfilled again") == ("success", "failed")
    assert of_asked(runs, "asked again")[0] == "awaiting_input"
    assert of_asked(runs, "approved, and another plan") == ("success", "failed")
    assert of_asked(runs, "planned again") == ("success", "success")
    (entry,) = ledger.releases.all("asked")
    decisions = [
        (one.approved, one.approver) for one in ledger.approvals.decisions(entry.release_id)
    ]
    assert decisions == [(False, "officer"), (True, "officer")]
    for answer in answers.values():
        assert all(
            code in (200, 201, 0) or "NonPeriodic" in str(code) for code, _ in answer["said"]
        )
