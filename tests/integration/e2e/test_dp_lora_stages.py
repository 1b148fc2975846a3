"""DP-LoRA through the stages: what is released, neighbors, kills, what is lost."""

import json
import shutil
from functools import partial

import pytest
from safetensors.numpy import load as load_tensors

from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import DataError, LeaseHeld, ModelError, ReleaseLost
from privsyn.methods.base import Backends
from privsyn.methods.dp_lora import method as dp_lora
from privsyn.release import certificate
from privsyn.release.workdir import MODEL, TRAINED_BY
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate, train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.run import draw
from privsyn.stages.validate import validate
from privsyn.students.more import more
from tests.fakes import FakeTrainableModel
from tests.integration.e2e.neighbors import assert_alike, published_by_neighbors
from tests.integration.e2e.small_project import (
    LABELS,
    failures,
    finish,
    reseal,
    reserve_release,
    stand_ins,
)
from tests.integration.e2e.test_kills import ended, killed
from tests.noise import Constant, Dies, SeededNoise

DAMAGE = {
    "changed": lambda folder: (folder / "labels.json").write_text('{"Billing": 9}'),
    "missing": lambda folder: (folder / "adapter_config.json").unlink(),
    "extra": lambda folder: (folder / "optimizer.pt").write_bytes(b"x"),
}


NAME = "dp_lora"
STEPS = 5
SETTINGS = {
    "sampling_rate": 0.5, "steps": STEPS, "expected_batch": 8, "noise_multiplier": 2.0,
    "learning_rate": 0.1, "rank": 2, "max_tokens": 6, "texts_per_label": 4,
}  # fmt: skip
FILES = {"adapter_model.safetensors", "adapter_config.json", "labels.json"}


@pytest.fixture
def make(make_project):
    def get(name="project", performance=(), holdout=0.25, **settings):
        return make_project(
            name,
            methods={NAME: SETTINGS | settings},
            performance=dict(performance),
            dataset={"holdout": holdout},
        )

    return get


def begin(ctx):
    planned = reserve_release(ctx, NAME)
    return planned, partition(ctx, planned)


def release(ctx):
    planned, _ = begin(ctx)
    train(ctx, planned, backends=Backends(stand_ins()))
    return planned, finish(ctx, planned, Backends(stand_ins()))


def rows(folder):
    return [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]


# --- the chain ------------------------------------------------------------------------------------


def test_a_model_is_trained_and_writes_a_release_that_verifies(make):
    project = make()
    ctx = project.context()
    seen = []
    ctx.progress = lambda stage, done, total, things="": seen.append((stage, done, total))
    planned, _ = begin(ctx)
    train(ctx, planned, backends=Backends(stand_ins()))
    (state,) = (ctx.workspace.scratch(planned.id) / "journal-train.kept").iterdir()
    moments = load_tensors(state.read_bytes())["moments"].tobytes()[-64:]
    folder = finish(ctx, planned, Backends(stand_ins()))
    assert [row["label"] for row in rows(folder)] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert [row["id"] for row in rows(folder)] == [f"{planned.id}-{i:06d}" for i in range(8)]
    assert all(row["text"].strip() for row in rows(folder))
    assert {path.name for path in (folder / "model").iterdir()} == FILES
    assert json.loads((folder / "model/labels.json").read_text()) == dict.fromkeys(LABELS, 4)
    _, sealed = certificate.read(folder)
    assert set(sealed["model"]) == FILES
    assert sealed["class"] == "dp-release"
    assert sealed["plan"]["derived"]["noise_multiplier"] == 2.0
    assert sealed["plan"]["event"]["kind"] == "sampled_gaussian"
    assert failures(folder, ctx.ledger) == {}
    assert [step for stage, step, _ in seen if stage == "train"] == list(range(STEPS))
    validate(ctx, planned)
    (entry,) = ctx.ledger.releases.all()
    assert dict(entry.event) == planned.event
    assert settle(ctx, planned) == "COMMITTED"
    assert not ctx.workspace.scratch(planned.id).exists()
    for path in project.root.rglob("*"):
        assert not path.is_file() or moments not in path.read_bytes(), path


