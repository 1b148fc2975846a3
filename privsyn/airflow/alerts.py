"""Alerts: who is told that a budget is refused or runs out, a suite fails, a release is lost.

A message holds names, the account's numbers and a link to the run. Why a suite failed or a release
was lost is not in it: that is in the release's quarantine and in the ledger, for the data's owner.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier

from privsyn.airflow.failures import StageFailed
from privsyn.config import AlertsConfig, environment_overrides, load_config
from privsyn.errors import (
    AccountMismatch,
    BudgetExceeded,
    PaidBefore,
    PrivsynError,
    ValidationFailed,
)

log = logging.getLogger(__name__)
SUITES = ("validate", "distill")
"""Stages that refuse by the suite, which reads synthetic records alone. Others that raise the same
error refuse by the disclosure audit, which reads private ones: no alert sends its answer away."""


@dataclass(frozen=True)
class Message:
    """What is told. All of it is public.

    Attributes:
        event: refused, failed_validation, lost or few_left.
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
    """Callback of the tasks of a release: tells what params.yaml asks for, or nothing.

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
        try:
            config = load_config(Path(self.params_path), environment_overrides())
            messages = list(_messages(context, config.alerts))
        except Exception as error:  # of a foreign one the text may be private
            log.error("no alert: %s", type(error).__name__)
            return
        for message in messages:
            for notifier in config.alerts.notifiers:
                try:
                    _send(message, notifier)
                except Exception as error:  # the text may quote an address, which may be a secret
                    log.error("alert by %s failed: %s", notifier["class"], type(error).__name__)


def _messages(context: Mapping[str, Any], alerts: AlertsConfig) -> Iterator[Message]:
    failed = context.get("exception")
    kind, reason = (failed.kind, failed.reason) if isinstance(failed, StageFailed) else (None, "")
    task = context["task"]
    if kind is not None and issubclass(kind, BudgetExceeded | AccountMismatch | PaidBefore):
        if "refused" in alerts.tell:
            yield _message("refused", f"The budget refused a release. {reason}", context)
    elif kind is not None and issubclass(kind, ValidationFailed):
        if task.stage in SUITES and "failed_validation" in alerts.tell:
            yield _message(
                "failed_validation",
                "The release fails its suite. It stays in quarantine, and its cost is spent.",
                context,
            )
    elif task.stage == "settle":
        yield from _settled(context, alerts)


def _settled(context: Mapping[str, Any], alerts: AlertsConfig) -> Iterator[Message]:
    """What the end of a run tells: its teardown runs whatever became of the release."""
    from privsyn.stages.plan import copies_left

    planned, ctx = context["task"].planned(), context["task"].open(context)
    if "lost" in alerts.tell and ctx.ledger.releases.get(planned.id).state == "LOST":
        yield _message(
            "lost", "The release is LOST: its cost is spent, and it cannot be made.", context
        )
    left = copies_left(ctx, planned)
    if "few_left" in alerts.tell and left < alerts.releases_left:
        what = "release" if left == 1 else "releases"
        yield _message("few_left", f"There is room for {left} more {what} like this one.", context)


def _message(event: str, text: str, context: Mapping[str, Any]) -> Message:
    from privsyn.airflow.base import address

    ti = context["ti"]
    try:
        # An alert about a plan that failed must still be sent, only without a release.
        plan: Any = context["task"].planned()
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


def _send(message: Message, notifier: Mapping[str, Any]) -> None:
    """Send a message by a notifier of Airflow, whose templates see the message alone."""
    # A copy: params.yaml's own mapping serves the next message, too.
    arguments = dict(notifier)
    module, _, name = arguments.pop("class").rpartition(".")
    sender = getattr(import_module(module), name)(**arguments)
    # Only the alert's own fields: Airflow's context would let a template send anything of the run.
    sender.render_template_fields({"alert": message})
    sender.notify({"alert": message})  # calling the notifier itself would log an error's whole text
