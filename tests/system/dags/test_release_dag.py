"""The whole DAG, run by the real Airflow: killed while drawing, run again, and out of budget.

The first run cannot measure its release, because the model is away.
"""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from privsyn.ledger.ledger import Ledger
from privsyn.models.references import BUILTIN
from privsyn.release import certificate
from privsyn.report import verification

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
CANARY = "purple-walrus-4711"
EXAMPLE = Path(__file__).parents[3] / "docs/examples/train_on_release.py"


@pytest.fixture(scope="module")
def runs(project):
    """Killed once while drawing, and not measured; the same, of which Airflow has forgotten that it
    was announced; too much for the account; a DAG of a
    user's own that makes it on its way; the example that trains on it."""
    shutil.copytree(BUILTIN, project.root / "model")
    model = [f"models.language={project.root / 'model'}"]
    orders = [
        {"kill": True, "away": "model"},
        {"back": "model", "clean": True},
        {"conf": {"privacy.draw": 1}, "set": ["privacy.epsilon=19.5"]},
        {"file": str(Path(__file__).with_name("own_dag.py"))},
        {"file": str(EXAMPLE), "conf": {"release": "the first"}},
    ]
    orders = [order | {"set": [*model, *order.get("set", [])]} for order in orders]
    return project.run("run_dag.py", json.dumps(orders), "pages")


@pytest.fixture(scope="module")
def ledger(project, runs):
    return Ledger(f"sqlite:///{project.root / '.privsyn' / 'ledger.db'}")


def plan(run):
    return run["xcoms"]["plan/return_value"]


def test_a_killed_shard_resumes_and_the_run_succeeds(runs):
    first = runs[0]
    assert first["killed"] == 1
    assert first["state"] == "success"
    tries = [first["tasks"][f"generate[{shard}]"][1] for shard in (0, 1)]
    assert sorted(tries) == [1, 2]


def test_what_could_not_be_measured_is_published_and_a_later_run_measures_it(project, runs):
    first, second = runs[:2]
    states = {task: state for task, (state, _) in first["tasks"].items()}
    assert states.pop("evaluate") == "failed"
    assert set(states.values()) == {"success"}
    assert first["assets"]
    assert "not measured: ModelError in " in (project.root / "output.txt").read_text()
    name = plan(first)["release_id"]
    assert first["measured"][name] < second["measured"][name] == runs[3]["measured"][name]


def test_a_retry_spends_nothing_more(runs, ledger):
    (entry,) = ledger.releases.all("letters")
    assert (entry.state, entry.release_id) == ("COMMITTED", plan(runs[0])["release_id"])
    assert entry.reserved_by["dag_version"]
    assert ledger.verify().accounts == 1


def test_the_release_verifies_and_its_scratch_is_gone(project, runs, ledger):
    release_id = plan(runs[0])["release_id"]
    folder = project.root / "releases" / release_id
    assert all(check.passed for check in verification.verify(folder, ledger))
    assert not list((project.root / ".privsyn" / "scratch").glob("*"))


def test_a_run_over_unchanged_data_and_settings_finds_the_release(runs):
    first, second, *_ = runs
    assert second["state"] == "success"
    assert plan(second)["release_id"] == plan(first)["release_id"]
    skipped = {task for task, (state, _) in second["tasks"].items() if state == "skipped"}
    assert skipped == {"generate", "publish"}
    others = {state for task, (state, _) in second["tasks"].items() if task not in skipped}
    assert others == {"success"}
    assert (first["events"], second["events"]) == (1, 0), "announced, deleted, and not again"


def test_the_asset_event_carries_guarantee_and_certificate(project, runs):
    planned = plan(runs[0])
    _, sealed = certificate.read(project.root / "releases" / planned["release_id"])
    expected = {
        "release_id": planned["release_id"],
        "version": "v1",
        "epsilon": planned["epsilon"],
        "delta": planned["delta"],
        "certificate_sha256": certificate.digest(sealed),
        "class": "dp-release",
    }
    assert runs[0]["assets"] == [["privsyn://letters/invisible_ink", expected]]


def test_links_to_the_report_and_the_lineage_are_kept_for_the_server(runs):
    xcoms = runs[0]["xcoms"]
    release_id = plan(runs[0])["release_id"]
    page = f"/privsyn/privsyn_invisible_ink/reports/{release_id}"
    assert xcoms["validate/link_release_report"] == page
    for task in ("validate", "evaluate", "publish"):
        assert "/#/experiments/" in xcoms[f"{task}/link_mlflow_run"]


@pytest.fixture(scope="module")
def pages(project, runs):
    return json.loads((project.root / "pages.json").read_text())


