"""Progress on a terminal, with the time left, or in a log and a notebook, without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from privsyn.progress import ASKING, Progress

SPEED_SECONDS = 60.0
"""The time left is reckoned from what was done in the last so many seconds: what a resumed stage
reads from its journal, and the load of a model, are soon forgotten."""
LINES = 20
"""Parts of a stage, of each of which a log hears."""
LONG = ("load models", ASKING, "publish")
"""Stages that may take minutes and count nothing: a log hears that they begin.

By name and not by the clock: how long a stage takes may depend on the records.
"""


@contextmanager
def show_progress(console: Console) -> Iterator[Progress]:
    """What is under way where a person looks on, a line now and then elsewhere. Counts are public.

    Args:
        console: Where it is shown.

    Yields:
        What hears of counts, and by ``under_way`` of stages.
    """
    # A log file or pipe gets a few lines, not a bar that is drawn again and again; a notebook, too,
    # where rich needs ipywidgets to redraw.
    if console.is_jupyter or not console.is_terminal:
        yield _LineProgress(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        _OfCounts(BarColumn()),
        _OfCounts(MofNCompleteColumn()),
        TextColumn("{task.fields[things]}"),
        TimeElapsedColumn(),
        _OfCounts(TimeRemainingColumn()),
    )
    # Transient: what stays on the screen is the summary.
    with Bars(
        *columns, console=console, transient=True, speed_estimate_period=SPEED_SECONDS
    ) as bars:
        yield _RowProgress(bars)


class _OfCounts(ProgressColumn):
    """A column that is empty while nothing is counted."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self._column(task)


class _RowProgress:
    """A row of the terminal for each stage under way: its time, and a bar while it counts."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._under_way: list[TaskID] = []
        self._by_name: dict[str, TaskID] = {}  # of counts outside of any stage
        self._counted: dict[TaskID, tuple[str, int]] = {}

    def begins(self, stage: str) -> None:
        self._under_way.append(self._bars.add_task(stage, total=None, things=""))

    def ends(self, stage: str) -> None:
        row = self._under_way.pop()
        self._counted.pop(row, None)
        self._bars.remove_task(row)

    def __call__(self, stage: str, done: int, total: int, things: str = "") -> None:
        if not self._under_way and stage not in self._by_name:
            self._by_name[stage] = self._bars.add_task(stage, total=None, things="")
        # Counts belong to the innermost stage: those that are around it wait for it.
        row = self._under_way[-1] if self._under_way else self._by_name[stage]
        name, before = self._counted.get(row, (stage, 0))
        if name != stage or done < before:  # another part of it, or the stage of another release
            self._bars.reset(row)
        self._counted[row] = stage, done
        self._bars.update(
            row, description=stage, completed=done, total=total or None, things=things
        )


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(8.2), duration(75), duration(3700), duration(90_000)
    ('8 s', '1 min 15 s', '1 h 2 min', '25 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(whole / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes and hours < 24 else f"{hours} h"


class _LineProgress:
    """Lines of a log: where a long stage begins, and every so much of what is counted.

    privacy: by what is done and never by the clock, which follows the records.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, int] = {}
        self._line: Any = None  # of a notebook

    def begins(self, stage: str) -> None:
        self._shown.clear()  # another release's, of which the same is heard again
        if stage in LONG:
            self._say(f"{stage}: begins")

    def ends(self, stage: str) -> None:
        """Said by whoever times the stage."""

    def __call__(self, stage: str, done: int, total: int, things: str = "") -> None:
        # Whole parts of the total: how many lines a log gets is fixed by public counts.
        part = LINES * done // max(total, 1)
        if self._shown.get(stage) == part:
            return
        self._shown[stage] = part
        self._say(f"{stage}: {done:,} of {total:,}{f' {things}' if things else ''}")

    def _say(self, line: str) -> None:
        if not self._console.is_jupyter:
            self._console.print(line, highlight=False, soft_wrap=True)
            return
        from IPython.display import display  # late: only a notebook has it

        # One line that changes: a cell would else grow by each.
        if self._line is None:
            self._line = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._line.update({"text/plain": line}, raw=True)
