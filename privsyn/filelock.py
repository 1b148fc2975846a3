"""A lock between processes of one host: a file, held with flock by the library ``filelock``."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock


def file_lock(path: Path, *, timeout: float) -> FileLock:
    """A lock to hold for the length of a with block. Later comers wait their turn.

    The kernel lets go of the lock when its holder dies, so a kill leaves nothing to clean up. The
    file itself stays: removing it would let two processes lock two files of one name. Where there
    is no flock, it is an error and not a lock of another kind.

    Args:
        path: The lock file; its folder is made if missing, for this user alone.
        timeout: Seconds to wait for another holder; then the block raises TimeoutError.

    Raises:
        OSError: The folder cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileLock(
        path,
        timeout=timeout,
        mode=0o600,
        thread_local=False,  # whichever thread ends the block lets go
        fallback_to_soft=False,
        preserve_lock_file=True,
    )
