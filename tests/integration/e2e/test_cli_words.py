"""What the command line says: whole at any width, one line for a mistake, ids and folders alike."""

from __future__ import annotations

import io
import json
import shutil

import pytest
from rich.console import Console

from privsyn.methods.base import Backends
from privsyn.methods.registry import COLUMNS_ALONE, METHODS
from privsyn.stages.reserve import settle
from tests.integration.e2e.small_project import build_project, finish, reserve_release, stand_in


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A project, and the id of a release of it that exists; its second method has none."""
    root = tmp_path_factory.mktemp("words")
    project = build_project(root / "project", pipeline=["invisible_ink", "private_prediction"])
    ctx = project.context()
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends({"language": stand_in()}))
    settle(ctx, planned)
    return project, planned.id


@pytest.fixture
def say(monkeypatch, command):
    """Runs a command on a terminal of some width; returns exit code, stdout, stderr."""

    def invoke(project, *arguments, width=80, terminal=True):
        printed = io.StringIO()
        console = Console(file=printed, force_terminal=terminal, width=width, color_system=None)
        for commands in ("ledger", "project", "run", "stage", "releases", "options"):
            monkeypatch.setattr(f"privsyn.cli.{commands}.out", console)
        code, out, err = command(project.root, *arguments)
        return code, printed.getvalue() + out, err

    return invoke


def test_a_stage_takes_the_id_of_a_release_that_is_here(released, say, tmp_path):
    project, name = released[0].copy(tmp_path / "copy"), released[1]
    shutil.rmtree(project.root / "plans", ignore_errors=True)
    for stage in ("validate", "evaluate"):
        code, _, err = say(project, "stage", stage, "--plan", name)
        assert code == 0, err
    certificate = project.root / "releases" / name / "certificate.json"
    changed = certificate.read_text().replace('"add_remove"', '"replace_null"')
    certificate.unlink()
    certificate.write_text(changed)
    code, _, err = say(project, "stage", "validate", "--plan", name)
    assert code == 4
    assert "does not verify" in err


def test_a_release_is_named_by_its_id_or_its_folder(released, say):
    project, name = released
    for named in (name, f"releases/{name}", f"releases/{name}/", f"{project.root}/releases/{name}"):
        code, out, err = say(project, "verify", named)
        assert (code, err) == (0, "")
        assert "dp-release" in out
        code, _, err = say(project, "more", named, "-n", "1")
        assert code == 2
        assert f"release {name} is of invisible_ink" in err
    (project.root / "elsewhere").mkdir(exist_ok=True)
    code, _, err = say(project, "more", "elsewhere", "-n", "1")
    assert code == 2
    assert "elsewhere is no release of this project" in err
    code, _, err = say(project, "restore", f"releases/{name}")
    assert code == 2
    assert f"{name}" in err
    assert "not published here" in err


@pytest.mark.parametrize("method", [name for name in METHODS if name != COLUMNS_ALONE])
@pytest.mark.parametrize("size", [None, 2000])
def test_texts_and_epsilon_are_options_of_plan_and_run(released, say, method, size):
    project, _ = released
    public = () if size is None else ("-S", f"account.public_size={size}")
    modality = ("-S", "methods.private_evolution.modality=text")
    given = ("plan", "-m", method, "--json", "--epsilon", "3", *modality, *public)
    for texts, most in ((40, 40), (41, 44)):
        code, out, err = say(project, *given, "--texts", str(texts))
        assert code == 0, err
        planned = json.loads(out)
        assert planned["target_epsilon"] == 3
        assert texts <= planned["rows"] <= most
    code, _, err = say(project, *given, "--texts", "0")
    assert code == 2
    assert "texts=0 is not a whole number from 1 on" in err
    code, _, err = say(project, "run", "-m", method, "--epsilon", "-1", "--texts", "4", *modality)
    assert code == 2
    assert "privacy.epsilon" in err


def test_a_pipeline_says_what_it_costs_together(released, say):
    project, _ = released
    code, out, _ = say(project, "plan", "--all", "--json", "-S", "privacy.draw=1")
    answer = json.loads(out)
    asked = [release["account"]["asked"] for release in answer["releases"]]
    assert code == 0
    assert len(asked) == 2
    assert answer["together"]["asked"] == pytest.approx(sum(asked))
    account = answer["together"]
    assert account["spent"] + account["left"] == pytest.approx(account["budget"])

    _, out, _ = say(project, "plan", "--all", "--json")
    paid = json.loads(out)
    assert paid["releases"][0]["account"]["state"] == "COMMITTED"
    assert paid["together"]["asked"] == pytest.approx(asked[1])  # the other exists

    code, out, _ = say(project, "plan", "--all", "-S", "privacy.epsilon=19", "-S", "privacy.draw=1")
    assert code == 3
    assert "no: invisible_ink is the first that does not fit. Name fewer methods" in out
    # Each fits by itself, and the second not after the first: the ledger's own order decides.
    both = ("-S", "privacy.draw=1", "-S", "account.epsilon=10", "-S", "account.name=other")
    both += ("-S", "dataset.name=other", "-S", "privacy.epsilon=6")
    assert say(project, "plan", *both)[0] == 0
    code, out, _ = say(project, "plan", "--all", "--json", *both)
    answer = json.loads(out)
    fits = [release["account"]["fits"] for release in answer["releases"]]
    assert (code, fits) == (3, [True, False])
    assert answer["together"]["first_refused"] == answer["releases"][1]["method"]
    code, _, err = say(project, "plan", "--all", "-S", "pipeline=[]")
    assert (code, err.count("\n")) == (2, 1)


def test_plan_and_ledger_count_in_one_unit(released, say):
    project, _ = released
    planned = json.loads(say(project, "plan", "--json")[1])["account"]
    [account] = json.loads(say(project, "ledger", "show", "--json")[1])
    for key in ("order", "budget", "spent", "left", "left_epsilon", "share"):
        assert planned[key] == account["balance"][key], key
