"""Gradients by several processes of one machine: a TrainableModel that distributes every sum.

Only rank 0 samples, draws noise and updates parameters. It sends the other processes the parameters
and their share of the rows, and receives sums of integers, which are exact in any order. So the
result has the same bits as with one process. This requires that a unit's contribution is the same
in every process: all use the same number of units per pass, and before the first sum they must
agree on public rows.

Rank 0 sends bytes to the others over torch.distributed. Parameters and sums use gloo, or NCCL if
every process has a GPU. Nothing is pickled. Messages may be private: they stay within these
processes, and no error repeats their content.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from pydantic import TypeAdapter

from privsyn import errors
from privsyn.errors import ModelError, PrivsynError, TrainingInterrupted
from privsyn.models.gpus import Rank
from privsyn.models.loading import load_trainable_model
from privsyn.models.protocols import (
    Row,
    Sampling,
    SharedTrainer,
    TrainableModel,
    Training,
    Writer,
)
from privsyn.models.settings import ModelsConfig, PerformanceConfig

_START = timedelta(minutes=5)
_STOP = timedelta(seconds=5)
_AGAIN = "Run the same command again: training goes on from its last checkpoint."


class Command(IntEnum):
    """Requests of rank 0 to the others. LOAD, TRAIN, SUM and PROBE are answered."""

    STOP = 0
    LOAD = 1
    CARD = 2
    TRAIN = 3
    NUMBERS = 4
    SLOTS = 5
    SUM = 6
    PROBE = 7
    ADD = 8


class Group:
    """The processes that train together, from the view of one of them.

    Args:
        place: Of this process.
        patience: Longest wait for another live process. A dead one is noticed at once.
        file: File by which processes of one machine find each other. None: by torchrun's variables.

    Raises:
        TrainingInterrupted: In all methods: another process is gone or too slow.
    """

    def __init__(self, place: Rank, patience: timedelta, file: Path | None = None) -> None:
        self.place = place
        self._patience = patience
        self._closed = False
        self._sums: Any = None
        self._device = torch.device("cpu")
        where: dict[str, Any] = {"init_method": "env://"}
        if file is not None:
            where = {"store": dist.FileStore(str(file), place.size)}
        with self._translate_errors():
            dist.init_process_group(
                "gloo", rank=place.rank, world_size=place.size, timeout=_START, **where
            )
            self._group = dist.new_group(backend="gloo", timeout=patience)

    @property
    def others(self) -> range:
        """All ranks except 0."""
        return range(1, self.place.size)

    def ask(self, command: Command, *contents: bytes) -> None:
        """Send a command from rank 0, with one content for all others or one for each."""
        for rank in self.others:
            self._send(rank, command, contents[(rank - 1) % len(contents)] if contents else b"")

    def receive(self) -> tuple[Command, bytes]:
        """Receive the next command of rank 0 and its content."""
        head, body = self._receive(0)
        return Command(head), body

    def answer(self, values: Mapping[str, Any]) -> None:
        """Answer rank 0 with public facts."""
        self._send(0, 0, json.dumps(values).encode())

    def answers(self) -> list[dict[str, Any]]:
        """Answers of the others to rank 0, in order.

        Raises:
            PrivsynError: A process failed with one of our errors, which is repeated.
            RuntimeError: A process failed by a defect; only its kind and place are shown.
        """
        answers = [json.loads(self._receive(rank)[1]) for rank in self.others]
        for rank, answer in zip(self.others, answers, strict=True):
            if "error" in answer:
                raise _failure(rank, answer)
        return answers

    @staticmethod
    def use_cards(cards: Sequence[str | None]) -> bool:
        """Whether NCCL adds: every process has its own GPU. Names come from ``card_name``."""
        return None not in cards and len(set(cards)) == len(cards) and dist.is_nccl_available()

    def join_cards(self, index: int) -> None:
        """Add by NCCL from now on. All processes must call it."""
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # an error instead of an abort
        self._device = torch.device("cuda", index)
        torch.cuda.set_device(self._device)
        with self._translate_errors():
            self._sums = dist.new_group(backend="nccl", timeout=self._patience)

    def spread(self, numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Send rank 0's parameters, shape (numbers,), to all processes."""
        tensor = torch.from_numpy(numbers).to(self._device)
        with self._translate_errors():
            dist.broadcast(tensor, 0, group=self._sums or self._group)
            return np.asarray(tensor.cpu().numpy())

    def add(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exact sum of all parts, shape (numbers,). Only rank 0 gets it."""
        tensor = torch.from_numpy(part).to(self._device)
        with self._translate_errors():
            dist.reduce(tensor, 0, op=dist.ReduceOp.SUM, group=self._sums or self._group)
            return np.asarray(tensor.cpu().numpy())

    def close(self) -> None:
        """Leave the group. Rank 0 tells the others to stop if they still listen."""
        if self._closed:
            return
        self._closed = True
        if self.place.rank == 0:
            with suppress(RuntimeError):
                (stop,) = _message(Command.STOP)
                # Not a blocking send: a process that died would make the run wait until its
                # timeout.
                sends = [dist.isend(stop, rank, group=self._group) for rank in self.others]
                for work in sends:
                    if work is not None:
                        work.wait(_STOP)
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def _send(self, rank: int, kind: int, content: bytes = b"") -> None:
        with self._translate_errors(rank):
            for part in _message(kind, content):
                dist.send(part, rank, group=self._group)

    def _receive(self, rank: int) -> tuple[int, bytes]:
        head = torch.zeros(2, dtype=torch.int64)
        with self._translate_errors(rank):
            dist.recv(head, rank, group=self._group)
            kind, length = head.tolist()
            body = torch.zeros(length, dtype=torch.uint8)
            if length:
                dist.recv(body, rank, group=self._group)
        return kind, body.numpy().tobytes()

    @contextmanager
    def _translate_errors(self, rank: int | None = None) -> Iterator[None]:
        """Turn torch's errors about a lost process into TrainingInterrupted."""
        try:
            yield
        except RuntimeError as error:
            peer = "another training process" if rank is None else f"rank {rank}"
            kind = "did not answer in time" if "imed out" in str(error) else "is gone"
            raise TrainingInterrupted(
                f"rank {self.place.rank} of {self.place.size}: {peer} {kind}.", hint=_AGAIN
            ) from None


def _message(kind: int, content: bytes = b"") -> list[torch.Tensor]:
    """Tensors of a message: kind and length, then the content if there is any."""
    head = torch.tensor([kind, len(content)], dtype=torch.int64)
    if not content:
        return [head]
    return [head, torch.from_numpy(np.frombuffer(content, np.uint8).copy())]


def card_name(device: Any) -> str | None:
    """The GPU of a device, by machine and number; None for a CPU."""
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"{socket.gethostname()}/{index}"


def report(error: Exception) -> dict[str, Any]:
    """What may be told about a failure: our own errors in full, of others only kind and place."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    ours = isinstance(error, PrivsynError)
    return {
        "error": type(error).__name__,
        "message": error.message if isinstance(error, PrivsynError) else None,
        "hint": error.hint if isinstance(error, PrivsynError) else "",
        "place": f"{Path(where.filename).name}, line {where.lineno}",
        "outside": not ours and (isinstance(error, MemoryError | OSError | torch.OutOfMemoryError)),
    }


def _failure(rank: int, answer: Mapping[str, Any]) -> Exception:
    if answer["message"] is not None:
        kind = getattr(errors, answer["error"], PrivsynError)
        error: PrivsynError = kind(f"rank {rank}: {answer['message']}", hint=answer["hint"])
        return error
    text = f"rank {rank}: {answer['error']} in {answer['place']}."
    # A defect may depend on the records, so it must not look like a failure that can be retried.
    return TrainingInterrupted(text, hint=_AGAIN) if answer["outside"] else RuntimeError(text)


_WORDS = "the quick brown fox jumps over a lazy dog and then sleeps in its own warm bed".split()


class RanksModel:
    """Rank 0's TrainableModel, whose trainer uses all processes.

    Args:
        base: This process's own model.
        group: The processes.
        models: Names the model, which the others load, too.
        performance: Device; if there are GPUs, each process takes the GPU of its number.

    Raises:
        ModelError: A process cannot load the model, or finds other files.
        TrainingInterrupted: A process is gone.
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
        """A trainer before its first step."""
        self._group.ask(Command.TRAIN, json.dumps(dataclasses.asdict(training)).encode())
        trainer: Any = self._base.trainer(training)
        return RanksTrainer(trainer, self._group, training, self._group.answers())

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> Writer:
        """The writer of this process: writing needs no other."""
        return self._base.writer(training, folder, sampling)


class RanksTrainer:
    """Rank 0's Trainer, which distributes its sums to all processes.

    Args:
        trainer: This process's trainer.
        group: The processes; the others have built their trainers.
        training: Public settings.
        answers: Answers of the others to TRAIN.

    Raises:
        TrainingInterrupted: Also in all methods: a process is gone, or computes other values.
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
        """Number of trained parameters."""
        return self._own.size

    def encode(self, label: str | None, text: str) -> Row:
        """The training sequence of a record."""
        return self._own.encode(label, text)

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """Sum over units of their clipped gradients, shape (size,); every process adds a share."""
        ranks = self._group.place.size
        local, *shares = [units[rank::ranks] for rank in range(ranks)]
        while True:
            slots = self._own.units_per_pass
            self._share_numbers()
            self._group.ask(Command.SUM, *map(pack, shares))
            part = self._own.clipped_sum(local)
            least = self._least(self._group.answers())
            if least == slots:
                # Only now is the sum added: every process kept to the same units per pass.
                self._group.ask(Command.ADD)
                return self._group.add(part)
            # A process ran out of memory. Passes of another size may round differently: repeat all.
            self._agree(least)

    def update(self, gradient: NDArray[np.float64], learning_rate: float) -> None:
        """One step of the optimizer, in this process; the others get the new parameters later."""
        self._own.update(gradient, learning_rate)
        self._stale = True

    def state(self) -> bytes:
        """State of parameters and optimizer."""
        return self._own.state()

    def restore(self, state: bytes) -> None:
        """Continue from a state."""
        self._own.restore(state)
        self._stale = True

    def has_moved(self) -> bool:
        """Whether the trained parameters differ from their initial values."""
        return self._own.has_moved()

    def files(self) -> Mapping[str, bytes]:
        """Files of the trained weights by name."""
        return self._own.files()

    def _share_numbers(self) -> None:
        if self._stale:
            self._group.ask(Command.NUMBERS)
            self._group.spread(self._own.numbers())
            self._stale = False

    def _least(self, answers: Sequence[Mapping[str, Any]]) -> int:
        """Units per pass that fit into every process's memory."""
        return min(self._own.units_per_pass, *(int(answer["slots"]) for answer in answers))

    def _agree(self, slots: int) -> None:
        """Choose the units per pass, and check that public units add the same in every process.

        Each process gets them in another order, which must not matter.
        """
        numbers = self._own.numbers()
        # Half of a new adapter is zero, so gradients of the other half are zero, too: add noise.
        noise = np.random.default_rng(0).standard_normal(numbers.shape, np.float32)
        self._own.take(numbers + noise * np.float32(0.02))
        self._stale = True
        try:
            while not self._alike(slots):
                least = self._own.units_per_pass
                if slots == least == 1:
                    raise TrainingInterrupted(
                        "the processes compute different gradients from the same input.",
                        hint="Train on GPUs of one kind, or in one process.",
                    )
                slots = least if least < slots else 1
        finally:
            self._own.take(numbers)
            self._stale = True

    def _alike(self, slots: int) -> bool:
        """Whether all processes manage this many units per pass and compute the same."""
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
        """Invented units of all lengths and numbers of records."""
        rng = np.random.default_rng(1)  # any numbers would do

        def row() -> Row:
            label = self._training.labels[rng.integers(len(self._training.labels))]
            words = rng.choice(_WORDS, rng.integers(1, self._training.max_tokens + 1))
            return self._own.encode(label, " ".join(words))

        records = self._training.records_per_unit
        return [[row() for _ in range(1 + place % records)] for place in range(count)]


def serve(group: Group) -> None:
    """Carry out the commands of rank 0 until it sends STOP or is gone.

    A failure is reported to rank 0, which then ends the training. Of a foreign exception only kind
    and place are reported, since its message may hold record text.

    Raises:
        TrainingInterrupted: Rank 0 is gone.
    """
    helper = _Helper(group)
    while True:
        command, content = group.receive()
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
    """A process other than rank 0: its model, its trainer, and its part of the current sum."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._model: Any = None
        self._trainer: Any = None
        self._part = np.zeros(0, np.int64)
        self._device = torch.device("cpu")

    def do(self, command: Command, content: bytes) -> dict[str, Any] | None:
        """Carry out a command; returns the answer if there is one."""
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
    """The device of this process: the GPU of its number, unless the setting names one.

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
            f"rank {group.place.local} needs its own.",
            hint="Lower performance.processes, or set performance.device=cpu.",
        )
    return torch.device("cuda", group.place.local)


def pack(units: Sequence[Sequence[Row]]) -> bytes:
    """Units as bytes: int64 numbers, with lengths first."""
    numbers = [len(units), *map(len, units)]
    rows = [row for unit in units for row in unit]
    for ids, start in rows:
        numbers += (len(ids), start)
    for ids, _ in rows:
        numbers += ids
    return np.array(numbers, np.int64).tobytes()


def unpack(content: bytes) -> list[list[Row]]:
    """The units of ``pack``."""
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
    """Digest of a sum over public rows."""
    return hashlib.sha256(total.tobytes()).hexdigest()


def read_training(values: Mapping[str, Any]) -> Training:
    """Settings from JSON, with tuples in place of lists."""
    return TypeAdapter(Training).validate_python(values)
