"""Runs that an asset starts: which version of the data they are for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest

from privsyn.config import ScheduleConfig, load_config
from privsyn.errors import ConfigError
from tests.integration.e2e.small_project import build_project

pytestmark = pytest.mark.airflow
ASSET = "warehouse://tickets"


def events(*extras):
    """Airflow's own accessor over events, each at an hour."""
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.comms import AssetEventDagRunReferenceResult
    from airflow.sdk.execution_time.context import TriggeringAssetEventsAccessor

    return TriggeringAssetEventsAccessor.build(
        AssetEventDagRunReferenceResult(
            asset={"name": ASSET, "uri": Asset(ASSET).uri, "extra": {}},
            extra=extra,
            source_task_id=None,
            source_dag_id=None,
            source_run_id=None,
            source_map_index=None,
            source_aliases=[],
            timestamp=datetime(2026, 1, 1, hour, tzinfo=UTC),
        )
        for hour, extra in extras
    )


def found(source, *extras, partition=None):
    from privsyn.airflow.base import version_of

    run = SimpleNamespace(partition_key=partition)
    return version_of({"dag_run": run, "triggering_asset_events": events(*extras)}, source)


def test_the_newest_event_says_the_version():
    extras = [(2, {"month": "2026-02"}), (5, {"month": "2026-03"}), (3, {"month": "2026-01"})]
    assert found("extra.month", *extras) == "2026-03"


def test_a_partition_s_key_is_the_version():
    assert found("partition_key", partition="2026-03") == "2026-03"


@pytest.mark.parametrize("source", [None, "partition_key", "extra.month"])
def test_a_run_by_hand_has_the_version_of_its_form(source):
    assert found(source) is None


@pytest.mark.parametrize(
    "value", [None, "", 7, "../../etc", "{date.__class__}", "a b", "x" * 65, "2026-03\n"]
)
def test_what_is_no_version_is_refused_and_never_the_form_s(value):
    with pytest.raises(ConfigError, match=r"extra\.month of the asset's event"):
        found("extra.month", (1, {"month": value} if value is not None else {"other": "v1"}))
    if isinstance(value, str):
        with pytest.raises(ConfigError, match="partition_key of the asset's event"):
            found("partition_key", partition=value)


def test_the_schedule_is_airflow_s():
    from airflow.sdk import Asset, PartitionedAssetTimetable

    from privsyn.airflow.factory import schedule_of

    assert schedule_of(ScheduleConfig(cron="@daily")) == "@daily"
    assert schedule_of(ScheduleConfig()) is None
    assert schedule_of(ScheduleConfig(asset=ASSET)) == [Asset(ASSET)]
    assert schedule_of(ScheduleConfig(asset=ASSET, version="extra.month")) == [Asset(ASSET)]
    partitioned = schedule_of(ScheduleConfig(asset=ASSET, version="partition_key"))
    assert isinstance(partitioned, PartitionedAssetTimetable)
    assert partitioned.asset_condition == Asset(ASSET)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cron": "@daily", "asset": ASSET}, "exclude each other"),
        ({"version": "partition_key"}, "needs asset"),
        ({"asset": "tickets"}, "asset"),
        ({"asset": ASSET, "version": "extra"}, "version"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path, settings, said):
    made = build_project(tmp_path / "project", schedule={"invisible_ink": settings})
    with pytest.raises(ConfigError, match=said):
        load_config(made.params)


def test_a_path_may_name_the_version(tmp_path):
    made = build_project(
        tmp_path / "project",
        dataset={"path": "records/{version}/{date:%Y}.jsonl", "version": "v{date:%m}"},
    )
    dataset = load_config(made.params).dataset
    assert str(dataset.resolved(date(2026, 3, 1)).path) == "records/v03/2026.jsonl"
    assert dataset.dates(date(2026, 3, 1)) == ("v03", "2026")
    with pytest.raises(ConfigError, match=r"dataset\.version"):
        load_config(made.params, ["dataset.version=../x"]).dataset.resolved(date(2026, 3, 1))