def test_the_budget_is_served_to_users_and_changes_nothing(pages, runs):
    code, page, policy = pages["budget"]
    assert (code, pages["stale"], pages["written"]) == (200, 403, 405)
    release_id = plan(runs[0])["release_id"]
    assert release_id in page
    assert f'href="/dags/privsyn_invisible_ink/runs/{quote(runs[0]["run_id"], safe="")}"' in page
    assert f'href="/privsyn/privsyn_invisible_ink/reports/{release_id}"' in page
    assert CANARY not in page
    assert policy.startswith("default-src 'none'")
    assert "Privacy budget" in [view["name"] for view in pages["menu"]]


def test_roles_may_do_what_the_documents_say(pages):
    text = (Path(__file__).parents[3] / "docs/governance.md").read_text()
    rows = re.findall(r"(?m)^\| ([a-z][^|]*) \| (yes|no) \| (yes|no) \| (yes|no) \|$", text)
    said = {what: [answer == "yes" for answer in answers] for what, *answers in rows}
    found = {
        what: [codes[role] < 400 for role in ("VIEWER", "USER", "OP")]
        for what, codes in pages["allowed"].items()
    }
    assert said == found
    for codes in pages["allowed"].values():
        assert set(codes.values()) <= {200, 403}
        assert codes["ADMIN"] == 200


def test_the_report_is_served_to_users_and_runs_no_script(pages, runs):
    code, page, policy = pages["user"]
    assert (pages["stranger"], code, pages["unknown"]) == ([401, 401], 200, 404)
    assert pages["others"] == [404, 404], "a page of one DAG is shown under another"
    assert plan(runs[0])["release_id"] in page
    assert policy.startswith("default-src 'none'")


def test_what_the_account_cannot_pay_fails_at_once(runs, ledger):
    third = runs[2]
    assert third["state"] == "failed"
    assert third["tasks"]["reserve"] == ["failed", 1]
    assert third["assets"] == []
    assert len(ledger.releases.all("letters")) == 1
    skipped = {third["tasks"][task][0] for task in ("partition", "certify", "publish", "settle")}
    assert skipped <= {"upstream_failed", "skipped"}


def test_alerts_tell_of_the_refusal_and_of_what_is_left(runs):
    told = [[alert["event"] for alert in run["alerts"]] for run in runs[:3]]
    assert told == [["published", "few_left"], ["few_left"], ["refused"]]
    assert "there is room for epsilon" in runs[2]["alerts"][0]["text"]
    assert CANARY not in json.dumps([run["alerts"] for run in runs])


def test_no_record_reaches_anything_but_the_private_state(project, runs):
    scratch = project.root / ".privsyn" / "scratch"
    synthetic = {"synthetic.jsonl", "report.html", "report.json", "pages.json"}
    for file in project.root.rglob("*"):
        private = file.parent == project.root and file.name.startswith("private.")
        if private or not file.is_file() or file.is_relative_to(scratch):
            continue
        if file.name not in synthetic:
            assert CANARY.encode() not in file.read_bytes(), file
        assert CANARY not in file.name


def test_the_project_folder_holds_no_process_of_a_finished_run(project, runs):
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes()
        except OSError:
            continue
        assert str(project.root).encode() not in words


def test_in_a_dag_of_ones_own_the_release_is_made_by_the_same_tasks(runs):
    own, first = runs[3], runs[0]
    assert own["state"] == "success"
    assert {task: state for task, (state, _) in own["tasks"].items()} == {
        "beside": "success",
        "count": "success",
        **{f"release.{name}": "success" for name in (*STAGES, "settle")},
        "release.generate": "skipped",
    }
    planned = own["xcoms"]["release.plan/return_value"]
    assert planned["release_id"] == plan(first)["release_id"]
    assert own["xcoms"]["count/return_value"] == {"rows": 4, "release": plan(first)["release_id"]}


STAGES = ("plan", "reserve", "preflight", "partition", "certify", "validate", "evaluate", "publish")


def test_the_example_logs_its_model_with_the_release_as_its_dataset(project, runs):
    from mlflow import MlflowClient

    example, planned = runs[4], plan(runs[0])
    assert example["state"] == "success"
    client = MlflowClient(f"sqlite:///{project.root / '.privsyn' / 'mlflow.db'}")
    run = client.get_run(example["xcoms"]["train/return_value"])
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.name == planned["release_id"]
    assert run.data.tags["privsyn.release_id"] == planned["release_id"]
    assert float(run.data.tags["privsyn.epsilon"]) == planned["epsilon"]
    assert 0 < run.data.metrics["accuracy_on_synthetic"] <= 1
    assert [model.model_id for model in run.outputs.model_outputs]


def test_operators_are_offered_by_the_package(runs):
    import privsyn.airflow

    for name in privsyn.airflow.__all__:
        assert getattr(privsyn.airflow, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Plan'"):
        privsyn.airflow.Plan  # noqa: B018
