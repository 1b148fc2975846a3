"""Gradients by several processes: a TrainableModel that shares the units of every sum out.

Only rank 0 samples, draws noise and steps: the others are sent the trained numbers and the rows of
their share (or read units of their own: ``spread.py``), and send back a sum of integers, exact in
any order. The result has the bits that one process gives. That needs a unit to add the same
wherever it goes through: all processes pass the same number of units at a time, and public rows
must add the same in each before the first sum.

``python -m privsyn.models.training.distributed.ranks``: one of the processes that rank 0 starts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from privsyn.errors import ModelError, TrainingInterrupted
from privsyn.models.language.loading import load_trainable_model
from privsyn.models.protocols import (
    Row,
    Sampling,
    SharedTrainer,
    TrainableModel,
    Training,
    Writer,
)
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training.distributed.rank_group import Command, Group, card_name, report
from privsyn.models.training.distributed.rank_processes import ready

_WORDS = "the quick brown fox jumps over a lazy dog and then sleeps in its own warm bed".split()


class RanksModel:
    """A TrainableModel whose trainer works with all processes. Of rank 0.

    Args:
        base: This process's own model.
        group: The processes.
        models: What the others load: the same.
        performance: Where to; each takes the GPU of its number where there are GPUs.

    Raises:
        ModelError: One of them cannot load it, or finds other files.
        TrainingInterrupted: One of them is gone.
    """

    def __init__(
        self,
        base: TrainableModel,
        group: Group,
        models: ModelsConfig,
        performance: PerformanceConfig,
    ) -> None:
        self.revision = base.revision
        self._base, self._group = base, group
        performance = performance.model_copy(update={"threads": torch.get_num_threads()})
        request = {
            "models": models.model_copy(update={"server": None}).model_dump(mode="json"),
            "performance": performance.model_dump(mode="json"),
        }
        group.ask(Command.LOAD, json.dumps(request).encode())
        answers = group.answers()
        for rank, answer in zip(group.others, answers, strict=True):
            if answer["revision"] != base.revision:
                raise ModelError(
                    f"models.language={models.language}: the files that rank {rank} finds are not "
                    "those of rank 0.",
                    hint="Do not change the model while it trains.",
                )
        device = _device(performance.device, group)
        if group.use_cards([card_name(device), *(answer["card"] for answer in answers)]):
            group.ask(Command.CARD)
            group.join_cards(device.index)

    def trainer(self, training: Training) -> RanksTrainer:
        """See protocols.TrainableModel."""
        self._group.ask(Command.TRAIN, json.dumps(dataclasses.asdict(training)).encode())
        trainer: Any = self._base.trainer(training)
        return RanksTrainer(trainer, self._group, training, self._group.answers())

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> Writer:
        """This process's own. See protocols.TrainableModel."""
        return self._base.writer(training, folder, sampling)


