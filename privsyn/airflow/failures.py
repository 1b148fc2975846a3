"""How a task ends that does not succeed: its log, its retries, and alerts.

Airflow prints a stack for every exception but SystemExit, of which it notes the exit code. A
refusal is no defect, and its stack hides its words, so a task of ours ends as a process does: with
its error in the log and the command line's exit code.

**Retries.** What a retry cannot help (a refused budget, a wrong setting) fails at once. Anything
else is tried again ``schedule.<method>.dag.retries`` times, each time after twice the pause, so
that an outage of minutes is survived. Airflow 3.3 counts every try alike, and lets a policy end a
task early but not extend it. So a task has ``KILLS`` tries more than it may fail, and the policy,
which is asked only when the task itself could say that it failed, ends it after its own count. A
try that the platform kills (a lost worker, an executor that restarts, no memory) says nothing, and
is not counted. Before 3.3 there is no policy, and kills count.

**Alerts** say that a budget is refused or runs out, a suite fails, a release is lost or published,
or a run is late. A message
holds names, the account's numbers and a link to the run. It does not say why a suite failed or a
release was lost: that is in the release's quarantine and in the ledger, for the data's owner.
"""

from __future__ import annotations

import asyncio
import logging
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseNotifier

from privsyn.airflow.versions import HAS_POLICIES, RetryDecision, RetryPolicy, conf, task_store
from privsyn.config import environment_overrides, load_config
from privsyn.errors import (
    AccountMismatch,
    ApprovalNeeded,
    BudgetExceeded,
    PaidBefore,
    PolicyBroken,
    PrivsynError,
    ValidationFailed,
)

RETRIES = 5
"""Retries of a failed task where ``schedule.<method>.dag`` says nothing else."""
KILLS = 10
"""Tries of a task that the platform may kill, beside its retries."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(minutes=10)
"""Before the first retry, doubled with each, and before any."""
OUTWARD = (BudgetExceeded, PolicyBroken, AccountMismatch, ApprovalNeeded)
"""Errors that follow from settings, the ledger and people alone. What another says may depend on
the private file, and is for the task's log: Airflow hands errors on to lineage servers."""
LINE = 100
"""Characters of a line of the log: Airflow's page cuts longer ones."""


class StageFailed(SystemExit):
    """A stage failed, and its log says why.

    Attributes:
        kind: Class of our error; None for a foreign one.
        text: Class, message and next step, on one line.
        advice: The next step; may be empty.
        reason: What is wrong.
        final: Whether trying again cannot help.
        killed: Whether the stage's process was killed from outside.
    """

    def __init__(
        self,
        reason: str,
        *,
        kind: type[PrivsynError] | None = None,
        advice: str = "",
        code: int = 1,
        final: bool = False,
        killed: bool = False,
    ) -> None:
        super().__init__(kind.exit_code if kind else code)
        self.kind, self.reason, self.advice = kind, reason, advice
        self.text = f"{kind.__name__ + ': ' if kind else ''}{reason} {advice}".strip()
        self.final = final if kind is None else not kind.retryable
        self.killed = killed

    @classmethod
    def of(cls, error: PrivsynError) -> StageFailed:
        """The end of a task that one of our errors brought about."""
        return cls(error.message, kind=type(error), advice=error.hint)

    def __str__(self) -> str:
        """What callbacks and listeners print or send away: the text, where no record shaped it."""
        if self.kind is None or self.kind in OUTWARD:
            return self.text
        return f"failed with exit code {self.code}; see the task's log."

    def lines(self) -> list[str]:
        """What the log says: the next step first, no line longer than the page."""
        parts = [self.advice, self.reason] if self.advice else [self.reason]
        return [
            line for part in parts for line in textwrap.wrap(part, LINE, break_on_hyphens=False)
        ]


