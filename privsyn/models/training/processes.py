"""Processes that train together: started by torchrun, or by this process.

Rank 0 is the stage itself. Every other process holds a copy of the model, computes gradients for
rank 0 and ends with it. It has no access to the ledger, the journal or the noise. Its command is
``python -m privsyn.models.training.processes``.

Torch's launchers do not fit: ``torch.multiprocessing`` and torchrun's agent pass on the whole
environment, write tracebacks to files, and cannot use a rank 0 that is already running. The agent
also listens beyond the loopback, and its children survive if it is killed.
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

from privsyn.errors import ConfigError, TrainingInterrupted
from privsyn.models.gpus import Rank
from privsyn.models.settings import PerformanceConfig
from privsyn.section import OVERRIDES

if TYPE_CHECKING:
    from privsyn.models.training.multi_gpu import Group


PATIENCE = timedelta(hours=2)
"""Longest wait for another live process: the work between two sums, or one share of a sum."""

_READY = b"ready\n"

_GRACE = 5.0

_INTERFACE = "GLOO_SOCKET_IFNAME"


def by_hand() -> Rank | None:
    """The rank that torchrun gave this process; None without torchrun.

    Raises:
        ConfigError: torchrun's variables are not numbers.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    values = {name: os.environ.get(name) for name in names}
    if values["RANK"] is None or values["WORLD_SIZE"] in (None, "1"):
        return None
    try:
        place = Rank(*(int(value or 0) for value in values.values()))
    except ValueError:
        shown = " ".join(f"{name}={value}" for name, value in values.items())
        raise ConfigError(f"environment: {shown} must be numbers, as torchrun sets them.") from None
    return place


def check_one_machine(place: Rank) -> None:
    """Refuse to train over a network: records and exact sums would cross it unencrypted.

    Processes of one machine use the loopback interface.

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
def join_group(place: Rank, patience: timedelta = PATIENCE) -> Iterator[Group]:
    """The group in which torchrun started this process; at the end rank 0 stops the others.

    Args:
        place: Rank of this process.
        patience: Longest wait for another process.

    Raises:
        ConfigError: The processes are on several machines.
        TrainingInterrupted: Another process is missing.
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
def start_group(performance: PerformanceConfig, patience: timedelta = PATIENCE) -> Iterator[Group]:
    """A group of this process and ``performance.processes`` - 1 more, started on this machine.

    They end with the block, and also if this process is killed. They use the loopback and find
    each other by a file that only this user can read. If ``performance.threads`` is not set, each
    gets an equal share of the cores.

    Raises:
        TrainingInterrupted: A process did not start.
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
    """Begin a process that ``start_group`` launched: end with its parent, and join the group.

    Args:
        arguments: Command line as ``start_group`` wrote it.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from privsyn.models.training.multi_gpu import Group

    file, rank, size, seconds = arguments
    os.write(1, _READY)
    os.dup2(2, 1)  # the parent reads only that line: a full pipe would block later prints
    place = Rank(int(rank), int(size), int(rank), int(size))
    return Group(place, timedelta(seconds=float(seconds)), Path(file))


def _start(file: Path, place: Rank, patience: timedelta) -> subprocess.Popen[bytes]:
    values = map(str, (file, place.rank, place.size, patience.total_seconds()))
    hidden = (OVERRIDES, "PRIVSYN_DEBUG")  # may hold passwords; prints tracebacks with private text
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
    """End when stdin's pipe closes, which happens however the parent ends."""
    while os.read(0, 1):
        pass
    os._exit(1)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make gloo listen on the loopback alone, in this process and its children."""
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
    """Serve rank 0, which started this process. Prints nothing: rank 0 reports errors."""
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