class RanksTrainer:
    """The trainer of rank 0 with the help of all others. See protocols.Trainer.

    Args:
        trainer: This process's trainer.
        group: The processes; the others have built theirs.
        training: Public settings.
        answers: Of the others, to TRAIN.

    Raises:
        TrainingInterrupted: In all methods too: a process is gone, or computes other numbers.
    """

    def __init__(
        self,
        trainer: SharedTrainer,
        group: Group,
        training: Training,
        answers: Sequence[Mapping[str, Any]],
    ) -> None:
        self._own, self._group, self._training = trainer, group, training
        self._stale = True
        self._agree(self._least(answers))

    @property
    def size(self) -> int:
        """See protocols.Trainer."""
        return self._own.size

    def encode(self, label: str | None, text: str) -> Row:
        """See protocols.Trainer."""
        return self._own.encode(label, text)

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """See protocols.Trainer."""
        ranks = self._group.place.size
        own, *shares = [units[rank::ranks] for rank in range(ranks)]
        while True:
            slots = self._own.units_per_pass
            self._share_numbers()
            self._group.ask(Command.SUM, *map(pack, shares))
            part = self._own.clipped_sum(own)
            least = self._least(self._group.answers())
            if least == slots:
                self._group.ask(Command.ADD)
                return self._group.add(part)
            # One ran out of memory: passes of another size may round otherwise, so all do it again.
            self._agree(least)

    def update(self, gradient: NDArray[np.float64], learning_rate: float) -> None:
        """See protocols.Trainer."""
        self._own.update(gradient, learning_rate)
        self._stale = True

    def state(self) -> bytes:
        """See protocols.Trainer."""
        return self._own.state()

    def restore(self, state: bytes) -> None:
        """See protocols.Trainer."""
        self._own.restore(state)
        self._stale = True

    def moved(self) -> bool:
        """See protocols.Trainer."""
        return self._own.moved()

    def files(self) -> Mapping[str, bytes]:
        """See protocols.Trainer."""
        return self._own.files()

    def _share_numbers(self) -> None:
        if self._stale:
            self._group.ask(Command.NUMBERS)
            self._group.spread(self._own.numbers())
            self._stale = False

    def _least(self, answers: Sequence[Mapping[str, Any]]) -> int:
        """Units per pass that every process has the memory for."""
        return min(self._own.units_per_pass, *(int(answer["slots"]) for answer in answers))

    def _agree(self, slots: int) -> None:
        """Settle on the units per pass, and that public units add the same in every process.

        Each process has them in another order, which must not matter either.
        """
        numbers = self._own.numbers()
        # Fresh adapters have a half of zeros, and gradients of the other half then are zero too.
        noise = np.random.default_rng(0).standard_normal(numbers.shape, np.float32)
        self._own.take(numbers + noise * np.float32(0.02))
        self._stale = True
        try:
            while not self._alike(slots):
                least = self._own.units_per_pass
                if slots == least == 1:
                    raise TrainingInterrupted(
                        "the processes compute different numbers from the same input.",
                        hint="Train on GPUs of one kind, or by one process.",
                    )
                slots = least if least < slots else 1
        finally:
            self._own.take(numbers)
            self._stale = True

    def _alike(self, slots: int) -> bool:
        """Whether all keep to so many units per pass, and compute the same."""
        self._group.ask(Command.SLOTS, str(slots).encode())
        self._own.units_per_pass = slots
        self._share_numbers()
        units = self._public_units(slots + 2)  # the last pass is not a full one
        turns = (rank % len(units) for rank in range(self._group.place.size))
        shares = [units[turn:] + units[:turn] for turn in turns]
        self._group.ask(Command.PROBE, *map(pack, shares[1:]))
        expected = digest(self._own.clipped_sum(shares[0]))
        answers = self._group.answers()
        self._own.units_per_pass = self._least(answers)
        alike = all(answer["digest"] == expected for answer in answers)
        return alike and self._own.units_per_pass == slots

    def _public_units(self, count: int) -> list[list[Row]]:
        """Units that are nobody's, of all lengths and numbers of records."""
        rng = np.random.default_rng(1)  # any numbers would do

        def row() -> Row:
            label = self._training.labels[rng.integers(len(self._training.labels))]
            words = rng.choice(_WORDS, rng.integers(1, self._training.max_tokens + 1))
            return self._own.encode(label, " ".join(words))

        records = self._training.records_per_unit
        return [[row() for _ in range(1 + place % records)] for place in range(count)]


def serve(group: Group) -> None:
    """Compute what rank 0 asks for, until it says stop or is gone.

    A failure is reported to rank 0, which then ends the training: of one that is not ours the kind
    and place alone, since its message may hold record text.

    Raises:
        TrainingInterrupted: Rank 0 is gone.
    """
    helper = _Helper(group)
    while True:
        command, content = group.asked()
        if command is Command.STOP:
            return
        try:
            answer = helper.do(command, content)
        except TrainingInterrupted:
            raise
        except Exception as error:
            answer = report(error)
            if answer["message"] is None:
                text = f"privsyn: rank {group.place.rank}: {answer['error']} in {answer['place']}."
                print(text, file=sys.stderr, flush=True)
        if answer is not None:
            group.answer(answer)


