"""Python for the processes of tests: forks of one process that has imported the large libraries.

A stage of the command line imports for three to six seconds of CPU time and works for one. The
server here imports once a test process. ``python`` of ``folder`` asks it for a fork, which runs the
words it was given in its own folder and environment, with its own stdin, stdout and stderr. Nothing
of privsyn, Airflow or DVC is imported before. A fork ends with the process that asked for it.

Options of Python that are not known here start a real interpreter. What asks for one takes
``sys.executable``: the import of what a command needs is tested there.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from contextlib import suppress
from importlib import import_module
from pathlib import Path

MODULES = (
    "scipy.stats", "torch", "transformers.modeling_utils", "sklearn.linear_model", "opendp.prelude",
    "mlflow.store.tracking.sqlalchemy_store", "great_expectations", "peft", "opacus",
    "fastapi.testclient", "cadwyn", "libcst", "aiohttp", "networkx", "dulwich.repo",
)  # fmt: skip
ASK = """\
#!{python} -IS
import json, os, signal, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
said = json.dumps([sys.argv, dict(os.environ)]).encode()
here = os.open(".", os.O_RDONLY)
socket.send_fds(server, [len(said).to_bytes(8, "big")], [0, 1, 2, here])
server.sendall(said)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: server.sendall(bytes([number])))
code = int(server.recv(16) or b"70")
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""What ``python`` and ``privsyn`` of the folder are."""


@functools.cache
def folder():
    """A folder with the commands ``python`` and ``privsyn``; first in a PATH they are found."""
    place = Path(tempfile.mkdtemp(prefix="privsyn-python-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name in ("python", "privsyn"):
        text = ASK.format(python=sys.executable, address=str(place / "socket"))
        (place / name).write_text(text)
        (place / name).chmod(0o700)
    server = subprocess.Popen(
        [sys.executable, __file__, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        | {"OMP_NUM_THREADS": "1"},
    )
    assert server.stdin
    assert server.stdout
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # which ends it
    assert server.stdout.readline(), "the server of forks did not start"
    return place


def python():
    return str(folder() / "python")


class Server:
    """Forks of this process for whoever asks at the socket."""

    def __init__(self, place):
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(place / "socket"))
        self._door.listen(64)
        self._ended, woken = socket.socketpair()
        self._ended.setblocking(False)
        woken.setblocking(False)
        self._woken = woken
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken.fileno())
        self._asking: dict[socket.socket, int] = {}
        self._selector = selectors.DefaultSelector()
        for file in (sys.stdin, self._door, self._ended):
            self._selector.register(file, selectors.EVENT_READ)

    def serve(self):
        """Wait for who asks. None: the tests are over. A list: the words, in a fork."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    for pid in self._asking.values():
                        _kill(pid, signal.SIGKILL)
                    return None
                if key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._answer()
                elif key.fileobj is not self._door:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj)
                elif words := self._fork():
                    return words

    def _answer(self):
        for asking, pid in list(self._asking.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                with suppress(OSError):
                    asking.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                self._forget(asking)

    def _forget(self, asking):
        del self._asking[asking]
        self._selector.unregister(asking)
        asking.close()

    def _pass_on(self, asking):
        """A signal to the fork; who asked is gone: so is the fork."""
        pid = self._asking.get(asking)
        if pid is None:
            return
        try:
            signals = asking.recv(64)
        except OSError:
            signals = b""
        for number in signals or [signal.SIGKILL]:
            _kill(pid, number)
        if not signals:
            os.waitpid(pid, 0)
            self._forget(asking)

    def _fork(self):
        asking, _ = self._door.accept()
        size, files, *_ = socket.recv_fds(asking, 8, 4)
        with asking.makefile("rb") as stream:
            said = stream.read(int.from_bytes(size, "big"))
        if not said or len(said) < int.from_bytes(size, "big"):  # who asked was killed meanwhile
            for file in files:
                os.close(file)
            asking.close()
            return None
        words, environment = json.loads(said)
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            self._asking[asking] = pid
            self._selector.register(asking, selectors.EVENT_READ)
            return None
        os.setsid()
        self._become(files, environment)
        asking.close()
        return list(words)

    def _become(self, files, environment):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for other in (self._door, self._ended, self._woken, *self._asking):
            other.close()
        *streams, here = files
        for target, file in enumerate(streams):
            os.dup2(file, target)
        os.fchdir(here)
        for file in files:
            os.close(file)
        if "PRIVSYN_TASK" in environment:
            environment["PRIVSYN_TASK"] = str(os.getppid())  # its parent, with which it ends
        os.environ.clear()
        os.environ.update(environment)


def _kill(pid, number):
    with suppress(ProcessLookupError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:  # it has no group of its own yet
            os.kill(pid, number)


def run(command, *words):
    """Be ``python WORDS``, or the command ``privsyn``, as far as the program can tell."""
    interpreter = sys.executable
    sys.executable = str(Path(command).with_name("python"))
    if "PYTHONUNBUFFERED" in os.environ:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)
    import numpy as np

    np.random.seed()  # as Python does with its own
    first = [] if words[:1] == ("-P",) else [""]
    words = words[words[:1] == ("-P",) :]
    words = words[words[:1] == ("-Xfrozen_modules=off",) :]  # which a debugger wants
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    main = types.ModuleType("__main__")
    if Path(command).name == "privsyn":
        words = ("-c", "from privsyn.cli import main; main()", *words)
    if words[0] not in ("-c", "-m") and words[0].startswith("-"):
        os.execv(interpreter, [interpreter, *(["-P"] if not first else []), *words])  # noqa: S606
    for path in more:
        if (Path(path) / "sitecustomize.py").exists():
            sys.path[:0] = more
            runpy.run_path(str(Path(path) / "sitecustomize.py"))
            del sys.path[: len(more)]
    sys.modules["__main__"] = main
    if words[0] == "-c":
        sys.path[:0] = [*first, *more]
        sys.argv = [command if Path(command).name == "privsyn" else "-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), main.__dict__)  # noqa: S102
    elif words[0] == "-m":
        sys.path[:0] = [*(first and [os.getcwd()]), *more]
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[:0] = [*(first and [str(Path(words[0]).absolute().parent)]), *more]
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")


def main():
    del sys.path[0]  # the folder of this file
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # so that forks share what is never freed
    server = Server(Path(sys.argv[1]))
    print("ready", flush=True)
    words = server.serve()
    if words is None:
        return
    code: object = None
    try:
        run(*words)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    try:
        threading._shutdown()
    except BaseException:  # as Python: a pool that closes its pipe at this moment fails no program
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
