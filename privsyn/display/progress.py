"""Progress on a terminal, with the time left, or in a log, without. Counts are public."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
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
)
from rich.progress import Progress as Bars

from privsyn.progress import Progress

PACE_SECONDS = 60.0
"""The time left is reckoned from what was done in the last so many seconds."""
LEAST_SECONDS, LEAST_SHARE = 10.0, 0.05
"""No estimate from less than so many seconds, unless this share of all was done in them: a few
quick steps say nothing of the slow ones."""
LEAST_DONE = 0.01
"""No estimate before this share of all was done since the stage resumed: the first steps load,
compile and fill caches."""
LINES = 20
"""Parts of a stage, of each of which a log hears."""
LONG = ("load models", "publish")
"""Stages that may take minutes and count nothing: a log hears that they begin.

By name and not by the clock: how long a stage takes may depend on the records.
"""


@contextmanager
def show_progress(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """What is under way where a person looks on, a line now and then elsewhere. Counts are public.

    Args:
        console: Where it is shown.
        clock: Seconds, for the time left.

    Yields:
        What hears of counts, and by ``under_way`` of stages.
    """
    # rich needs ipywidgets to redraw in a notebook; IPython's own display handle needs nothing.
    if console.is_jupyter:
        with _in_notebook(clock) as update:
            yield update
        return
    # A log file or pipe gets a few lines, not a bar that is drawn again and again.
    if not console.is_terminal:
        yield _LineProgress(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        _OfCounts(BarColumn()),
        _OfCounts(MofNCompleteColumn()),
        TextColumn("{task.fields[things]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    # Transient: what stays on the screen is the summary.
    with Bars(*columns, console=console, transient=True) as bars:
        yield _RowProgress(bars, clock)


class _OfCounts(ProgressColumn):
    """A column that is empty while nothing is counted."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self._column(task)


class _RowProgress:
    """A row of the terminal for each stage under way: its time, and a bar while it counts."""

    def __init__(self, bars: Bars, clock: Callable[[], float]) -> None:
        self._bars, self._clock = bars, clock
        self._paces: dict[str, Rate] = {}
        self._under_way: list[tuple[str, TaskID]] = []
        self._by_name: dict[str, TaskID] = {}  # of counts outside of any stage
        self._counted: dict[TaskID, tuple[str, int]] = {}

    def begins(self, stage: str) -> None:
        self._under_way.append((stage, self._new(stage)))

    def ends(self, stage: str) -> None:
        _, row = self._under_way.pop()
        self._counted.pop(row, None)
        self._bars.remove_task(row)

    def __call__(self, stage: str, done: int, total: int, things: str = "") -> None:
        row = self._row(stage)
        name, before = self._counted.get(row, (stage, 0))
        if name != stage or done < before:  # another part of it, or the stage of another release
            self._bars.reset(row)
        self._counted[row] = stage, done
        left = _time_left(self._paces, stage, done, total, self._clock())
        self._bars.update(
            row, description=stage, completed=done, total=total or None, things=things, left=left
        )
        if self._under_way and done >= total:
            self._count_no_more(*self._under_way[-1])

    def _row(self, stage: str) -> TaskID:
        if self._under_way:
            # Counts belong to the innermost stage: those that are around it wait for it.
            return self._under_way[-1][1]
        if stage not in self._by_name:
            self._by_name[stage] = self._new(stage)
        return self._by_name[stage]

    def _new(self, stage: str) -> TaskID:
        return self._bars.add_task(stage, total=None, things="", left="")

    def _count_no_more(self, stage: str, row: TaskID) -> None:
        """All is counted and the stage goes on, as where a model was fetched and is loaded now."""
        task = next(task for task in self._bars.tasks if task.id == row)
        # rich stops the spinner and the clock of a finished task, and this one still works.
        task.total = task.finished_time = None
        self._bars.update(row, description=stage, things="", left="")


class Rate:
    """How fast a stage went of late, and how long it still takes.

    Of late: a resumed stage starts anywhere, and reads what is on file faster than it draws. What
    comes up to the first output does not count: a model is loaded, or a journal read. A count
    that falls is that of another release, whose pace is its own. Nothing is told by a moment in
    which little was done.
    """

    def __init__(self) -> None:
        self._heard: deque[tuple[float, int]] = deque()
        self._start: tuple[float, int] | None = None

    def seconds_left(self, done: int, total: int, now: float) -> float | None:
        """Seconds to go; None while there is no estimate.

        Args:
            done: What is done now.
            total: What will be.
            now: The time, in seconds.
        """
        heard = self._heard
        if heard and done < heard[-1][1]:
            # The count went back: another part began, so earlier times say nothing about it.
            heard.clear()
            self._start = None
        # A window of moments, not a mean over all: speed changes as texts grow and caches fill.
        heard.append((now, done))
        self._start = self._start or heard[0]
        while len(heard) > 2 and (
            now - heard[1][0] >= PACE_SECONDS
            or (heard[0] is self._start and heard[1][1] > heard[0][1])
        ):
            heard.popleft()
        when, before = heard[0]
        if done <= before or now <= when or heard[0] is self._start:
            return None
        if now - when < LEAST_SECONDS and done - before < LEAST_SHARE * total:
            return None
        if done - self._start[1] < LEAST_DONE * total:
            return None
        return (now - when) * (total - done) / (done - before)


def _time_left(paces: dict[str, Rate], stage: str, done: int, total: int, now: float) -> str:
    """The time left of a stage in words; empty while there is no estimate."""
    left = paces.setdefault(stage, Rate()).seconds_left(done, total, now)
    return f"about {duration(left)} left" if left else ""


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


@contextmanager
def _in_notebook(clock: Callable[[], float]) -> Iterator[Progress]:
    """One output of the cell that moves, and is empty at the end: what stays is the result."""
    from IPython.display import HTML

    cell = _Cell(_display(HTML("")), HTML, clock)
    try:
        yield cell
    finally:
        cell.clear()


class _Cell:
    """A row of a notebook's output for each stage under way, with a bar once it counts."""

    def __init__(self, handle: Any, html: Callable[[str], Any], clock: Callable[[], float]) -> None:
        self._handle, self._html, self._clock = handle, html, clock
        self._under_way: list[str] = []
        self._rows: dict[str, str] = {}
        self._paces: dict[str, Rate] = {}

    def begins(self, stage: str) -> None:
        self._under_way.append(stage)
        self._rows[stage] = f"<div>{escape(stage)} <progress></progress></div>"
        self._show()

    def ends(self, stage: str) -> None:
        self._under_way.pop()
        self._rows.pop(stage, None)
        self._show()

    def __call__(self, stage: str, done: int, total: int, things: str = "") -> None:
        left = _time_left(self._paces, stage, done, total, self._clock())
        # Counts replace the row of the stage under way, whose name they may not share.
        self._rows[self._under_way[-1] if self._under_way else stage] = (
            f'<div>{escape(stage)} <progress value="{done}" max="{max(total, 1)}"></progress> '
            f"{done:,} of {total:,} {escape(things)}"
            f"{f', {left}' if left else ''}</div>"
        )
        self._show()

    def clear(self) -> None:
        """Leave nothing behind."""
        self._rows.clear()
        self._show()

    def _show(self) -> None:
        self._handle.update(self._html("".join(self._rows.values())))


def _display(shown: Any) -> Any:
    from IPython.display import display

    return display(shown, display_id=True)


class _LineProgress:
    """Lines of a log: where a long stage begins, and every so much of what is counted.

    privacy: by what is done and never by the clock, which follows the records.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, int] = {}

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
        self._console.print(line, highlight=False, soft_wrap=True)
