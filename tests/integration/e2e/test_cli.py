"""The command line as a user meets it: answers, one-line errors, exit codes."""

import io
import json
import re
import sqlite3

import pytest
from rich.console import Console

from privsyn.methods.base import Backends
from tests.integration.e2e.small_project import METHODS, stand_in


def test_plan_as_json_names_cost_event_and_account(make_project, command):
    project = make_project()
    project.data.unlink()
    code, out, _ = command(project.root, "plan", "--method", "invisible_ink", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["epsilon"] <= 8.0
    assert {"delta", "rho", "adjacency", "unit", "event"} <= answer.keys()
    assert answer["derived"]["clip_bound"] > 0
    assert {"cap", "spent", "left", "fits"} <= answer["account"].keys()
    assert answer["account"]["fits"] is True
    assert answer["release_id"] is None
    assert not (project.root / ".privsyn").exists()


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        ("private_evolution", ["texts", "vectors"]),
        ("invisible_ink", ["rows of tokens"]),
        ("dp_lora", ["records", "texts", "readings"]),
    ],
)
def test_plan_with_a_trial_says_minutes_and_reads_no_record(make_project, command, method, kinds):
    project = make_project(methods={method: METHODS[method]})
    project.data.unlink()
    asked = ("plan", "--method", method, "--time", "--json")
    code, _, err = command(project.root, *asked)
    assert (code, "account.public_size is not set" in err) == (2, True)
    code, out, _ = command(project.root, *asked, "-S", "account.public_size=80")
    minutes = json.loads(out)["minutes"]
    assert (code, list(minutes)) == (0, kinds)
    assert all(0 < each < 60 for each in minutes.values())
    assert not (project.root / ".privsyn").exists()


@pytest.mark.parametrize("every", [(), ("--all",)], ids=["one", "all"])
def test_plan_of_what_does_not_fit_answers_and_ends_as_a_refusal(make_project, command, every):
    project = make_project()
    code, out, err = command(project.root, "plan", *every, "--json", "-S", "privacy.epsilon=25")
    answer = json.loads(out)
    assert (code, err) == (3, "")
    assert answer.get("together", answer.get("account"))["fits"] is False
    code, out, _ = command(project.root, "plan", *every, "-S", "privacy.epsilon=25")
    assert code == 3
    assert "fits" in out


def on_a_terminal(monkeypatch):
    """What the commands show of their progress to a person who looks on."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr("privsyn.cli.run.err", console)
    return shown


def test_a_run_names_each_stage_on_a_terminal_while_it_lasts(make_project, command, monkeypatch):
    project = make_project()
    models = Backends({"language": stand_in()})
    monkeypatch.setattr("privsyn.stages.run.load_models", lambda *_: models)
    shown = on_a_terminal(monkeypatch)
    assert command(project.root, "run", "--no-publish")[0] == 0
    rows = [row.split()[1:] for row in re.split(r"\x1b\[\w+|[\r\n]", shown.getvalue()) if row]
    seen = list(dict.fromkeys(" ".join(row[:2]) for row in rows if row))
    at = {
        stage: next(place for place, row in enumerate(seen) if row.startswith(stage))
        for stage in ("settings", "plan", "reserve", "load models", "preflight", "partition",
                      "generate", "certify", "validate")
    }  # fmt: skip
    assert list(at) == sorted(at, key=lambda stage: at[stage])
    last = max(place for place, row in enumerate(rows) if row[:1] == ["generate"])
    first = min(place for place, row in enumerate(rows) if row[:1] == ["validate"])
    assert last < first  # its bar does not outlive it


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("plan", "-S", "privacy.epsilon=0"), 2, "privacy.epsilon=0"),
        (("plan", "--method", "invisible_inck"), 2, "Did you mean invisible_ink?"),
        (("plan", "--params", "nowhere.yaml"), 2, "nowhere.yaml does not exist"),
        (("plan", "--date", "yesterday"), 2, "YYYY-MM-DD"),
        (("plan", "-S", "models.language=/no/such/model"), 2, "models.language"),
        (("run", "-S", "dataset.path=nowhere.jsonl"), 2, "nowhere.jsonl"),
        (("run", "-S", "privacy.epsilon=25"), 3, "left"),
        (("run", "-S", "methods.invisible_ink.max_tokens=900"), 2, "context"),
        (("run", "-S", "services.ledger=sqlite:////proc/nowhere/ledger.db"), 3, "ledger"),
        (
            ("plan", "-S", "services.ledger=postgresql+psycopg://root:secret@127.0.0.1:1/none"),
            3,
            "ledger",
        ),
        (("verify", "nowhere"), 2, "it is neither a folder nor a release of this project"),
        (("stage", "generate", "--plan", "nowhere.json"), 2, "nowhere.json does not exist"),
        (("restore", "invisible_ink-0000000000000000"), 2, "is not here"),
        (("ledger", "lose", "invisible_ink-0000000000000000"), 3, "is not in the ledger"),
        (("more", "x", "-n", "0"), 2, "--n"),
        (("plan", "--metod", "x"), 2, "--metod"),
        (("runn",), 2, "runn"),
        (("verify",), 2, "RELEASE"),
        (("sample-data", "--rows", "many"), 2, "--rows"),
        (("plan", "--all", "-m", "dp_lora"), 2, "exclude each other"),
        (("plan", "-S", "pipeline=[invisible_inc]"), 2, "Did you mean invisible_ink?"),
        (("plan", "-S", "pipeline=[dp_lora, dp_lora]"), 2, "twice"),
        (("plan", "--params", "no\nsuch.yaml"), 2, "does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(make_project, command, arguments, code, message):
    project = make_project()
    found, _, err = command(project.root, *arguments)
    assert found == code, err
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.startswith("privsyn: ")
    assert "secret" not in err
    assert not (project.root / "releases").exists()
    assert not list((project.root / ".privsyn").glob("scratch/*"))


def test_an_unforeseen_error_shows_no_text(make_project, command, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("the record said: CANARY")

    monkeypatch.delenv("PRIVSYN_DEBUG", raising=False)
    monkeypatch.setattr("privsyn.ledger.accounts.Accounts.preview_all", broken)
    code, _, err = command(make_project().root, "plan")
    assert code == 1
    assert "CANARY" not in err
    assert "ValueError" in err


def test_an_edited_partition_key_is_told_before_anything_begins(make_project, command):
    project = make_project()
    command(project.root, "stage", "plan")
    file = project.root / ".privsyn" / "ledger.db"
    for key in ("", "00", "zz" * 32, "0" * 63, "00" * 65, "00" * 32, "\u00e9" * 64, b"\x00" * 64):
        with sqlite3.connect(file) as book:
            book.execute("update ledger_account set partition_key = ?", (key,))
        for words in (("run", "--no-publish"), ("ledger", "verify")):
            code, _, err = command(project.root, *words)
            assert code in (3, 4), (key, err)
            assert "edited" in err
            assert len(err.splitlines()) == 1
        with sqlite3.connect(file) as book:
            assert book.execute("select count(*) from ledger_entry").fetchone() == (0,)
