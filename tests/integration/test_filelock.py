"""A lock between processes: whom it keeps out, what frees it, what it leaves."""

import subprocess
import sys
import threading

import pytest

from privsyn.files import file_lock

HOLD = (
    "import sys\n"
    "from pathlib import Path\n"
    "from privsyn.files import file_lock\n"
    "with file_lock(Path(sys.argv[1]), timeout=0):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


def test_the_file_stays_and_is_for_this_user_alone(tmp_path):
    lock = tmp_path / "folder" / "one.lock"
    for _ in range(2):
        with file_lock(lock, timeout=0):
            inode = lock.stat().st_ino
        assert lock.stat().st_ino == inode
    assert lock.stat().st_mode & 0o777 == 0o600
    assert lock.parent.stat().st_mode & 0o777 == 0o700


def test_a_lock_that_is_held_is_a_timeout_and_free_afterwards(tmp_path):
    lock = tmp_path / "one.lock"
    with file_lock(lock, timeout=0):
        for patience in (0, 0.1):
            with pytest.raises(TimeoutError), file_lock(lock, timeout=patience):
                pass
    with pytest.raises(KeyError), file_lock(lock, timeout=0):
        raise KeyError
    with file_lock(lock, timeout=0):
        pass


def test_it_dies_with_its_holder(tmp_path):
    lock = tmp_path / "one.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError), file_lock(lock, timeout=0):
            pass
        holder.kill()
    assert lock.exists()
    with file_lock(lock, timeout=5):
        pass


def test_another_thread_may_let_go(tmp_path):
    lock = tmp_path / "one.lock"
    held = file_lock(lock, timeout=0)
    held.acquire()
    thread = threading.Thread(target=held.release)
    thread.start()
    thread.join()
    with file_lock(lock, timeout=0):
        pass
