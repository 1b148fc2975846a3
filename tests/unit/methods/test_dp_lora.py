"""DP-LoRA over a toy model: plan, steps, checkpoints, neighbors, what is written."""

import json
import math
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Private
from privsyn.dp import accountant
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.events import SampledGaussian
from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import ConfigError, PrivsynError, ReleaseLost
from privsyn.methods.base import Backends, Finished, PricingFacts, silent
from privsyn.methods.dp_lora import method as dp_lora
from privsyn.methods.dp_lora.method import LABELS, DPLora
from privsyn.methods.dp_lora.settings import DPLoraConfig, DPLoraSettings
from privsyn.models.language.prompts import CHAT, PLAIN
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import Subject
from tests.fakes import FakeTrainableModel, FakeTrainer, drawing, journal_at
from tests.noise import Constant, NeverDraws, NoNoise, SeededNoise

METHOD = DPLora()
NAMES = ("x", "y")
AMPLE, RECORD = Guarantee(500, 1e-6), PrivacyUnit()
FINE = CLIP_STEPS * 2**16
TEXTS = {
    "x": ["my bill is late", "the bill was ready", "my bill", "late bill and late"],
    "y": ["please help my", "help please", "the visit was late"],
}


def config(**settings):
    defaults = {
        "sampling_rate": 0.5, "steps": 7, "expected_batch": 3.5, "noise_multiplier": 1.0,
        "texts_per_label": 4, "max_tokens": 6, "learning_rate": 0.1, "prompt": "Text:",
    }  # fmt: skip
    return DPLoraSettings(**({"prompt": "Text:"} | defaults | settings))


def plan(cfg, target=AMPLE, adjacency=Adjacency.ADD_REMOVE, unit=RECORD, labels=NAMES):
    return METHOD.calibrate(cfg, target, PricingFacts(adjacency, unit, tuple(labels)))


@cache
def priced(settings, unit, labels):
    return plan(DPLoraSettings.model_validate_json(settings), unit=unit, labels=labels)


def buckets(texts=TEXTS, labels=NAMES, units=None):
    """``units``: by label, the unit of every text; None: each text is one of its own."""
    made = []
    for cell in METHOD.cells(config(), labels):
        own = list(texts.get(cell.label, []))
        ids = [f"{cell.label}{i}" for i in range(len(own))] if units is None else units[cell.label]
        made.append(Bucket(cell, Private(own), Private(ids)))
    return made


def train(
    tmp_path, cfg, data=None, noise=None, *, name="journal", unit=RECORD, every=3, model=None,
    progress=silent,
):  # fmt: skip
    data = buckets() if data is None else data
    labels = [bucket.cell.label for bucket in data if bucket.cell.label is not None]
    planned = priced(cfg.model_dump_json(), unit, tuple(labels))
    models, noise = {"base": model or FakeTrainableModel()}, noise or SeededNoise(1)
    with journal_at(tmp_path / name) as journal, patch.object(dp_lora, "CHECKPOINT_STEPS", every):
        draw = drawing(models, noise, journal, progress=progress)
        return METHOD.train(cfg, planned, data, draw)


def written(tmp_path, files, cfg, shard=(0, 1), labels=NAMES):
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    models = Backends({"base": FakeTrainableModel()})
    return list(METHOD.write(cfg, RECORD, labels, models, folder, shard))


# --- the plan -------------------------------------------------------------------------------------


