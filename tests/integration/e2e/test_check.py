"""privsyn check, and the look before anything is spent: counts for the owner, one bit, no text."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest

from privsyn.errors import DataError
from privsyn.methods.base import Backends
from privsyn.stages.check import check, count, counts_line, lines
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.reserve import reserve, settle
from tests.integration.e2e.small_project import CANARY, LABELS, rows, stand_ins


def advised(ctx, method="invisible_ink"):
    """What a check advises, on one line."""
    return " ".join(check(ctx, count(ctx), method))


def begun(ctx):
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
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


@pytest.mark.parametrize(
    ("count", "holdout", "few", "aside"),
    [(1, 0.2, True, True), (1, 0, True, False), (48, 0.2, True, False), (400, 0.2, False, False)],
)
def test_a_check_says_that_records_are_too_few(make_project, count, holdout, few, aside):
    project = make_project()
    project.write(rows(count, count))
    ctx = project.context(f"dataset.holdout={holdout}")
    said = advised(ctx)
    assert ("fewer than 100 records are too few" in said) is few
    assert ("dataset.holdout=0.2 may even set all records aside" in said) is aside


def test_a_check_says_that_the_models_know_english_alone(make_project):
    project = make_project()
    german = "Guten Tag, ich brauche in dieser Woche noch einen Termin bei Ihnen."
    project.write([row | {"text": f"{german} {CANARY}"} for row in rows(200, 100)])
    ctx = project.context()
    said = advised(ctx)
    assert "tiny, the default prompts and the embedder know English alone: docs/models.md" in said
    assert CANARY not in said
    for own in ({"language": "models/their-own"}, {"server": "http://127.0.0.1:9"}):
        models = ctx.config.models.model_copy(update=own)
        theirs = replace(ctx, config=ctx.config.model_copy(update={"models": models}))
        assert "know English alone" not in advised(theirs)
    project.write(rows(200, 100))
    assert "know English alone" not in advised(ctx)


def test_a_begun_release_is_not_looked_at_again(make_project):
    project = make_project()
    planned, shards = begun(project.context())
    project.write([row | {"label": "x"} for row in rows(48, 20)])
    assert partition(project.context("dataset.same_source=true"), planned) == shards


def test_counts_hold_no_text_unit_or_undeclared_label(make_project):
    project = make_project()
    written = [
        row | {"text": f"{row['text']} {CANARY}", "unit": row["unit"] + CANARY}
        for row in rows(48, 20)
    ]
    written[0]["label"] = "billing"
    written[1]["label"] = CANARY
    written[2]["text"] = ""
    project.write(written)
    ctx = project.context()
    (counts,) = count(ctx).values()
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


def test_a_check_costs_and_writes_nothing(make_project):
    project = make_project()
    count(project.context())
    assert not (project.root / ".privsyn").exists()


def test_a_partition_keeps_its_counts_for_the_owner_alone(make_project):
    project = make_project()
    project.write([*rows(48, 20), {"unit": "u", "label": "secret", "text": "t"}])
    ctx = project.context()
    planned, _ = begun(ctx)
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
    partition(project.context(), planned)  # nothing is counted where it is there already
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


def test_a_label_that_nobody_has_and_one_that_is_written_in_two_ways_are_named(make_project):
    project = make_project()
    project.write([*rows(48, 20), *(row | {"label": LABELS[0].lower()} for row in rows(4, 2))])
    ctx = project.context(f"dataset.labels={json.dumps([*LABELS, 'Nobody', 'Nothing'])}")
    (counts,) = count(ctx).values()
    said = lines(ctx, counts)
    assert (said["label Nobody"], said["label Nothing"]) == ("0", "0")
    assert "no record has one of these labels: Nobody, Nothing. Their texts would" in advised(ctx)
    assert advised(ctx).count("made of noise") == 1
    assert "They are dropped: correct them in the file." in said["  reason 1"]


def people(count: int, people: int) -> list[dict[str, str]]:
    """Rows with an id of their own, of fewer people."""
    return [
        row | {"visit": f"v{number}", "patient no.": f"p{number % people}", "sex": "fm"[number % 2]}
        for number, row in enumerate(rows(count, people))
    ]


@pytest.mark.parametrize("unit", ["visit", None])
def test_ids_of_rows_are_noticed_where_another_column_repeats(make_project, unit):
    own = {"unit": unit, "max_records_per_unit": 1}
    account = {"unit": "visit"} if unit else {"unit": "record", "adjacency": "replace_null"}
    project = make_project(dataset=own, account=account)
    project.write(people(60, 25))
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert counts["other_units"] == {"patient no.": 25, "unit": 25}
    said = advised(ctx)
    assert "'patient no.' has 25 values on 60 rows" in said
    assert "'sex'" not in said
    assert ("'visit' has 60 ids on 60 rows" in said) == (unit is not None)
    assert ("rows, not people, are protected" in said) == (unit is None)
    assert "p1" not in json.dumps(counts)


@pytest.mark.parametrize("named", ["patient no.", "written by"])
def test_ids_of_rows_are_noticed_though_an_export_doubled_some(make_project, named):
    """And one bad row has no id: whoever made the file kept to no exact rule."""
    project = make_project(
        dataset={"unit": "visit", "max_records_per_unit": 1},
        account={"unit": "patient", "public_size": 25},
    )
    once = [row | {named: row.pop("patient no.")} for row in people(60, 25)]
    project.write([*once, *once[:7], once[0] | {"visit": None}])
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert (counts["units"], counts["kept"]) == (60, 67)
    said = advised(ctx)
    assert "'visit' has 60 ids on 67 rows, so it may be the id of a row" in said
    assert f"{named!r} has 25 values on 67 rows" in said
    assert "you said about 25 patients" in said
    assert "the file has 60 ids in 'visit': is this the id of patients?" in said


def test_a_day_or_a_place_of_people_is_no_id_of_theirs(make_project):
    """Of whoever writes more than once a day says nothing, however few days there are."""
    project = make_project(dataset={"unit": "patient no.", "max_records_per_unit": 1})
    visits = [row | {"day": f"d{n % 17}", "unit": ""} for n, row in enumerate(people(60, 35))]
    project.write(visits)
    (counts,) = count(project.context()).values()
    assert counts["other_units"] == {}


def test_a_bound_says_whether_a_larger_one_would_keep_more(make_project):
    project = make_project(dataset={"max_records_per_unit": 1})
    project.write(rows(48, 20))  # 8 people with 3, 12 with 2
    said = advised(project.context())
    assert "leaves 28 texts out. A bound of 2 would use 2.0 times as many; 3 would use 2.4" in said
    assert "suits this file" not in said
    project.write([*rows(20, 20), *({"unit": "u0", "label": LABELS[0], "text": "x"},) * 20])
    said = advised(project.context())
    assert "texts out" not in said
    assert "max_records_per_unit=1 suits this file: a bound of 2 would use 1.1 times as" in said


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
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    preflight(ctx, planned, Backends(stand_ins()))
    assert said in caplog.text
    subprocess.run([*git, "rm", "-r", "-q", "--cached", path], check=True)
    assert "is tracked" not in advised(ctx)
    (project.root / f"{inside if inside != '.' else path}.dvc").write_text("outs: []")
    assert "is tracked by DVC" in advised(ctx)


def test_every_face_says_what_a_check_says(make_project, capsys, monkeypatch):
    from privsyn import Project
    from privsyn.cli.commands import app

    project = make_project(methods={"invisible_ink": {"batch_size": 400, "texts_per_label": 3}})
    monkeypatch.chdir(project.root)
    opened = Project.open(project.root)
    wanted = check(project.context(), count(project.context()), "invisible_ink")
    assert any("3 of each of 2 labels, whatever their shares in the records" in s for s in wanted)
    assert any("suit some" in one for one in wanted)
    assert any("too few records of" in one for one in wanted)
    counted = opened.check()
    assert list(counted.advice) == wanted
    app(["check", "--json"], standalone_mode=False)
    as_json = capsys.readouterr().out
    app(["check"], standalone_mode=False)
    printed = capsys.readouterr().out
    for one in wanted:
        assert one in printed.replace("\n", " ")
        assert one in repr(counted)
    assert json.dumps(counted.as_json(), indent=2) in as_json


def test_ids_of_people_are_not_suspected(make_project):
    project = make_project(dataset={"unit": "patient no.", "max_records_per_unit": 1})
    project.write(people(60, 25))
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert "other_units" not in counts
    project.write(people(60, 60))  # all write once, and no other column repeats
    (counts,) = count(project.context()).values()
    assert counts["other_units"] == {}
    assert "may be the id of a row" not in advised(project.context())


def test_records_that_are_far_longer_than_the_texts_are_said(make_project):
    project = make_project()
    project.write([row | {"text": "word " * 4000} for row in rows(48, 20)])
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert lines(ctx, counts)["length"] == "half of the texts have 4,000 words or more"
    assert "methods.invisible_ink.max_tokens=6 tokens" in advised(ctx)
    project.write([row | {"text": "Please call me."} for row in rows(48, 20)])
    assert "max_tokens" not in advised(project.context())


def test_one_label_far_smaller_than_the_others_is_said(make_project):
    project = make_project(methods={"invisible_ink": {"batch_size": 20, "texts_per_label": 3}})
    many = [row | {"label": LABELS[0], "unit": f"a{n}"} for n, row in enumerate(rows(150, 150))]
    few = [row | {"label": LABELS[1], "unit": f"b{n}"} for n, row in enumerate(rows(30, 30))]
    project.write([*many, *few])
    ctx = project.context()
    [said] = [one for one in check(ctx, count(ctx), "invisible_ink") if "too few records of" in one]
    assert f"too few records of {LABELS[1]}" in said
    assert LABELS[0] not in said
    assert "Settings are published" in said


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


def test_what_helps_first_is_said_before_money_is_spent(make_project):
    project = make_project()
    found = advised(project.context())
    assert "dataset.document is not set" in found
    assert "models.language=tiny" in found
    planned = plan(project.context(), "invisible_ink")
    assert [note for note in planned.warnings if "dataset.document" in note]
    document = "dataset.document=a letter to a clinic"
    assert "dataset.document" not in advised(project.context(document))
    german = "dataset.document=Beschwerde eines Kunden"
    for told in (
        advised(project.context(german)),
        " ".join(plan(project.context(german), "invisible_ink").warnings),
    ):
        assert "another language than English" in told


def test_ids_that_may_be_of_one_person_are_counted_and_not_merged(make_project):
    """By case, width, spaces or zeros alone; and ids that went through floats are told."""
    project = make_project()
    ids = ["Ann", "ann", "ANN", "\uff21nn", "a nn", "007", "7", "Bea", "12.0", "1.2e+05"]
    texts = [row | {"unit": unit} for row, unit in zip(rows(len(ids), 20), ids, strict=True)]
    project.write(texts)
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert (counts["kept"], counts["units"], counts["units_alike"]) == (10, 10, 5)
    said = advised(ctx)
    assert "5 people have an id that differs from another by case" in said
    assert "2 ids are written as floats are" in said
    project.write([row | {"unit": "9e+18"} if n == 3 else row for n, row in enumerate(texts)])
    with pytest.raises(DataError, match="lose the last digits"):
        count(project.context())


def test_of_ids_that_are_apart_nothing_is_said(make_project):
    project = make_project()
    project.write([row | {"unit": f"{n}.5 e{n}"} for n, row in enumerate(rows(12, 20))])
    ctx = project.context()
    (counts,) = count(ctx).values()
    assert "write their ids alike" not in advised(ctx)
    assert "written as floats" not in advised(ctx)
    assert counts["units"] == 12


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