@pytest.mark.parametrize("shards", [1, 3, 8, 50])
def test_any_number_of_shards_writes_every_row_once(make, shards):
    ctx = make(performance={"shards": shards}, label_split={LABELS[0]: 3, LABELS[1]: 5}).context()
    planned, found = begin(ctx)
    assert found == min(shards, 8) == planned.shards
    train(ctx, planned, backends=Backends(stand_ins()))
    for shard in reversed(range(found)):
        generate(ctx, planned, shard, Backends(stand_ins()))
    folder = certify(ctx, planned)
    assert [row["label"] for row in rows(folder)] == [LABELS[0]] * 3 + [LABELS[1]] * 5
    assert len({row["id"] for row in rows(folder)}) == 8
    assert failures(folder, ctx.ledger) == {}


class Counted(FakeTrainableModel):
    """Counts how often a trained model is loaded and merged, to write with."""

    def __init__(self):
        super().__init__(revision=stand_ins()["base"].revision)
        object.__setattr__(self, "loads", [])

    def writer(self, training, folder, sampling):
        self.loads.append(folder)
        return super().writer(training, folder, sampling)


def test_what_mapped_tasks_began_one_process_ends_in_their_shards(make, monkeypatch):
    """Shards that are written stay as they are, and so does what is left of the others."""
    ctx = make(performance={"shards": 3}).context()
    planned, shards = begin(ctx)
    train(ctx, planned, backends=Backends(stand_ins()))
    written = generate(ctx, planned, 1, Backends(stand_ins()))
    theirs = {row["text"] for row in json.loads(written.read_bytes())["rows"]}
    model = Counted()
    monkeypatch.setattr(
        "privsyn.stages.run.load_models", lambda ctx, plan: Backends(stand_ins() | {"base": model})
    )
    draw(ctx, planned)
    assert len(model.loads) == shards - 1 == 2
    folder = ctx.workspace.locate(planned.id)
    assert [row["label"] for row in rows(folder)] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert theirs <= {row["text"] for row in rows(folder)}
    assert failures(folder, ctx.ledger) == {}


def test_before_the_training_nothing_is_written_and_a_failure_while_writing_loses_nothing(make):
    """Texts are made from what is public: another attempt costs nothing."""
    ctx = make().context()
    planned, shards = begin(ctx)
    with pytest.raises(DataError, match="not trained yet"):
        generate(ctx, planned, 0, Backends(stand_ins()))
    train(ctx, planned, backends=Backends(stand_ins()))

    class Broken:
        revision = stand_ins()["base"].revision

        def writer(self, *args, **kwargs):
            raise ZeroDivisionError("bill was late")

    with pytest.raises(ZeroDivisionError):
        generate(ctx, planned, 0, Backends(stand_ins() | {"base": Broken()}))
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"
    for shard in range(shards):
        generate(ctx, planned, shard, Backends(stand_ins()))
    assert failures(certify(ctx, planned), ctx.ledger) == {}


# --- identity -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "methods.dp_lora.prompt=Say",
        "methods.dp_lora.rank=3",
        "methods.dp_lora.expected_batch=9",
        "methods.dp_lora.clip_norm=0.5",
        "methods.dp_lora.steps=6",
        "methods.dp_lora.max_tokens=7",
        "methods.dp_lora.target_modules=[q_proj]",
        "methods.dp_lora.top_p=0.8",
        "models.dtype=bfloat16",
        "privacy.draw=1",
    ],
)
def test_what_shapes_the_release_changes_its_id(make, change):
    project = make()
    one = plan(project.context(), NAME, open_account=True)
    assert plan(project.context(change), NAME, open_account=True).id != one.id


# --- neighbors -----------------------------------------------------------------------------------


def ramp(place):
    """Noise instead of any sum: something of everything, far beyond what is clipped."""
    return (place % 7 - 3) << 40


def every_second(place):
    return place % 2 == 0


constant = partial(Constant, gaussian=ramp, sample=every_second)
"""The mechanism replaced by a constant: sums and samples of the data are dropped."""