def test_reproduces_the_papers_cost():
    """Abadi et al.'s example, and the teacher that Yu et al. call (2, 1e-7)."""
    cfg = config(sampling_rate=0.01, steps=1000, noise_multiplier=1.0)
    planned = plan(cfg, Guarantee(3, 1e-5))
    assert planned.event == SampledGaussian(0.01, 1.0, 1000)
    assert planned.derived["noise_multiplier"] == 1.0
    assert planned.derived["epsilon_rdp"] == pytest.approx(2.101, abs=2e-3)
    assert planned.derived["epsilon_pld"] == guarantee(planned.event, 1e-5).epsilon
    assert 1.828 <= planned.derived["epsilon_pld"] <= 1.90
    teacher = config(sampling_rate=2048 / 182034, steps=889, noise_multiplier=None)
    solved = plan(teacher, Guarantee(2.1211, 1e-7)).derived
    assert solved["noise_multiplier"] == pytest.approx(1.1, rel=2e-3)
    assert 2.10 <= solved["epsilon_pld"] <= 2.1211


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(0.3, 0.02, 50), (3.0, 0.1, 20), (2.0, 1.0, 5)]
)
def test_open_noise_is_the_least_that_the_target_allows(epsilon, rate, steps):
    cfg = config(sampling_rate=rate, steps=steps, noise_multiplier=None)
    planned = plan(cfg, Guarantee(epsilon, 1e-6))
    sigma = planned.derived["noise_multiplier"]
    assert 0.99 * epsilon <= guarantee(planned.event, 1e-6).epsilon <= epsilon
    less = plan(config(**(cfg.model_dump() | {"noise_multiplier": sigma * 0.99}))).event
    assert guarantee(less, 1e-6).epsilon > epsilon
    assert plan(cfg, Guarantee(epsilon, 1e-6)) == planned


def test_a_target_that_no_noise_reaches_is_refused():
    for settings, target in (
        ({"steps": 65536, "sampling_rate": 1.0}, Guarantee(1e-3, 1e-9)),
        ({}, Guarantee(1e-9, 1e-9)),
        ({}, Guarantee(1.0, 0.0)),
    ):
        with pytest.raises(ConfigError, match="whatever the noise") as refused:
            plan(config(noise_multiplier=None, **settings), target)
        assert "steps=" in str(refused.value)
        assert "Lower steps or sampling_rate" in refused.value.hint


def test_replacing_a_unit_is_not_offered():
    with pytest.raises(ConfigError, match=r"account\.adjacency=replace_one"):
        plan(config(), adjacency=Adjacency.REPLACE_ONE)
    both = [plan(config(), adjacency=a) for a in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_NULL)]
    assert replace(both[0], facts=both[1].facts) == both[1]


def test_records_of_a_unit_are_clipped_together_and_do_not_cost_more():
    one, three = (plan(config(), Guarantee(3, 1e-6), unit=PrivacyUnit("user", m)) for m in (1, 3))
    for fact in ("event", "derived", "rows", "warnings"):
        assert getattr(one, fact) == getattr(three, fact)


def test_rows_are_the_public_split():
    assert plan(config()).rows == (8, 8)
    assert plan(config(), labels=()).rows == (4, 4)
    assert plan(config(label_split={"x": 2, "y": 9})).rows == (11, 11)
    for split in ({"x": 2}, {"x": 2, "z": 1}, {"x": 1, "y": 1, "z": 1}):
        with pytest.raises(ConfigError, match=r"dp_lora.label_split does not agree"):
            plan(config(label_split=split))
    with pytest.raises(ConfigError, match="no labels"):
        plan(config(label_split={"x": 1}), labels=())
    for wrong in ({"label_split": {"x": 0}}, {"target_modules": ()}):
        with pytest.raises(ValueError, match=r"greater than or equal to 1|at least 1 item"):
            config(**wrong)


# --- settings -------------------------------------------------------------------------------------


def test_the_prompt_is_the_models_own_and_names_the_label():
    def template(own, labels=NAMES, **settings):
        cfg = METHOD.resolve(DPLoraConfig(**settings), {"base": ModelIdentity("m", "r", own)})
        planned = DPLoraSettings.model_validate(cfg.model_dump(mode="json"))
        assert planned.model_dump() == cfg.model_dump()
        return cfg.template(labels)

    said = "The following is a text.\n\nTopic: {label}\nText:"
    for own in (PLAIN, CHAT):  # an instruction is no prefix of a text
        assert template(own) == PromptTemplate(said + "{reference}", said)
    subject = Subject("a note", (("Billing", "a bill"),))
    cfg = METHOD.resolve(DPLoraConfig(), {"base": ModelIdentity("m", "r", PLAIN)}, subject)
    assert cfg.template(NAMES).public.startswith("The following is a note.\n")
    assert cfg.template(NAMES).labels == (("Billing", "a bill"),)
    own = PromptTemplate("<|start|>Text: {reference}", "<|start|>Text:")
    assert template(own).public == "<|start|>Topic: {label}\nText:"
    assert template(own, ()).public == "<|start|>Text:"
    given = template(CHAT, prompt="A {label}:")
    assert given == PromptTemplate("A {label}:{reference}", "A {label}:")
    assert template(PLAIN, prompt="Say:").public == "Topic: {label}\nSay:"


