"""privsyn init: a project in an empty folder, from the header of a private file."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from privsyn.api import new_project
from privsyn.cli import project
from privsyn.config import load_config
from privsyn.errors import ConfigError, PrivsynError
from privsyn.stages.base import open_context
from privsyn.stages.plan import plan

ROOT = Path(__file__).parents[3]
CANARY = "vermilion-ocelot-90210"
TICKETS = ("--data", "My tickets.csv", "--rows-are-units")


@pytest.fixture
def init(monkeypatch, command, tmp_path):
    """Runs `privsyn init` in an empty folder; a person answers if there are answers."""

    def run(*arguments, answers=None):
        monkeypatch.setattr("sys.stdin.isatty", lambda: answers is not None, raising=False)
        asked: list[str] = []

        def ask(question, proposal, read):
            shown = question
            while True:
                asked.append(shown)
                found = [value for key, value in (answers or {}).items() if key in shown]
                try:
                    return read(found[0] if found else proposal)
                except PrivsynError as wrong:
                    if len(asked) > 40:
                        raise
                    shown = f"{wrong} {question}"

        monkeypatch.setattr(project, "_ask", ask)
        return (*command(tmp_path, "init", *arguments), asked)

    return run


@pytest.fixture
def tickets(tmp_path):
    file = tmp_path / "My tickets.csv"
    file.write_text(f"no,kind,customer_id,body\n1,Bug,c1,{CANARY}\n{CANARY},{CANARY}\n")
    return file


def test_without_data_it_is_the_project_of_the_invented_messages(init, tmp_path):
    code, out, _, asked = init("new")
    assert (code, asked) == (0, [])
    assert (tmp_path / "new/params.yaml").read_text() == (ROOT / "params.yaml").read_text()
    assert (tmp_path / "new/dvc.yaml").read_text() == (ROOT / "dvc.yaml").read_text()
    dags = {file.name for file in (ROOT / "dags").iterdir() if file.is_file()}
    assert {file.name for file in (tmp_path / "new/dags").iterdir()} == dags
    assert ".privsyn/" in (tmp_path / "new/.gitignore").read_text().splitlines()
    assert (tmp_path / "new/.dvc/config").is_file()
    assert "no_scm" in (tmp_path / "new/.dvc/config.local").read_text()  # there is no git here
    steps = [line.split("  ")[-1].strip() for line in out.splitlines()[-9:-1]]
    # The model is fetched where it is not here yet.
    assert [step for step in steps if not step.startswith(("cd ", "privsyn models"))][-6:] == [
        "privsyn sample-data", "params.yaml", "privsyn check", "privsyn plan", "privsyn run",
        "privsyn ledger show",
    ]  # fmt: skip


def test_flags_say_everything_and_nothing_of_the_records_is_read(init, tickets, tmp_path):
    code, out, err, asked = init(
        *("new", "--data", str(tickets), "--label", "kind", "--labels", 'Bug,"A, or B",Yes'),
        *("--unit", "customer_id", "--method", "private_evolution", "--document", "a bug report"),
    )
    assert (code, err, asked) == (0, "", [])
    config = load_config(tmp_path / "new/params.yaml")
    assert config.dataset.path == tickets
    assert (config.dataset.text, config.dataset.document) == ("body", "a bug report")
    assert config.dataset.labels == ("Bug", "A, or B", "Yes")
    assert (config.dataset.unit, config.account.unit) == ("customer_id", "customer")
    assert config.account.adjacency == "add_remove"
    assert config.dataset.name == config.account.name == "My-tickets"
    assert config.pipeline == ("private_evolution",)
    assert config.validation.forbid == ("email", "phone", "record_number")
    written = "".join(file.read_text() for file in (tmp_path / "new").rglob("*") if file.is_file())
    assert CANARY not in written + out


def test_a_person_is_asked_for_the_rest(init, tickets, tmp_path):
    answers = {
        "holds the label": "kind",
        "Which labels": "Bug, Praise",
        "whose row": "customer_id",
        "one of them called": "client",
    }
    code, _, _, asked = init("--data", str(tickets), answers=answers)
    config = load_config(tmp_path / "params.yaml")
    assert code == 0
    assert "no, kind, customer_id, body" in asked[0]
    assert config.dataset.labels == ("Bug", "Praise")
    assert config.account.unit == "client"
    assert CANARY not in " ".join(asked)


@pytest.mark.parametrize(
    ("option", "answers", "size"),
    [
        (("--public-size", "5000"), {}, 5000),
        ((), {"how many customers are there": "800"}, 800),
        ((), {"not a whole number": "20", "how many customers are there": "many"}, 20),
        ((), None, None),
    ],
)
def test_a_public_size_is_asked_for_and_never_counted(
    init, tickets, tmp_path, option, answers, size
):
    given = ("--data", str(tickets), "--unit", "customer_id", "--label", "none")
    code, _, _, asked = init(*given, *option, answers=answers)
    assert code == 0
    assert load_config(tmp_path / "params.yaml").account.public_size == size
    assert any("there, by what is known without the file" in question for question in asked) == (
        answers is not None and not option
    )


@pytest.mark.parametrize("answer", ["", " "])
def test_who_is_protected_has_no_default_and_enter_asks_again(init, tickets, tmp_path, answer):
    given = ("--data", str(tickets), "--label", "none")
    answers = {"needs an answer": "none", "whose row": answer}
    code, out, err, asked = init(*given, answers=answers)
    assert code == 0, err
    asked_for = [question for question in asked if "whose row" in question]
    assert "customer_id looks like one" in asked_for[0]
    assert "none only if no two rows can be the same person's" in asked_for[0]
    assert "nobody but you can say" in asked_for[1]
    assert load_config(tmp_path / "params.yaml").dataset.unit is None
    assert "rows, not people, are protected" in " ".join(out.split())


@pytest.mark.parametrize(
    ("size", "labels", "texts", "each"),
    [
        ((), "Bug,Praise", (), 20),
        (("--public-size", "1500"), "Bug,Praise", (), 75),
        (("--public-size", "1500"), "Bug,Praise", ("--texts", "200"), 100),
        (("--public-size", "100000"), "Bug,Praise", (), 150),
    ],
)
def test_how_many_texts_are_wanted_sets_the_sizes_of_every_method(
    init, tickets, tmp_path, size, labels, texts, each
):
    given = ("new", "--data", str(tickets), "--unit", "customer_id", "--label", "kind")
    code, _, err, _ = init(*given, "--labels", labels, *size, *texts)
    assert code == 0, err
    config = load_config(tmp_path / "new/params.yaml")
    assert config.method("private_evolution").population == each
    assert config.method("invisible_ink").texts_per_label == each
    assert config.method("dp_lora").texts_per_label == each
    assert config.method("keyphrase_seeding").sequences_per_label == each
    prediction = config.method("private_prediction")
    assert 0 <= prediction.max_texts * prediction.buckets_per_label - each <= 1
    if size:
        train = int(0.8 * int(size[1]))
        evolution = config.method("private_evolution")
        assert evolution.voted == min((each + 1) // 2, train // (2 * 4))
        assert config.method("invisible_ink").batch_size == train // (2 * each)
        assert config.method("dp_lora").expected_batch == round(0.2 * train)


@pytest.fixture
def large(tmp_path):
    """A folder whose config says 8 billion parameters; init and plan read no weights."""
    folder = tmp_path / "large"
    shutil.copytree(ROOT / "privsyn/models/builtin/lm", folder)
    (folder / "privsyn.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 128256}))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    return folder


def test_a_project_has_the_values_that_suit_its_models_size(init, large, tickets, tmp_path):
    code, _, err, _ = init("small", *TICKETS)
    assert code == 0, err
    assert load_config(tmp_path / "small/params.yaml").method("invisible_ink").guidance == 3
    code, _, err, _ = init("new", *TICKETS, "--model", str(large))
    assert code == 0, err
    config = load_config(tmp_path / "new/params.yaml")
    assert config.models.language == str(large)
    assert config.method("invisible_ink").guidance == 1
    assert config.method("invisible_ink").prompt.private.startswith("[user]\n")
    assert config.preset("private_evolution") == "small"
    (large / "chat_template.jinja").unlink()
    code, _, err, _ = init("base", *TICKETS, "--model", str(large))
    assert code == 0, err
    config = load_config(tmp_path / "base/params.yaml")
    assert config.method("invisible_ink").prompt is None  # the paper's is for chat models
    assert config.method("private_prediction").prompt is None


def test_a_large_model_never_runs_with_the_values_for_small_ones(large, tmp_path, init):
    assert init("new")[0] == 0
    config = tmp_path / "new/params.yaml"
    ctx = open_context(config, [f"models.language={large}"])
    for method in ("invisible_ink", "private_prediction", "dp_lora"):
        with pytest.raises(ConfigError, match=r"small are values for .* has about 7\.5 billion"):
            plan(ctx, method)
    ctx = open_context(config, [f"models.language={large}", "methods.invisible_ink=paper"])
    assert plan(ctx, "invisible_ink").settings["guidance"] == 1


def test_a_folder_of_images(init, tmp_path):
    (tmp_path / "scans" / "benign").mkdir(parents=True)
    for name in ("1.png", "listed.csv"):
        (tmp_path / "scans" / "benign" / name).write_text("x")
    given = ("new", "--data", "scans", "--labels", "benign,malignant", "--image-size", "28")
    code, _, err, _ = init(*given)
    assert code == 2  # color is never dropped unasked
    assert "--image-mode is missing. Are the images gray (L) or in color (RGB)?" in err
    code, _, _, asked = init("asked", *given[1:], answers={"gray (L)": "l"})
    assert (code, sum("gray (L)" in question for question in asked)) == (0, 1)
    assert load_config(tmp_path / "asked/params.yaml").dataset.images.mode == "L"
    code, out, err, _ = init(*given, "--image-mode", "RGB")
    assert code == 0, err
    config = load_config(tmp_path / "new/params.yaml")
    assert (config.dataset.images.size, config.dataset.images.mode) == (28, "RGB")
    assert config.dataset.unit == "file"
    assert config.pipeline == ("private_evolution",)
    assert config.method("private_evolution").modality == "image"
    assert config.method("private_evolution").population == 60
    assert config.method("private_evolution").expansion == 1
    assert "models fetch" not in out  # no text is written
    assert "files, not people, are protected" in " ".join(out.split())


def test_a_private_file_is_kept_out_of_git_and_dvc(init, tmp_path):
    """In the project, beside it in the repository, in a folder, by its date; not elsewhere."""
    import subprocess

    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for folder in ("new", "new/months", "apart"):
        (tmp_path / folder).mkdir()
    header = "id,body\n1,x\n"
    private = ["new/a [1].csv", "new/months/2026-01.csv", "apart/b.csv"]
    for name in private:
        (tmp_path / name).write_text(header)
    (tmp_path / "notes.md").write_text("public")
    given = ("--rows-are-units", "--text", "body", "--data")
    for place, data in (
        ("new", "new/a [1].csv"),
        ("new/months/p", "new/months/2026-01.csv"),
        ("other", "apart"),
    ):
        code, _, err, _ = init(place, *given, data)
        assert code == 0, err
    added = subprocess.run(
        ["git", "add", "-A", "--dry-run"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert "notes.md" in added
    assert not [name for name in private if name in added]
    assert "/a\\ \\[1].csv" in (tmp_path / "new/.dvcignore").read_text().splitlines()
    dated = new_project.params(None, "private_evolution", settings=[
        'dataset.path="exports/{date:%Y-%m}.jsonl"', 'dataset.test_path="{version}.csv"'
    ])  # fmt: skip
    new_project.write(tmp_path / "dated", dated)
    lines = (tmp_path / "dated/.gitignore").read_text().splitlines()
    assert lines[-2:] == ["/exports", "/*.csv"]
    outside = tmp_path.parent / "outside.csv"
    outside.write_text(header)
    assert init("far", *given, str(outside))[0] == 0
    assert "outside" not in (tmp_path / "far/.gitignore").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "My tickets.csv"), "--unit COLUMN or --rows-are-units is missing"),
        (("--data", "My tickets.csv", "--unit", "cust"), "column 'cust'"),
        (
            ("--data", "My tickets.csv", "--rows-are-units", "--label", "kind"),
            "--labels is missing",
        ),
        (("--data", "My tickets.csv", "--rows-are-units", "--text", "{body} {nosuch}"), "'nosuch'"),
        (("--data", "My tickets.csv", "--rows-are-units", "--unit", "a"), "exclude each other"),
        (("--data", "My tickets.csv", "--rows-are-units", "-m", "nothing"), "not known"),
        (("--data", "My tickets.csv", "--unit", "customer_id", "--protects", "a b"), "--protects="),
        (("--data", "headless.csv"), "does not look like column names"),
        (("--unit", "x"), "--unit needs --data"),
        (("taken", "--data", "My tickets.csv", "--rows-are-units"), "exists already"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(init, tickets, tmp_path, arguments, message):
    (tmp_path / "headless.csv").write_text(f"1,{CANARY} and a long sentence of a record it is,2\n")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "params.yaml").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    code, _, err, _ = init(*arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert CANARY not in err
    assert "dataset." not in err  # there is no params.yaml yet
    assert sorted(tmp_path.rglob("*")) == before


def test_files_that_are_there_are_kept(init, tmp_path):
    (tmp_path / "dvc.yaml").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine\n.venv/\n")
    code, out, _, _ = init()
    assert code == 0
    assert "left dvc.yaml as it is" in out
    assert (tmp_path / "dvc.yaml").read_text() == "mine"
    lines = (tmp_path / ".gitignore").read_text().splitlines()
    assert lines[:2] == ["mine", ".venv/"]
    assert ".privsyn/" in lines
    assert len(lines) == len(set(lines))


def test_columns_are_declared_by_a_persons_words_and_never_by_values(init, tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text(f"who,note,age,channel,day\n1,{CANARY},{CANARY},fax,2020-01-01\n")
    given = ("--data", str(file), "--text", "note", "--unit", "who", "--label", "none")
    said = ("--columns", "channel=web,phone", "--columns", "day=2024-01-01 to 2026-12-31 by year")
    answers = {"further col": "age, day", "can day": "2024-01-01 to 2024-03-01"}
    code, _, err, asked = init("asked", *given, answers=answers | {"can age": "18 to 95"})
    assert code == 0, err
    (question,) = (one for one in asked if "further columns" in one)
    assert "(age, channel, day;" in question
    columns = load_config(tmp_path / "asked/params.yaml").dataset.columns
    assert (columns["age"].range, columns["age"].bins) == ((18, 95), 10)
    assert len(columns["day"].cells) == 5
    code, _, err, asked = init("told", *given, *said, answers={})
    assert code == 0, err
    assert not any("further columns" in one for one in asked)
    config = load_config(tmp_path / "told/params.yaml")
    assert config.dataset.columns["channel"].values == ("web", "phone")
    assert config.dataset.columns["day"].by == "year"
    assert "fax" not in (tmp_path / "told/params.yaml").read_text()
    told = init("asks", *given, "--columns", "urgent=yes, no ask: Is it urgent?", answers={})
    assert told[0] == 0, told
    urgent = load_config(tmp_path / "asks/params.yaml").dataset.columns["urgent"]
    assert (urgent.values, urgent.ask) == (("yes", "no"), "Is it urgent?")
    twice = ("--columns", "channel=web", "--columns", "channel=phone")
    code, _, err, _ = init("wrong", *given, *twice)
    assert code == 2
    assert "--columns=channel is given twice. Say once what it can hold." in " ".join(err.split())
    for wrong, message in (
        ("Channel=web", "Did you mean 'channel'?"),
        ("channel", "web,phone or 18 to 95"),
        ("age=95 to 18", "dataset.columns.age: range=[95.0, 18.0] must rise"),
        ("who=1,2", "'who', which is dataset.unit already"),
    ):
        code, _, err, _ = init("wrong", *given, "--columns", wrong)
        assert code == 2
        assert message in err
        assert not (tmp_path / "wrong").exists()


def test_a_table_and_a_query_have_their_columns_read_alone(init, tmp_path):
    """Their names come from the schema; a query is written as it was given."""
    rows = [{"user_id": "u1", "note": CANARY, "kind": "Bug"}]
    write_deltalake(tmp_path / "lake", pa.Table.from_pylist(rows))
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        db.execute("create table notes (user_id, note, kind)")
        db.execute("insert into notes values ('u1', ?, 'Bug')", (CANARY,))
    place, sql = f"sqlite:///{tmp_path}/a.db", "select user_id, note from notes"
    given = ("--unit", "user_id", "--label", "none")
    code, out, err, _ = init("lake-project", "--data", "lake", *given)
    assert (code, err) == (0, "")
    code, said, err, _ = init("query", "--data", place, "--sql", sql, *given)
    assert (code, err) == (0, "")
    assert CANARY not in out + said
    lake = load_config(tmp_path / "lake-project" / "params.yaml").dataset
    assert (lake.name, lake.path, lake.text) == ("lake", tmp_path / "lake", "note")
    query = load_config(tmp_path / "query" / "params.yaml").dataset
    assert query.query.model_dump() == {"connection": place, "sql": sql}
    for arguments, message in (
        (("--data", f"postgresql://u:{CANARY}@h/d", "--sql", sql), "connection holds a password"),
        (("--data", "nowhere", "--sql", sql), "is no connection"),
        (("--sql", sql), "--sql needs --data"),
        (("--data", place, "--sql", "select note from notes", *given), "'user_id'"),
        (("--data", "ftp://h/x", *given), "cannot be read from ftp"),
    ):
        code, _, err, _ = init("more", *arguments)
        assert code == 2
        assert message in err
        assert CANARY not in err
    assert not (tmp_path / "more").exists()


def test_a_table_of_columns_alone(init, tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text(f"who,age,channel\n1,{CANARY},fax\n")
    given = ("--data", str(file), "--unit", "who", "--label", "none", "--public-size", "500")
    columns = ("--columns", "channel=web,phone")
    code, _, err, _ = init("told", *given, "--text", "none", *columns)
    assert code == 0, err
    config = load_config(tmp_path / "told/params.yaml")
    assert (config.dataset.text, config.pipeline) == (None, ("columns_alone",))
    assert config.method("columns_alone").rows_per_label == 500
    answers = {"holds the text": "none", "further col": "age", "can age": "18 to 95"}
    code, _, err, asked = init("asked", *given, answers=answers)
    assert code == 0, err
    assert not any("one text" in one or "has a text" in one for one in asked), asked
    assert list(load_config(tmp_path / "asked/params.yaml").dataset.columns) == ["age"]
    code, _, err, _ = init("wrong", *given, "--text", "none")
    assert (code, (tmp_path / "wrong").exists()) == (2, False)
    assert "--columns is missing" in err


def test_conversations_name_their_roles(init, tmp_path):
    file = tmp_path / "chats.csv"
    file.write_text("who,turns,channel\n1,[],fax\n")
    given = ("--data", str(file), "--unit", "who", "--label", "none")
    roles = ("--roles", "user,assistant")
    code, _, err, _ = init(
        "told", *given, "--text", "turns", *roles, "--columns", "channel=web,phone"
    )
    assert code == 0, err
    dataset = load_config(tmp_path / "told/params.yaml").dataset
    assert (dataset.roles, list(dataset.columns)) == (("user", "assistant"), ["channel"])
    for wrong, message in (
        (("--text", "turns", "--roles", "user"), "two or more"),
        (("--text", "none", *roles, "--columns", "channel=web"), "roles are of a conversation"),
        (("--text", "turns", *roles, "--columns", "turns=a,b"), "which is dataset.text already"),
    ):
        code, _, err, _ = init("wrong", *given, *wrong)
        assert (code, (tmp_path / "wrong").exists()) == (2, False)
        assert message in err


def test_rows_may_be_units(init, tickets, tmp_path):
    assert init("--data", str(tickets), "--rows-are-units")[0] == 0
    config = load_config(tmp_path / "params.yaml")
    assert (config.dataset.unit, config.account.adjacency) == (None, "replace_null")
    assert config.account.unit == "record"
