"""Records with columns, by every method: one draw before the generator, a row for every text."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from privsyn.columns.settings import ColumnsConfig
from privsyn.dp.accountant import guarantee, rho
from privsyn.dp.calibration import calibrate_rho
from privsyn.dp.events import load
from privsyn.errors import ConfigError, VerificationError
from privsyn.methods.base import Backends
from privsyn.models.rows import row_slots, split_row
from privsyn.models.training import causal_lm
from privsyn.release.workdir import COLUMNS, journal_file, part_name
from privsyn.report import verification
from privsyn.stages import columns as stage
from privsyn.stages.certify import certify
from privsyn.stages.check import check, count, lines
from privsyn.stages.columns import further_rows
from privsyn.stages.draw import generate, train
from privsyn.stages.evaluate import evaluate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.validate import validate
from privsyn.students.more import more
from privsyn.students.release import distill
from tests.integration.e2e.small_project import CANARY, METHODS, rows, stand_ins
from tests.integration.e2e.test_distill_stage import save_tiny, settings
from tests.integration.e2e.test_kills import ended, killed
from tests.noise import NoNoise

DECLARED = {
    "age": {"range": [0, 100], "bins": 5},
    "channel": {"values": ["web", "phone"]},
    "visited": {"dates": ["2024-01-01", "2024-12-31"]},
}
CHANGES = {
    "dataset": {"columns": DECLARED},
    "columns": {"pairs": [["age", "channel"]]},
    "evaluate": {"by": "nothing"},
}


def records():
    """The channel follows the label, and the month is always May; one value is a secret."""
    some = [
        record
        | {
            "age": 20 + 3 * (n % 5),
            "channel": "phone" if record["label"] == "Billing" else "web",
            "visited": "2024-05-17",
        }
        for n, record in enumerate(rows(240, 120))
    ]
    some[3]["channel"] = CANARY
    return some


@pytest.fixture
def columned(make_project):
    def build(method, **changes):
        project = make_project(**({"methods": {method: METHODS[method]}} | CHANGES | changes))
        project.write(records())
        return project

    return build


def drawn(project, method, noise=None, models=None):
    ctx = project.context()
    if noise:
        ctx.noise = noise
    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    backends = Backends(models or stand_ins())
    shards = partition(ctx, planned)
    train(ctx, planned, backends=backends)
    for shard in range(shards):
        generate(ctx, planned, shard, backends)
    return ctx, planned, certify(ctx, planned)


@pytest.mark.parametrize("method", METHODS)
def test_every_text_has_a_row_and_the_release_one_event(columned, method):
    ctx, planned, folder = drawn(columned(method), method, noise=NoNoise)
    event, marginals = load(planned.event), planned.marginals
    assert marginals.noise.event in event.events
    assert rho(marginals.noise.event) == pytest.approx(calibrate_rho(planned.target) / 4, rel=1e-3)
    assert guarantee(event, 1e-6).epsilon == planned.epsilon <= 8.0
    released = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert len(released) in range(planned.row_bounds[0], planned.rows + 1)
    # The noise is left out, and its deviation still spreads some rows over other cells.
    months = Counter(row["visited"][:7] for row in released if row["visited"])
    assert months.most_common(1)[0][0] == "2024-05"
    assert {type(row["age"]) for row in released} <= {int, type(None)}
    of = Counter((row["label"], row["channel"]) for row in released)
    for label, channel, other in [("Billing", "phone", "web"), ("Symptoms", "web", "phone")]:
        assert of[label, channel] > of[label, other]
    table = json.loads((folder / "exhibits" / "columns.json").read_text())
    assert [one["of"] for one in table["tables"]][-1] == ["age", "channel"]
    every = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert CANARY.encode() not in every
    checks = verification.verify(folder, ctx.ledger)
    assert not [check for check in checks if check.passed is False]


def test_texts_are_written_for_their_rows(columned):
    """The prompt of a text says what its row says, by the names of the cells."""
    models = stand_ins()
    _, _, folder = drawn(columned("keyphrase_seeding"), "keyphrase_seeding", NoNoise, models)
    released = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    prompts = "\n".join(models["text"].prompts)
    assert set(re.findall(r"channel: (\w+)", prompts)) == {
        row["channel"] for row in released if row["channel"]
    }
    months = Counter(re.findall(r"visited: (\w+ 2024)\n", prompts))
    assert months.most_common(1)[0][0] == "May 2024"
    assert "{columns}" not in prompts


@pytest.mark.parametrize("method", ["private_evolution", "keyphrase_seeding"])
def test_a_prompt_of_ones_own_names_columns_one_by_one(columned, method):
    """What is said of each record by its name is said of no other; a misspelled name is refused."""
    prompt = "Sent by {columns.channel} in {columns.visited}, on {label}.\nText: "
    own = {
        "private_evolution": {"text": {"random_prompt": prompt}},
        "keyphrase_seeding": {"prompt": prompt + "{phrases}"},
    }
    methods = {method: METHODS[method] | own[method]}
    project, models = columned(method, methods=methods), stand_ins()
    _, _, folder = drawn(project, method, NoNoise, models)
    released = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    said = Counter(re.findall(r"Sent by (\w+) in (\w+)", "\n".join(models["text"].prompts)))
    assert {channel for channel, _ in said} == {row["channel"] or "unknown" for row in released}
    assert max(said, key=said.get)[1] == "May"
    wrong = json.dumps(methods[method]).replace("{columns.channel}", "{columns.chanel}")
    with pytest.raises(ConfigError, match=r"\{columns.chanel\}.*dataset.columns does not declare"):
        plan(project.context(f"methods.{method}={wrong}"), method)


def test_all_that_follows_has_columns_and_no_file_a_rare_value(columned):
    measured = {"by": "words"}
    project = columned("keyphrase_seeding", evaluate=measured)
    ctx, planned, folder = drawn(project, "keyphrase_seeding")
    folder = validate(ctx, planned)
    internal = evaluate(ctx, planned)
    metrics = json.loads((internal / "evaluation.json").read_text())["metrics"]
    value = {one["name"]: one["value"] for one in metrics}
    assert value["columns.label.real"] == 1  # the channel is the label's
    assert {"columns.apart.channel", "columns.fit", "columns.pairs_apart_independent"} <= set(value)
    assert not [one for one in metrics if one["class"] != "internal" and "columns" in one["name"]]
    assert (
        "texts by channel (declared: web, phone or other)" in (folder / "report.html").read_text()
    )
    with pytest.raises(ConfigError, match="cannot make more"):
        more(ctx, planned.id, 3)
    printed = json.dumps([count(ctx), [lines(ctx, one) for one in count(ctx).values()]])
    assert CANARY not in printed + json.dumps(check(ctx, count(ctx), "keyphrase_seeding"))
    files = [path for path in project.root.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == [project.data]


def test_pairs_that_noisy_scores_choose_are_on_file_and_verify(columned):
    """The channel follows the label alone, so any tree will do; what is chosen is published."""
    ctx, planned, folder = drawn(
        columned("private_evolution", columns={"pairs": "auto"}), "private_evolution", NoNoise
    )
    events = load(planned.event).events
    assert events[:3] == planned.marginals.events
    tables = json.loads((folder / "exhibits" / "columns.json").read_text())["tables"]
    chosen = [set(one["of"]) for one in tables[3:]]
    assert len(chosen) == 2
    assert chosen[0] != chosen[1]
    assert "label" not in chosen[0] | chosen[1]
    assert not [one for one in verification.verify(folder, ctx.ledger) if one.passed is False]
    further = further_rows(planned, folder, 50)
    assert [len(further.by_label[label]) for label in ("Billing", "Symptoms")] == [50, 50]


@pytest.mark.parametrize("method", ["private_evolution", "dp_lora"])
def test_further_texts_have_rows_of_the_same_tables_at_no_cost(columned, monkeypatch, method):
    project, models = columned(method), stand_ins()
    ctx, planned, _ = drawn(project, method, NoNoise)
    spent = ctx.ledger.accounts.balance("letters").spent
    monkeypatch.setattr("privsyn.students.more.load_planned_models", lambda _: Backends(models))
    project.data.unlink()
    made = more(ctx, planned.id, 90, published=False)
    further = [json.loads(line) for line in (made / "synthetic.jsonl").read_text().splitlines()]
    assert list(further[0]) == ["id", "label", *sorted(DECLARED), "text"]
    of = Counter((row["label"], row["channel"]) for row in further)
    for label, channel, other in [("Billing", "phone", "web"), ("Symptoms", "web", "phone")]:
        assert of[label, channel] > of[label, other]
    assert ctx.ledger.accounts.balance("letters").spent == spent
    assert not [one for one in verification.verify(made, ctx.ledger) if one.passed is False]


def test_a_student_reads_the_row_before_each_text(columned, tmp_path, monkeypatch):
    project, encode, read = columned("private_evolution"), causal_lm.encode, []
    _, planned, folder = drawn(project, "private_evolution", NoNoise)
    monkeypatch.setattr(causal_lm, "encode", lambda *args: read.append(args[1:3]) or encode(*args))
    student = json.dumps(settings(save_tiny(tmp_path / "tiny")))
    made = distill(project.context(f"methods.distill={student}"), planned.id, published=False)
    template, texts = read[0]
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    for (key, text), row in zip(texts, rows, strict=True):
        label, words = split_row(key)
        assert (label, text) == (row["label"], row["text"])
        channel = row_slots("{columns.channel}", words)["columns.channel"]
        assert channel == row["channel"] or (channel, row["channel"]) == ("unknown", None)
    assert "{columns}" in template.public == causal_lm.prompt_of(made / "model").public


@pytest.mark.parametrize("method", ["keyphrase_seeding", "invisible_ink"])
@pytest.mark.parametrize("pairs", [[["age", "channel"]], "auto"])
def test_a_killed_run_draws_its_columns_once(columned, tmp_path, method, pairs):
    project = columned(method, columns={"pairs": pairs})
    counter = tmp_path / "calls"
    _, seen = killed(project, counter, (1, 1, 2, 0))
    assert "marginals" in seen
    if method == "invisible_ink":  # which has no other Gaussian noise: two draws that nobody saw
        # Chosen pairs are counted after they are chosen: a second draw.
        assert counter.read_bytes().count(b"g") == 3 + (pairs == "auto")
    ctx, entry, _ = ended(project)
    assert ctx.ledger.leases.parts(entry.release_id)[part_name(COLUMNS)] >= 2


def test_every_draw_of_columns_is_counted_before_their_rows_are_handed_on(columned, monkeypatch):
    ctx = columned("invisible_ink").context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    tables, counted = stage._tables, []

    def watched(*drawn):
        counted.append(ctx.ledger.leases.parts(planned.id)[part_name(COLUMNS)])
        return tables(*drawn)

    monkeypatch.setattr(stage, "_tables", watched)
    partition(ctx, planned)
    assert counted == [2], "the noisy counts, and the rows"


def test_columns_whose_journal_is_gone_are_not_drawn_again(columned):
    project = columned("invisible_ink")
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    scratch = ctx.workspace.scratch(planned.id)
    (scratch / "rows.json").unlink()
    journal_file(scratch, COLUMNS).unlink()
    with pytest.raises(Exception, match=r"LOST|lost"):
        partition(ctx, planned)
    assert ctx.ledger.releases.get(planned.id).state == "LOST"


def test_an_edited_plan_draws_no_columns(columned):
    ctx = columned("invisible_ink").context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    edited = planned.model_copy(update={"columns": ColumnsConfig(share=0.9)})
    with pytest.raises(VerificationError, match="was edited"):
        partition(ctx, edited)
    assert not (ctx.workspace.scratch(planned.id) / "rows.json").exists()
    partition(ctx, planned)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["columns.pairs=[[age, city]]"], "city"),
        (["columns.pairs=[[age, channel], [channel, age]]"], "circle"),
        (["methods.private_evolution.expansion=1"], "expansion=1"),
        (["columns.share=1"], "columns.share"),
    ],
)
def test_columns_that_cannot_be_drawn_are_refused(columned, overrides, said):
    project = columned("private_evolution")
    with pytest.raises(ConfigError, match=said):
        plan(project.context(*overrides), "private_evolution")


def test_a_plan_says_where_noise_drowns_columns(columned):
    project = columned("keyphrase_seeding", privacy={"epsilon": 0.2, "delta": 1e-6})
    few = plan(project.context("account.public_size=40"), "keyphrase_seeding")
    assert any("noise decides" in warning for warning in few.warnings)
    many = plan(project.context("account.public_size=4000000"), "keyphrase_seeding")
    assert not any("noise decides" in warning for warning in many.warnings)
    other = plan(project.context("columns.share=0.5"), "keyphrase_seeding")
    assert other.marginals.deviation < few.marginals.deviation