# --- steps ----------------------------------------------------------------------------------------


def test_it_learns_which_words_belong_to_a_label(tmp_path):
    cfg = config(
        steps=60, sampling_rate=1.0, expected_batch=7, clip_norm=10.0, noise_multiplier=0.0625,
        top_k=1,
    )  # fmt: skip
    files = train(tmp_path, cfg, noise=NoNoise())
    texts = {label: set() for label in NAMES}
    for sample in written(tmp_path, files, cfg):
        texts[sample.cell.label].add(sample.content)
    assert all(text.startswith("my bill") for text in texts["x"])
    assert all(text.split()[0] in ("please", "help", "the") for text in texts["y"])
    assert texts["x"] != texts["y"]


def test_the_noise_is_really_there(tmp_path):
    """Two runs on the same data differ by noise of the size that was paid for.

    The sum of squares is chi-square: honest noise fails with probability 1e-9.
    """
    cfg = config(steps=1, sampling_rate=1.0, noise_multiplier=2.0)
    gradients = []
    for name in ("a", "b"):
        seen = watch_updates(partial(train, tmp_path, cfg, noise=OpenDPNoise(), name=name))
        gradients.append(seen[0][0])
    spread = (gradients[0] - gradients[1]) * cfg.expected_batch / cfg.clip_norm
    squares = float(((spread / (2 * math.sqrt(2))) ** 2).sum())
    assert 5e-10 < stats.chi2(spread.size).cdf(squares) < 1 - 5e-10


def watch_updates(run):
    seen: list[tuple[np.ndarray, float]] = []

    class Watched(FakeTrainer):
        def update(self, gradient, learning_rate):
            seen.append((gradient.copy(), learning_rate))
            super().update(gradient, learning_rate)

    class Model(FakeTrainableModel):
        def trainer(self, training):
            return Watched(self, training)

    run(model=Model())
    return seen


def test_an_empty_sample_takes_a_noisy_step_like_any_other(tmp_path):
    nobody = partial(np.zeros_like, dtype=np.bool_)
    noise = Constant(gaussian=partial(np.full_like, fill_value=2**40), sample=nobody)
    seen = watch_updates(partial(train, tmp_path, config(), noise=noise))
    assert len(seen) == len(noise.drawn) == 7
    assert all(not asked.values.any() for asked in noise.drawn)
    assert all(gradient.all() for gradient, _ in seen)
    none = train(tmp_path, config(), buckets({}), noise=OpenDPNoise(), name="no data at all")
    assert set(none) == {"adapter_model.safetensors", "adapter_config.json", LABELS}


def test_records_of_a_unit_are_one_contribution_wherever_they_lie(tmp_path):
    """One unit with records of both labels: one draw of the sampler decides on all of them."""
    noise = NoNoise()
    unit = PrivacyUnit("user", 3)
    ids = {"x": ["u1", "u2", "u1", "u3"], "y": ["u1", "u2", "u4"]}
    train(tmp_path, config(steps=1), buckets(units=ids), noise, unit=unit)
    assert noise.sampled == [(4, 0.5)]
    total = noise.drawn[0].values
    trainer = FakeTrainableModel().trainer(dp_lora._training(config(), NAMES, unit))
    own = [
        [trainer.encode("x", TEXTS["x"][i]) for i in places] + [trainer.encode("y", TEXTS["y"][j])]
        for places, j in (((0, 2), 0), ((1,), 1))
    ]
    own += [[trainer.encode("x", TEXTS["x"][3])], [trainer.encode("y", TEXTS["y"][2])]]
    np.testing.assert_array_equal(total, trainer.clipped_sum(own) * 2**16)


