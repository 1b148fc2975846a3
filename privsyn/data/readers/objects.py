"""The parts of a private source, and reading parts from an object store.

A source is one file, a folder of files or the objects of an address; its parts are read in the
order of their names, as if they were one file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from privsyn.data.address import Address, Source
from privsyn.errors import DataError
from privsyn.object_store import BucketStore

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


T = TypeVar("T")


def parts(path: Source) -> list[Source]:
    """The files of a folder, or the objects of an address, by name; else the file itself.

    Names that begin with ``_`` or ``.`` are skipped: other tools write such files beside parts.

    Raises:
        DataError: There is no part.
        StorageError: The store cannot be reached or refuses.
    """
    if isinstance(path, Address):
        files: list[Source] = [Address(f"{path.bucket}/{key}") for key in object_states(path)]
        prefix = len(path.parts) - (path.pattern is not None)
        files = [part for part in files if part == path or _shown(part.parts[prefix:])]
    elif path.is_dir():
        files = [part for part in _files(path) if _shown(part.relative_to(path).parts)]
    else:
        return [path]
    if not files:
        raise DataError(f"{path} holds no file.", hint="Set dataset.path to where the records are.")
    return sorted(files, key=str)


def is_folder(path: Source) -> bool:
    """Whether it is a folder of this machine."""
    return isinstance(path, Path) and path.is_dir()


def local(
    read: Callable[[Path, Mapping[str, str]], T],
) -> Callable[[Source, Mapping[str, str]], T]:
    """Make a reader of local files refuse addresses."""

    def checked(path: Source, columns: Mapping[str, str]) -> T:
        if isinstance(path, Address):
            raise DataError(
                f"{path} has a format that cannot be read from an object store.",
                hint="Copy it to this machine, or write the records as Parquet.",
            )
        return read(path, columns)

    return checked


def there(path: Source) -> bool:
    """Whether the file, the folder, or an object at the address exists.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    return bool(object_states(path)) if isinstance(path, Address) else path.exists()


def object_states(address: Address) -> dict[str, str]:
    """Key -> state of each object of an address; empty if there is none.

    A state changes when the object changes. It depends on more than the content: the ETag of an
    object that was uploaded in parts depends on their size.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    store = _store(address)
    if address.pattern is not None:
        listed = store.states("/".join(address.parts[2:-1]))
        return {key: state for key, state in listed.items() if address.names(key)}
    # The key may name one object, or be the prefix of several.
    state = store.state(address.key)
    return store.states(address.key) if state is None else {address.key: state}


def open_object(address: Address) -> BinaryIO:
    """The stored bytes of one object, streamed in constant memory.

    Raises:
        StorageError: Now or while reading: the store cannot be reached, or refuses.
    """
    return io.BufferedReader(_Chunks(_store(address).chunks(address.key)), 1 << 20)


class _Chunks(io.RawIOBase):
    """A stream over chunks that an iterator gives."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        # A loop: zero bytes mean the end to a caller, and a store may send an empty chunk.
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        view = memoryview(buffer).cast("B")
        n = min(len(view), len(self._rest))
        view[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


def _store(address: Address) -> BucketStore:
    return BucketStore(address.bucket, "dataset.path")


def _shown(names: tuple[str, ...]) -> bool:
    return not any(name.startswith((".", "_")) for name in names)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (file for name in names if (file := Path(place, name)).is_file())
