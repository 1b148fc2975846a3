"""Gradients by several processes: the bits that one process gives, and no process left behind."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.accountant import Guarantee
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.errors import ModelError, TrainingInterrupted
from privsyn.methods.base import Backends, Draw, PricingFacts
from privsyn.methods.dp_lora.method import DPLora
from privsyn.methods.dp_lora.settings import DPLoraSettings
from privsyn.models.loading import load_trainable_model
from privsyn.models.protocols import PromptTemplate, Training
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training import multi_gpu
from privsyn.models.training.multi_gpu import (
    Command,
    RanksModel,
    pack,
    read_training,
    report,
    serve,
    unpack,
)
from privsyn.models.training.processes import Rank, start_group
from tests.noise import SeededNoise

PERFORMANCE = PerformanceConfig(device="cpu", threads=1, processes=2)
PATIENCE = timedelta(seconds=60)
LABELS = ("Billing", "Symptoms")
WORDS = "the visit was late and my bill is ready please help with an appointment".split()


def training(records: int, micro_batch: int) -> Training:
    return Training(
        template=PromptTemplate("{label}: {reference}", "{label}:"),
        labels=LABELS,
        max_tokens=12,
        clip_norm=1.0,
        records_per_unit=records,
        micro_batch=micro_batch,
        rank=3,
        alpha=6.0,
        target_modules=None,
    )


def rows(trainer, count: int, records: int):
    """Units of one to ``records`` records of one to nine words."""
    rng = np.random.default_rng(count)

    def row():
        return trainer.encode(str(rng.choice(LABELS)), " ".join(rng.choice(WORDS, rng.integers(9))))

    return [[row() for _ in range(rng.integers(1, records + 1))] for _ in range(count)]


@pytest.fixture(scope="module")
def models(folders):
    return ModelsConfig(language=folders("llama"))


@pytest.fixture(scope="module")
def group():
    """Two processes, for all tests that let both live."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with start_group(PERFORMANCE, PATIENCE) as group:
        yield group
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shared(models, group):
    """Makes models that both processes train."""
    return lambda: RanksModel(load_trainable_model(models, PERFORMANCE), group, models, PERFORMANCE)


@pytest.mark.parametrize(("records", "micro_batch"), [(1, 3), (2, 5)])
def test_a_sum_has_the_bits_of_one_process(models, shared, records, micro_batch, monkeypatch):
    together = shared().trainer(training(records, micro_batch))
    alone = load_trainable_model(models, PERFORMANCE).trainer(training(records, micro_batch))
    alone.restore(together.state())
    sizes = []
    own = together._own.clipped_sum
    monkeypatch.setattr(
        together._own, "clipped_sum", lambda units: (sizes.append(len(units)), own(units))[1]
    )
    for step in range(2):
        for count in (0, 1, 5, 16):
            units = rows(together, count, records)
            expected = alone.clipped_sum(units)
            assert np.array_equal(together.clipped_sum(units), expected)
            assert expected.any() == (count > 0)
        for trainer in (together, alone):
            trainer.update(expected / 1e6, 0.01)
        assert together.state() == alone.state(), step
    assert sizes == 2 * [0, 1, 3, 8], "the other process had the rest"
    assert together.has_moved()


def test_the_others_follow_when_numbers_are_restored(shared):
    trainer = shared().trainer(training(1, 4))
    began, units = trainer.state(), rows(trainer, 5, 1)
    first = trainer.clipped_sum(units)
    trainer.update(first / 1e6, 0.1)
    assert not np.array_equal(trainer.clipped_sum(units), first)
    trainer.restore(began)
    assert np.array_equal(trainer.clipped_sum(units), first)


def test_all_pass_as_few_units_at_a_time_as_one_has_room_for(shared, monkeypatch):
    trainer = shared().trainer(training(1, 8))
    units = rows(trainer, 16, 1)
    expected = trainer.clipped_sum(units)
    assert trainer._own.units_per_pass == 8
    own, calls = trainer._own._sum, []

    def short_of_memory(given):
        calls.append(trainer._own.units_per_pass)
        if trainer._own.units_per_pass > 2:
            raise MemoryError
        return own(given)

    monkeypatch.setattr(trainer._own, "_sum", short_of_memory)
    asked = []
    ask = trainer._group.ask
    monkeypatch.setattr(
        trainer._group, "ask", lambda command, *x: (asked.append((command, x)), ask(command, *x))
    )
    assert np.array_equal(trainer.clipped_sum(units), expected)
    assert (Command.SLOTS, (b"2",)) in asked
    assert [command for command, _ in asked].count(Command.SUM) == 2
    assert calls == [8, 4, 2, 2, 2]  # the first sum, the probe, and the sum anew


def test_units_go_one_by_one_where_passes_of_more_differ(shared, monkeypatch):
    model = shared()
    real = multi_gpu.digest
    answers = iter([b"other"])
    monkeypatch.setattr(multi_gpu, "digest", lambda total: next(answers, None) or real(total))
    assert model.trainer(training(1, 4))._own.units_per_pass == 1
    monkeypatch.setattr(multi_gpu, "digest", lambda total: "always other")
    with pytest.raises(TrainingInterrupted, match="different gradients") as raised:
        model.trainer(training(1, 4))
    assert raised.value.retryable


