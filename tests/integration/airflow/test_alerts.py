"""Alerts: what is told to whom, what never is, and that no notifier can fail a task."""

from __future__ import annotations

import asyncio
import json
import logging
import socketserver
import threading
from dataclasses import asdict
from types import SimpleNamespace
from typing import ClassVar

import pytest
import yaml
from airflow.sdk import BaseNotifier

from privsyn.config import load_config
from privsyn.errors import BudgetExceeded, ConfigError, DataError, ValidationFailed
from tests.integration.e2e.small_project import build_project
from tests.integration.e2e.weekly_releases import EVENT, release_id, weekly

pytestmark = pytest.mark.airflow
SECRET = "purple-walrus-4711"


class Keeper(BaseNotifier):
    """Keeps what it is sent, or fails with a secret in the error."""

    template_fields = ("text",)
    sent: ClassVar[list] = []

    def __init__(self, text="", fails=False):
        super().__init__()
        self.text, self.fails = text, fails

    def notify(self, context):
        if self.fails:
            raise ConnectionError(SECRET)
        self.sent.append((self.text, asdict(context["alert"])))


KEEPER = {"class": f"{__name__}.Keeper"}


@pytest.fixture
def sent():
    """What Keeper was sent."""
    Keeper.sent.clear()
    return Keeper.sent


@pytest.fixture
def mail():
    """An SMTP server: the lines of the mail it was sent."""
    lines = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"220 here\r\n")
            data = False
            for raw in self.rfile:
                line = raw.decode().strip()
                if data:
                    data = line != "."
                    lines.append(line)
                    answer = b"" if data else b"250 ok\r\n"
                elif line.upper() == "DATA":
                    data, answer = True, b"354 go on\r\n"
                else:
                    answer = b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n"
                self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield SimpleNamespace(lines=lines, port=listening.server_address[1])
        listening.shutdown()


@pytest.fixture
def project(tmp_path):
    """Cap for two releases of the event; one is made."""
    made = build_project(tmp_path / "project", account={"epsilon": 2.0})
    weekly(made.context(), 1)
    return made


def alert(project, context, *notifiers):
    from privsyn.airflow.failures import Alert

    params = yaml.safe_load(project.params.read_text()) | {"alerts": list(notifiers or [KEEPER])}
    project.params.write_text(yaml.safe_dump(params))
    Alert(str(project.params))(context)


def context_of(project, stage, error=None):
    from privsyn.airflow.failures import StageFailed

    planned = SimpleNamespace(
        account="letters",
        id=release_id(0),
        release_id=release_id(0),
        settings_digest="",
        privacy_event=lambda: EVENT,
    )
    task = SimpleNamespace(stage=stage, read_plan=lambda: planned, open=lambda _: project.context())
    context = {"task": task, "ti": SimpleNamespace(dag_id="privsyn_d", run_id="run 1")}
    return context | ({"exception": StageFailed.of(error)} if error else {})


def refusal():
    return BudgetExceeded("account letters cannot pay.", hint="")


def test_a_refused_budget_is_told_by_all_notifiers(project, sent, mail, monkeypatch):
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "privsyn@example.org"}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    alert(
        project,
        context_of(project, "reserve", refusal()),
        KEEPER | {"text": "privsyn: {{ alert.text }} {{ exception }}{{ task }}"},
        {
            "class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
            "to": ["zoe@example.org"],
            "subject": "privsyn: {{ alert.event }}: {{ alert.account }}",
            "html_content": "<p>{{ alert.text | e }}</p>",
        },
    )
    [(text, body)] = sent
    assert text == f"privsyn: {body['text']} "  # a template sees the alert and nothing else
    assert body == {
        "event": "refused",
        "text": f"letters, {release_id(0)}: The budget rejected a release. account letters cannot "
        "pay.",
        "account": "letters",
        "release_id": release_id(0),
        "dag_id": "privsyn_d",
        "run_id": "run 1",
        "url": body["url"],
    }
    letter = "\n".join(mail.lines)
    assert "Subject: privsyn: refused: letters" in letter
    assert "zoe@example.org" in letter


