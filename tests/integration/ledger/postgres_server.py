"""A PostgreSQL server of its own, which a test may restart as where its machine's power fails."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.integration.vault.s3_server import free_port

USER = "postgres"
INSTALLED = Path("/usr/lib/postgresql")


class Server:
    """A running server with an empty database, for whoever reaches 127.0.0.1.

    A commit that does not ask to be durable is lost with it: it writes those every ten seconds.

    Attributes:
        url: Of its database.
    """

    def __init__(self, binaries, folder, owner):
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

    def make(self):
        plain = ("-E", "UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "-D", "data", "-U", USER, "-A", "trust", *plain)

    def start(self):
        self._control("start", "-o", self._options)

    def stop(self):
        """Without a word to those who are connected; what it had promised it finds in its log."""
        self._control("stop", "-m", "immediate")

    def restart(self):
        self._control("restart", "-m", "immediate")

    def _control(self, *what):
        self._run("pg_ctl", *what, "-D", "data", "-w", "-t", "60", "-l", "log")

    def _run(self, name, *arguments):
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
def postgres_server():
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


@contextmanager
def severed(url, fault):
    """Address of the same database through a proxy that breaks connections off at their commits.

    Args:
        url: Of the database, by TCP.
        fault: Asked at each commit. ``before``: the server never hears of it. ``after``: it does,
            and its answer is lost. None: the commit passes.
    """
    there = make_url(url)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve():
            with suppress(OSError):  # closed
                while True:
                    threading.Thread(target=passes, args=door.accept()[:1], daemon=True).start()

        def passes(client):
            server = socket.create_connection((there.host or "127.0.0.1", there.port or 5432))
            back = threading.Thread(target=answers, args=(server, client), daemon=True)
            back.start()
            with client, server, suppress(OSError):
                while said := client.recv(1 << 16):
                    broken = fault() if b"COMMIT" in said else None
                    if broken != "before":
                        if broken:  # a proxy that is gone hands no answer back
                            client.shutdown(socket.SHUT_WR)
                        server.sendall(said)
                    if broken:
                        break
                with suppress(OSError):
                    server.shutdown(socket.SHUT_WR)
                back.join()  # the server has done what it was told

        def answers(server, client):
            with suppress(OSError):
                while said := server.recv(1 << 16):
                    with suppress(OSError):
                        client.sendall(said)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=serve, daemon=True).start()
        yield there.set(port=door.getsockname()[1]).render_as_string(hide_password=False)
        door.shutdown(socket.SHUT_RDWR)


def _binaries():
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent  # initdb lies beside it, perhaps not on the path
    versions = sorted(INSTALLED.glob("*/bin/pg_ctl"), key=lambda file: int(file.parts[-3]))
    if not versions:
        _none(f"no pg_ctl on the path, nor under {INSTALLED}")
    return versions[-1].parent


def _owner():
    """Whom it runs as, for ``subprocess``: it refuses to be root's."""
    if os.geteuid():
        return {}
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        _none(f"PostgreSQL does not run as root, and there is no user {USER!r}")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _none(why):
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