def train(base, folder: Path):
    """The files of a whole small training."""
    cfg = DPLoraSettings(
        sampling_rate=0.4,
        steps=5,
        expected_batch=8,
        rank=2,
        alpha=4,
        max_tokens=12,
        micro_batch=3,
        prompt="About {label}:",
        learning_rate=0.01,
    )
    rng = np.random.default_rng(0)
    buckets = []
    for index, label in enumerate(LABELS):
        texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(14)]
        units = [f"{number % 9}" for number in range(14)]
        buckets.append(Bucket(Cell(index, label, 0), Private(texts), Private(units)))
    noise, facts = (
        SeededNoise(5),
        PricingFacts(Adjacency.ADD_REMOVE, PrivacyUnit("person", 4), LABELS),
    )
    plan = DPLora().rebuild(cfg, Guarantee(1, 1e-6), facts, {"noise_multiplier": 0.8})
    Journal.create(folder / "journal", {})
    torch.manual_seed(9)  # of the fresh adapter
    with Journal.open(folder / "journal", {}) as journal:
        return DPLora().train(
            cfg,
            plan,
            buckets,
            Draw(
                Backends({"base": base}),
                noise,
                journal,
                PERFORMANCE.model_copy(update={"checkpoint_steps": 2}),
            ),
        )


def test_a_training_leaves_the_files_of_one_process(models, shared, tmp_path):
    for name in ("together", "alone"):
        (tmp_path / name).mkdir()
    files = train(shared(), tmp_path / "together")
    assert "adapter_model.safetensors" in files
    assert files == train(load_trainable_model(models, PERFORMANCE), tmp_path / "alone")


def test_files_that_differ_between_machines_are_refused(models, group):
    base = load_trainable_model(models, PERFORMANCE)
    base.revision = "another"
    with pytest.raises(ModelError, match=r"rank 1 .* not those of rank 0"):
        RanksModel(base, group, models, PERFORMANCE)


def test_what_the_others_cannot_load_is_said(models, group, tmp_path):
    base = load_trainable_model(models, PERFORMANCE)
    gone = models.model_copy(update={"language": str(tmp_path / "gone")})
    with pytest.raises(ModelError, match=r"rank 1: .*no such directory"):
        RanksModel(base, group, gone, PERFORMANCE)


def test_a_defect_in_another_process_is_no_reason_to_try_again(shared):
    trainer = shared().trainer(training(1, 4))
    good, secret = rows(trainer, 1, 1), 90210
    with pytest.raises(RuntimeError, match=r"rank 1: IndexError in \w+\.py, line \d+\.") as raised:
        trainer.clipped_sum([*good, [([5, secret], 1)]])
    assert str(secret) not in str(raised.value)
    assert trainer.clipped_sum(good * 2).any(), "and the process still serves"


class Commands:
    """A group whose rank 0 sends two commands."""

    place = Rank(1, 2, 1, 2)

    def __init__(self, *commands):
        self._commands, self.said = iter(commands), []

    def receive(self):
        return next(self._commands)

    def answer(self, said):
        self.said.append(said)


def test_a_process_prints_kind_and_place_of_a_defect_alone(capsys):
    group = Commands((Command.LOAD, b"Ann has flu"), (Command.STOP, b""))
    serve(group)
    (said,) = group.said
    assert said["error"] == "JSONDecodeError"
    printed = capsys.readouterr().err
    assert printed == f"privsyn: rank 1: JSONDecodeError in {said['place']}.\n"
    assert "flu" not in printed + json.dumps(said)


row = st.tuples(st.lists(st.integers(0, 2**31), max_size=5), st.integers(0, 9))


@given(st.lists(st.lists(row, max_size=3), max_size=5))
def test_units_travel_whole(units):
    assert unpack(pack(units)) == units


def test_settings_travel_whole():
    described = dataclasses.replace(training(2, 5).template, labels=(("a", "news"), ("b", "sport")))
    for settings in (
        training(2, 5),
        dataclasses.replace(training(2, 5), template=described),
        dataclasses.replace(training(1, 1), labels=(None,), target_modules=("q_proj", "v_proj")),
    ):
        assert read_training(json.loads(json.dumps(dataclasses.asdict(settings)))) == settings


def test_a_report_holds_no_text_of_a_foreign_error():
    def failing(error):
        try:
            raise error
        except Exception as caught:
            return report(caught)

    foreign = failing(ValueError("Ann has flu"))
    assert "flu" not in json.dumps(foreign)
    assert not foreign["outside"]
    assert failing(MemoryError("Ann"))["outside"]
    ours = failing(ModelError("no such directory.", hint="Copy it."))
    assert (ours["message"], ours["hint"]) == ("no such directory.", "Copy it.")