def test_a_notifier_hears_of_the_events_that_it_names(project, sent):
    from privsyn.airflow.failures import tell_late

    some = KEEPER | {"events": ["late", "few_left"]}
    alert(project, context_of(project, "publish"), KEEPER | {"events": ["published"]}, some)
    assert [body["event"] for _, body in sent] == ["published"]
    # What Airflow's triggerer hands on when a run's deadline has passed.
    run = {"dag_run": {"dag_id": "privsyn_d", "dag_run_id": "run 1"}, "deadline": {}}
    asyncio.run(tell_late(params_path=str(project.params), context=run))
    [late] = [body for _, body in sent if body["event"] == "late"]
    assert late["text"] == "privsyn_d: the run has not ended in time."
    alert(project, context_of(project, "publish"), KEEPER | {"events": ["lat"]})
    with pytest.raises(ConfigError, match="events has lat, and knows refused"):
        load_config(project.params)


def test_why_a_suite_failed_is_not_told(project, sent):
    error = ValidationFailed(f"release x fails its suite: {SECRET}.", hint=SECRET)
    alert(project, context_of(project, "validate", error))
    [(_, body)] = sent
    assert body["event"] == "failed_validation"
    assert SECRET not in json.dumps(body)


def test_a_lost_release_is_told_without_its_reason(project, sent):
    ctx = project.context()
    ledger = ctx.ledger
    cost = ledger.releases.get(release_id(0)).guarantee
    ledger.releases.reserve("letters", "toy-1", EVENT, method="m", guarantee=cost)
    ledger.releases.begin("toy-1", "/s", "n")
    ledger.releases.lose("toy-1", SECRET)
    context = context_of(project, "settle")
    context["task"].read_plan().id = "toy-1"
    alert(project, context)
    body = next(body for _, body in sent if body["event"] == "lost")
    assert body["release_id"] == "toy-1"
    assert SECRET not in json.dumps(sent)


@pytest.mark.parametrize(("limit", "events"), [(1, []), (50, ["few_left"])])
def test_few_releases_left(project, sent, monkeypatch, limit, events):
    monkeypatch.setattr("privsyn.airflow.failures.FEW", limit)
    alert(project, context_of(project, "settle"))
    assert [body["event"] for _, body in sent] == events


def test_other_failures_and_successes_tell_nothing(project, sent):
    """Nor what the disclosure audit holds back."""
    held = ValidationFailed("release x is held back by its disclosure audit.")
    for stage, error in (
        *((stage, held) for stage in ("evaluate", "publish", "publish_student")),
        ("reserve", DataError(SECRET)),
        ("generate", ConfigError(SECRET)),
        ("certify", None),
    ):
        alert(project, context_of(project, stage, error))
    assert sent == []


def test_a_notifier_that_fails_fails_nothing_and_its_error_is_not_logged(project, sent, caplog):
    with caplog.at_level(logging.ERROR):
        alert(
            project,
            context_of(project, "reserve", refusal()),
            KEEPER | {"fails": True},
            {"class": "airflow.providers.none_such.Notifier"},
            KEEPER | {SECRET: 1},
            KEEPER,
        )
    assert len(sent) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"alert by {KEEPER['class']} failed: ConnectionError",
        "alert by airflow.providers.none_such.Notifier failed: ModuleNotFoundError",
        f"alert by {KEEPER['class']} failed: TypeError",
    ]
    assert SECRET not in caplog.text


def test_a_broken_params_file_fails_nothing(project, caplog):
    from privsyn.airflow.failures import Alert

    project.params.write_text("dataset: [")
    Alert(str(project.params))(context_of(project, "settle"))
    assert "no alert: ConfigError" in caplog.text


def test_a_callback_holds_no_address(project):
    from privsyn.airflow.factory import alert_arguments
    from privsyn.airflow.project import Project

    assert alert_arguments(load_config(project.params), Project(project.params)) == {}
    notifiers = json.dumps([KEEPER | {"text": SECRET}])
    config = load_config(project.params, [f"alerts={notifiers}"])
    callbacks = alert_arguments(config, Project(project.params))
    assert set(callbacks) == {"on_failure_callback", "on_success_callback"}
    [callback] = callbacks["on_failure_callback"]
    assert SECRET not in str(vars(callback))


@pytest.mark.parametrize("notifier", [{}, {"class": "Slack"}, {"class": "a b.C"}, {"class": None}])
def test_a_notifier_without_a_class_is_refused(project, notifier):
    with pytest.raises(ConfigError, match=r"alerts.*full name of a class"):
        load_config(project.params, [f"alerts={json.dumps([notifier])}"])
