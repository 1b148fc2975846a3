"""Six draws through a journal, in a process that kills itself where it is told to.

Usage: python -m tests.integration.data.journal_writer FOLDER WHERE NUMBER. The journal is
FOLDER/j. Every draw made is a line of FOLDER/calls, whatever becomes of it; what a caller has seen
lies in FOLDER/used-0 and used-3. The process sends itself SIGKILL at draw NUMBER: WHERE is

- ``draw``: in it, once it is made;
- ``write``: half through its line; ``fsync``: before that is on disk;
- ``room``: once its room was tried;
- anything else: nowhere.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from pathlib import Path

import privsyn.data.journal as module
from privsyn.data.journal import Journal


class Draws:
    """Notes every draw it makes, before it may die."""

    def __init__(self, folder, where, number):
        self.calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.where, self.number = where, number
        self.made = 0

    def __call__(self):
        value = secrets.randbelow(10**9)
        os.write(self.calls, b"%d\n" % value)
        if self.where == "draw" and self.made == self.number:
            die()
        self.made += 1
        return value


class DyingOs:
    """The module ``os``, for the journal alone."""

    def __init__(self, draw):
        self._draw = draw

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, descriptor, data):
        where, made, number = self._draw.where, self._draw.made, self._draw.number
        if where == "write" and made == number + 1:
            os.write(descriptor, data[: len(data) // 2])
            die()
        if where == "room" and made == number and not data.strip():
            os.write(descriptor, data)
            die()
        return os.write(descriptor, data)

    def fsync(self, descriptor):
        if self._draw.where == "fsync" and self._draw.made == self._draw.number + 1:
            die()
        return os.fsync(descriptor)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder, where, number):
    draw = Draws(folder, where, number)
    module.os = DyingOs(draw)
    Journal.create(folder / "j", {"r": 1})
    with Journal.open(folder / "j", {"r": 1}) as journal:
        out = []
        for start in (0, 3):
            out += journal.draw_all([(f"t{n}", draw) for n in range(start, start + 3)])
            (folder / f"used-{start}").write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
