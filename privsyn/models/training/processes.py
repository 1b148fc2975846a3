"""Which processes train together: those torchrun started, or those that this one starts.

Rank 0 is the stage itself. The others hold a copy of the model, compute gradients for it and end
with it: they know no ledger, no journal and no noise. Each of
them is ``python -m privsyn.models.training.processes``.

Torch's own launchers do not start them: ``torch.multiprocessing`` and torchrun's agent pass the
whole environment on, write tracebacks to files and have no place for a rank 0 that is already
running; the agent listens beyond the loopback, and what it started lives on when it is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from privsyn.config import OVERRIDES
from privsyn.errors import ConfigError, TrainingInterrupted
from privsyn.models.gpus import Rank
from privsyn.models.settings import PerformanceConfig

if TYPE_CHECKING:
    from privsyn.models.training.multi_gpu import Group


PATIENCE = timedelta(hours=2)
"""Longest wait for another process that lives: the work between two sums, or one share of a sum."""

_READY = b"ready\n"

_GRACE = 5.0

_INTERFACE = "GLOO_SOCKET_IFNAME"


def by_hand() -> Rank | None:
    """Where torchrun put this process; None where it runs by itself.

    Raises:
        ConfigError: The variables torchrun sets are no numbers.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    values = {name: os.environ.get(name) for name in names}
    if values["RANK"] is None or values["WORLD_SIZE"] in (None, "1"):
        return None
    try:
        place = Rank(*(int(value or 0) for value in values.values()))
    except ValueError:
        shown = " ".join(f"{name}={value}" for name, value in values.items())
        raise ConfigError(f"environment: {shown} are not numbers, as torchrun sets.") from None
    return place


def check_one_machine(place: Rank) -> None:
    """Refuse to train over a network: records and sums without noise would cross it unencrypted.

    Processes of one machine talk over the loopback.

    Raises:
        ConfigError: torchrun started some of them on other machines.
    """
    if not place.alone:
        raise ConfigError(
            f"torchrun started {place.size} processes, {place.local_size} of them on this machine: "
            "records and gradients would cross the network unencrypted, so privsyn trains on one "
            "machine.",
            hint="Start torchrun with --standalone on one machine, or set performance.processes.",
        )


@contextmanager
def joined(place: Rank, patience: timedelta = PATIENCE) -> Iterator[Group]:
    """The group torchrun started this process for; at the end rank 0 tells the others to stop.

    Args:
        place: Of this process.
        patience: Longest wait for another.

    Raises:
        ConfigError: They are on several machines.
        TrainingInterrupted: The others are not there.
    """
    check_one_machine(place)
    from privsyn.models.training.multi_gpu import Group

    with _on_loopback():
        group = Group(place, patience)
    try:
        yield group
    finally:
        group.close()


@contextmanager
def started(performance: PerformanceConfig, patience: timedelta = PATIENCE) -> Iterator[Group]:
    """A group of this process and ``performance.processes`` - 1 that it starts on this machine.

    They end with the block, and whatever way this process ends. They talk over the loopback, and
    find each other by a file that only this user can read. Where the threads of a process are not
    set, each gets its share of the cores.

    Raises:
        TrainingInterrupted: One of them did not start.
    """
    import torch

    from privsyn.models.training.multi_gpu import Group

    threads = torch.get_num_threads()
    size = performance.processes
    if performance.threads is None:
        torch.set_num_threads(max(1, threads // size))
    children: list[subprocess.Popen[bytes]] = []
    try:
        with TemporaryDirectory(prefix="privsyn-") as folder:
            file = Path(folder) / "ranks"
            with _on_loopback():
                for rank in range(1, size):
                    children.append(_start(file, Rank(rank, size, rank, size), patience))
                for rank, child in enumerate(children, 1):
                    if child.stdout is None or child.stdout.readline() != _READY:
                        raise TrainingInterrupted(f"rank {rank} did not start.")
                group = Group(Rank(0, size, 0, size), patience, file)
            try:
                yield group
            finally:
                group.close()
    finally:
        for child in children:
            _end(child)
        torch.set_num_threads(threads)


def ready(arguments: list[str]) -> Group:
    """What a process that ``started`` began does first: bind its life to the other's, and join.

    Args:
        arguments: As ``started`` wrote them.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from privsyn.models.training.multi_gpu import Group

    file, rank, size, seconds = arguments
    os.write(1, _READY)
    os.dup2(2, 1)  # nobody reads on
    place = Rank(int(rank), int(size), int(rank), int(size))
    return Group(place, timedelta(seconds=float(seconds)), Path(file))


def _start(file: Path, place: Rank, patience: timedelta) -> subprocess.Popen[bytes]:
    values = map(str, (file, place.rank, place.size, patience.total_seconds()))
    hidden = (OVERRIDES, "PRIVSYN_DEBUG")  # passwords; tracebacks, which may hold private text
    return subprocess.Popen(
        [sys.executable, "-m", "privsyn.models.training.processes", *values],
        env={key: value for key, value in os.environ.items() if key not in hidden},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _end_with_parent() -> None:
    """The pipe on stdin ends with the process that holds its other end, however it ends."""
    while os.read(0, 1):
        pass
    os._exit(1)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Have gloo listen on the loopback alone: this process and those it starts."""
    before = os.environ.get(_INTERFACE)
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if names:
        os.environ[_INTERFACE] = names[0]
    try:
        yield
    finally:
        if before is not None:
            os.environ[_INTERFACE] = before
        elif names:
            del os.environ[_INTERFACE]


def main(arguments: list[str]) -> int:
    """Serve rank 0, which started this process. Says nothing: rank 0 does, or is gone."""
    from privsyn.models.training.multi_gpu import serve  # late: loads torch

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