NEIGHBORS = {
    "removed": {"x": TEXTS["x"][1:], "y": TEXTS["y"]},
    "added": {"x": [*TEXTS["x"], "ready ready help"], "y": TEXTS["y"]},
    "none": {},
}


def public_numbers(tmp_path, cfg, texts, name):
    """What a run does beside its sums: scales, steps, and all of the optimizer's input."""
    noise = Constant(gaussian=partial(np.full_like, fill_value=5 * 2**40))
    seen = watch_updates(partial(train, tmp_path, cfg, buckets(texts), noise, name=name))
    return [asked.scale for asked in noise.drawn], [(g.tolist(), rate) for g, rate in seen]


def test_neighbors_are_treated_alike(tmp_path):
    cfg = config(clip_norm=0.5)
    base = public_numbers(tmp_path, cfg, TEXTS, "base")
    assert base[1][0] == ([5 * (0.5 / 3.5)] * 168, 0.1)
    for name, texts in NEIGHBORS.items():
        assert public_numbers(tmp_path, cfg, texts, name) == base


def test_a_trainer_knows_all_labels_whichever_have_records(tmp_path):
    """The longest of them decides the width of all rows."""
    known = []

    class Model(FakeTrainableModel):
        def trainer(self, training):
            known.append(training.labels)
            return super().trainer(training)

    train(tmp_path, config(), buckets({"x": TEXTS["x"]}), model=Model())
    assert known == [NAMES]


def test_progress_counts_steps_alone(tmp_path):
    seen = []
    train(tmp_path, config(), progress=lambda step, steps: seen.append((step, steps)))
    assert seen == [(step, 7) for step in range(7)]


def test_an_adapter_that_did_not_move_is_an_error_after_the_draws(tmp_path):
    with pytest.raises(PrivsynError, match="did not move") as failed:
        train(tmp_path, config(), buckets({}), NoNoise())
    assert not failed.value.retryable
    with journal_at(tmp_path / "journal") as journal:
        assert journal.has_drawn  # so that the stage gives the release up


# --- checkpoints ----------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of privsyn catches it."""


class ByStep:
    """Noise that is a function of the step, as if every attempt drew the same; may be killed."""

    kind = "seeded"

    def __init__(self, kill_at=0):
        self.kill_at = kill_at
        self.drawn: list[int] = []
        self.step = -1

    def progress(self, step, steps):
        self.step = step

    def sample(self, units, rate):
        return SeededNoise(2 * self.step).sample(units, rate)

    def gaussian(self, values, sigma):
        self.drawn.append(self.step)
        noisy = SeededNoise(2 * self.step + 1).gaussian(values, sigma)
        if len(self.drawn) == self.kill_at:
            raise Killed
        return noisy


def attempt(tmp_path, name, kill_at=0, every=3, cfg=None):
    noise = ByStep(kill_at)
    files = None
    try:
        files = train(
            tmp_path, cfg or config(), noise=noise, name=name, every=every, progress=noise.progress
        )
    except Killed:
        pass
    return files, noise.drawn


@pytest.fixture
def whole(tmp_path):
    return attempt(tmp_path, "whole")[0]


@pytest.mark.parametrize("every", [1, 2, 3, 7, 100])
def test_killed_at_any_step_it_ends_where_an_uninterrupted_run_does(tmp_path, whole, every):
    for kill_at in range(1, 8):
        name = f"killed at {kill_at}"
        files, first = attempt(tmp_path, name, kill_at, every)
        assert files is None
        files, second = attempt(tmp_path, name, every=every)
        assert files == whole
        done = (kill_at - 1) // every * every  # on file: never drawn again
        assert first == list(range(kill_at))
        assert second == list(range(done, 7))
        assert len(first) + len(second) <= 7 + every


