"""What the command line says: whole at any width, one line for a mistake, ids and folders alike."""

from __future__ import annotations

import io
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from rich.console import Console

from privsyn import __version__, cli
from privsyn.cli.commands import COMMANDS as SUMMARIES
from privsyn.cli.commands import app
from privsyn.cli.options import known_here
from privsyn.dp.accountant import percent
from privsyn.methods.base import Backends
from privsyn.methods.registry import METHODS
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.partition import partition
from privsyn.stages.plan import lasts_until, plan
from privsyn.stages.reserve import reserve, settle
from tests.integration.e2e.small_project import METHODS as METHODS_HERE
from tests.integration.e2e.small_project import build_project, finish, stand_in


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A project, and the id of a release of it that exists; its second method has none."""
    root = tmp_path_factory.mktemp("words")
    project = build_project(root / "project", pipeline=["invisible_ink", "private_prediction"])
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    finish(ctx, planned, Backends({"language": stand_in()}))
    settle(ctx, planned)
    return project, planned.id


@pytest.fixture
def say(monkeypatch, capsys):
    """Runs a command on a terminal of some width; returns exit code, stdout, stderr."""

    def invoke(project, *arguments: str, width: int = 80, terminal: bool = True):
        printed = io.StringIO()
        console = Console(file=printed, force_terminal=terminal, width=width, color_system=None)
        for commands in ("ledger", "project", "run", "stage", "releases", "options"):
            monkeypatch.setattr(f"privsyn.cli.{commands}.out", console)
        monkeypatch.chdir(project.root)
        monkeypatch.setattr("sys.argv", ["privsyn", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, printed.getvalue() + out, err

    return invoke


COMMANDS = (
    ("plan",),
    ("plan", "--all"),
    ("plan", "-m", "private_prediction"),
    ("plan", "--json"),
    ("run", "--no-publish"),
    ("verify", "releases/{id}"),
    ("ledger", "show"),
    ("ledger", "entries"),
    ("ledger", "verify"),
    ("stage", "plan"),
    ("stage", "validate", "--plan", "plans/invisible_ink.json"),
    ("stage", "evaluate", "--plan", "plans/invisible_ink.json"),
    ("sample-data", "--rows", "20"),
    ("sample-data", "--images"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_ids_paths_and_commands_are_whole_at_80_columns_and_in_a_pipe(released, say, command):
    project, name = released
    command = [word.format(id=name) for word in command]
    printed = {
        "wide": say(project, *command, width=10_000),
        "narrow": say(project, *command, width=80),
        "narrower": say(project, *command, width=20),
        "pipe": say(project, *command, width=80, terminal=False),
    }
    assert {code for code, *_ in printed.values()} == {0}, printed["wide"]
    whole = printed["wide"][1]
    for kind, (_, text, _) in printed.items():
        assert text.split() == whole.split(), kind  # no word is cut, whatever was wrapped
    lines = {line.strip() for line in printed["narrow"][1].splitlines()}
    for line in whole.splitlines():
        said = line.split("  ")[-1]
        if said.startswith(("privsyn ", "dvc ", "git ", "head ", "xdg-open ", "mlflow ")):
            assert any(other.endswith(said) for other in lines), said


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


def test_the_end_of_a_run_names_what_can_be_done_here(released, say):
    project, name = released
    code, out, _ = say(project, "run", "--no-publish")
    assert code == 0
    assert f"privsyn verify releases/{name}" in out
    assert "dvc pull" not in out
    assert "mlflow server --backend-store-uri" in out
    assert "format checks" in out


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


def test_a_plan_says_what_exists_already_and_what_it_took(released, say):
    project, _ = released
    _, out, _ = say(project, "plan", width=200)
    assert "exists already: free" in out
    assert "privacy.draw=1" in out
    _, fresh, _ = say(project, "plan", "-S", "privacy.draw=1", width=200)
    assert "exists already" not in fresh
    assert "fits" in fresh


@pytest.mark.parametrize("method", METHODS)
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


def test_a_setting_of_its_own_holds_beside_texts(released, say):
    project, _ = released
    given = ("plan", "--json", "--texts", "40", "-S", "methods.invisible_ink.texts_per_label=7")
    assert json.loads(say(project, *given)[1])["rows"] == 14
    split = "methods.dp_lora.label_split={Billing: 3, Symptoms: 4}"
    code, out, err = say(project, "plan", "--json", "-m", "dp_lora", "--texts", "40", "-S", split)
    assert code == 0, err
    assert json.loads(out)["rows"] == 7


@pytest.mark.parametrize("epsilon", ["1e-6", "0.1", "1", "10", "40", "1e9"])
def test_a_plan_reads_well_at_every_epsilon(released, say, epsilon):
    project, _ = released
    given = ("-S", f"privacy.epsilon={epsilon}", "-S", "privacy.draw=1")
    _, out, _ = say(project, "plan", *given, width=500)
    shown = {line[:16].strip(): line[16:].strip() for line in out.splitlines()}
    preview = json.loads(say(project, "plan", "--json", *given)[1])["account"]
    assert "100 times in 100" not in out
    assert "100 of 100" not in out
    assert "takes            0%" not in out
    assert "or 0 like this one" not in out
    more = "more than the account's whole budget"
    assert (shown["takes"] == more) == (float(epsilon) > 30)
    if not preview["copies"]:
        assert "and none like this one" in shown["remaining"]
    weak, none = "is weak protection", "is no protection in practice"
    assert ((weak in out), (none in out)) == (epsilon == "10", float(epsilon) >= 40)


def test_a_plan_says_how_long_a_schedule_can_go_on(released, say):
    project, _ = released
    override = ("-S", "schedule={invisible_ink: {cron: '@monthly'}}", "-S", "privacy.draw=1")
    _, out, _ = say(project, "plan", *override, width=300)
    copies = json.loads(say(project, "plan", "--json", *override)[1])["account"]["copies"]
    until = lasts_until(["@monthly"], copies, datetime.now(UTC))
    assert f", or {copies} like this one: on the schedule @monthly" in out
    assert f"until {until:%Y-%m-%d}" in out
    _, out, _ = say(project, "plan", "-S", "privacy.draw=1", width=300)
    assert "on the schedule" not in out


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("privacy.epsilon=40", "no: account.epsilon=20 cannot pay for it"),
        (
            'account.period={"days": 30, "epsilon": 1}',
            "no: account.period.epsilon=1 cannot pay for it",
        ),
    ],
)
def test_a_plan_that_does_not_fit_says_which_cap_is_in_the_way(make_project, say, setting, why):
    project = make_project()
    _, out, _ = say(project, "plan", "-S", setting, width=300)
    assert why in out
    assert "and none like this one" in out


@pytest.mark.parametrize(
    ("cron", "copies", "until"),
    [
        ("@daily", 1, "2026-01-02"),
        ("0 0 * * *", 3, "2026-01-04"),
        ("0 0 * * 1", 2, "2026-01-12"),
        ("@daily", 5000, "2039-09-10"),  # 4,999 days after the first
        ("@daily", 2**40, None),
        ("@once", 3, None),
        ("every day", 3, None),
    ],
)
def test_when_a_schedule_has_made_so_many(cron, copies, until):
    found = lasts_until([cron], copies, datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert (found and f"{found:%Y-%m-%d}") == until


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


def test_the_report_says_what_the_ledger_says_is_spent(released, say, tmp_path):
    project, release = released
    page = tmp_path / "report.html"
    assert say(project, "report", release, "--out", str(page))[0] == 0
    report = page.read_text(encoding="utf-8")
    [account] = json.loads(say(project, "ledger", "show", "--json")[1])
    assert f"{percent(account['balance']['share'])} of the cap" in report


@pytest.mark.parametrize(
    ("method", "total", "things"),
    [("invisible_ink", 3 * 6, "tokens"), ("private_prediction", 120, "tokens")],
)
def test_drawing_is_followed_token_by_token(tmp_path, method, total, things):
    ctx = build_project(tmp_path / "project", methods={method: METHODS_HERE[method]}).context()
    heard: list[tuple[str, int, int, str]] = []
    ctx.progress = lambda *counts: heard.append(counts)
    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, Backends({"language": stand_in()}))
    mine = [count for count in heard if count[0] == "generate 1/2"]
    done = [count[1] for count in mine]
    assert {count[2:] for count in mine} == {(total, things)}
    assert done == sorted(done)
    assert done[0] == 0
    assert len(set(done)) > 3
    assert max(done) <= total
    assert certify(ctx, planned).is_dir()


def test_the_version_and_the_methods_are_said(released, say):
    project, _ = released
    assert say(project, "--version")[:2] == (0, f"privsyn {__version__}\n")
    for command in (("plan",), ("run",), ("stage", "plan")):
        out = say(project, *command, "--help")[1]
        for method in METHODS:
            assert method in out, command


def test_the_shell_completes_methods_and_releases(released, monkeypatch):
    project, name = released
    monkeypatch.chdir(project.root)
    assert name in known_here()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("more", "x", "-n", "0"), "--n"),
        (("plan", "--metod", "x"), "--metod"),
        (("runn",), "runn"),
        (("verify",), "RELEASE"),
        (("sample-data", "--rows", "many"), "--rows"),
        (("plan", "--all", "-m", "dp_lora"), "exclude each other"),
        (("plan", "-S", "pipeline=[invisible_inc]"), "Did you mean invisible_ink?"),
        (("plan", "-S", "pipeline=[dp_lora, dp_lora]"), "twice"),
        (("plan", "--params", "no\nsuch.yaml"), "does not exist"),
    ],
)
def test_a_mistake_in_the_words_is_one_line_and_code_2(released, say, arguments, message):
    code, _, err = say(released[0], *arguments)
    assert code == 2
    assert message in err
    assert err.startswith("privsyn: ")
    assert len(err.splitlines()) == 1


NO_RELEASE = (
    ("verify",), ("report",), ("report", "--out", "page.html"), ("record",), ("compare",),
    ("export", "--to", "csv"), ("restore",), ("more", "-n", "1"), ("distill",), ("approve",),
    ("approve", "--publish"), ("reject",),
)  # fmt: skip


@pytest.mark.parametrize("command", NO_RELEASE, ids=" ".join)
def test_one_answer_is_given_of_a_release_that_never_was(released, say, command):
    project, name = released
    first, *options = command
    code, _, err = say(project, first, "nope", *options)
    assert (code, err) == (
        2,
        "privsyn: release 'nope' is not here: it is neither a folder nor a release of this "
        "project. privsyn ledger entries lists the releases. One made elsewhere is named by its "
        "folder, or comes with git pull.\n",
    )
    assert f"Did you mean {name}?" in say(project, first, name[:-1], *options)[2]


@pytest.mark.parametrize(
    ("word", "meant"),
    [("start", "run"), ("plann", "plan"), ("New", "init"), ("budget", "ledger"), ("stag", None),
     ("lineages", None), ("swep", None), ("xyzzy", None)],
)  # fmt: skip
def test_another_word_for_a_command_is_answered_with_one_for_people(released, say, word, meant):
    code, _, err = say(released[0], word)
    assert code == 2
    assert err.startswith(f"privsyn: No such command '{word}'.")
    assert ("Did you mean" in err) == (meant is not None)
    assert meant is None or f"Did you mean {meant}?" in err


def test_help_groups_commands_and_says_no_kind_of_a_flag(released, say):
    out = say(released[0], "--help")[1]
    panels = [line.strip("╭─╮ ") for line in out.splitlines() if line.startswith("╭")]
    assert panels[1].startswith("From a file to a release")
    assert panels[-1] == "For schedulers and repair"
    assert out.index("init ") < out.index("check ") < out.index("plan ") < out.index("run ")
    assert out.index("run ") < out.index("verify ") < out.index("stage ")
    for command in ((), ("init",), ("plan",), ("run",), ("verify",), ("ledger", "show")):
        assert "<bool>" not in say(released[0], *command, "--help")[1], command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "--delta", "1e-7"), "-S NAME=VALUE, where NAME is account.delta, privacy.delta"),
        (("run", "--batch-size", "7"), "methods.private_prediction.batch_size"),
        (("plan", "--qwertz"), "No such option: --qwertz"),
        (("plan", "--epsilom", "3"), "(Possible options: --epsilon). See: "),
        (("plan", "--epsilon", "text"), "'--epsilon': 'text' must be a number. See: "),
        (("sample-data", "--rows", "0"), "'--rows': '0' must be greater than or equal to 1. See:"),
        (("plan", "--epsilon", "0"), "privacy.epsilon=0.0: must be greater than 0."),
        (("plan", "-S", "models.lm=3"), "models has language, revision, embedder"),
        (("plan", "-S", "models.lm=3"), "see params.yaml."),
        (("plan", "-S", "xyzzy=3"), "The sections are dataset, account, privacy"),
        (("plan", "-S", "methods.invisible_ink.xyzzy=3"), "methods.invisible_ink has batch_size"),
    ],
)
def test_a_setting_that_is_none_or_no_option_says_where_settings_are(
    released, say, arguments, message
):
    code, _, err = say(released[0], *arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_new_account_beside_others_is_said_to_the_owner_alone(released, say, tmp_path):
    project = released[0].copy(tmp_path / "copy")
    renamed = ("-S", "account.name=other", "-S", "dataset.name=other")
    code, out, _ = say(project, "plan", *renamed, width=400)
    assert code == 0
    assert "account other is new, and this ledger has letters" in out
    assert "letters" not in " ".join(
        json.loads(say(project, "plan", "--json", *renamed)[1])["warnings"]
    )
    assert "is new" not in say(project, "plan", width=400)[1]
    code, _, err = say(project, "run", "--no-publish", *renamed)
    assert code == 3
    assert "account letters" in err


@pytest.mark.parametrize("command", [("models", "list"), ("plan",), ("check",), ("keys", "new")])
def test_a_user_without_a_home_is_told_what_to_set(make_project, say, monkeypatch, command):
    import pwd

    def unknown(number: int) -> None:
        raise KeyError(number)

    project = make_project(models={"language": "smollm2"})
    for name in ("HOME", "PRIVSYN_MODELS", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    code, _, err = say(project, *command)
    if command == ("check",):
        assert (code, err) == (0, "")
        return
    assert code == 2
    assert err.startswith("privsyn: no home directory: HOME is not set")
    assert "Set HOME" in err
    assert len(err.splitlines()) == 1
    monkeypatch.setenv("PRIVSYN_MODELS", str(project.root / "models"))
    if command == ("models", "list"):
        assert say(project, *command)[0] == 0


def test_every_command_prints_and_names_releases_in_one_way():
    """What the tests above check of some commands holds of those to come: one door each."""
    for file in Path(cli.__file__).parent.glob("*.py"):
        assert "out.print(" not in file.read_text(), file  # tables.show cuts nothing
    for command in _commands(typer.main.get_command(app)):
        for parameter in command.params:
            assert parameter.name != "release_id", command.name
            if parameter.name == "release":
                assert "RELEASE" in str(parameter.metavar)


def _commands(group):
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from _commands(command)
        else:
            yield command


def test_without_a_word_there_is_help(released, say):
    _, out, err = say(released[0])
    assert "Usage" in out + err


def test_the_help_says_of_each_command_what_the_command_says():
    """The summaries of `privsyn --help` are written down, so that it imports no command."""
    commands = typer.main.get_command(app).commands
    for name, (_, _, summary) in SUMMARIES.items():
        assert commands[name].help.split("\n\n")[0].replace("\n", " ") == summary