def test_neighboring_data_gives_the_same_bytes_when_the_mechanism_is_a_constant(make):
    found = published_by_neighbors(make(), NAME, constant, release)
    assert_alike(found)
    assert {f"model/{name}" for name in FILES} <= set(found["base"])


# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [(1, 2, 6, 0), (4, 1, 0)])
def test_killed_at_any_call_it_ends_at_the_planned_cost(make, tmp_path, kills):
    """Each step is two calls, sample and noise."""
    project = make(performance={"shards": 2})
    counter = tmp_path / "calls"
    died, _ = killed(project, counter, kills)
    assert died >= 2
    # A kill costs the calls after the newest checkpoint, at most.
    assert counter.stat().st_size <= 2 * STEPS + died * (2 * 2 + 1)
    ctx, entry, folder = ended(project)
    planned = plan(ctx, NAME, open_account=True)
    assert dict(entry.event) == planned.event
    assert ctx.ledger.accounts.balance("letters").spent == pytest.approx(entry.loss)
    assert len(rows(folder)) == 8


@pytest.fixture
def dying(make, monkeypatch):
    """``dying(error)``: a context and its release, whose noise fails at the fourth call."""
    monkeypatch.setattr(dp_lora, "CHECKPOINT_STEPS", 1)

    def get(error=MemoryError):
        ctx = make().context()
        ctx.noise = lambda: Dies(4, at=4, error=error("bill was late"))
        planned, _ = begin(ctx)
        return ctx, planned

    return get


def test_what_fails_from_outside_is_resumed(dying):
    ctx, planned = dying()
    with pytest.raises(MemoryError):
        train(ctx, planned, backends=Backends(stand_ins()))
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"
    ctx.noise = lambda: SeededNoise(9)
    assert train(ctx, planned, backends=Backends(stand_ins())) is not None
    assert len(ctx.ledger.releases.all()) == 1
    # Trained with another source than OpenDP's, the release says that it is not private.
    folder = finish(ctx, planned, Backends(stand_ins()))
    sealed = certificate.read(folder)[1]
    assert (sealed["class"], sealed["noise"]) == ("not-private", "seeded")
    assert failures(folder, ctx.ledger) == {}


@pytest.mark.parametrize("error", [ValueError, ModelError])
def test_a_failure_of_our_own_after_a_step_loses_the_release(dying, error):
    ctx, planned = dying(error)
    with pytest.raises(ReleaseLost) as lost:
        train(ctx, planned, backends=Backends(stand_ins()))
    assert "bill" not in f"{lost.value} {lost.value.hint}"
    assert ctx.ledger.releases.get(planned.id).state == "LOST"
    assert ctx.ledger.accounts.balance("letters").spent > 0
    with pytest.raises(ReleaseLost):
        train(ctx, planned, backends=Backends(stand_ins()))


def test_an_adapter_that_did_not_move_loses_the_release(make):
    ctx = make().context()
    ctx.noise = partial(Constant, sample=every_second)  # zeros for every sum
    planned, _ = begin(ctx)
    with pytest.raises(ReleaseLost):
        train(ctx, planned, backends=Backends(stand_ins()))
    assert ctx.ledger.releases.get(planned.id).state == "LOST"


@pytest.mark.parametrize("gone", ["scratch", "journal", "checkpoint", "checkpoint changed"])
def test_a_release_whose_draws_are_gone_is_lost(dying, gone):
    ctx, planned = dying()
    with pytest.raises(MemoryError):
        train(ctx, planned, backends=Backends(stand_ins()))
    scratch = ctx.workspace.scratch(planned.id)
    (checkpoint,) = (scratch / "journal-train.kept").iterdir()
    match gone:
        case "scratch":
            shutil.rmtree(scratch)
        case "journal":
            (scratch / "journal-train").unlink()
        case "checkpoint":
            checkpoint.unlink()
        case _:
            checkpoint.write_bytes(b"\0" + checkpoint.read_bytes()[1:])
    calls = []

    class Watched(SeededNoise):
        def gaussian(self, values, sigma):
            calls.append(sigma)
            return super().gaussian(values, sigma)

    ctx.noise = lambda: Watched(1)
    with pytest.raises(ReleaseLost):
        train(ctx, planned, backends=Backends(stand_ins()))
    assert not calls
    assert ctx.ledger.releases.get(planned.id).state == "LOST"
    with pytest.raises(ReleaseLost):
        reserve(ctx, planned)


