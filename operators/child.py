"""python -m privsyn.airflow.child PARENT_PID ARG...: become ``python ARG...``, die with the parent.

A task that is killed by SIGKILL can clean nothing up, so its child asks the kernel (Linux) for a
SIGKILL at the parent's death. This runs in the child itself, between fork and exec only C is safe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Bind to the parent and replace this process."""
    parent, *arguments = argv
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):  # it died before the kernel knew
            sys.exit(1)
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
