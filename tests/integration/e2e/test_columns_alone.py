"""A table without texts: one draw of its columns, no model, and all that follows a release."""

from __future__ import annotations

import csv
import json
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.data.artifacts import write_jsonl_atomic
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.events import load
from privsyn.errors import ConfigError, DataError, VerificationError
from privsyn.export import export
from privsyn.ledger.entries import State
from privsyn.release.plan import Plan
from privsyn.stages.check import check, count, lines
from privsyn.stages.plan import plan
from privsyn.stages.run import draw, run
from privsyn.students.more import more
from tests.integration.e2e.small_project import CANARY, LABELS, failures, reseal
from tests.integration.e2e.test_columns import DECLARED
from tests.noise import Constant

NAME = "columns_alone"


def records(people=240):
    """The channel follows the label, the age the channel; one value is a secret."""
    some = [
        {
            "unit": f"u{n}",
            "label": LABELS[n % 2],
            "age": 70 + n % 5 if n % 2 else 20 + n % 5,
            "channel": ("web", "phone")[n % 2],
            "visited": "2024-05-17",
        }
        for n in range(people)
    ]
    some[3]["channel"] = CANARY
    return some


@pytest.fixture
def table(make_project):
    def build(**changes):
        dataset = {"text": None, "columns": DECLARED} | changes.pop("dataset", {})
        methods = {NAME: {"rows_per_label": 60}}
        project = make_project(dataset=dataset, methods=methods, **changes)
        project.write(records())
        return project

    return build


def made(ctx):
    """A release, from plan to evaluation."""
    return ctx.workspace.release(run(ctx, NAME, published=False).id)


def released(folder):
    return [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]


