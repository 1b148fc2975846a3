"""A lock between processes of one host: a file, held with flock."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_lock(path: Path, *, timeout: float, poll: float = 0.05) -> Iterator[None]:
    """Hold a lock for the length of a with block. Later comers wait their turn.

    The kernel lets go of the lock when its holder dies, so a kill leaves nothing to clean up. The
    file itself stays: removing it would let two processes lock two files of one name.

    Args:
        path: The lock file; its folder is made if missing.
        timeout: Seconds to wait for another holder.
        poll: Seconds between attempts.

    Raises:
        TimeoutError: Another process held it for the whole time.
        OSError: The file cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{path} is held by another process") from None
                time.sleep(poll)
        yield
    finally:
        os.close(descriptor)
