"""What Airflow gets to see of an error: retried or not, and never a record's text."""

import json
import logging
import time
import traceback
from datetime import timedelta
from types import SimpleNamespace

import pytest

from privsyn import errors
from privsyn.config import ServicesConfig
from privsyn.errors import BudgetExceeded, ConfigError, PrivsynError
from privsyn.models.settings import ModelsConfig

pytestmark = pytest.mark.airflow
SECRET = "MRN-000001 of Jane Roe"
FINAL = {
    "BudgetExceeded", "ConfigError", "AccountMismatch", "ReleaseLost", "ValidationFailed",
    "VerificationError", "DataError",
}  # fmt: skip


def every_error():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, PrivsynError)]


BARE = SimpleNamespace(
    config=SimpleNamespace(
        services=ServicesConfig(),
        models=ModelsConfig(),
        dataset=SimpleNamespace(query=None),
    )
)
"""A context without connections."""


def make(kind):
    error = kind.__new__(kind)
    PrivsynError.__init__(error, "epsilon=9 is too much.", hint="Ask for less.")
    return error


def operator_that(does, **arguments):
    """An operator whose stage does something else."""
    from privsyn.airflow.base import StageOperator

    class Other(StageOperator):
        stage = "other"

        def open(self, context):
            return BARE

        def run_stage(self, ctx, context):
            does()

    return Other(task_id="other", **arguments)


def fail_with(error):
    """Run an operator whose stage raises; returns what Airflow catches."""

    def fail():
        raise error

    operator = operator_that(fail, retries=3)
    with pytest.raises(SystemExit) as caught:
        operator.execute({})
    return caught.value, decision(operator, caught.value)


def decision(operator, raised):
    """What Airflow does next, by the policy that it asks."""
    return operator.retry_policy.evaluate(raised, 1, 3, {}).action.value


def test_a_task_that_takes_too_long_says_so_without_a_stack(caplog):
    """Airflow prints the stack of its own exception, with the error that was being handled."""
    from airflow.sdk.execution_time.timeout import timeout

    def wait():
        try:
            raise ValueError(SECRET)
        except ValueError:
            time.sleep(60)

    operator = operator_that(wait, retries=3, execution_timeout=timedelta(seconds=0.2))
    with pytest.raises(SystemExit) as caught, timeout(0.2):
        operator.execute({})
    assert caught.value.__context__ is None
    assert "took longer than its execution_timeout, 0:00:00.2" in caught.value.text
    assert SECRET not in caplog.text + "".join(traceback.format_exception(caught.value))
    assert decision(operator, caught.value) == "retry"


class Store(dict):
    """Airflow's task store."""

    def set(self, key, value):
        self[key] = value


@pytest.mark.parametrize("kind", every_error())
def test_only_errors_that_time_can_heal_are_retried(kind):
    from privsyn.airflow.failures import OUTWARD

    raised, then = fail_with(make(kind))
    assert then == ("retry" if kind.retryable else "fail")
    assert raised.text == f"{kind.__name__}: epsilon=9 is too much. Ask for less."
    told = f"failed with exit code {kind.exit_code}; see the task's log."
    assert str(raised) == (raised.text if kind in OUTWARD else told)
    assert raised.code == kind.exit_code
    if kind.__name__ in FINAL:
        assert then == "fail"


def test_a_foreign_exception_gives_its_type_and_place_and_keeps_its_message(caplog):
    with caplog.at_level(logging.INFO):
        raised, then = fail_with(KeyError(SECRET))
    assert then == "retry"
    assert "KeyError in test_base.py, line" in str(raised)
    shown = "".join(traceback.format_exception(raised)) + caplog.text
    assert SECRET not in shown
    assert raised.__context__ is None
    assert raised.__cause__ is None


def test_the_next_step_comes_first_and_no_line_is_cut(caplog):
    reason = "account letters has room for epsilon=4.6, and " + "more is asked for. " * 12
    error = errors.AccountMismatch(reason, hint="Lower privacy.epsilon.")
    with caplog.at_level(logging.INFO):
        fail_with(error)
    first, *others = [record for record in caplog.records if record.levelname == "ERROR"]
    assert first.getMessage() == "Lower privacy.epsilon."
    assert len(others) > 1
    assert all(len(record.getMessage()) <= 100 for record in others)
    assert [getattr(record, "event", None) for record in others] == [None] * len(others)


def test_an_outage_of_ten_minutes_is_survived_and_a_kill_is_not_counted():
    """The pauses that Airflow is asked for, one after the other."""
    from privsyn.airflow.failures import KILLS, StageFailed, retry_arguments

    asked = retry_arguments(5)
    policy, store = asked["retry_policy"], Store()
    away = StageFailed.of(errors.LedgerUnavailable("the ledger is away."))
    killed = StageFailed("generate was killed by SIGKILL.", killed=True)
    waited, tries = 0.0, 0
    while True:
        tries += 1
        answer = policy.evaluate(away, tries, asked["retries"], {"task_state_store": store})
        if answer.action.value == "fail":
            break
        waited += answer.retry_delay.total_seconds()
        for _ in range(2):
            tries += 1
            kill = policy.evaluate(killed, tries, asked["retries"], {"task_state_store": store})
            assert kill.action.value == "retry"
    assert waited >= 600
    assert len(store) == 1
    assert asked["retries"] == 5 + KILLS
    assert retry_arguments(0)["retries"] == 0, "not even after a kill"
    # Clearing the task raises max_tries, and it may fail as often again.
    answer = policy.evaluate(away, tries, tries + asked["retries"], {"task_state_store": store})
    assert answer.action.value == "retry"