def test_killed_again_and_again_it_draws_no_noted_step_twice(tmp_path, whole):
    drawn = Counter()
    for kill_at in (2, 4, 1, 3, 2, 1, 0):
        files, steps = attempt(tmp_path, "j", kill_at)
        drawn.update(steps)
        with journal_at(tmp_path / "j") as journal:
            noted = [t for t in range(8) if journal.has(f"steps/{t}")]
        again, more = attempt(tmp_path, "j", 1)
        drawn.update(more)
        assert not noted or all(step >= max(noted) for step in more)
        if files is not None:
            break
    assert files == whole
    assert again == whole
    assert not more


@pytest.mark.parametrize("intervals", [(2, 5), (5, 2), (3, 100), (4, 1), (1, 3)])
def test_another_interval_goes_on_from_the_newest_checkpoint(tmp_path, whole, intervals):
    first, then = intervals
    attempt(tmp_path, "j", 6, first)
    files, later = attempt(tmp_path, "j", every=then)
    assert files == whole
    assert later == list(range(5 // first * first, 7))


@pytest.mark.parametrize(
    ("step", "place", "again"),
    [
        ("_append", 2, [3, 4, 5, 6]),  # the file lies there, of steps that nobody saw
        ("drop_file", 1, [6]),  # noted, but the one before is not dropped
    ],
)
def test_killed_in_the_middle_of_keeping_a_checkpoint(
    tmp_path, whole, monkeypatch, step, place, again
):
    does, calls = getattr(Journal, step), []

    def dies(self, argument):
        calls.append(argument)
        if len(calls) == place:
            raise Killed
        does(self, argument)

    monkeypatch.setattr(Journal, step, dies)
    assert attempt(tmp_path, "j")[0] is None
    monkeypatch.undo()
    files, drawn = attempt(tmp_path, "j")
    assert files == whole
    assert drawn == again


def test_a_finished_training_is_read_back_without_a_draw(tmp_path, whole):
    assert train(tmp_path, config(), noise=NeverDraws(), name="whole") == whole


def test_older_checkpoints_are_deleted(tmp_path):
    attempt(tmp_path, "j", every=2)
    assert len(list((tmp_path / "j.kept").iterdir())) == 1


def test_a_checkpoint_that_is_gone_or_changed_is_not_drawn_again(tmp_path):
    for damage in ("gone", "changed"):
        attempt(tmp_path, damage, 5)
        (file,) = (tmp_path / f"{damage}.kept").iterdir()
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1] + b"\1")
        noise = ByStep()
        with pytest.raises(ReleaseLost, match="gone, dropped or changed"):
            train(tmp_path, config(), noise=noise, name=damage, progress=noise.progress)
        assert not noise.drawn


def test_checkpoints_and_files_hold_no_trace_of_who_was_sampled(tmp_path):
    """Their lengths are public too."""
    sizes = set()
    for seed in range(3):
        cfg = config(steps=2)
        files = train(tmp_path, cfg, noise=SeededNoise(seed), name=f"j{seed}", every=1)
        (state,) = (tmp_path / f"j{seed}.kept").iterdir()
        journal = (tmp_path / f"j{seed}").read_bytes()
        sizes.add((state.stat().st_size, len(journal), *map(len, files.values())))
        keys = [json.loads(line[9:])["k"] for line in journal.splitlines()[1:]]
        assert keys == ["steps/1", "steps/2"]
    assert len(sizes) == 1


def test_an_overtaken_run_stops_before_its_next_draw(tmp_path):
    class Overtaken(Exception):
        pass

    for stop in range(7):
        noise = NoNoise()

        def progress(step, steps, stop=stop):
            if step == stop:
                raise Overtaken

        with pytest.raises(Overtaken):
            train(tmp_path, config(), noise=noise, name=f"j{stop}", progress=progress)
        assert len(noise.drawn) == len(noise.sampled) == stop


# --- texts ----------------------------------------------------------------------------------------


