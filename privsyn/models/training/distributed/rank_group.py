"""What processes that train together send each other, over torch.distributed.

Rank 0 speaks to each of the others alone, in bytes; trained numbers and sums go to and from all at
once, by gloo, or by NCCL where every process has a GPU of its own. Between machines that hold one
key all of it goes to each alone, sealed. Nothing is pickled. What is sent may be private: it stays
among these processes, and no message or error repeats any of it.
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
from privsyn.errors import ConfigError, PrivsynError, TrainingInterrupted
from privsyn.models.training.distributed.rank import Rank
from privsyn.models.training.distributed.sealed import Channel, WrongKey, fresh_nonce

_START = timedelta(minutes=5)
_STOP = timedelta(seconds=5)
_AGAIN = "Run the same command again: training goes on from its last checkpoint."


class Command(IntEnum):
    """What rank 0 asks of the others. LOAD, TRAIN, HOLD, SUM, SAMPLE and PROBE are answered."""

    STOP = 0
    LOAD = 1
    CARD = 2
    TRAIN = 3
    NUMBERS = 4
    SLOTS = 5
    SUM = 6
    PROBE = 7
    ADD = 8
    HOLD = 9
    SAMPLE = 10
    COUNT = 11


_HELLO, _SEALED = 100, 101
"""Kinds of message that are no command: the start of a sealed connection, and what goes over it."""


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
        self._channels: dict[int, Channel] = {}
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

    @property
    def sealed(self) -> bool:
        """Whether all that is sent is encrypted."""
        return bool(self._channels)

    def seal(self, secret: bytes) -> None:
        """Encrypt all that is sent from now on, in all processes at once.

        Args:
            secret: The key that all of them hold.

        Raises:
            ConfigError: Another process holds another key, or none.
        """
        own, lead = fresh_nonce(), self.place.rank == 0
        channels = {}
        for rank in self.others if lead else [0]:
            # In turns: a message is sent when the other side asks for it.
            if lead:
                self._send(rank, _HELLO, own)
            theirs = self._hello(rank)
            if not lead:
                self._send(rank, _HELLO, own)
            pair = (rank if lead else self.place.rank, self.place.size)
            channels[rank] = Channel(secret, pair, lead, (own, theirs) if lead else (theirs, own))
        for rank, channel in channels.items():  # a message each way, before any that matters
            if lead:
                self._send(rank, _HELLO, channel.seal(b"lead"))
            try:
                channel.open(self._hello(rank))
            except WrongKey:
                raise self._other_key(rank) from None
            if not lead:
                self._send(rank, _HELLO, channel.seal(b"follow"))
        self._channels = channels

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
        if self.sealed:
            if self.place.rank:
                return np.frombuffer(self._receive(0)[1], np.float32).copy()
            for rank in self.others:
                self._send(rank, 0, numbers.tobytes())
            return numbers
        tensor = torch.from_numpy(numbers).to(self._device)
        with self._reached():
            dist.broadcast(tensor, 0, group=self._sums or self._group)
            return np.asarray(tensor.cpu().numpy())

    def add(self, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of all parts, exact; means something on rank 0 only."""
        if self.sealed:
            if self.place.rank:
                self._send(0, 0, part.tobytes())
                return part
            parts = (np.frombuffer(self._receive(rank)[1], np.int64) for rank in self.others)
            return sum(parts, start=part)
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
                parts = [
                    (rank, part)
                    for rank in self.others
                    for part in self._message(rank, Command.STOP)
                ]
                sends = [dist.isend(part, rank, group=self._group) for rank, part in parts]
                for work in sends:
                    if work is not None:
                        work.wait(_STOP)
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def _message(self, rank: int, kind: int, content: bytes = b"") -> list[torch.Tensor]:
        """What is sent for a message: kind and length, then the content where there is any."""
        if rank in self._channels:
            content = self._channels[rank].seal(bytes([kind]) + content)
            kind = _SEALED
        head = torch.tensor([kind, len(content)], dtype=torch.int64)
        if not content:
            return [head]
        return [head, torch.from_numpy(np.frombuffer(content, np.uint8).copy())]

    def _send(self, rank: int, kind: int, content: bytes = b"") -> None:
        with self._reached(rank):
            for part in self._message(rank, kind, content):
                dist.send(part, rank, group=self._group)

    def _arrived(self, rank: int) -> tuple[int, bytes]:
        head = torch.zeros(2, dtype=torch.int64)
        with self._reached(rank):
            dist.recv(head, rank, group=self._group)
            kind, length = head.tolist()
            body = torch.zeros(length, dtype=torch.uint8)
            if length:
                dist.recv(body, rank, group=self._group)
        return kind, body.numpy().tobytes()

    def _receive(self, rank: int) -> tuple[int, bytes]:
        kind, content = self._arrived(rank)
        if not self.sealed and kind in (_HELLO, _SEALED):
            raise self._other_key(rank)
        if not self.sealed:
            return kind, content
        try:
            if kind != _SEALED:  # privacy: what comes in clear is not believed, and not answered
                raise WrongKey
            message = self._channels[rank].open(content)
        except WrongKey:
            raise TrainingInterrupted(
                f"rank {self.place.rank} of {self.place.size}: a message of rank {rank} was "
                "changed on its way.",
                hint=_AGAIN,
            ) from None
        return message[0], message[1:]

    def _hello(self, rank: int) -> bytes:
        kind, content = self._arrived(rank)
        if kind != _HELLO:
            raise self._other_key(rank)
        return content

    def _other_key(self, rank: int) -> ConfigError:
        return ConfigError(
            f"rank {self.place.rank} of {self.place.size}: what rank {rank} sends is not sealed by "
            "the key of this machine.",
            hint="Give all machines the same vault key (services.vault_key, PRIVSYN_VAULT_KEY) and "
            "the same performance.rendezvous_insecure.",
        )

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
