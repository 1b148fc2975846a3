"""Who hears of progress: of counts, which are public, and of stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """Receives public progress counts."""

    def __call__(self, stage: str, done: int, total: int, things: str = "") -> None:
        """``done`` of ``total`` ``things`` (tokens, steps) of a stage are finished."""


ASKING = "ask about records"
"""A stage in which a model answers columns. privacy: it counts nothing, since records are exact."""


@runtime_checkable
class FollowsStages(Protocol):
    """Progress that hears of stages, besides what they count."""

    def begins(self, stage: str) -> None:
        """A stage is under way, within those that began and have not ended."""

    def ends(self, stage: str) -> None:
        """The stage that began last is over, whatever it had counted by then."""


@contextmanager
def under_way(progress: Progress | None, stage: str) -> Iterator[None]:
    """Show that a stage is at work, from its first second to its end.

    Its name is public: that of a step of privsyn, which settings alone decide on.

    Args:
        progress: As ``show_progress`` gives it; another one hears of counts alone, and
            None stands for nobody.
        stage: What is done.
    """
    if not isinstance(progress, FollowsStages):
        yield
        return
    progress.begins(stage)
    try:
        yield
    finally:
        progress.ends(stage)
