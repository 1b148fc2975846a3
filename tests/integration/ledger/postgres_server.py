"""A PostgreSQL server of its own, which a test may restart as where its machine's power fails."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.vault.s3_server import free_port

USER = "postgres"
INSTALLED = Path("/usr/lib/postgresql")


class Server:
    """A running server with an empty database, for whoever reaches 127.0.0.1.

    A commit that does not ask to be durable is lost with it: it writes those every ten seconds.

    Attributes:
        url: Of its database.
    """

    def __init__(self, binaries: Path, folder: Path, owner: dict[str, Any]) -> None:
        self._binaries, self._folder, self._owner = binaries, folder, owner
        port = free_port()
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": ".",
            "synchronous_commit": "off",
            "wal_writer_delay": "10s",
        }
        self._options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self.url = f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres"

    def make(self) -> None:
        """Lay its folder out."""
        plain = ("-E", "UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "-D", "data", "-U", USER, "-A", "trust", *plain)

    def start(self) -> None:
        self._control("start", "-o", self._options)

    def stop(self) -> None:
        """Without a word to those who are connected; what it had promised it finds in its log."""
        self._control("stop", "-m", "immediate")

    def restart(self) -> None:
        """As ``stop``, and up again."""
        self._control("restart", "-m", "immediate")

    def _control(self, *what: str) -> None:
        self._run("pg_ctl", *what, "-D", "data", "-w", "-t", "60", "-l", "log")

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / name), *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            **self._owner,
        )
        log = self._folder / "log"
        said = log.read_text()[-2000:] if log.exists() else ""
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}\n{said}"


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server until the end of the block; the test is skipped where none can be had."""
    binaries, owner = _binaries(), _owner()
    # Not pytest's folder: the user that the server runs as sees nothing of it.
    folder = Path(tempfile.mkdtemp(prefix="privsyn-postgres-"))
    try:
        if owner:
            shutil.chown(folder, owner["user"], owner["group"])
        server = Server(binaries, folder, owner)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    """Folder of the server's programs: of the newest version that is installed."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent  # initdb lies beside it, perhaps not on the path
    versions = sorted(INSTALLED.glob("*/bin/pg_ctl"), key=lambda file: int(file.parts[-3]))
    if not versions:
        _none(f"no pg_ctl on the path, nor under {INSTALLED}")
    return versions[-1].parent


def _owner() -> dict[str, Any]:
    """Whom it runs as, for ``subprocess``: it refuses to be root's."""
    if os.geteuid():
        return {}
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        _none(f"PostgreSQL does not run as root, and there is no user {USER!r}")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _none(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
