"""privsyn check, and the look before anything is spent: counts for the owner, one bit, no text."""

from __future__ import annotations

import json
import subprocess

import pytest

from privsyn.errors import DataError
from privsyn.methods.base import Backends
from privsyn.stages.check import check, count, counts_line, lines
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.reserve import settle
from tests.integration.e2e.small_project import CANARY, LABELS, reserve_release, rows, stand_ins


def advised(ctx, method="invisible_ink"):
    return " ".join(check(ctx, count(ctx), method))


def begun(ctx):
    planned = reserve_release(ctx)
    return planned, partition(ctx, planned)


UNUSABLE = {
    "case": lambda row: row | {"label": row["label"].upper()},
    "null label": lambda row: row | {"label": None},
    "null unit": lambda row: row | {"unit": None},
    "nested unit": lambda row: row | {"unit": {"id": 1}},
    "number": lambda row: row | {"text": 7},
    "blank": lambda row: row | {"text": " "},
    "another label": lambda row: row | {"label": CANARY},
}


@pytest.mark.parametrize("change", UNUSABLE.values(), ids=UNUSABLE)
def test_a_release_of_no_record_is_refused_before_it_begins(make_project, change):
    project = make_project()
    project.write([change(row | {"text": f"{row['text']} {CANARY}"}) for row in rows(48, 20)])
    ctx = project.context()
    with pytest.raises(DataError, match="no record that this release can use") as caught:
        begun(ctx)
    assert not caught.value.retryable
    assert CANARY not in str(caught.value)
    (entry,) = ctx.ledger.releases.all()
    assert entry.state == "RESERVED"
    assert settle(ctx, plan(ctx, "invisible_ink")) == "VOID"
    assert ctx.ledger.accounts.balance("letters").spent == 0
    assert not ctx.workspace.internal(entry.release_id).exists()


def test_held_out_records_alone_are_none_and_that_may_be_why_is_said(make_project):
    project = make_project()
    with pytest.raises(DataError, match="no record that this release can use") as caught:
        begun(project.context("dataset.holdout=0.999999"))
    assert "dataset.holdout=0.999999 sets aside all there is" in str(caught.value)
    project.write([row | {"label": "x"} for row in rows(48, 20)])
    with pytest.raises(DataError) as caught:
        begun(project.context("dataset.holdout=0"))
    assert "holdout" not in str(caught.value)


def test_counts_hold_no_text_unit_or_undeclared_label(make_project):
    project = make_project()
    written = [
        row | {"text": f"{row['text']} {CANARY}", "unit": row["unit"] + CANARY}
        for row in rows(48, 20)
    ]
    written[0]["label"] = "billing"
    written[1]["label"] = CANARY
    written[2]["text"] = ""
    written[3]["text"] += f" {written[3]['unit'].upper()}"
    project.write(written)
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert not (project.root / ".privsyn").exists(), "a check costs and writes nothing"
    assert counts["own_ids"] == 1
    assert "1 texts hold the id of their own unit, as in 'unit'" in advised(ctx)
    assert (counts["rows"], counts["kept"], counts["dropped"]) == (48, 45, 3)
    assert counts["reasons"] == {
        "label: differs from 'Billing' by capitals, spaces or punctuation alone": 1,
        "label: not declared": 1,
        "text: missing or empty": 1,
    }
    assert sum(counts["labels"].values()) == 45
    assert set(counts["labels"]) == set(LABELS)
    assert (counts["units"], counts["records_per_unit_at_most"]) == (20, 3)
    assert counts["records_above_the_bound"] == sum(
        3 - 2 for _ in range(counts["units_above_the_bound"])
    )
    said = json.dumps(counts) + json.dumps(lines(ctx, counts)) + advised(ctx)
    assert CANARY not in said
    assert "dataset.max_records_per_unit" in said
    left = 45 - counts["records_above_the_bound"]
    assert lines(ctx, counts)["used"].startswith(f"{left} texts, some {left / 4:.0f} of them kept")


def test_a_partition_keeps_its_counts_for_the_owner_alone(make_project):
    project = make_project()
    project.write([*rows(48, 20), {"unit": "u", "label": "secret", "text": "t"}])
    ctx = project.context()
    planned, shards = begun(ctx)
    folder = ctx.workspace.internal(planned.id)
    found = json.loads((folder / "check.json").read_text())
    (counts,) = count(ctx).values()
    assert found == {"class": "internal"} | counts
    assert (folder / "check.json").stat().st_mode & 0o077 == 0
    assert counts_line(folder, planned) == (
        "48 of 49 rows can be used, 40 after at most 2 a person; dropped most often: 1, label: "
        "not declared. All reasons: privsyn check"
    )
    before = (folder / "check.json").read_bytes()
    project.write([row | {"label": "x"} for row in rows(48, 20)])
    # A begun release is not looked at again, and nothing is counted where it is there already.
    assert partition(project.context(), planned) == shards
    assert (folder / "check.json").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "settings and number of records fit."),
        (("methods.invisible_ink.batch_size=400",), "buckets of batch_size=400 suit some"),
        (("methods.invisible_ink.batch_size=400",), "and the private file leaves"),
        (("models.language=/no/such/model",), None),
    ],
)
def test_settings_are_weighed_against_the_records_that_are_there(make_project, settings, said):
    ctx = make_project().context(*settings)
    found = [one for one in check(ctx, count(ctx), "invisible_ink") if said and said in one]
    assert len(found) == (said is not None)


def people(count, people):
    return [
        row | {"visit": f"v{number}", "patient no.": f"p{number % people}", "sex": "fm"[number % 2]}
        for number, row in enumerate(rows(count, people))
    ]


