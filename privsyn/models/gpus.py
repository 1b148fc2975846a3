"""GPUs of this host, assigned to processes by one lock file per card."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from privsyn.files import file_lock

POLL_SECONDS = 1.0


def visible_cards() -> list[str]:
    """The cards this process may use, named as in CUDA_VISIBLE_DEVICES; found without torch."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        return [card.strip() for card in setting.split(",") if card.strip() not in ("", "-1")]
    return [str(number) for number in range(sum(1 for _ in Path("/dev").glob("nvidia[0-9]*")))]


def card_locks() -> Path:
    """Folder of the lock files, shared by all projects of a user on this host."""
    return Path(tempfile.gettempdir()) / f"privsyn-cards-{os.getuid()}"


@contextmanager
def lease(
    cards: Sequence[str],
    number: int,
    folder: Path,
    on_wait: Callable[[], None] | None = None,
    poll: float = POLL_SECONDS,
) -> Iterator[list[str]]:
    """Hold cards exclusively during a with block; wait until enough are free.

    The kernel frees the locks of a killed process. All requested cards are taken at once, or none,
    so that two processes cannot wait for each other.

    Args:
        cards: All cards of the machine that may be used.
        number: Cards to hold; all if there are fewer.
        folder: Folder of the lock files, the same for all processes that share the cards.
        on_wait: Called once if there is a wait.
        poll: Approximate seconds between attempts.
    """
    number = min(number, len(cards))
    announced = False
    while True:
        with ExitStack() as locks:
            mine: list[str] = []
            for card in cards:
                if len(mine) == number:
                    break
                try:
                    lock = folder / f"card-{quote(card, safe='')}.lock"
                    locks.enter_context(file_lock(lock, timeout=0))
                except TimeoutError:
                    continue
                mine.append(card)
            if len(mine) == number:
                yield mine
                return
        if not announced:
            if on_wait is not None:
                on_wait()
            announced = True
        time.sleep(poll * random.uniform(0.5, 1.5))  # noqa: S311  so that two processes do not retry in step


@dataclass(frozen=True)
class Rank:
    """A process in a group that trains together.

    Attributes:
        rank: Its number, 0-based; 0 leads.
        size: Number of processes.
        local: Its number among the processes of its machine.
        local_size: Number of processes on its machine; 0 if unknown.
    """

    rank: int
    size: int
    local: int
    local_size: int

    @property
    def alone(self) -> bool:
        """Whether all processes are on one machine."""
        return self.local_size == self.size
