"""Columns that no file has: a local model answers them, of each record by itself."""

from __future__ import annotations

import json

import pytest

from privsyn.data.columns import Column
from privsyn.data.partition import load_shard
from privsyn.errors import ConfigError, DataError, ModelError
from privsyn.methods.base import Backends
from privsyn.models.loading import load_role
from privsyn.release.plan import Plan, release_id
from privsyn.report import verification
from privsyn.stages import draw
from privsyn.stages.check import check, count, lines
from privsyn.stages.evaluate import evaluate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import CANARY, METHODS, reserve_release, rows, stand_ins
from tests.integration.e2e.test_columns import drawn
from tests.noise import NoNoise

URGENT = {"values": ["yes", "no"], "ask": "Is the message urgent?"}
ASKED = {"channel": {"values": ["web", "phone"]}, "urgent": URGENT}


def records():
    some = [record | {"channel": "web"} for record in rows(120, 60)]
    some[5]["text"] += f" {CANARY}"
    some[6]["text"] = "please help with the bill " * 400
    return some


@pytest.fixture
def asking(make_project):
    def build(method="keyphrase_seeding", columns=ASKED, **changes):
        evaluate = {"evaluate": {"by": "words"}}
        dataset = {"columns": columns} | changes.pop("dataset", {})
        project = make_project(
            methods={method: METHODS[method]}, dataset=dataset, **(evaluate | changes)
        )
        project.write(records())
        return project

    return build


def answers_in(ctx, planned):
    """Text -> cells, of the records in the buckets of a release."""
    release = draw.open_plan(ctx, planned)
    files = 1 if release.method.whole else 2
    folder = ctx.workspace.scratch(planned.id) / "buckets"
    return {
        text: row
        for shard in range(files)
        for bucket in load_shard(folder, shard, release.cells, files)
        for text, row in zip(bucket.contents.reveal(), bucket.rows.reveal(), strict=True)
    }