def test_a_table_is_one_draw_of_the_whole_target_and_loads_no_model(table, monkeypatch):
    monkeypatch.setattr("privsyn.stages.draw.load_role", lambda *_: pytest.fail("a model"))
    project = table(evaluate={"by": "models"})
    ctx = project.context()
    planned = plan(ctx, NAME, open_account=True)
    event = load(planned.event)
    assert event == planned.marginals.noise.event
    assert 7.99 < guarantee(event, 1e-6).epsilon == planned.epsilon <= 8
    folder = made(ctx)
    rows = released(folder)
    assert [set(row) for row in rows] == [{"id", "label", *DECLARED}] * 120
    assert Counter(row["label"] for row in rows) == dict.fromkeys(LABELS, 60)
    of = Counter((row["label"], row["channel"]) for row in rows)
    assert of[LABELS[0], "web"] > 50 < of[LABELS[1], "phone"]
    metrics = json.loads((ctx.workspace.internal(planned.id) / "evaluation.json").read_text())
    value = {one["name"]: one["value"] for one in metrics["metrics"]}
    assert value["columns.label.real"] == value["columns.label.columns"] == 1
    assert not {name for name in value if "fit" in name or "text" in name or "both" in name}
    assert [one["name"] for one in metrics["audit"]["tests"]] == ["rare_rows"]
    page = (folder / "report.html").read_text()
    assert "120 synthetic rows" in page
    assert "rows by channel (declared: web, phone or other)" in page
    assert "visited: 2024-05" in page, "samples are rows"
    assert (
        "Do the columns follow the records?"
        in (ctx.workspace.internal(planned.id) / "report.html").read_text()
    )
    printed = json.dumps([count(ctx), [lines(ctx, one) for one in count(ctx).values()]])
    assert CANARY not in printed + json.dumps(check(ctx, count(ctx), NAME))
    files = [path for path in project.root.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == [project.data]


def test_without_a_label_the_shares_of_a_column_follow_the_counts(table):
    columns = DECLARED | {"topic": {"values": list(LABELS)}}
    project = table(
        dataset={"label": None, "labels": [], "columns": columns},
        columns={"pairs": [["topic", "age"]]},
        evaluate={"by": "nothing"},
    )
    project.write([{**one, "topic": LABELS[n % 4 == 0]} for n, one in enumerate(records())])
    ctx = project.context(f"methods.{NAME}.rows_per_label=400")
    folder = made(ctx)
    rows = released(folder)
    share = Counter(row["topic"] for row in rows)[LABELS[1]] / len(rows)
    assert share == pytest.approx(1 / 4, abs=0.08)
    assert "label" not in rows[0]


def test_its_exports_and_verification(table, tmp_path):
    project = table(evaluate={"by": "nothing"})
    ctx = project.context()
    folder = made(ctx)
    assert failures(folder, ctx.ledger) == {}
    frame = pq.read_table(export(folder, "hf", tmp_path / "hf") / "data" / "train.parquet")
    assert frame.column_names == ["id", "label", *sorted(DECLARED)]
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "tabular-classification" in card
    assert "written by a model" not in card
    assert "name: text" not in card
    with (export(folder, "csv", tmp_path / "csv") / "train.csv").open() as stream:
        assert next(csv.reader(stream)) == frame.column_names
    export(folder, "webdataset", tmp_path / "wds")
    further = more(ctx, folder.name, 30, published=False)
    assert [set(row) for row in released(further)] == [{"id", "label", *DECLARED}] * 30
    assert failures(further, ctx.ledger) == {}
    forge(folder, "diagnosis")


def test_a_text_that_no_method_draws_does_not_verify(table):
    """Nor where the certificate says that the dataset has texts."""
    ctx = table(evaluate={"by": "nothing"}).context()
    folder = made(ctx)
    forge(folder, "text")
    forge(folder, "messages", text="notes")


def forge(folder, field, **dataset):
    """Rows with one field more, sealed anew by whoever forged it, do not verify."""
    sealed = json.loads((folder / "certificate.json").read_text())
    sealed["plan"]["dataset"] |= dataset
    rows = [row | {field: "flu"} for row in released(folder)]
    written = write_jsonl_atomic(folder / "synthetic.jsonl", rows)
    sealed["artifact"] |= {"sha256": written.sha256, "rows": len(rows)}
    reseal(folder, sealed)
    assert field in failures(folder)["artifact has the declared fields"]


def test_what_is_paid_for_after_a_table_is_in_its_event(table):
    """No setting asks for it; the price of a plan that does must not leave it out."""
    planned = plan(table().context(), NAME, open_account=True)
    paid = planned.model_copy(update={"paid_epsilon": 1.0})
    whole = paid.mechanism().whole
    assert whole.events == (planned.marginals.noise.event, paid.accuracy.event)


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_counts_that_somebody_edited_make_no_further_rows(table, change):
    ctx = table(evaluate={"by": "nothing"}).context()
    folder = made(ctx)
    file = folder / "exhibits" / "columns.json"
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    if change == "remove":
        file.unlink()
    with pytest.raises(VerificationError, match="exhibits"):
        more(ctx, folder.name, 3, published=False)
    assert [one.name for one in folder.parent.iterdir()] == [folder.name], "nothing half-written"


def test_columns_that_no_draw_pays_for_are_no_plan(table):
    planned = plan(table().context(), NAME, open_account=True).model_dump(mode="json")
    for changes in ({"columns": None}, {"dataset": planned["dataset"] | {"columns": {}}}):
        with pytest.raises(ValueError, match="pays for dataset"):
            Plan.model_validate(planned | changes)
    Plan.model_validate(planned)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_every_adjacency_pays_for_its_table(table, adjacency):
    account = {"adjacency": adjacency.value, "name": "letters", "unit": "person"}
    project = table(account=account)
    planned = plan(project.context(), NAME)
    moves = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    l2 = (moves * 3 * 2) ** 0.5  # three columns, two records a unit
    assert planned.marginals.noise.sensitivity == pytest.approx(l2 * 2**20, rel=1e-6)
    assert planned.epsilon <= 8


@pytest.mark.parametrize(
    ("overrides", "method", "said"),
    [
        (["dataset.columns={}"], NAME, "declare its columns"),
        (["dataset.roles=[user, assistant]"], NAME, "roles are of a conversation"),
        (["evaluate.paid.epsilon=1"], NAME, "classifier of texts"),
        (["dataset.text=text"], NAME, "draws rows, and dataset letters holds texts"),
        ([], "invisible_ink", "Use columns_alone"),
        ([f"methods.{NAME}.rows_per_label=0"], NAME, "rows_per_label"),
    ],
)
def test_what_cannot_be_a_table_is_refused_in_words(table, overrides, method, said):
    project = table()
    with pytest.raises(ConfigError) as refused:
        plan(project.context(*overrides), method)
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_a_file_without_a_declared_column_is_refused_before_anything_is_spent(table):
    project = table()
    project.write([{"unit": one["unit"], "label": one["label"]} for one in records()])
    ctx = project.context()
    planned = plan(ctx, NAME, open_account=True)
    with pytest.raises(DataError, match="age"):
        run(ctx, NAME)
    entry = ctx.ledger.releases.find(planned.id)
    assert entry is None or entry.state in (State.VOID, State.RESERVED)


def test_a_frame_becomes_a_table_from_python(tmp_path):
    frame = pd.DataFrame(records()).drop(columns="label")
    made = {"unit": "unit", "text": None, "columns": {"age": "0 to 100", "channel": "web,phone"}}
    project = privsyn.Project.create(
        tmp_path / "made", frame, **made, **{"evaluate.by": "nothing"}, texts=50
    )
    release = project.release(project.plan(epsilon=3))
    assert list(release.frame().columns) == ["id", "age", "channel"]
    assert len(release.frame()) == 50
    with pytest.raises(ConfigError, match="argument columns is missing"):
        privsyn.Project.create(tmp_path / "no", frame, unit="unit", text=None)


WEIRD = (
    10**400, [[]], {"age": 1}, "\ud800", "word " * 3000, float("nan"), True, "2024-13-45", None,
)  # fmt: skip
"""What a record may hold where a value is expected."""


def test_no_value_of_a_record_changes_a_public_file_or_a_log(make_project, monkeypatch, caplog):
    """With noise that drowns everything, neighbors give the same bytes, chosen pairs included."""
    seeded = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda *_: seeded(5))  # public randomness

    def public(number, changes):
        project = make_project(
            f"project{number}",
            dataset={"text": None, "columns": DECLARED},
            methods={NAME: {"rows_per_label": 20}},
            columns={"pairs": "auto"},
            evaluate={"by": "nothing"},
        )
        some = records(40)
        some[7] |= changes
        project.write(some)
        ctx = project.context()
        ctx.noise = Constant
        caplog.clear()
        planned = plan(ctx, NAME, open_account=True)
        draw(ctx, planned)
        folder = ctx.workspace.release(planned.id)
        told = "\n".join(record.getMessage() for record in caplog.records)
        names = ("synthetic.jsonl", "exhibits/columns.json")
        # The account's key has a name by chance, which is in the release's.
        contents = ((folder / name).read_text().replace(planned.id, "") for name in names)
        return told.replace(planned.id, ""), *contents

    first = public(0, {})
    for number, value in enumerate(WEIRD, 1):
        assert public(number, dict.fromkeys(DECLARED, value)) == first
