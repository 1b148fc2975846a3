"""Projects and releases from Python: the same stages and account, and no record to be seen."""

from __future__ import annotations

import datetime
import json
import logging
import shutil
import sqlite3
import stat
import subprocess
import traceback
import uuid
from contextlib import closing, contextmanager
from decimal import Decimal

import pandas as pd
import polars
import pyarrow as pa
import pytest
from datasets import Dataset
from deltalake import write_deltalake

import privsyn
from privsyn import cli
from privsyn.config import load_config
from privsyn.data.artifacts import sha256_file
from privsyn.errors import (
    AccountMismatch,
    ConfigError,
    Defect,
    LeaseHeld,
    PrivsynError,
    ValidationFailed,
    VerificationError,
)
from privsyn.methods.base import Backends
from privsyn.release import certificate
from privsyn.stages import run as stages
from privsyn.tracking import MlflowTracker
from tests.integration.e2e.small_project import CANARY, LABELS, METHODS, rows, stand_in

SETTINGS = {
    **METHODS["invisible_ink"],
    "models.language": "tiny",
    "validation.min_share": 0.0,
    "evaluate.by": "nothing",
}
COLUMNS = {
    "text": "text",
    "label": "label",
    "labels": LABELS,
    "unit": "unit",
    "method": "invisible_ink",
}


def frame_of(count=48):
    return pd.DataFrame(
        [row | {"text": f"{row['text']} {CANARY}", "salary": 1} for row in rows(count, 20)]
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return privsyn.Project.create(
        tmp_path_factory.mktemp("api") / "project",
        frame_of(),
        **COLUMNS,
        protects="person",
        account={"epsilon": 20},
    )


@pytest.fixture(scope="module")
def release(project):
    return project.release(project.plan(epsilon=8, **SETTINGS), publish=False)


def shown(*things):
    return "".join(
        repr(thing) + (thing._repr_html_() if hasattr(thing, "_repr_html_") else "")
        for thing in things
    )


def test_nothing_that_is_shown_or_left_holds_a_record(project, release, caplog):
    caplog.set_level(logging.DEBUG)
    planned = project.plan(epsilon=4, **SETTINGS)
    said = shown(
        project, project.check(), planned, release, release.verify(), release.report(),
        project.ledger, project.ledger.accounts(), project.ledger.entries(),
        release.certificate,
    )  # fmt: skip
    assert len(said) > 10_000
    assert CANARY not in said
    assert CANARY not in caplog.text
    kept = project.folder / ".privsyn/data/project-v1.parquet"
    assert CANARY in pd.read_parquet(kept)["text"][0]
    others = [file for file in project.folder.rglob("*") if file.is_file() and file != kept]
    assert len(others) > 15
    assert [file for file in others if CANARY.encode() in file.read_bytes()] == []


def test_a_frame_is_kept_for_its_owner_alone_and_no_column_more_than_is_wanted(project):
    kept = project.folder / ".privsyn/data/project-v1.parquet"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert set(pd.read_parquet(kept).columns) == {"text", "label", "unit"}
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]


def test_a_release_is_a_frame_and_verifies(project, release):
    assert release.verify().authentic
    frame = release.frame()
    assert list(frame.columns) == ["id", "label", "text"]
    assert len(frame) == release.certificate["artifact"]["rows"] == 6
    assert [other.name for other in project.releases()] == [release.name]
    entries = project.ledger.entries()
    assert list(entries["state"]) == ["COMMITTED"]
    assert list(entries["release"]) == [release.name]
    assert project.ledger.verify().entries == 1


def test_the_same_call_again_finds_the_release_and_spends_nothing(project, release):
    planned = project.plan(epsilon=8, **SETTINGS)
    assert planned.account.entry is not None
    assert project.release(planned, publish=False).name == release.name
    assert len(project.ledger.entries()) == 1


@pytest.fixture
def light(monkeypatch):
    monkeypatch.setattr(stages, "load_models", lambda *_: Backends({"language": stand_in()}))
    monkeypatch.setattr("privsyn.stages.base.MlflowTracker", lambda **_: MlflowTracker(""))