class TaskRetries(RetryPolicy):  # type: ignore[misc]
    """Tries again what a retry can help, after ever longer pauses, and counts no kill.

    Args:
        failures: Failures after which a task is tried again.
        pause: Before the first retry; doubled each time, up to ``LONGEST_PAUSE``.
    """

    def __init__(self, failures: int, pause: timedelta) -> None:
        self.failures, self.pause = failures, pause

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Mapping[str, Any] | None = None,
    ) -> RetryDecision:
        """See RetryPolicy. Asked in the worker, by tries that could say how they failed."""
        if isinstance(exception, StageFailed):
            if exception.final:
                return RetryDecision.fail("a retry cannot help")
            # A lost worker or no memory says nothing of the task; what was drawn is in the journal.
            if exception.killed:
                return RetryDecision.retry(self.pause, "the process was killed: not counted")
        failed = _count(try_number, max_tries, context)
        if failed > self.failures:
            return RetryDecision.fail(f"failed {failed} times")
        return RetryDecision.retry(
            min(self.pause * 2 ** (failed - 1), LONGEST_PAUSE),
            f"failure {failed} of {self.failures} that are retried",
        )

    def serialize(self) -> dict[str, Any]:
        """See RetryPolicy."""
        return {"failures": self.failures, "pause": self.pause.total_seconds()}


def _count(try_number: int, max_tries: int, context: Mapping[str, Any] | None) -> int:
    """How often the task has failed since it was last cleared, this time included.

    Kept in Airflow's task store, which survives a try. Clearing a task raises its ``max_tries``,
    so that a cleared task starts again from none.
    """
    store = task_store(context or {})
    if store is None:
        return try_number
    name = f"failures_{max_tries}"
    failed = int(store.get(name, 0)) + 1
    store.set(name, failed)
    return failed


def retry_arguments(retries: int = RETRIES) -> dict[str, Any]:
    """Airflow's arguments of a task that is retried so often. 0: not even after a kill."""
    if not HAS_POLICIES:
        return {
            "retries": retries,
            "retry_delay": FIRST_PAUSE,
            "retry_exponential_backoff": True,
            "max_retry_delay": LONGEST_PAUSE,
        }
    return {
        "retries": retries + KILLS if retries else 0,
        "retry_delay": FIRST_PAUSE,
        "retry_policy": TaskRetries(retries, FIRST_PAUSE),
    }


log = logging.getLogger(__name__)
FEW = 3
"""An alert tells of an account that can pay for fewer releases like the last one."""
SUITES = ("validate", "distill")
"""Stages that refuse by the suite, which reads synthetic records alone. Others that raise the same
error refuse by the disclosure audit, which reads private ones: no alert sends its answer away."""


@dataclass(frozen=True)
class Message:
    """What is told. All of it is public.

    Attributes:
        event: refused, failed_validation, lost, few_left, published or late.
        text: In a sentence.
        account: The account.
        release_id: The release; None before there is one.
        dag_id: The DAG.
        run_id: Its run.
        url: Page of the run; empty where Airflow's address is not configured.
    """

    event: str
    text: str
    account: str
    release_id: str | None
    dag_id: str
    run_id: str
    url: str


class Alert(BaseNotifier):  # type: ignore[misc]
    """Callback of the tasks of a release: tells the notifiers of params.yaml, or nothing.

    It holds no address: addresses may be secrets, and are read when there is something to tell. It
    never fails a task.

    Args:
        params_path: params.yaml of the project.
    """

    def __init__(self, params_path: str) -> None:
        super().__init__()
        self.params_path = params_path

    def notify(self, context: Mapping[str, Any]) -> None:
        """See BaseNotifier. Called when a task has succeeded, or has failed for good."""
        _tell(self.params_path, lambda: _messages(context))


