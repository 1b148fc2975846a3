"""One draw of a file through a journal, in a process that kills itself where it is told to.

Usage: python -m tests.integration.data.journal_file_writer FOLDER WHERE. The journal is FOLDER/j.
Every draw made is a line of FOLDER/calls; the one in use lies in FOLDER/used. The process sends
itself SIGKILL

- ``draw``: in the draw; ``store``: half through the file's bytes;
- ``entry``: before the line that notes the file; ``line``: half through it;
- ``used``: at the end;
- anything else: nowhere.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

import privsyn.data.journal as module
from privsyn.data.journal import Journal, line_of


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder, where):
    store, append = module.store_file, Journal._append

    def dying_store(file, value):
        if where == "store":
            with open(file.with_name(".torn.tmp"), "wb") as stream:
                stream.write(value[:2])
            die()
        store(file, value)

    def dying_append(journal, text):
        if where == "entry":
            die()
        if where == "line":
            line, _ = line_of(text, journal._crc)
            os.write(journal._descriptor, line[:20])
            die()
        append(journal, text)

    def draw():
        value = secrets.token_hex(8)
        with open(folder / "calls", "a") as stream:
            print(value, file=stream)
        if where == "draw":
            die()
        return value.encode()

    Journal.create(folder / "j", {"r": 1})
    with Journal.open(folder / "j", {"r": 1}) as journal:
        journal.public_file("start", lambda: b"public")
        module.store_file, Journal._append = dying_store, dying_append
        (folder / "used").write_bytes(journal.draw_file("step/1", draw))
        if where == "used":
            die()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
