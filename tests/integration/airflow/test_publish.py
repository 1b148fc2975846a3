"""Whether a release is announced to its asset, and only once."""

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.airflow
ANSWER = {"release_id": "ink-1", "epsilon": 1.0, "dvc_revision": "1" * 32, "path": "/private"}


class Store(dict):
    """The state of an asset."""

    set = dict.__setitem__


class Run(SimpleNamespace):
    """A task of a run, and how often it was cleared."""

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


def publish(stores, run):
    """The task; returns the events of its assets, or None where it is skipped."""
    from airflow.sdk import Asset
    from airflow.sdk.exceptions import AirflowSkipException

    from privsyn.airflow.publish import PublishOperator

    assets = [Asset(f"privsyn://letters/{name}") for name in stores]
    operator = PublishOperator(task_id="publish", outlets=assets)
    operator.read_plan = lambda: SimpleNamespace(id="ink-1")
    operator.note_report = operator.note_lineage = lambda *_: None
    events = {asset: SimpleNamespace(extra={}) for asset in assets}
    state = dict(zip(assets, stores.values(), strict=True))
    context = {"ti": run, "outlet_events": events, "asset_state_store": state}
    try:
        operator.run_stage(None, context)
    except AirflowSkipException:
        assert not any(event.extra for event in events.values())
        return None
    return [event.extra for event in events.values()]


def test_a_cleared_run_announces_nothing_again_whatever_was_published_since(published):
    """The asset's store alone decides: the copies of the newest release may be another's."""
    stores = {"invisible_ink": Store()}
    (told,) = publish(stores, Run(run_id="august", max_tries=5))
    assert told == {"release_id": "ink-1", "epsilon": 1.0}
    (again,) = publish(stores, Run(run_id="august", max_tries=5))  # a retry: Airflow may not know
    assert again == told
    cleared = Run(run_id="august", max_tries=11)
    assert publish(stores, cleared) is None
    assert cleared.pushed == {"unchanged": True}
    assert publish(stores, Run(run_id="by hand", max_tries=5)) is None
    assert published == ["ink-1"] * 4  # what is missing of its copies is brought up to date


def test_a_new_asset_hears_of_a_release_that_another_knows(published):
    stores = {"old": Store()}
    publish(stores, Run(run_id="august", max_tries=5))
    stores["new"] = Store()
    assert publish(stores, Run(run_id="september", max_tries=5)) is not None
    assert publish(stores, Run(run_id="october", max_tries=5)) is None
