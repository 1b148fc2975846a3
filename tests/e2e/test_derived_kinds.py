"""What is made from releases: one protocol, one place that names its kinds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from privsyn.cli import stage as commands
from privsyn.config import parse_config
from privsyn.derived import base
from privsyn.derived.base import load_kind, read_plan, work_named, work_of
from privsyn.derived.kinds import KINDS, SECTIONS
from privsyn.derived.more import MorePlan
from privsyn.derived.student.plan import StudentPlan
from privsyn.errors import ConfigError
from privsyn.methods.registry import METHODS, load_method, settings_model
from privsyn.stages.plan import plan
from privsyn.stages.releases import Releases

PACKAGE = Path(base.__file__).parents[1]


@pytest.fixture
def parent(make_project):
    return plan(make_project().context(), "invisible_ink", open_account=True)


@pytest.fixture
def student(parent):
    return StudentPlan(parent=parent, settings={"epochs": 1}, models={})


@pytest.mark.parametrize("name", list(KINDS))
def test_every_kind_is_what_it_says(name):
    kind = load_kind(name)
    assert kind.name == name
    for part in ("plan", "make", "check", "publish", "trace"):
        assert callable(getattr(kind, part)), part
    assert issubclass(kind.Planned, base.DerivedPlan)
    assert kind.Planned.model_fields["method"].default == name
    assert base.kind_of({"derived": {name: {}}}).name == name


def test_a_release_and_an_unknown_kind_are_none_of_them():
    assert base.kind_of({}) is None
    assert base.kind_of({"derived": {"translation": {}}}) is None


@pytest.mark.parametrize("name", list(SECTIONS))
def test_a_kind_with_settings_goes_through_the_stages_of_a_release(name):
    work = work_named(name)
    for part in ("described", "draw", "validate", "evaluate", "publish"):
        assert callable(getattr(work, part)), part
        assert callable(getattr(Releases, part)), part
    assert settings_model(name)() is not None


def test_a_plan_says_what_carries_it_out(parent, student):
    assert isinstance(work_of(parent), Releases)
    assert work_of(student).name == "distill"
    for planned in (parent, student):
        assert read_plan(planned.model_dump_json().encode()) == planned


def test_a_students_plan_file_is_as_it_was(student):
    assert list(student.model_dump()) == ["plan_schema", "method", "parent", "settings", "models"]
    assert student.plan_schema == "privsyn-student/1"


def test_a_lot_of_further_records_is_called_by_its_number(parent):
    assert MorePlan(parent=parent, count=3, number=2).id == f"{parent.id}.more-2"


@pytest.mark.parametrize("name", list(KINDS))
def test_none_is_a_method(name):
    with pytest.raises(ConfigError, match="makes no release of its own") as refused:
        load_method(name)
    assert f"privsyn {name} RELEASE" in refused.value.hint
    assert name not in METHODS


def test_one_without_settings_has_no_section():
    with pytest.raises(ConfigError, match="makes no release of its own"):
        settings_model("more")
    with pytest.raises(ConfigError, match="makes no release of its own"):
        parse_config(
            {
                "dataset": {"name": "x", "path": "x.jsonl", "unit": "unit"},
                "account": {"name": "x", "unit": "person", "adjacency": "add_remove",
                            "epsilon": 1, "delta": 1e-6},
                "privacy": {"epsilon": 1, "delta": 1e-6},
                "methods": {"more": {}},
            }
        )  # fmt: skip


@pytest.mark.parametrize("stage", [commands.stage_preflight, commands.stage_train])
def test_a_stage_that_only_a_release_has_names_the_file_and_the_next_step(student, tmp_path, stage):
    file = tmp_path / "distill.json"
    file.write_text(student.model_dump_json())
    with pytest.raises(ConfigError, match="spends nothing") as refused:
        stage(file)
    assert str(file) in refused.value.message
    assert "privsyn stage generate" in refused.value.hint


def test_no_driver_asks_which_kind_it_has():
    """Commands and generic stages go by the protocol: none names a kind or its plan."""
    for file in [PACKAGE / "cli" / "stage.py", *(PACKAGE / "stages").glob("*.py")]:
        tree = ast.parse(file.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not {"StudentPlan", "MorePlan"} & names, file
        assert not {*KINDS} & said, file
