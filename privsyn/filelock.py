"""A lock between processes of one host: flock on a file, by the library ``filelock``."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock


def file_lock(path: Path, *, timeout: float) -> FileLock:
    """A lock for a with block. Later processes wait their turn.

    The kernel frees the lock when its holder dies, so a kill leaves nothing to clean up. The file
    stays: if it were removed, two processes could lock two files of one name. Without flock there
    is an error, not another kind of lock.

    Args:
        path: The lock file. Its folder is made if missing, readable by this user alone.
        timeout: Seconds to wait for another holder; then the block raises TimeoutError.

    Raises:
        OSError: The folder cannot be made.
    """
    # The folder may hold private records, and a lock may be the first file in it.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileLock(
        path,
        timeout=timeout,
        mode=0o600,
        thread_local=False,  # another thread may end the block
        fallback_to_soft=False,  # a soft lock would survive a kill
        preserve_lock_file=True,
    )
