"""Alerts: what is told to whom, what never is, and that no address can fail a task."""

from __future__ import annotations

import json
import logging
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
import yaml

from privsyn.errors import BudgetExceeded, ConfigError, DataError, ValidationFailed
from tests.integration.e2e.small_project import build_project
from tests.integration.e2e.weekly_releases import EVENT, release_id, weekly

pytestmark = pytest.mark.airflow
SECRET = "purple-walrus-4711"


@pytest.fixture
def server():
    """A webhook: what it was sent, and where it is."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, json.loads(body)))
            self.send_response(500 if "broken" in self.path else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield SimpleNamespace(seen=seen, url=f"http://127.0.0.1:{listening.server_port}")
    listening.shutdown()
    listening.server_close()


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


def told(project, context, **alerts):
    from privsyn.airflow.alerts import Alert

    params = yaml.safe_load(project.params.read_text()) | {"alerts": alerts}
    project.params.write_text(yaml.safe_dump(params))
    Alert(str(project.params))(context)


def context_of(project, stage, error=None):
    from privsyn.airflow.failures import StageFailed

    planned = SimpleNamespace(account="letters", id=release_id(0), privacy_event=lambda: EVENT)
    task = SimpleNamespace(stage=stage, planned=lambda: planned, open=lambda _: project.context())
    context = {"task": task, "ti": SimpleNamespace(dag_id="privsyn_d", run_id="run 1")}
    return context | ({"exception": StageFailed.of(error)} if error else {})


def refusal():
    return BudgetExceeded("account letters cannot pay.", asked=2.0, left=1.0, short=1.0, hint="")


def test_a_refused_budget_is_told_to_all_channels(project, server, mail, monkeypatch):
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "privsyn@example.org"}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    told(
        project,
        context_of(project, "reserve", refusal()),
        webhook=f"{server.url}/hook",
        slack=f"{server.url}/slack",
        email={"to": ["zoe@example.org"]},
    )
    (hook, body), (slack, said) = server.seen
    assert (hook, slack) == ("/hook", "/slack")
    assert body == {
        "event": "refused",
        "text": f"letters, {release_id(0)}: The budget refused a release. account letters cannot "
        "pay.",
        "account": "letters",
        "release_id": release_id(0),
        "dag_id": "privsyn_d",
        "run_id": "run 1",
        "url": body["url"],
    }
    assert set(said) == {"text"}
    assert "cannot pay" in said["text"]
    letter = "\n".join(mail.lines)
    assert "Subject: privsyn: refused: letters" in letter
    assert "zoe@example.org" in letter


def test_why_a_suite_failed_is_not_told(project, server):
    error = ValidationFailed(f"release x fails its suite: {SECRET}.", hint=SECRET)
    told(project, context_of(project, "validate", error), webhook=server.url)
    [(_, body)] = server.seen
    assert body["event"] == "failed_validation"
    assert SECRET not in json.dumps(body)


def test_what_the_disclosure_audit_holds_back_is_not_told(project, server):
    error = ValidationFailed("release x is held back by its disclosure audit.")
    for stage in ("evaluate", "publish", "publish_student"):
        told(project, context_of(project, stage, error), webhook=server.url)
    assert server.seen == []


def test_a_lost_release_is_told_without_its_reason(project, server):
    ctx = project.context()
    ledger = ctx.ledger
    cost = ledger.releases.get(release_id(0)).guarantee
    ledger.releases.reserve("letters", "toy-1", EVENT, method="m", guarantee=cost)
    ledger.releases.begin("toy-1", "/s", "n")
    ledger.releases.lose("toy-1", SECRET)
    context = context_of(project, "settle")
    context["task"].planned().id = "toy-1"
    told(project, context, webhook=server.url, tell=["lost"])
    [(_, body)] = server.seen
    assert (body["event"], body["release_id"]) == ("lost", "toy-1")
    assert SECRET not in json.dumps(body)


@pytest.mark.parametrize(("limit", "events"), [(1, []), (50, ["few_left"])])
def test_few_releases_left(project, server, limit, events):
    told(project, context_of(project, "settle"), webhook=server.url, releases_left=limit)
    assert [body["event"] for _, body in server.seen] == events


def test_other_failures_and_successes_tell_nothing(project, server):
    for stage, error in (
        ("reserve", DataError(SECRET)),
        ("generate", ConfigError(SECRET)),
        ("certify", None),
    ):
        told(project, context_of(project, stage, error), webhook=server.url)
    assert server.seen == []


def test_what_is_not_asked_for_is_not_told(project, server):
    told(project, context_of(project, "reserve", refusal()), webhook=server.url, tell=["lost"])
    assert server.seen == []


def test_a_dead_address_fails_nothing_and_is_not_logged(project, server, caplog):
    dead = f"http://127.0.0.1:1/{SECRET}"
    with caplog.at_level(logging.ERROR):
        told(
            project,
            context_of(project, "reserve", refusal()),
            webhook=dead,
            slack=f"{server.url}/broken/{SECRET}",
            email={"to": ["zoe@example.org"], "connection": "none_such"},
        )
    assert len(server.seen) == 1
    assert {record.getMessage() for record in caplog.records} >= {
        "alert by webhook failed: ConnectError",
        "alert by Slack failed: HTTPStatusError",
    }
    assert any("alert by e-mail failed" in record.getMessage() for record in caplog.records)
    assert SECRET not in caplog.text


def test_a_broken_params_file_fails_nothing(project, caplog):
    from privsyn.airflow.alerts import Alert

    project.params.write_text("dataset: [")
    Alert(str(project.params))(context_of(project, "settle"))
    assert "no alert: ConfigError" in caplog.text


def test_a_callback_holds_no_address(project, server, monkeypatch):
    from privsyn.airflow.factory import alerted
    from privsyn.airflow.project import Project
    from privsyn.config import load_config

    assert alerted(load_config(project.params), Project(project.params)) == {}
    config = load_config(project.params, [f"alerts.webhook={server.url}/{SECRET}"])
    callbacks = alerted(config, Project(project.params))
    assert set(callbacks) == {"on_failure_callback", "on_success_callback"}
    [alert] = callbacks["on_failure_callback"]
    assert SECRET not in str(vars(alert))


@pytest.mark.parametrize("address", ["file:///etc/passwd", "hook", "http://a b"])
def test_an_address_that_is_none_is_refused(project, address):
    from privsyn.config import load_config

    with pytest.raises(ConfigError, match=r"alerts\.webhook"):
        load_config(project.params, [f"alerts.webhook={json.dumps(address)}"])
