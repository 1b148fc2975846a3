"""One attempt at a release in a process that counts its mechanism calls and may kill itself.

Usage: dying_run.py PROJECT COUNTER KILL_AT. Every call to the mechanism is one byte in COUNTER. The
process sends itself SIGKILL right after call number KILL_AT of this attempt (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from small_project import Project, stand_ins  # noqa: E402  # found beside this file

from privsyn.dp.noise import SeededNoise  # noqa: E402
from privsyn.methods.base import Backends  # noqa: E402
from privsyn.stages.certify import certify  # noqa: E402
from privsyn.stages.generate import generate  # noqa: E402
from privsyn.stages.partition import partition  # noqa: E402
from privsyn.stages.plan import plan  # noqa: E402
from privsyn.stages.reserve import reserve, settle  # noqa: E402
from privsyn.stages.train import train  # noqa: E402


class Counted(SeededNoise):
    """Counts calls where a SIGKILL cannot undo it; a fresh seed every attempt, as an OS gives."""

    def __init__(self, counter: Path, kill_at: int) -> None:
        super().__init__(int.from_bytes(os.urandom(8)))
        self._counter, self._kill_at, self._calls = counter, kill_at, 0

    def noisy_max(self, scores, scale, sensitivity):
        return self._counted(super().noisy_max(scores, scale, sensitivity))

    def laplace(self, values, scale):
        return self._counted(super().laplace(values, scale))

    def gaussian(self, values, sigma):
        return self._counted(super().gaussian(values, sigma))

    def sample(self, units, rate):
        return self._counted(super().sample(units, rate))

    def _counted(self, choice):
        with self._counter.open("ab", buffering=0) as stream:
            stream.write(b".")
        self._calls += 1
        if self._calls == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return choice


def main(root: Path, counter: Path, kill_at: int) -> None:
    ctx = Project(root).context()
    noise = Counted(counter, kill_at)
    ctx.noise = lambda: noise
    (method,) = ctx.config.methods
    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    shards = partition(ctx, planned)
    train(ctx, planned, backends=Backends(stand_ins()))
    for shard in range(shards):
        generate(ctx, planned, shard, Backends(stand_ins()))
    certify(ctx, planned)
    settle(ctx, planned)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
