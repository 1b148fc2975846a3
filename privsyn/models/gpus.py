"""GPUs of this host, assigned to processes by one lock file per card."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    folder: Path,
    on_wait: Callable[[], None] | None = None,
    poll: float = POLL_SECONDS,
) -> Iterator[str]:
    """Hold a card exclusively during a with block; wait until one is free.

    The kernel frees the lock of a killed process.

    Args:
        cards: All cards of the machine that may be used.
        folder: Folder of the lock files, the same for all processes that share the cards.
        on_wait: Called once if there is a wait.
        poll: Approximate seconds between attempts.
    """
    locks = {
        card: file_lock(folder / f"card-{quote(card, safe='')}.lock", timeout=0) for card in cards
    }
    announced = False
    while True:
        for card, lock in locks.items():
            try:
                held = lock.acquire()
            except TimeoutError:
                continue
            with held:
                yield card
            return
        if not announced:
            if on_wait is not None:
                on_wait()
            announced = True
        time.sleep(poll * random.uniform(0.5, 1.5))  # noqa: S311  so that two processes do not retry in step
