"""Progress on a terminal or in a log, with the time left. Counts are public."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from privsyn.stages.base import Progress

PACE_SECONDS = 60.0
"""The time left is reckoned from what was done in the last so many seconds."""
QUIET_SECONDS = 30.0
"""A log hears of a stage at least this often, if anything moved."""


@contextmanager
def show_progress(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """A bar where a person looks on, a line now and then elsewhere. Counts are public."""
    if console.is_jupyter:
        with _in_notebook(clock) as update:
            yield update
        return
    if not console.is_terminal:
        yield _lines(console, clock)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[things]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Transient: what stays on the screen is the summary.
    with Bars(
        *columns, console=console, transient=True, speed_estimate_period=PACE_SECONDS
    ) as bars:
        tasks: dict[str, Any] = {}

        def update(stage: str, done: int, total: int, things: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total or None, things=things)
            if done < bars.tasks[tasks[stage]].completed:  # the stage of another release
                bars.reset(tasks[stage])
            bars.update(tasks[stage], completed=done, total=total or None, things=things)

        yield update


class Pace:
    """How fast a stage went of late, and how long it still takes.

    Of late: a resumed stage starts anywhere, and reads what is on file faster than it draws. What
    comes up to the first output does not count: a model is loaded, or a journal read. A count
    that falls is that of another release, whose pace is its own.
    """

    def __init__(self) -> None:
        self._heard: deque[tuple[float, int]] = deque()
        self._start: tuple[float, int] | None = None

    def left(self, done: int, total: int, now: float) -> float | None:
        """Seconds to go; None before that can be told.

        Args:
            done: What is done now.
            total: What will be.
            now: The time, in seconds.
        """
        heard = self._heard
        if heard and done < heard[-1][1]:
            heard.clear()
            self._start = None
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
        return (now - when) * (total - done) / (done - before)


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

    rows: dict[str, str] = {}
    paces: dict[str, Pace] = {}
    handle = _display(HTML(""))

    def update(stage: str, done: int, total: int, things: str = "") -> None:
        left = paces.setdefault(stage, Pace()).left(done, total, clock())
        rows[stage] = (
            f'<div>{escape(stage)} <progress value="{done}" max="{max(total, 1)}"></progress> '
            f"{done:,} of {total:,} {escape(things)}"
            f"{f', about {duration(left)} left' if left else ''}</div>"
        )
        handle.update(HTML("".join(rows.values())))

    try:
        yield update
    finally:
        handle.update(HTML(""))


def _display(shown: Any) -> Any:
    from IPython.display import display

    return display(shown, display_id=True)


def _lines(console: Console, clock: Callable[[], float]) -> Progress:
    shown: dict[str, tuple[int, float]] = {}
    paces: dict[str, Pace] = {}

    def update(stage: str, done: int, total: int, things: str = "") -> None:
        now = clock()
        left = paces.setdefault(stage, Pace()).left(done, total, now)
        tenth = 10 * done // max(total, 1)
        told, when = shown.get(stage, (-1, now))
        if tenth == told and now - when < QUIET_SECONDS:
            return
        shown[stage] = tenth, now
        console.print(
            f"{stage}: {done:,} of {total:,}{f' {things}' if things else ''}"
            f"{f', about {duration(left)} left' if left else ''}",
            highlight=False,
            soft_wrap=True,
        )

    return update