def test_before_retry_policies_a_refusal_ends_the_task_and_others_are_retried(monkeypatch):
    """As on Airflow 3.2, where `make install-test` makes a release."""
    from privsyn.airflow.failures import _messages, retry_arguments
    from privsyn.airflow.versions import AirflowFailException

    for module in ("versions", "failures", "base"):
        monkeypatch.setattr(f"privsyn.airflow.{module}.HAS_POLICIES", False)
    assert retry_arguments(3)["retries"] == 3
    assert "retry_policy" not in retry_arguments(3)
    refusal = BudgetExceeded("cannot pay.", hint="")
    ends = {}
    for error in (refusal, ConnectionError(SECRET)):

        def fail(error=error):
            raise error

        with pytest.raises(BaseException) as caught:  # noqa: PT011
            operator_that(fail, retries=3).execute({})
        ends[type(error)] = caught.value
    assert isinstance(ends[BudgetExceeded], AirflowFailException)
    assert isinstance(ends[ConnectionError], SystemExit)
    assert ends[BudgetExceeded].__context__ is None
    task = SimpleNamespace(stage="reserve", read_plan=lambda: SimpleNamespace(account="a", id="r"))
    ti = SimpleNamespace(dag_id="d", run_id="r")
    (message,) = _messages({"exception": ends[BudgetExceeded], "task": task, "ti": ti})
    assert message.event == "refused"


def test_a_task_that_is_skipped_has_not_failed(caplog):
    from airflow.sdk.exceptions import AirflowSkipException

    def skip():
        raise AirflowSkipException("nobody asked.")

    with caplog.at_level(logging.INFO), pytest.raises(AirflowSkipException):
        operator_that(skip).execute({})
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_our_error_does_not_drag_a_foreign_one_into_the_log():
    error = errors.StorageError("disk full.")
    error.__cause__ = error.__context__ = OSError(SECRET)
    raised, _ = fail_with(error)
    assert SECRET not in "".join(traceback.format_exception(raised))


@pytest.mark.parametrize("plan", ["None", {"plan_schema": "of another build"}])
def test_a_run_without_a_plan_of_this_version_says_what_to_clear(plan):
    from privsyn.airflow.budget import ReserveBudgetOperator

    with pytest.raises(ConfigError, match=r"Clear the task .plan."):
        ReserveBudgetOperator(task_id="reserve", plan=plan).read_plan()


def test_the_deployment_pins_settings_under_those_of_the_run(monkeypatch):
    from airflow.sdk import DAG, Param

    from privsyn.airflow.budget import PlanOperator
    from privsyn.section import OVERRIDES

    monkeypatch.setenv(OVERRIDES, json.dumps(["privacy.epsilon=3"]))
    dag = DAG("d", params={"privacy.draw": Param(0)})
    settings = PlanOperator(task_id="plan", method="m").settings(
        {"params": {"privacy.draw": 2}, "dag": dag}
    )
    assert settings == ["privacy.epsilon=3", "privacy.draw=2"]


def test_the_version_that_an_asset_gives_goes_before_the_form_s():
    from airflow.sdk import DAG, Param

    from privsyn.airflow.budget import PlanOperator

    form = {"dataset.version": "v1"}
    context = {"params": form, "dag": DAG("d", params={key: Param("v1") for key in form})}
    context["dag_run"] = SimpleNamespace(partition_key="2026-03")
    task = PlanOperator(task_id="plan", method="m", version_from="partition_key")
    assert task.settings(context) == ['dataset.version="v1"', 'dataset.version="2026-03"']


def test_pinned_settings_that_are_no_list_are_a_config_error(monkeypatch):
    from privsyn.config import environment_overrides
    from privsyn.section import OVERRIDES

    monkeypatch.setenv(OVERRIDES, "privacy.epsilon=3")
    with pytest.raises(ConfigError, match="JSON list"):
        environment_overrides()


def test_plan_asks_for_the_whole_pipeline_before_it_opens_the_account(tmp_path):
    from privsyn.airflow.budget import PlanOperator
    from privsyn.stages.base import open_context
    from tests.unit.stages.test_plan import BOTH, two_releases

    schedule = {name: {"cron": "0 0 1 * *"} for name in BOTH}
    ctx = open_context(two_releases(tmp_path, 4.5, schedule=schedule))
    with pytest.raises(BudgetExceeded, match="is the first that does not fit"):
        PlanOperator(task_id="plan", method=BOTH[0]).run_stage(ctx, {})
    assert not ctx.ledger.exists()