def test_command_line_and_python_call_the_same_stages(make_project, monkeypatch, capsys, light):
    """One path: neither has a copy of a step."""
    called: list[str] = []
    names = (
        "plan", "reserve", "load_models", "preflight", "partition", "train", "generate", "certify",
        "validate", "evaluate", "publish", "settle",
    )  # fmt: skip

    def heard(name):
        work = getattr(stages, name)

        def listen(*args, **kwargs):
            called.append(name)
            return {"dvc_revision": "x"} if name == "publish" else work(*args, **kwargs)

        return listen

    by_hand, by_python = make_project("a"), make_project("b")
    for name in names:
        monkeypatch.setattr(stages, name, heard(name))
    monkeypatch.chdir(by_hand.root)
    monkeypatch.setattr("sys.argv", ["privsyn", "run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    first, called[:] = called[1:], []  # the plan, which the other was shown before
    opened = privsyn.Project.open(by_python.root)
    opened.release(opened.plan())
    assert called == first
    assert set(names) - {"train"} == {"plan", *first}  # this method trains no model


def interrupted_at(monkeypatch, done_at, then):
    """A person who looks on, and does something once so much is drawn."""

    @contextmanager
    def show_progress(console):
        def update(stage, done, total, things=""):
            if stage.startswith("generate") and done >= done_at:
                then()

        yield update

    monkeypatch.setattr("privsyn.api.project.show_progress", show_progress)


def begun(make_project):
    opened = privsyn.Project.open(make_project().root, **{"performance.rows_per_pass": 4})
    return opened, opened.plan(texts_per_label=6)


def test_an_interrupted_kernel_goes_on_and_spends_no_more(make_project, monkeypatch, light):
    opened, planned = begun(make_project)

    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        interrupted_at(patched, 3, stop)
        with pytest.raises(KeyboardInterrupt, match="repeat the call to resume") as caught:
            opened.release(planned, publish=False)
    assert [frame.name for frame in caught.traceback][1:] == ["wrapper"]
    before = opened.ledger.accounts()["spent_share"][0]
    assert list(opened.ledger.entries()["state"]) == ["BEGUN"]
    finished = opened.release(planned, publish=False)
    assert finished.verify().authentic
    assert opened.ledger.accounts()["spent_share"][0] == before
    assert list(opened.ledger.entries()["state"]) == ["COMMITTED"]


def test_of_two_notebooks_that_release_at_once_one_waits_its_turn(make_project, monkeypatch, light):
    opened, planned = begun(make_project)
    told: list[str] = []

    def second():
        if not told:
            told.append("")
            with pytest.raises(LeaseHeld) as caught:
                privsyn.Project.open(opened.folder).release(planned, publish=False)
            told[0] = str(caught.value)

    interrupted_at(monkeypatch, 1, second)
    assert opened.release(planned, publish=False).verify().authentic
    assert told
    assert len(opened.ledger.entries()) == 1


def refused(call):
    """What a traceback with all its values shows of an error, the caller's own frame left out."""
    try:
        call()
    except Exception as error:
        found = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert found.__cause__ is found.__context__ is None
        found.stack = traceback.StackSummary.from_list(
            [frame for frame in found.stack if frame.filename != __file__]
        )
        return "".join(found.format())
    raise AssertionError("nothing was refused")


def renamed(name):
    return frame_of().rename_axis(index=name)


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (lambda: frame_of().drop(columns="text"), {}, "column 'text' (argument text) is not in"),
        (frame_of, {"text": "txt"}, "column 'txt' (argument text) is not in the frame; columns: "),
        (frame_of, {"text": "Of {unit}: {body}"}, "column 'body' (argument text (2))"),
        (frame_of, {"unit": "index"}, "row numbers shift"),
        (lambda: renamed("person"), {"unit": "person"}, "unit='person' is an index"),
        (lambda: frame_of().reset_index(), {"unit": "index"}, "row numbers shift"),
        (lambda: pd.concat([frame_of(), frame_of()], axis=1), {}, "two of one name"),
        (lambda: frame_of()["text"], {}, "data=<Series> must be a string, a path, a"),
        (frame_of, {"labels": ()}, "label and labels go together"),
        (frame_of, {"labels": (), "label": None, "account": {"epsilon": -1}}, "account.epsilon=-1"),
        (frame_of, {"version": "../../x"}, "dataset.version"),
        (frame_of, {"version": "{date:%Y}"}, "is a template"),
        (frame_of, {"name": "../x"}, "dataset.name"),
        (lambda: frame_of().reset_index(names="Unnamed: 0.1"), {"unit": "Unnamed: 0.1"}, "shift"),
        (lambda: "nowhere.jsonl", {}, "nowhere.jsonl"),
        (lambda: renamed("index").to_csv("saved.csv") or "saved.csv", {"unit": "index"}, "shift"),
    ],
)
def test_bad_input_is_refused_without_a_record_and_leaves_nothing(
    tmp_path, monkeypatch, data, changes, message
):
    monkeypatch.chdir(tmp_path)
    given = data()
    said = refused(lambda: privsyn.Project.create(tmp_path / "p", given, **COLUMNS | changes))
    assert message in said
    assert CANARY not in said
    assert not (tmp_path / "p").exists()


