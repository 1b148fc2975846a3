"""A fork (preloaded.py) ends as a real interpreter does."""

import subprocess
import sys

import pytest

from tests import preloaded

PROGRAMS = {
    "its end": "",
    "exit of 3": "import sys; sys.exit(3)",
    "exit with words": "import sys; sys.exit('no')",
    "an error": "raise ValueError('no')",
    "a signal": "import os; os.kill(os.getpid(), 15)",
    "an error of a thread's end": (
        "import threading\ndef end(): raise OSError(9, 'no')\nthreading._register_atexit(end)"
    ),
    "an error at exit": (
        "import atexit\n@atexit.register\ndef end(): raise OSError(9, 'no')\nprint('yes')"
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_fork_ends_with_the_status_of_a_real_interpreter(program):
    real, fork = (
        subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
        for python in (sys.executable, preloaded.python())
    )

    assert fork.returncode == real.returncode
    assert fork.stdout == real.stdout
    assert bool(fork.stderr) == bool(real.stderr)