def test_a_release_is_trained_by_one_process_at_a_time(make):
    ctx = make().context()
    refused = []

    class Second(SeededNoise):
        def sample(self, units, rate):
            if not refused:
                with pytest.raises(LeaseHeld) as held:
                    train(ctx, planned, backends=Backends(stand_ins()))
                refused.append(held.value)
            return super().sample(units, rate)

    noise = Second(1)
    ctx.noise = lambda: noise
    planned, _ = begin(ctx)
    assert train(ctx, planned, backends=Backends(stand_ins())) is not None
    assert refused


def test_another_model_than_the_planned_one_is_not_trained(make):
    ctx = make().context()
    planned, _ = begin(ctx)

    class Other:
        revision = "another"

    with pytest.raises(ModelError, match="base model"):
        train(ctx, planned, backends=Backends({"base": Other()}))
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"


def test_a_killed_copy_of_the_model_is_made_anew(make):
    """Killed while the trained files were put down: they come out of the last checkpoint again."""
    ctx = make().context()
    planned, _ = begin(ctx)
    folder = train(ctx, planned, backends=Backends(stand_ins()))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    scratch = ctx.workspace.scratch(planned.id)
    (scratch / TRAINED_BY).unlink()
    (folder / "labels.json").unlink()
    (folder / "stale.bin").write_bytes(b"x")
    assert train(ctx, planned, backends=Backends(stand_ins())) == scratch / MODEL
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_may_not_change_its_noise_source_halfway(dying):
    ctx, planned = dying()
    with pytest.raises(MemoryError):
        train(ctx, planned, backends=Backends(stand_ins()))
    ctx.noise = OpenDPNoise
    with pytest.raises(Exception, match="noise"):
        train(ctx, planned, backends=Backends(stand_ins()))


def test_a_tampered_adapter_or_price_does_not_verify(make, tmp_path):
    ctx = make().context()
    _, folder = release(ctx)
    for name, damage in DAMAGE.items():
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        damage(copy / "model")
        assert list(failures(copy, ctx.ledger)) == ["model is unchanged"]
    _, sealed = certificate.read(folder)
    sealed["plan"]["event"]["noise_multiplier"] = 4.0  # another price than that of the settings
    reseal(folder, sealed)
    assert {"event", "guarantee"} & set(failures(folder, None))


def test_more_texts_come_from_the_released_adapter_at_no_cost(make, monkeypatch):
    ctx = make(texts_per_label=6).context()
    planned, folder = release(ctx)
    validate(ctx, planned)
    settle(ctx, planned)
    spent = ctx.ledger.accounts.balance("letters").spent
    monkeypatch.setattr("privsyn.stages.draw.load_models", lambda *_: Backends(stand_ins()))
    made = more(ctx, planned.id, 20, published=False)
    labels = [row["label"] for row in rows(made)]
    assert [labels.count(label) for label in LABELS] == [10, 10]
    assert ctx.ledger.accounts.balance("letters").spent == spent
    assert failures(made, ctx.ledger) == {}
    (folder / "model" / "labels.json").unlink()
    with pytest.raises(Exception, match="model is unchanged"):
        more(ctx, planned.id, 3, published=False)


def test_training_and_writing_again_change_nothing(make):
    ctx = make().context()
    planned, _ = begin(ctx)
    folder = train(ctx, planned, backends=Backends(stand_ins()))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ctx.noise = lambda: pytest.fail("drew again")
    assert train(ctx, planned) == folder
    ctx.noise = OpenDPNoise
    finish(ctx, planned, Backends(stand_ins()))
    assert train(ctx, planned) is None
    released = ctx.workspace.release(planned.id) / "model"
    assert {path.name: path.read_bytes() for path in released.iterdir()} == before
