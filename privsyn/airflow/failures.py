"""How a task ends that does not succeed: what its log says, and which failures are tried again.

Airflow prints a stack for every exception but SystemExit, of which it notes the exit code. A
refusal is no defect, and its stack hides its words, so a task of ours ends as a process does: with
its error in the log and the command line's exit code.

**Retries.** What a retry cannot help (a refused budget, a wrong setting) fails at once. Anything
else is tried again ``retries`` times, each time after twice the pause, so that an outage of minutes
is survived. Airflow 3.3 counts every try alike, and lets a policy end a task early but not extend
it. So a task has ``KILLS`` tries more than it may fail, and the policy, which is asked only when
the task itself could say that it failed, ends it after its own count. A try that the platform
kills (a lost worker, an executor that restarts, no memory) says nothing, and is not counted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import RetryDecision, RetryPolicy

from privsyn.config import ScheduleConfig
from privsyn.errors import (
    AccountMismatch,
    ApprovalNeeded,
    BudgetExceeded,
    PolicyBroken,
    PrivsynError,
)

KILLS = 10
"""Tries of a task that the platform may kill, beside its retries."""
LONGEST_PAUSE = timedelta(minutes=10)
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
        return f"failed with exit code {self.code}; the task's log says why."

    def lines(self) -> list[str]:
        """What the log says: the next step first, no line longer than the page."""
        parts = [self.advice, self.reason] if self.advice else [self.reason]
        return [
            line for part in parts for line in textwrap.wrap(part, LINE, break_on_hyphens=False)
        ]


class Patience(RetryPolicy):  # type: ignore[misc]
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
                return RetryDecision.fail("trying again cannot help")
            # A lost worker or no memory says nothing of the task; what was drawn is in the journal.
            if exception.killed:
                return RetryDecision.retry(self.pause, "the process was killed: not counted")
        failed = _count(try_number, max_tries, context)
        if failed > self.failures:
            return RetryDecision.fail(f"failed {failed} times")
        return RetryDecision.retry(
            min(self.pause * 2 ** (failed - 1), LONGEST_PAUSE),
            f"failure {failed}, of {self.failures} that are tried again",
        )

    def serialize(self) -> dict[str, Any]:
        """See RetryPolicy."""
        return {"failures": self.failures, "pause": self.pause.total_seconds()}


def _count(try_number: int, max_tries: int, context: Mapping[str, Any] | None) -> int:
    """How often the task has failed since it was last cleared, this time included.

    Kept in Airflow's task store, which survives a try. Clearing a task raises its ``max_tries``,
    so that a cleared task starts again from none.
    """
    store = (context or {}).get("task_state_store")
    if store is None:
        return try_number
    name = f"failures_{max_tries}"
    failed = int(store.get(name, 0)) + 1
    store.set(name, failed)
    return failed


def patience(schedule: ScheduleConfig) -> dict[str, Any]:
    """Airflow's arguments of a task that is retried as a schedule says. No retries: none at all."""
    pause = timedelta(seconds=schedule.retry_delay_seconds)
    return {
        "retries": schedule.retries + KILLS if schedule.retries else 0,
        "retry_delay": pause,
        "retry_policy": Patience(schedule.retries, pause),
    }