def test_git_ignores_the_place_of_a_frame_before_the_frame_is_there(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def dies(table, target):
        target.parent.mkdir(parents=True)
        target.write_text("half a frame")
        raise Killed

    monkeypatch.setattr("privsyn.api.frames.write_version", dies)
    folder = tmp_path / "p"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(Killed):
        privsyn.Project.create(folder, frame_of(), **COLUMNS)
    seen = subprocess.run(
        ["git", "-C", tmp_path, "ls-files", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "p/.gitignore" in seen
    assert ".privsyn" not in seen
    assert not (folder / "params.yaml").exists()
    monkeypatch.undo()
    privsyn.Project.create(folder, frame_of(), **COLUMNS, version="v2")


def test_what_is_not_ours_shows_its_type_and_place_alone(project, monkeypatch):
    def broken(table, target):
        raise ValueError(f"cannot hold {table['text'][0]}")

    monkeypatch.setattr("privsyn.api.frames.write_version", broken)
    said = refused(lambda: project.using(frame_of(), version="v9"))
    assert "ValueError in test_python_api.py" in said
    assert CANARY not in said
    with pytest.raises(Defect, match="PRIVSYN_DEBUG=1"):
        project.using(frame_of(), version="v9")
    monkeypatch.setenv("PRIVSYN_DEBUG", "1")
    with pytest.raises(ValueError, match=CANARY):
        project.using(frame_of(), version="v9")


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]),
        pd.Series([pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02 10:00")]),
        pd.Series([1, 2]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([Decimal("1"), Decimal("2")]),
        pd.Series([uuid.UUID(int=1), uuid.UUID(int=2)]),
        pd.Series(["a", "b"], dtype="string"),
        pd.Series(["a", "b"], dtype="category"),
        pd.Series([1, 2], dtype="category"),
    ],
    ids=lambda values: f"{values.dtype}-{type(values[0]).__name__}",
)
def test_columns_of_these_types_are_ids_and_labels(tmp_path, values):
    frame = pd.DataFrame({"text": ["a", "b"], "unit": values, "label": values})
    labels = [str(value).removesuffix(" 00:00:00") for value in values.dropna()]
    for data in (frame, frame.astype(object).to_dict("records")):
        shutil.rmtree(tmp_path / "p", ignore_errors=True)
        made = privsyn.Project.create(tmp_path / "p", data, **COLUMNS | {"labels": labels})
        (found,) = made.check().files.values()
        assert found["kept"] == found["units"] == len(labels)
        assert list(found["labels"].values()) == [1] * len(labels)


def test_a_list_of_dicts_keeps_whole_numbers_where_one_is_missing(tmp_path):
    rows = [{"text": f"text {n}", "unit": 10**18 + n, "label": n % 2 == 0} for n in range(20)]
    rows.append({"text": "nobody's", "label": True})
    columns = COLUMNS | {"labels": ["true", "False"]}
    (found,) = privsyn.Project.create(tmp_path / "p", rows, **columns).check().files.values()
    assert (found["kept"], found["units"]) == (20, 20)
    assert found["labels"] == {"true": 10, "False": 10}


def test_frames_of_other_libraries_tables_and_queries_are_data(tmp_path):
    """Of polars, pyarrow and Hugging Face; a stream of batches; a Delta table; a query."""

    def broken():
        yield from table.to_batches()
        raise ValueError(f"cannot cast {CANARY}")

    rows = [{"text": f"text {n}", "unit": f"u{n % 9}", "label": "a", "x": [n]} for n in range(20)]
    table = pa.Table.from_pylist(rows)
    write_deltalake(tmp_path / "lake", table)
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        table.to_pandas()[["text", "unit", "label"]].to_sql("t", db, index=False)
    query = {"connection": f"sqlite:///{tmp_path}/a.db", "sql": "select * from t"}
    columns = {"unit": "unit", "label": "label", "labels": ["a"]}
    kinds = (polars.DataFrame(table), table, table.to_reader(), Dataset.from_list(rows),
             tmp_path / "lake", query)  # fmt: skip
    for number, data in enumerate(kinds):
        made = privsyn.Project.create(tmp_path / f"p{number}", data, **columns)
        (found,) = made.check().files.values()
        assert (found["kept"], found["units"]) == (20, 9)
        later = made.using(query, version="v2")
        assert later.check().files.keys() == {f"the query on {query['connection']}"}
    assert made.using(tmp_path / "lake", version="{table}").check()
    for bad, message in (
        (query | {"connection": f"postgresql://u:{CANARY}@h/d"}, "holds a password"),
        ({"sql": "select 1"}, "query.connection is missing"),
        (polars.DataFrame({"text": [object()], "unit": ["a"], "label": ["a"]}), "not text"),
        (pa.RecordBatchReader.from_batches(table.schema, broken()), "written as Arrow"),
    ):
        with pytest.raises(PrivsynError, match=message) as told:
            privsyn.Project.create(tmp_path / "bad", bad, **columns)
        assert CANARY not in str(told.value)
    assert not (tmp_path / "bad").exists()


def test_another_month_is_another_version_of_the_same_account(project, release):
    later = project.using(frame_of(60), version="v2")
    planned = later.plan(epsilon=8, **SETTINGS)
    assert planned.plan.dataset.version == "v2"
    assert planned.plan.account == release.plan.account
    assert 0 < planned.account.balance.share < 1
    assert planned.plan.release_id != release.name
    with pytest.raises(ConfigError, match="exists with different data"):
        project.using(frame_of(59), version="v2")
    project.using(frame_of(60), version="v2")


def test_an_account_with_other_terms_is_not_joined(project, release, tmp_path):
    twin = privsyn.Project.create(
        tmp_path / project.folder.name,
        frame_of(),
        **COLUMNS,
        protects="person",
        account={"epsilon": 50},
    )
    url = f"sqlite:///{project.folder / '.privsyn/ledger.db'}"
    with pytest.raises(AccountMismatch):
        privsyn.Project.open(twin.folder, **{"services.ledger": url}).plan(**SETTINGS)


def test_what_was_planned_is_what_is_drawn(project, release):
    planned = project.plan(epsilon=2, **SETTINGS)
    changed = planned.plan.model_copy(update={"rows": 7})
    with pytest.raises(ConfigError, match="rows changed"):
        project.release(type(planned)(**vars(planned) | {"plan": changed}), publish=False)
    assert len(project.ledger.entries()) == 1
    with pytest.raises(ConfigError, match=r"epsilon=<DataFrame> must be a number"):
        project.plan(epsilon=frame_of())


def test_a_release_opens_where_there_is_no_ledger(release, tmp_path):
    shutil.copytree(release.folder, tmp_path / release.name)
    handed = privsyn.Release.open(tmp_path / release.name)
    assert handed.frame().equals(release.frame())
    assert not handed.verify().authentic
    assert "no ledger or signature confirms who made it" in repr(handed.verify())
    with pytest.raises(ConfigError, match="opened without its project"):
        handed.more(3)
    with (handed.folder / "synthetic.jsonl").open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(VerificationError, match="artifact is unchanged"):
        handed.frame()


def seal_reports(folder, **changes):
    """Change what validation wrote as another version of privsyn would have written it."""
    page = folder / "report.json"
    page.write_text(json.dumps(json.loads(page.read_text()) | {"wording": "99.1.0.dev3+other"}))
    said = json.loads((folder / "validation.json").read_text())
    said |= {**changes, "privsyn": "99.1.0.dev3"}
    said["reports"]["report.json"] = sha256_file(page)
    del said["seal"]
    said["seal"] = certificate.seal_of(said)
    (folder / "validation.json").write_bytes(certificate.canonical(said))


def test_records_that_failed_their_suite_are_not_handed_out(release, tmp_path):
    folder = tmp_path / release.name
    shutil.copytree(release.folder, folder)
    seal_reports(folder, success=False)
    with pytest.raises(ValidationFailed, match="failed its checks"):
        privsyn.Release.open(folder).frame()
    with pytest.raises(ValidationFailed, match="failed its checks"):
        privsyn.Release.open(folder).export("csv", tmp_path / "out")


def test_create_takes_settings_by_their_dotted_names_and_keeps_them(tmp_path):
    frame = pd.DataFrame({"text": ["a", "b"], "who": ["p", "q"]})
    settings = {
        "models.language": "tiny", "privacy.epsilon": 3, "methods.private_evolution.population": 7,
        "methods.private_evolution.text.max_tokens": 9,
        "methods.private_evolution.label_split": None, "performance.rows_per_pass": 2,
        "dataset.holdout": 0.5, "alerts": [{"class": "a.B"}], "schedule.dp_lora.dag.retries": 3,
    }  # fmt: skip
    privsyn.Project.create(tmp_path / "p", frame, unit="who", texts=40, **settings)
    config = load_config(tmp_path / "p/params.yaml")
    assert (config.models.language, config.privacy.epsilon) == ("tiny", 3)
    assert config.method("private_evolution").population == 7
    assert config.method("private_evolution").text.max_tokens == 9
    assert config.method("invisible_ink").texts_per_label == 40
    assert (config.performance.rows_per_pass, config.dataset.holdout) == (2, 0.5)
    assert config.alerts == ({"class": "a.B"},)
    assert config.schedule["dp_lora"].dag["retries"] == 3
    assert "# or tiny (for tests)" in (tmp_path / "p/params.yaml").read_text()
