"""What processes that train together send each other, over torch.distributed.

Rank 0 speaks to each of the others alone, in bytes; trained numbers and sums go to and from all at
once, by gloo, or by NCCL where every process has a GPU of its own. All of them are on one machine.
Nothing is pickled. What is sent may be private: it stays among these processes, and no message or
error repeats any of it.
"""

from __future__ import annotations

import json
import os
import socket
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

from privsyn import errors
from privsyn.errors import PrivsynError, TrainingInterrupted
from privsyn.models.training.distributed.rank import Rank

_START = timedelta(minutes=5)
_STOP = timedelta(seconds=5)
_AGAIN = "Run the same command again: training goes on from its last checkpoint."


class Command(IntEnum):
    """What rank 0 asks of the others. LOAD, TRAIN, SUM and PROBE are answered."""

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
    """The processes that train together, as one of them sees them.

    Args:
        place: Of this process.
        patience: Longest wait for another that lives; the end of one that dies is noticed.
        file: Where processes of one machine find each other; None: as torchrun says.

    Raises:
        TrainingInterrupted: In all methods: another process is gone, or too slow.
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
        with self._reached():
            dist.init_process_group(
                "gloo", rank=place.rank, world_size=place.size, timeout=_START, **where
            )
            self._group = dist.new_group(backend="gloo", timeout=patience)

    @property
    def others(self) -> range:
        """Ranks that rank 0 speaks to."""
        return range(1, self.place.size)

    def ask(self, command: Command, *contents: bytes) -> None:
        """Send a command from rank 0: one content for all others, or one for each."""
        for rank in self.others:
            self._send(rank, command, contents[(rank - 1) % len(contents)] if contents else b"")

    def asked(self) -> tuple[Command, bytes]:
        """The next command of rank 0, and its content."""
        head, body = self._receive(0)
        return Command(head), body

    def answer(self, values: Mapping[str, Any]) -> None:
        """Answer rank 0; public facts."""
        self._send(0, 0, json.dumps(values).encode())

    def answers(self) -> list[dict[str, Any]]:
        """What the others answer to rank 0, in order.

        Raises:
            PrivsynError: One of them failed, with its error where it is one of ours.
            RuntimeError: One of them failed by a defect; says its kind and place alone.
        """
        answers = [json.loads(self._receive(rank)[1]) for rank in self.others]
        for rank, answer in zip(self.others, answers, strict=True):
            if "error" in answer:
                raise _failure(rank, answer)
        return answers

    @staticmethod
    def use_cards(cards: Sequence[str | None]) -> bool:
        """Whether NCCL is to add: every process has a GPU of its own. Names as from card_name."""
        return None not in cards and len(set(cards)) == len(cards) and dist.is_nccl_available()

    def join_cards(self, index: int) -> None:
        """Add by NCCL from now on, in all processes at once."""
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # an error instead of an abort
        self._device = torch.device("cuda", index)
        torch.cuda.set_device(self._device)
        with self._reached():
            self._sums = dist.new_group(backend="nccl", timeout=self._patience)

    def spread(self, numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rank 0's numbers, everywhere."""
        tensor = torch.from_numpy(numbers).to(self._device)
        with self._reached():
            dist.broadcast(tensor, 0, group=self._sums or self._group)
            return np.asarray(tensor.cpu().numpy())

    def add(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of all parts, exact; means something on rank 0 only."""
        tensor = torch.from_numpy(part).to(self._device)
        with self._reached():
            dist.reduce(tensor, 0, op=dist.ReduceOp.SUM, group=self._sums or self._group)
            return np.asarray(tensor.cpu().numpy())

    def close(self) -> None:
        """Leave, once and for all. Rank 0 tells the others to stop, where they still listen."""
        if self._closed:
            return
        self._closed = True
        if self.place.rank == 0:
            with suppress(RuntimeError):
                (stop,) = _message(Command.STOP)
                sends = [dist.isend(stop, rank, group=self._group) for rank in self.others]
                for work in sends:
                    if work is not None:
                        work.wait(_STOP)
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def _send(self, rank: int, kind: int, content: bytes = b"") -> None:
        with self._reached(rank):
            for part in _message(kind, content):
                dist.send(part, rank, group=self._group)

    def _receive(self, rank: int) -> tuple[int, bytes]:
        head = torch.zeros(2, dtype=torch.int64)
        with self._reached(rank):
            dist.recv(head, rank, group=self._group)
            kind, length = head.tolist()
            body = torch.zeros(length, dtype=torch.uint8)
            if length:
                dist.recv(body, rank, group=self._group)
        return kind, body.numpy().tobytes()

    @contextmanager
    def _reached(self, rank: int | None = None) -> Iterator[None]:
        """Turn what torch raises where a process is gone into our error."""
        try:
            yield
        except RuntimeError as error:
            peer = "another process that trains along" if rank is None else f"rank {rank}"
            kind = "did not answer in time" if "imed out" in str(error) else "is gone"
            raise TrainingInterrupted(
                f"rank {self.place.rank} of {self.place.size}: {peer} {kind}.", hint=_AGAIN
            ) from None


def _message(kind: int, content: bytes = b"") -> list[torch.Tensor]:
    """What is sent for a message: kind and length, then the content where there is any."""
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
    """What may be said of a failure: our own in full, of another's its kind and place alone."""
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
    # A defect may depend on the records: it must not be taken for one that may be tried again.
    return TrainingInterrupted(text, hint=_AGAIN) if answer["outside"] else RuntimeError(text)
