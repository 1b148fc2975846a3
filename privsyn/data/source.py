"""Keyed fingerprints of private files, to find a file that was used before.

If a file comes again under another version, budget is spent twice on the same people. If another
file comes under the same version, a release repeats an old announcement. Comparing fingerprints
finds both. A fingerprint is a keyed hash of the whole content: copying, renaming and packing do not
change it, and without the key it shows nothing. But whether two are equal is a fact of the data, so
they are internal: they stay in the ledger's database and the state folder, and are never published,
not even as part of another digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from privsyn.data.address import Address, Source
from privsyn.data.artifacts import write_json_atomic
from privsyn.data.readers.objects import object_states
from privsyn.data.readers.streams import check_file, open_bytes
from privsyn.errors import DataError, StorageError

CACHE = "sources.json"
_CHUNK = 1 << 20
_SETTLED_NS = 2_000_000_000
"""A younger file may change again within one tick of the clock, so it is always read."""


def fingerprint(path: Source, key: bytes, *, cache: Path | None = None) -> str:
    """Keyed hash of a file's content, or of all files of a folder with their names below it.

    A compressed file (.gz, .zst, .bz2, .xz) is hashed by its content, so compressing it again
    changes nothing. The same rows in another order are another file. Objects of an address count
    like files of a folder. Their ETags are not used as fingerprints: an ETag depends on how an
    object was uploaded, and has no key. ETags only show that an object has not changed since it was
    read.

    Args:
        path: The private file or folder.
        key: The ledger's secret for sources (``Releases.source_key``), 16 to 64 bytes.
        cache: Folder for fingerprints of unchanged files, by path, size, inode
            and times; None: always read the content.

    Returns:
        40 hex digits.

    Raises:
        DataError: It is missing or cannot be read, or its compression is damaged.
    """
    if not 16 <= len(key) <= 64:
        raise ValueError(f"key of {len(key)} bytes; it must have 16 to 64")
    place = str(path if isinstance(path, Address) else path.resolve())
    state = _state(path, key)
    entries = _read(cache)
    if entries.get(place, [None])[0] == state:
        return str(entries[place][1])
    digest = _hash(path, key)
    # The state before and after must agree: a file that changed while it was read has no
    # fingerprint.
    if cache is not None and _state(path, key) == state and _settled(path):
        with suppress(StorageError):  # it is read again the next time
            write_json_atomic(cache / CACHE, entries | {place: [state, digest]}, mode=0o600)
    return digest


def _hash(path: Source, key: bytes) -> str:
    whole = hashlib.blake2b(key=key, person=b"privsyn source", digest_size=20)
    for name, file in _files(path):
        content = hashlib.blake2b(key=key, person=b"privsyn content", digest_size=32)
        with open_bytes(file) as stream:
            while chunk := stream.read(_CHUNK):
                content.update(chunk)
        # With its length before it: otherwise a name could end where a digest begins.
        whole.update(f"{len(name)} {name}".encode("utf-8", "surrogateescape"))
        whole.update(content.digest())
    return whole.hexdigest()


def _files(path: Source) -> Iterator[tuple[str, Source]]:
    """(name below the folder, path) of each file; for a single file its path without a name."""
    if isinstance(path, Address):
        yield from _objects(path)
        return
    if not path.is_dir():
        check_file(path)
        yield "", path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            file = Path(folder, name)
            if file.is_file():
                yield file.relative_to(path).as_posix(), file


def _objects(address: Address) -> Iterator[tuple[str, Address]]:
    keys = sorted(object_states(address))
    if not keys:
        raise DataError(f"{address} does not exist.", hint="Set dataset.path to the objects.")
    folder = "/".join(address.parts[2 : len(address.parts) - (address.pattern is not None)])
    for key in keys:
        yield key.removeprefix(folder).lstrip("/"), Address(f"{address.bucket}/{key}")


def _state(path: Source, key: bytes) -> str:
    """A hash that changes when a file does. Its ctime is in it: no user can set it back."""
    digest = hashlib.blake2b(key=key, person=b"privsyn state", digest_size=16)
    if isinstance(path, Address):
        for name, state in sorted(object_states(path).items()):
            digest.update(f"{name}/{state}/".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()
    for name, stat in _stats(path):
        digest.update(
            f"{name}/{stat.st_size} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns}/".encode(
                "utf-8", "surrogateescape"
            )
        )
    return digest.hexdigest()


def _settled(path: Source) -> bool:
    if isinstance(path, Address):  # without an ETag a change may not show
        return all(state.split()[1] != "None" for state in object_states(path).values())
    newest = max((stat.st_ctime_ns for _, stat in _stats(path)), default=0)
    return abs(time.time_ns() - newest) > _SETTLED_NS


def _stats(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    for name, file in _files(path):
        try:
            yield name, os.stat(file)
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}.") from None


def _read(cache: Path | None) -> dict[str, Any]:
    if cache is None:
        return {}
    try:
        entries = json.loads((cache / CACHE).read_bytes())
    except (OSError, ValueError):
        return {}
    usable = isinstance(entries, dict) and all(
        isinstance(value, list) and len(value) == 2 for value in entries.values()
    )
    return entries if usable else {}
