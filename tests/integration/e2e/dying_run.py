"""Attempts at releases, each in a process that counts its mechanism calls and may kill itself.

Usage: python -m tests.integration.e2e.dying_run PROJECT COUNTER KILL_AT. Every call to the
mechanism is one byte in COUNTER, g of a Gaussian. The process sends itself SIGKILL right after call
number KILL_AT of this attempt (0: never).

Without arguments it is a server: it reads [PROJECT, COUNTER, KILL_AT] line by line, forks a process
for each, and answers with how that ended. Its imports, most of an attempt's time, are done once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from privsyn.methods.base import Backends
from privsyn.methods.dp_lora import method as dp_lora
from privsyn.stages.draw import train
from privsyn.stages.partition import partition
from privsyn.stages.reserve import settle
from tests.integration.e2e.small_project import Project, finish, reserve_release, stand_ins
from tests.noise import SeededNoise


class Counted(SeededNoise):
    """Counts calls where a SIGKILL cannot undo it; a fresh seed every attempt, as an OS gives."""

    def __init__(self, counter, kill_at):
        super().__init__(int.from_bytes(os.urandom(8)))
        self._counter, self._kill_at, self._calls = counter, kill_at, 0

    def noisy_max(self, scores, scale, sensitivity):
        return self._counted(super().noisy_max(scores, scale, sensitivity))

    def laplace(self, values, scale):
        return self._counted(super().laplace(values, scale))

    def gaussian(self, values, sigma):
        return self._counted(super().gaussian(values, sigma), b"g")

    def sample(self, units, rate):
        return self._counted(super().sample(units, rate))

    def _counted(self, choice, kind=b"."):
        with self._counter.open("ab", buffering=0) as stream:
            stream.write(kind)
        self._calls += 1
        if self._calls == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return choice


def main(root, counter, kill_at):
    ctx = Project(root).context()
    noise = Counted(counter, kill_at)
    ctx.noise = lambda: noise
    dp_lora.CHECKPOINT_STEPS = 2  # so that a short training has several
    (method,) = ctx.config.methods
    planned = reserve_release(ctx, method)
    partition(ctx, planned)
    train(ctx, planned, backends=Backends(stand_ins()))
    finish(ctx, planned, Backends(stand_ins()))
    settle(ctx, planned)


def serve():
    """Fork an attempt per line of stdin, until that ends."""
    from privsyn.dp import loss_distribution  # noqa: F401  # an import that attempts would do
    from privsyn.models.loading import check_layers
    from privsyn.models.settings import ModelsConfig

    check_layers(ModelsConfig(language="tiny"), ("q_proj",))  # imports what reserve's checks use
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the other threads"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in iter(sys.stdin.readline, ""):
        project, counter, kill_at = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                main(Path(project), Path(counter), kill_at)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    else:
        serve()
