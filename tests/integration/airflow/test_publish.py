"""Whether a release is announced to its asset, and only once."""

from types import SimpleNamespace

import pytest

from tests.integration.airflow.test_base import BARE

pytestmark = pytest.mark.airflow
ANSWER = {"release_id": "ink-1", "epsilon": 1.0, "dvc_revision": "1" * 32, "path": "/private"}


class Run(SimpleNamespace):
    """A task of a run."""

    def xcom_push(self, key, value):
        self.pushed = {key: value}


@pytest.fixture
def published(monkeypatch):
    """Ids that the stage was asked to publish."""
    asked = []

    def publish(ctx, planned):
        asked.append(planned.id)
        return ANSWER

    monkeypatch.setattr("privsyn.stages.publish.publish", publish)
    return asked


def project(notes):
    """What the task opens: settings without connections, and a ledger of these notes."""

    def note(release, name, asset):
        body = {"name": name, "asset": asset}
        notes.append(SimpleNamespace(change="ANNOUNCED", body=body))

    releases = SimpleNamespace(note_announced=note)
    ledger = SimpleNamespace(history=lambda release: notes, releases=releases)
    return SimpleNamespace(config=BARE.config, ledger=ledger)


def publish(announced, run=None, notes=None, ends=True):
    """The task; returns the events of its assets, or None where it is skipped.

    ``announced`` holds the events that each asset has had, ``notes`` those of the ledger: what
    Airflow and a task that ``ends`` keep is added.
    """
    from airflow.sdk import Asset

    from privsyn.airflow.publish import PublishOperator
    from privsyn.airflow.versions import AirflowSkipException

    assets = {name: Asset(f"privsyn://letters/{name}") for name in announced}
    operator = PublishOperator(task_id="publish", outlets=list(assets.values()))
    assert operator.inlets == operator.outlets, "a task reads the events of its inlets alone"
    operator.read_plan = lambda: SimpleNamespace(id="ink-1")
    operator.note_report = operator.note_lineage = lambda *_: None
    events = {asset: SimpleNamespace(extra={}) for asset in assets.values()}
    had = {asset: announced[name] for name, asset in assets.items()}
    ctx = project([] if notes is None else notes)
    operator.open = lambda context: ctx
    try:
        operator.run_stage(ctx, {"ti": run or Run(), "outlet_events": events, "inlet_events": had})
    except AirflowSkipException:
        assert not any(event.extra for event in events.values())
        return None
    for asset, event in events.items() if ends else ():
        had[asset].append(event)
    for callback in operator.on_success_callback if ends else ():
        callback({"task": operator})
    return [event.extra for event in events.values()]


def test_a_release_is_announced_once_whatever_was_published_since(published):
    """The assets' events alone decide: the copies of the newest release may be another's."""
    other = SimpleNamespace(extra={"release_id": "ink-2"})
    events = {"invisible_ink": [SimpleNamespace(extra={}), other]}
    (told,) = publish(events)
    assert told == {"release_id": "ink-1", "epsilon": 1.0}
    events["invisible_ink"].append(other)
    cleared = Run()
    assert publish(events, cleared) is None
    assert cleared.pushed == {"unchanged": True}
    assert published == ["ink-1"] * 2  # what is missing of its copies is brought up to date


def test_a_new_asset_hears_of_a_release_that_another_knows(published):
    events = {"old": []}
    publish(events)
    events["new"] = []
    assert publish(events) is not None
    assert publish(events) is None


def test_what_airflow_deletes_of_its_events_the_ledger_knows(published):
    events, notes = {"ink": []}, []
    assert publish(events, notes=notes, ends=False), "a try that was killed has told nobody"
    assert publish(events, notes=notes)
    events["ink"].clear()
    assert publish(events, notes=notes) is None
    events["new"] = []
    assert publish(events, notes=notes), "another asset has not heard of it"
    other = SimpleNamespace(
        change="ANNOUNCED", body={"name": "ink-2", "asset": notes[0].body["asset"]}
    )
    assert publish({"ink": []}, notes=[other]), "that was another release"


def test_what_airflow_alone_knows_is_noted_before_it_is_deleted(published):
    events, notes = {"ink": [SimpleNamespace(extra={"release_id": "ink-1"})]}, []
    assert publish(events, notes=notes) is None
    events["ink"].clear()
    assert publish(events, notes=notes) is None


def test_a_student_is_noted_as_announced_by_its_own_name():
    from airflow.sdk import Asset

    from privsyn.airflow.publish import PublishOperator, note_announced

    notes = []
    task = PublishOperator(
        task_id="publish_student", student=True, outlets=[Asset("privsyn://letters/distill")]
    )
    task.read_plan = lambda: SimpleNamespace(id="ink-1")
    task.open = lambda context: project(notes)
    task.announced = "ink-1.student-1"
    note_announced({"task": task})
    assert [note.body["name"] for note in notes] == ["ink-1.student-1"]
