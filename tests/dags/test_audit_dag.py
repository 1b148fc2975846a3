"""The DAG of the canary audit: wanted, mapped over methods, beside the project's own ledger."""

from __future__ import annotations

import json

import pytest

from privsyn.airflow.audit import CONFIRMATION

pytestmark = pytest.mark.airflow

METHODS = ["private_evolution", "keyphrase_seeding"]
"""Those that are the quickest with the shipped models."""


@pytest.fixture(scope="module")
def ran(project):
    """Without the words, with wrong ones, with a method that is none, and as it should be."""
    small = {"methods": METHODS, "canaries": 16}
    confs = [
        small,
        small | {"confirm": "yes"},
        {"confirm": CONFIRMATION, "methods": ["no_such"]},
        small | {"confirm": CONFIRMATION},
    ]
    return project, project.run("run_audit_dag.py", json.dumps(confs))


def test_nothing_is_drawn_unless_somebody_typed_that_he_wants_it(ran):
    _, (*refused, _) = ran
    for answer in refused:
        assert answer["state"] == "failed"
        assert answer["tasks"]["confirm"] == "failed"
        assert answer["shown"] == []
        assert not {"success"} & set(answer["tasks"].values())


def test_every_method_is_attacked_and_none_is_found_above_its_claim(ran):
    _, (*_, answer) = ran
    assert answer["state"] == "success"
    assert answer["tasks"] == {
        "confirm": "success",
        "audit[0]": "success",
        "audit[1]": "success",
        "verdict": "success",
    }
    assert sorted(row["method"] for row in answer["shown"]) == sorted(METHODS)
    for row in answer["shown"]:
        assert (row["canaries"], row["named"]) == (16, 8)
        assert 0 < row["claimed"] <= 1
        assert row["least_epsilon"] <= row["claimed"]


def test_the_projects_ledger_records_and_releases_are_not_touched(ran):
    project, _ = ran
    state = project.root / ".privsyn"
    assert not (state / "ledger.db").exists()
    assert not (project.root / "releases").exists()
    assert list((state / "audits").iterdir()) == []
    assert state.stat().st_mode & 0o077 == 0
