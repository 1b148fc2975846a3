"""Plan files of releases and students: which is which, and which stages each has."""

import pytest
from pydantic import ValidationError

from privsyn.cli import stage as commands
from privsyn.errors import ConfigError
from privsyn.stages.plan import plan
from privsyn.students.release import StudentPlan, read_plan


@pytest.fixture
def parent(make_project):
    return plan(make_project().context(), "invisible_ink", open_account=True)


@pytest.fixture
def student(parent):
    return StudentPlan(parent=parent, settings={"epochs": 1}, models={})


def test_a_plan_file_is_read_as_what_was_written(parent, student):
    for planned in (parent, student):
        assert read_plan(planned.model_dump_json().encode()) == planned


@pytest.mark.parametrize("schema", [None, "", "privsyn-student/2", "privsyn-plan/9"])
def test_a_file_of_another_schema_is_not_a_plan(parent, student, tmp_path, schema):
    for planned in (parent, student):
        file = tmp_path / "plan.json"
        file.write_text(planned.model_copy(update={"plan_schema": schema}).model_dump_json())
        with pytest.raises(ValidationError):
            read_plan(file.read_bytes())
        with pytest.raises(ConfigError, match="is not a plan") as refused:
            commands.stage_generate(file)
        assert "privsyn stage plan" in refused.value.hint


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'"privsyn-plan/1"', b"{}", b"\xff"])
def test_what_is_not_an_object_of_json_is_not_a_plan(content):
    with pytest.raises(ValidationError):
        read_plan(content)


@pytest.mark.parametrize("stage", [commands.stage_preflight, commands.stage_train])
def test_a_stage_that_only_a_release_has_names_the_file_and_the_next_step(student, tmp_path, stage):
    file = tmp_path / "distill.json"
    file.write_text(student.model_dump_json())
    with pytest.raises(ConfigError, match="spends nothing") as refused:
        stage(file)
    assert str(file) in refused.value.message
    assert "privsyn stage generate" in refused.value.hint