def test_each_text_of_a_release_has_an_answer_and_every_paper_the_question(asking):
    project = asking()
    ctx, planned, folder = drawn(project, "keyphrase_seeding", NoNoise)
    released = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert {"yes", "no"} & {row["urgent"] for row in released}
    certificate = json.loads((folder / "certificate.json").read_text())["plan"]
    assert certificate["dataset"]["columns"]["urgent"]["ask"] == URGENT["ask"]
    assert certificate["answers"] == "privsyn-answers/1"
    assert certificate["models"]["answers"]["source"] == "tiny"
    checks = verification.verify(folder, ctx.ledger)
    assert not [one for one in checks if one.passed is False]
    metrics = json.loads((evaluate(ctx, planned) / "evaluation.json").read_text())["metrics"]
    apart = {one["name"]: one["value"] for one in metrics}["columns.apart.urgent"]
    assert apart < 0.9, "held-out records were asked, too"
    files = [path for path in project.root.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == [project.data]


def test_what_else_is_in_the_file_changes_no_answer(asking):
    answers, project = [], asking(account={"epsilon": 90.0})
    some = [record | {"text": f"{record['text']} {n}"} for n, record in enumerate(records())]
    for version, part in enumerate((some, some[:6] + some[9:][::-1], some[5:6])):
        project.write(part)
        ctx = project.context("dataset.holdout=0", f"dataset.version=v{version}")
        planned = reserve_release(ctx, "keyphrase_seeding")
        partition(ctx, planned)
        answers.append(answers_in(ctx, planned))
    every, fewer, one = answers
    model = load_role(ctx.config.models, "answers", ctx.config.performance)
    assert len(every) == 120
    assert fewer.items() < every.items()
    assert len(one) == 1
    assert one.items() < every.items()
    for text, row in every.items():
        assert row == (0, model.answer(Column(**URGENT), text))


def test_check_counts_answers_and_shows_no_text(asking, capsys):
    ctx = asking().context()
    ((_, counts),) = count(ctx).items()
    assert sum(counts["answers"]["urgent"].values()) == counts["kept"] == 120
    assert "urgent" not in counts["columns"]
    assert "yes" in lines(ctx, counts)["column urgent"]
    said = json.dumps([counts, lines(ctx, counts), check(ctx, {"a": counts}, "keyphrase_seeding")])
    assert CANARY not in said + "".join(capsys.readouterr())


def test_a_release_that_goes_on_asks_only_once(asking, monkeypatch):
    """Killed between the partition and the draw, it needs no model any more."""
    ctx = asking().context()
    planned = reserve_release(ctx, "keyphrase_seeding")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("privsyn.stages.partition.draw_columns", killed)
        with pytest.raises(KeyboardInterrupt):
            partition(ctx, planned)
    before = answers_in(ctx, planned)
    with monkeypatch.context() as patch:
        patch.setattr(draw, "load_role", killed)
        partition(ctx, planned)
    assert answers_in(ctx, planned) == before


def test_the_question_and_the_model_are_part_of_the_release(asking):
    ctx = asking().context()
    planned = plan(ctx, "keyphrase_seeding", open_account=True)
    fields = planned.model_dump(mode="json")
    names = {release_id(fields)}
    for change in (
        {"answers": "privsyn-answers/2"},
        {"models": fields["models"] | {"answers": fields["models"]["answers"] | {"revision": "x"}}},
        {"dataset": fields["dataset"] | {"columns": ASKED | {"urgent": URGENT | {"ask": "Why?"}}}},
    ):
        names.add(release_id(fields | change))
    assert len(names) == 4
    for edited in ({"answers": None}, {"models": {}}):
        with pytest.raises(ValueError, match="go with columns that are asked"):
            Plan.model_validate(fields | edited)


def test_releases_that_ask_nothing_keep_their_names(asking):
    project = asking(columns={"channel": ASKED["channel"]})
    planned = plan(project.context(), "keyphrase_seeding", open_account=True)
    fields = planned.model_dump(mode="json")
    assert "answers" not in fields
    assert fields["dataset"]["columns"]["channel"].keys() == {
        "values", "range", "bins", "decimals", "dates", "by"
    }  # fmt: skip


def test_a_server_does_not_see_records_and_the_local_model_answers(asking):
    server = {"language": "tiny", "server": {"url": "http://localhost:1/v1", "model": "big"}}
    planned = plan(asking(models=server).context(), "keyphrase_seeding")
    assert planned.models["answers"].source == "tiny"
    assert planned.models["text"].source == "big at localhost:1"


@pytest.mark.parametrize(
    ("columns", "dataset", "said"),
    [
        ({"urgent": {"range": [0, 9], "ask": "How urgent?"}}, {}, "ask needs values"),
        ({"urgent": {"values": ["yes"], "ask": "Urgent?"}}, {}, "two or more"),
        ({"urgent": URGENT | {"ask": "{label}?"}}, {}, "one line without braces"),
        ({"urgent": URGENT | {"ask": " "}}, {}, "one line without braces"),
        ({"urgent": URGENT | {"values": ["a\nb", "c"]}}, {}, "one line without braces"),
        ({"urgent": URGENT}, {"text": None}, "a question needs a text"),
        ({"urgent": URGENT}, {"images": {"size": 8}}, "columns stand beside texts"),
    ],
)
def test_a_question_without_a_text_or_answers_is_refused(asking, columns, dataset, said):
    with pytest.raises(ConfigError, match=said):
        asking(columns=columns, dataset=dataset).context()


def test_a_column_of_the_file_is_not_asked(asking):
    project = asking()
    project.write([record | {"urgent": "no"} for record in records()])
    ctx = project.context()
    with pytest.raises(DataError, match=r"'urgent' \(dataset.columns, with ask\) is in"):
        count(ctx)
    planned = reserve_release(ctx, "keyphrase_seeding")
    with pytest.raises(DataError, match="Leave ask out"):
        partition(ctx, planned)
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
    # A key of one record decides nothing.
    some = records()
    some[3]["urgent"] = "no"
    project.write(some)
    assert count(ctx)


def test_without_the_local_model_nothing_is_spent(asking, tmp_path):
    project = asking()
    with pytest.raises(ModelError, match=r"models.language"):
        plan(project.context(f"models.language={tmp_path}/none"), "keyphrase_seeding")
    ctx = project.context()
    planned = plan(ctx, "keyphrase_seeding", open_account=True)
    reserve(ctx, planned)
    other = planned.model_copy(
        update={"models": planned.models | {"answers": planned.models["text"].model_copy(
            update={"revision": "other"})}}
    )  # fmt: skip
    with pytest.raises(ModelError, match="the answers model is not the one"):
        preflight(ctx, other, Backends(stand_ins()))
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
