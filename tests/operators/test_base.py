"""What Airflow gets to see of an error: retried or not, and never a record's text."""

import json
import logging
import traceback

import pytest

from privsyn import errors
from privsyn.errors import ConfigError, PrivsynError

pytestmark = pytest.mark.airflow
SECRET = "MRN-000001 of Jane Roe"
FINAL = {
    "BudgetExceeded",
    "ConfigError",
    "AccountMismatch",
    "ReleaseLost",
    "ValidationFailed",
    "VerificationError",
    "DataError",
}


def every_error():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, PrivsynError)]


def make(kind):
    error = kind.__new__(kind)
    PrivsynError.__init__(error, "epsilon=9 is too much.", hint="Ask for less.")
    return error


def fail_with(error):
    """Run an operator whose stage raises; returns what Airflow catches."""
    from operators.base import StageOperator

    class Failing(StageOperator):
        stage = "failing"

        def open(self, context):
            return None

        def run_stage(self, ctx, context):
            raise error

    with pytest.raises(Exception) as caught:  # noqa: PT011 - its type is what is tested
        Failing(task_id="failing").execute({})
    return caught.value


@pytest.mark.parametrize("kind", every_error())
def test_only_errors_that_time_can_heal_are_retried(kind):
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    raised = fail_with(make(kind))
    assert isinstance(raised, AirflowException)
    assert isinstance(raised, AirflowFailException) is not kind.retryable
    assert str(raised) == f"{kind.__name__}: epsilon=9 is too much. Ask for less."
    if kind.__name__ in FINAL:
        assert isinstance(raised, AirflowFailException)


def test_a_foreign_exception_gives_its_type_and_place_and_keeps_its_message(caplog):
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    with caplog.at_level(logging.INFO):
        raised = fail_with(KeyError(SECRET))
    assert isinstance(raised, AirflowException)
    assert not isinstance(raised, AirflowFailException)
    assert "KeyError in test_base.py, line" in str(raised)
    shown = "".join(traceback.format_exception(raised)) + caplog.text
    assert SECRET not in shown
    assert raised.__context__ is None
    assert raised.__cause__ is None


def test_our_error_does_not_drag_a_foreign_one_into_the_log():
    def ours_from_foreign():
        try:
            raise OSError(SECRET)
        except OSError as error:
            raise errors.StorageError("disk full.") from error

    with pytest.raises(errors.StorageError) as caught:
        ours_from_foreign()
    raised = fail_with(caught.value)
    assert SECRET not in "".join(traceback.format_exception(raised))


def test_a_run_without_a_plan_says_what_to_clear():
    from operators.budget import ReserveBudgetOperator

    with pytest.raises(ConfigError, match="Clear the task plan"):
        ReserveBudgetOperator(task_id="reserve", plan="None").planned()


def test_the_deployment_pins_settings_under_those_of_the_run(monkeypatch):
    from airflow.sdk import DAG, Param

    from operators.budget import PlanOperator
    from privsyn.config import OVERRIDES

    monkeypatch.setenv(OVERRIDES, json.dumps(["privacy.epsilon=3"]))
    dag = DAG("d", params={"privacy.draw": Param(0)})
    settings = PlanOperator(task_id="plan", method="m").settings(
        {"params": {"privacy.draw": 2}, "dag": dag}
    )
    assert settings == ["privacy.epsilon=3", "privacy.draw=2"]


def test_pinned_settings_that_are_no_list_are_a_config_error(monkeypatch):
    from privsyn.config import OVERRIDES, environment_overrides

    monkeypatch.setenv(OVERRIDES, "privacy.epsilon=3")
    with pytest.raises(ConfigError, match="JSON list"):
        environment_overrides()