@pytest.mark.parametrize("unit", ["visit", None])
def test_ids_of_rows_are_noticed_where_another_column_names_people(make_project, unit):
    own = {"unit": unit, "max_records_per_unit": 1}
    account = {"unit": "visit"} if unit else {"unit": "record", "adjacency": "replace_null"}
    project = make_project(dataset=own, account=account)
    project.write(people(60, 25))
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert counts["other_units"] == ["patient no."]
    said = advised(ctx)
    assert "the file has 'patient no.'" in said
    assert "'sex'" not in said
    assert ("'visit' has 60 ids on 60 rows" in said) == (unit is not None)
    assert ("rows, not people, are protected" in said) == (unit is None)
    assert "p1" not in json.dumps(counts)


@pytest.mark.parametrize("inside", [".", "records"])
def test_a_private_file_under_version_control_is_said_with_the_step(make_project, caplog, inside):
    """To whoever counts, and again before anything is spent."""
    project = make_project()
    folder = project.root / inside
    folder.mkdir(exist_ok=True)
    path = f"{inside}/messages.jsonl".removeprefix("./")
    project.data.rename(folder / "messages.jsonl")
    ctx = project.context(f"dataset.path={path}")
    git = ["git", "-C", str(project.root)]
    subprocess.run([*git, "init", "-q"], check=True)
    assert "is tracked" not in advised(ctx)
    subprocess.run([*git, "add", "--force", path], check=True)
    said = f"dataset.path={path} is tracked by git: whoever gets the repository gets the records"
    assert said in advised(ctx)
    assert f"git rm -r --cached {path}" in advised(ctx)
    planned = reserve_release(ctx)
    preflight(ctx, planned, Backends(stand_ins()))
    assert said in caplog.text
    subprocess.run([*git, "rm", "-r", "-q", "--cached", path], check=True)
    assert "is tracked" not in advised(ctx)
    (project.root / f"{inside if inside != '.' else path}.dvc").write_text("outs: []")
    assert "is tracked by DVC" in advised(ctx)


@pytest.mark.parametrize("method", ["invisible_ink", "private_evolution", "dp_lora"])
def test_advice_by_exact_counts_names_no_number_to_set(make_project, method):
    from tests.integration.e2e.small_project import METHODS

    big = {
        "invisible_ink": {"batch_size": 400},
        "private_evolution": {"population": 400},
        "dp_lora": {"expected_batch": 800},
    }
    project = make_project(methods={method: METHODS[method] | big[method]})
    ctx = project.context()
    [said] = [one for one in check(ctx, count(ctx), method) if " at most: " in one]
    assert "Settings are published, so take the new number from what was known" in said
    advised = said[said.index(" at most: ") :]
    assert not any(letter.isdigit() for letter in advised), advised


def test_ids_that_may_be_of_one_person_are_counted_and_not_merged(make_project):
    """By case, width, spaces or zeros alone."""
    project = make_project()
    ids = ["Ann", "ann", "ANN", "\uff21nn", "a nn", "007", "7", "Bea", "12.0", "1.2e+05"]
    texts = [row | {"unit": unit} for row, unit in zip(rows(len(ids), 20), ids, strict=True)]
    project.write(texts)
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert (counts["kept"], counts["units"], counts["units_alike"]) == (10, 10, 5)
    said = advised(ctx)
    assert "5 people have an id that differs from another by case" in said
    project.write([row | {"unit": "9e+18"} if n == 3 else row for n, row in enumerate(texts)])
    with pytest.raises(DataError, match="lose the last digits"):
        count(project.context())


def test_a_file_whose_rows_run_together_is_refused_before_anything_is_spent(make_project):
    """Also where the first record is fine."""
    project = make_project(dataset={"path": "private.csv"})
    lines = [f'"{r["unit"]}","{r["label"]}","{r["text"]}"' for r in rows(48, 20)]
    lines[30] = lines[30][:-1] + f' {CANARY} 27\\""'
    text = "\n".join(["unit,label,text", *lines, ""])
    (project.root / "private.csv").write_text(text)
    ctx = project.context()
    with pytest.raises(DataError, match="cannot be separated") as caught:
        begun(ctx)
    assert CANARY not in str(caught.value)
    (entry,) = ctx.ledger.releases.all()
    assert entry.state == "RESERVED"
    assert settle(ctx, plan(ctx, "invisible_ink")) == "VOID"
    assert ctx.ledger.accounts.balance("letters").spent == 0
    with pytest.raises(DataError, match="cannot be separated"):
        count(ctx)


def test_columns_are_counted_and_half_of_them_outside_is_said(make_project):
    project = make_project()
    long = f"the quick brown fox jumps over {CANARY} lazy dogs"
    beside = [
        {"age": 20 + n % 70, "channel": "web" if n % 2 else "fax", "note": long} for n in range(960)
    ]
    project.write([row | more for row, more in zip(rows(48, 20), beside, strict=False)])
    declared = {
        "age": {"range": [18, 95]},
        "channel": {"values": ["web", "phone"]},
        "note": {"values": ["a"]},
    }
    ctx = project.context(f"dataset.columns={json.dumps(declared)}")
    ((_, counts),) = count(ctx).items()
    kept = counts["kept"]
    assert counts["columns"]["channel"]["other"] == kept // 2
    table = lines(ctx, counts)
    assert table["column age"] == "0 other (0.0%), 0 missing (0.0%)"
    assert table["column channel"] == f"{kept // 2:,} other (50.0%), 0 missing (0.0%)"
    said = advised(ctx)
    assert "eight words or more in note" in said
    assert CANARY not in said + str(table)
    assert "another value in channel than is declared" in said
    assert "and fewer of Billing, Symptoms are used: most of their rows are noise" in said
    cheap = advised(
        project.context("dataset.columns={channel: {values: [web]}}", "columns.share=0.9")
    )
    assert "rows are noise" not in cheap