class _Helper:
    """A process other than rank 0: its model, its trainer, and its part of the sum under way."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._model: Any = None
        self._trainer: Any = None
        self._part = np.zeros(0, np.int64)
        self._device = torch.device("cpu")

    def do(self, command: Command, content: bytes) -> dict[str, Any] | None:
        """Carry a command out; the answer, where there is one."""
        match command:
            case Command.LOAD:
                return self._load(json.loads(content))
            case Command.CARD:
                self._group.join_cards(self._device.index)
            case Command.TRAIN:
                self._trainer = self._model.trainer(read_training(json.loads(content)))
                return self._slots()
            case Command.NUMBERS:
                numbers = np.zeros(self._trainer.size, np.float32)
                self._trainer.take(self._group.spread(numbers))
            case Command.SLOTS:
                self._trainer.units_per_pass = int(content)
            case Command.SUM:
                self._part = self._trainer.clipped_sum(unpack(content))
                return self._slots()
            case Command.PROBE:
                sum_digest = digest(self._trainer.clipped_sum(unpack(content)))
                return self._slots() | {"digest": sum_digest}
            case Command.ADD:
                self._group.add(self._part)
        return None

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        performance = PerformanceConfig.model_validate(request["performance"])
        self._device = _device(performance.device, self._group)
        performance = performance.model_copy(update={"device": str(self._device)})
        self._model = load_trainable_model(
            ModelsConfig.model_validate(request["models"]), performance
        )
        return {"revision": self._model.revision, "card": card_name(self._device)}

    def _slots(self) -> dict[str, Any]:
        return {"slots": self._trainer.units_per_pass}


def _device(name: str, group: Group) -> torch.device:
    """The device of this process: the GPU of its number, where none is named.

    Raises:
        ModelError: There are too few GPUs.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if name not in ("auto", "cuda"):
        return torch.device(name)
    cards = torch.cuda.device_count()
    if group.place.local >= cards:
        raise ModelError(
            f"performance.device={name}: this machine has {cards} GPUs, and the process of local "
            f"rank {group.place.local} needs one of its own.",
            hint="Lower performance.processes, or set performance.device=cpu.",
        )
    return torch.device("cuda", group.place.local)


def pack(units: Sequence[Sequence[Row]]) -> bytes:
    """Units as bytes: whole numbers, lengths before what they count."""
    numbers = [len(units), *map(len, units)]
    rows = [row for unit in units for row in unit]
    for ids, start in rows:
        numbers += (len(ids), start)
    for ids, _ in rows:
        numbers += ids
    return np.array(numbers, np.int64).tobytes()


def unpack(content: bytes) -> list[list[Row]]:
    """The units that were packed."""
    count, *rest = np.frombuffer(content, np.int64).tolist()
    sizes, rest = rest[:count], rest[count:]
    heads, place = rest[: 2 * sum(sizes)], 2 * sum(sizes)
    rows: list[Row] = []
    for length, start in zip(heads[::2], heads[1::2], strict=True):
        rows.append((rest[place : place + length], start))
        place += length
    remaining = iter(rows)
    return [[next(remaining) for _ in range(size)] for size in sizes]


def digest(total: NDArray[np.int64]) -> str:
    """Of a sum over public rows."""
    return hashlib.sha256(total.tobytes()).hexdigest()


def read_training(values: Mapping[str, Any]) -> Training:
    """Settings that came as JSON: lists become the tuples that the fields hold."""
    return TypeAdapter(Training).validate_python(values)


def main(arguments: list[str]) -> int:
    """Serve rank 0, which started this process. Says nothing: rank 0 does, or is gone."""
    group = ready(arguments)
    try:
        serve(group)
    except (TrainingInterrupted, KeyboardInterrupt):
        return 1
    finally:
        group.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