def test_shards_hold_every_text_once(tmp_path):
    cfg = config(label_split={"x": 5, "y": 2})
    files = train(tmp_path, cfg)
    for shards in (1, 2, 3, 7):
        parts = [written(tmp_path, files, cfg, (i, shards)) for i in range(shards)]
        found = Counter(sample.cell.label for part in parts for sample in part)
        assert found == {"x": 5, "y": 2}
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert all(sample.content.strip() for part in parts for sample in part)


def test_of_several_texts_the_one_most_of_its_label_is_released(tmp_path):
    """The trained model has learnt little: it says the words of both labels, and can tell them."""
    cfg = config(steps=8, sampling_rate=1.0, expected_batch=7, noise_multiplier=0.0625,
                 clip_norm=10.0, texts_per_label=100)  # fmt: skip
    files = train(tmp_path, cfg, noise=NoNoise())

    def right(candidates):
        samples = written(tmp_path, files, cfg.model_copy(update={"candidates": candidates}))
        assert [s.cell.label for s in samples] == ["x"] * 100 + ["y"] * 100
        own = {"x": {"bill", "my", "late"}, "y": {"please", "help", "visit"}}
        marks = [len(own[s.cell.label] & set(s.content.split())) for s in samples]
        return float(np.mean(marks))

    assert right(6) > 1.2 * right(1)
    records = [("x", "a"), ("y", "b")] * 4
    models = Backends({"base": FakeTrainableModel()})
    many = cfg.model_copy(update={"candidates": 6})
    more = list(METHOD.more(many, models, Finished(records, tmp_path), 8))
    assert Counter(label for label, _ in more) == {"x": 4, "y": 4}


def test_more_texts_come_from_the_released_adapter_in_the_releases_shares(tmp_path):
    cfg = config(label_split={"x": 6, "y": 2})
    files = train(tmp_path, cfg)
    samples = written(tmp_path, files, cfg)
    records = [(sample.cell.label, sample.content) for sample in samples]
    models = Backends({"base": FakeTrainableModel()})
    more = list(METHOD.more(cfg, models, Finished(records, tmp_path), 400))
    assert Counter(label for label, _ in more) == {"x": 300, "y": 100}
    assert len({text for _, text in more}) > 20
    assert len(list(METHOD.more(cfg, models, Finished(records, tmp_path), 3))) == 3
    with pytest.raises(ConfigError, match="holds no adapter"):
        list(METHOD.more(cfg, models, Finished(records, tmp_path / "other"), 3))


def test_the_price_is_that_of_what_is_drawn(tmp_path):
    """Steps drawn, scale and rate on the one side, the event on the other."""
    cfg = config(steps=5, noise_multiplier=1.3, sampling_rate=0.25)
    noise = NoNoise()
    train(tmp_path, cfg, noise=noise)
    event = plan(cfg).event
    assert event == SampledGaussian(0.25, 1.3, 5)
    assert len(noise.drawn) == event.steps
    assert {rate for _, rate in noise.sampled} == {event.rate}
    assert {asked.scale / FINE for asked in noise.drawn} == {event.noise_multiplier}
    assert accountant.guarantee(event, 1e-6).epsilon == plan(cfg).derived["epsilon_pld"]


def test_every_step_is_sampled_noised_and_divided_by_public_numbers(tmp_path):
    noise = NoNoise()
    train(tmp_path, config(noise_multiplier=0.7), noise=noise)
    assert noise.sampled == [(7, 0.5)] * 7
    assert [asked.scale for asked in noise.drawn] == [0.7 * FINE] * 7
    size = noise.drawn[0].values.size
    assert size == (12 + 2) * 12
    assert all(asked.values.shape == (size,) for asked in noise.drawn)


def test_a_dataset_without_labels(tmp_path):
    cfg = config(candidates=4)
    data = buckets({None: TEXTS["x"]}, labels=())
    files = train(tmp_path, cfg, data)
    samples = written(tmp_path, files, cfg, labels=())
    assert [sample.cell.label for sample in samples] == [None] * 4
