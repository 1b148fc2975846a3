"""python watched_demo.py PARAMS: `make demo` whose DAG is a stand-in as talkative as Airflow.

Its terminal is whatever this process has; it ends as a failed run, so that no release is needed.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

from tools.local import demo

FLOOD = "loc=task_runner.py:995"


def chatter(method: str, board: demo.Board) -> str:
    """Says in every way what must not reach the terminal, and moves the board."""
    board.show("reserve", "started", "")
    logging.basicConfig(stream=sys.stdout, level=logging.INFO)
    for _ in range(20):
        print(FLOOD)
        print(FLOOD, file=sys.stderr)
        logging.info(FLOOD)
        logging.getLogger("airflow").warning(FLOOD)
        time.sleep(0.02)
    subprocess.run([sys.executable, "-c", f"print({FLOOD!r})"], check=True)
    board.show("reserve", "done", "a folder: /" + "x" * 120)
    board.show("generate", "failed", "BudgetExceeded: asked 3, left 1. Lower privacy.epsilon.")
    return "failed"


if __name__ == "__main__":
    demo.prepare = lambda *arguments: None
    demo._run_dag = chatter
    demo.write_sample_if_asked = lambda config, root: None
    sys.exit(demo.main(["--params", str(Path(sys.argv[1]))]))