def _tell(params_path: str, find: Callable[[], Iterable[Message]]) -> None:
    try:
        config = load_config(Path(params_path), environment_overrides())
        messages = list(find())
    except Exception as error:  # of a foreign one the text may be private
        log.error("no alert: %s", type(error).__name__)
        return
    for message, notifier in product(messages, config.alerts):
        if message.event not in notifier.get("events", [message.event]):
            continue
        try:
            _send(message, notifier)
        except Exception as error:  # the text may quote an address, which may be a secret
            log.error("alert by %s failed: %s", notifier["class"], type(error).__name__)


async def tell_late(params_path: str, context: Mapping[str, Any]) -> None:
    """Tell the notifiers of params.yaml that a run is late. Awaited by Airflow's triggerer.

    Args:
        params_path: params.yaml of the project.
        context: What Airflow knows of the run.
    """
    dag, run = (str(context["dag_run"][key]) for key in ("dag_id", "dag_run_id"))
    url = address(SimpleNamespace(dag_id=dag, run_id=run))
    late = Message("late", f"{dag}: the run has not ended in time.", "", None, dag, run, url)
    await asyncio.to_thread(_tell, params_path, lambda: [late])


def _messages(context: Mapping[str, Any]) -> Iterator[Message]:
    failed = context.get("exception")
    failed = getattr(failed, "failure", failed)
    kind, reason = (failed.kind, failed.reason) if isinstance(failed, StageFailed) else (None, "")
    task = context["task"]
    if kind is not None and issubclass(kind, BudgetExceeded | AccountMismatch | PaidBefore):
        yield _message("refused", f"The budget rejected a release. {reason}", context)
    elif kind is not None and issubclass(kind, ValidationFailed):
        if task.stage in SUITES:
            yield _message(
                "failed_validation",
                "The release failed validation. It stays in quarantine, and its cost is spent.",
                context,
            )
    elif kind is None and task.stage in ("publish", "publish_student") and failed is None:
        yield _message("published", "The release is published.", context)
    elif task.stage == "settle":
        yield from _messages_at_end(context)


def _messages_at_end(context: Mapping[str, Any]) -> Iterator[Message]:
    """What the end of a run tells: its teardown runs whatever became of the release."""
    from privsyn.stages.plan import preview

    planned, ctx = context["task"].read_plan(), context["task"].open(context)
    if ctx.ledger.releases.get(planned.id).state == "LOST":
        yield _message(
            "lost", "The release is LOST: its cost is spent, and it cannot be made.", context
        )
    if (left := preview(ctx, planned).copies) < FEW:
        what = "release" if left == 1 else "releases"
        yield _message(
            "few_left", f"The account can pay for {left} more {what} like this one.", context
        )


def _message(event: str, text: str, context: Mapping[str, Any]) -> Message:
    ti = context["ti"]
    try:
        # An alert about a plan that failed must still be sent, only without a release.
        plan: Any = context["task"].read_plan()
    except PrivsynError:  # a failed plan leaves none
        plan = None
    return Message(
        event,
        text if plan is None else f"{plan.account}, {plan.id}: {text}",
        "" if plan is None else plan.account,
        None if plan is None else plan.id,
        str(ti.dag_id),
        str(ti.run_id),
        address(ti),
    )


def address(ti: Any) -> str:
    """Page of the run on the Airflow server; empty where its address is not configured."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    # A run's id holds colons and a plus sign, which mean something else in an address.
    path = f"/dags/{quote(str(ti.dag_id))}/runs/{quote(str(ti.run_id), safe='')}"
    return f"{base}{path}" if base.startswith("http") else ""


def _send(message: Message, notifier: Mapping[str, Any]) -> None:
    """Send a message by a notifier of Airflow, whose templates see the message alone."""
    # A copy: params.yaml's own mapping serves the next message, too.
    arguments = {key: value for key, value in notifier.items() if key != "events"}
    module, _, name = arguments.pop("class").rpartition(".")
    sender = getattr(import_module(module), name)(**arguments)
    # Only the alert's own fields: Airflow's context would let a template send anything of the run.
    sender.render_template_fields({"alert": message})
    sender.notify({"alert": message})  # calling the notifier itself would log an error's whole text
