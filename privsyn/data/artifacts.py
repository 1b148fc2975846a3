"""Files that appear whole or not at all, private folders, key files, and very many hashes."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ConfigError, StorageError
from privsyn.files import open_file

_TOGETHER = 1 << 20
"""Hashes in memory before they are sorted and written to the file."""


class Hashes:
    """Exact counts of 64-bit hashes in bounded memory: sorted runs in a nameless file."""

    def __init__(self) -> None:
        self._last: array[int] = array("q")
        self._file: IO[bytes] | None = None
        self._runs = 0

    def add(self, number: int) -> None:
        """Count one hash.

        Raises:
            OSError: The folder for temporary files is full.
        """
        self._last.append(number)
        if len(self._last) == _TOGETHER:
            if self._file is None:
                self._file = tempfile.TemporaryFile()
            run = np.sort(np.frombuffer(self._last, np.int64))
            self._file.write(run.tobytes())
            self._runs += 1
            self._last = array("q")

    def counts(self) -> Iterator[NDArray[np.int64]]:
        """Occurrences of each distinct hash, batch by batch; shape of a batch: (distinct,)."""
        last = np.sort(np.frombuffer(self._last, np.int64))
        runs = [last]
        if self._file is not None:
            self._file.flush()
            whole = np.memmap(self._file, np.int64, "r", shape=(self._runs, _TOGETHER))
            runs += list(whole)
        # Equal ranges of values: hashes are uniform, so a batch is about as large as one run.
        edges = np.linspace(-(2.0**63), 2.0**63, len(runs) + 1)[1:-1].astype(np.int64)
        cuts = [[0, *np.searchsorted(run, edges).tolist(), len(run)] for run in runs]
        for n in range(len(runs)):
            parts = [run[cut[n] : cut[n + 1]] for run, cut in zip(runs, cuts, strict=True)]
            yield np.unique(np.concatenate(parts), return_counts=True)[1]


_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(frozen=True)
class ArtifactRef:
    """A reference to a finished file.

    Attributes:
        path: Where the file is.
        sha256: Digest of its bytes, hexadecimal.
        media_type: Such as ``application/jsonl``.
        rows: Number of rows, or None for a file without rows.
    """

    path: Path
    sha256: str
    media_type: str
    rows: int | None = None


def sha256_file(path: Path) -> str:
    """Digest of a file's bytes, hexadecimal, in constant memory.

    Raises:
        StorageError: The file cannot be read.
    """
    with storage_errors("read", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_jsonl_atomic(
    path: Path, rows: Iterable[Mapping[str, Any]], *, mode: int = 0o644
) -> ArtifactRef:
    """Write rows as JSON Lines in UTF-8, keys in the order given, each row on one line.

    Args:
        path: Target; parent folders are made.
        rows: Mappings of plain JSON values. NaN and infinity are refused.
        mode: Permission bits of the finished file.

    Raises:
        StorageError: Disk full or no permission; the target is as it was before.
    """
    digest, count = hashlib.sha256(), 0
    with atomic_file(path, mode=mode) as stream:
        for row in rows:
            line = _encode(json.dumps(row, ensure_ascii=False, allow_nan=False)) + b"\n"
            digest.update(line)
            stream.write(line)
            count += 1
    return ArtifactRef(path, digest.hexdigest(), "application/jsonl", count)


def write_json_atomic(path: Path, obj: Any, *, mode: int = 0o644) -> ArtifactRef:
    """Write one JSON value with sorted keys, so equal values have equal bytes.

    Args:
        path: Target; parent folders are made.
        obj: A plain JSON value. NaN and infinity are refused.
        mode: Permission bits of the finished file.

    Raises:
        StorageError: Disk full or no permission; the target is as it was before.
    """
    text = json.dumps(obj, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2)
    data = _encode(text) + b"\n"
    with atomic_file(path, mode=mode) as stream:
        stream.write(data)
    return ArtifactRef(path, hashlib.sha256(data).hexdigest(), "application/json")


@contextmanager
def atomic_file(path: Path, *, mode: int = 0o600, replace: bool = True) -> Iterator[BinaryIO]:
    """A stream whose content appears under ``path`` when the block ends without an exception.

    Args:
        path: Target; parent folders are made.
        mode: Permission bits of the finished file.
        replace: Whether a file that is there is replaced.

    Raises:
        FileExistsError: There is one, and it is not replaced.
        StorageError: Disk full or no permission; the target is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with storage_errors("write", path):
        # Next to the target: a rename is atomic within one file system only.
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "xb", opener=private_opener) as stream:
            yield stream
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            # Before the rename, or a power cut could leave the new name with an empty file.
            os.fsync(stream.fileno())
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # fails where there is a file
        sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, FileExistsError) and not replace:
            raise
        # An OSError of the caller's own block (reading another file, say) names its own file.
        if error.filename not in (None, str(temporary), str(path), str(path.parent)):
            raise
        raise storage_error("write", path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter (mode 0700), or tighten one that exists.

    Raises:
        StorageError: It cannot be made, or a file is in its place.
    """
    with storage_errors("make", path):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)


_PROBE_BYTES = 1 << 14


def check_writable(folder: Path) -> None:
    """Write and delete a small file in a folder, or in the nearest folder above it that exists.

    Raises:
        StorageError: It cannot be written, is not a folder, or its disk is full.
    """
    place = folder
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    probe = place / f".probe.{secrets.token_hex(4)}.tmp"
    try:
        with storage_errors("write", folder), open(probe, "xb", opener=private_opener) as stream:
            # Some bytes and a sync: a full disk or quota accepts a new name and fails at its
            # content.
            stream.write(bytes(_PROBE_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
    finally:
        with suppress(OSError):
            probe.unlink()


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable: a rename survives a power cut only after this."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems refuse
            raise
    finally:
        os.close(descriptor)


def wipe(path: Path) -> None:
    """Delete a folder with its content. A missing one is fine; a link is removed, not followed.

    The bytes are not overwritten: on journaling file systems and flash storage overwriting proves
    nothing. Put the project on an encrypted disk if that matters.

    Raises:
        StorageError: Something in it cannot be deleted.
    """
    # A missing file: another process was faster.
    with storage_errors("delete", path), suppress(FileNotFoundError):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)
            sync_folder(path.parent)


def storage_error(action: str, path: Path, error: OSError) -> StorageError:
    """Error for a failed file operation, with the next step."""
    reason = error.strerror or type(error).__name__
    hints = {
        errno.ENOSPC: "Free some space and run again.",
        errno.EDQUOT: "Free some of your quota and run again.",
        errno.EACCES: "Check the permissions of the folder.",
        errno.EPERM: "Check the permissions of the folder.",
        errno.EROFS: "Choose a folder on a writable disk.",
    }
    return StorageError(f"cannot {action} {path}: {reason}.", hint=hints.get(error.errno or 0, ""))


@contextmanager
def storage_errors(action: str, path: Path) -> Iterator[None]:
    """Turn the OSErrors of a block into ``storage_error``."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error) from error


def private_opener(name: str, flags: int) -> int:
    """Opener for ``open`` that makes new files readable by their owner only (mode 0600)."""
    return os.open(name, flags, 0o600)


def _encode(text: str) -> bytes:
    # Three line breaks JSON leaves bare would split a row for readers that use str.splitlines();
    # a lone surrogate becomes its JSON escape, as UTF-8 has no bytes for it.
    return text.translate(_LINE_BREAKS).encode("utf-8", "backslashreplace")


def read_key(file: Path, setting: str) -> bytes:
    """The bytes of a key's file.

    Args:
        file: The file.
        setting: What names it, for messages.

    Raises:
        FileNotFoundError: There is no such file.
        ConfigError: It cannot be read, or others may read or change it.
    """
    try:
        with open_file(file) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{setting}: {file} cannot be read: {error.strerror}.") from None
    if mode & 0o027:
        raise ConfigError(
            f"{setting}: {file} can be read or written by others (mode {mode & 0o777:04o}).",
            hint=f"chmod 600 {file}; if others may have read it, make a new key.",
        )
    return content


def check_place(file: Path, refused: Sequence[Path], setting: str) -> None:
    """Refuse a key in a folder whose content leaves.

    Raises:
        ConfigError: It lies in one.
    """
    place = file.resolve()
    for folder in refused:
        if place.is_relative_to(folder.resolve()):
            raise ConfigError(
                f"{setting}: {file} lies in {folder}, whose content is published.",
                hint="Keep it outside of the project.",
            )


def refuse_repository(file: Path, setting: str) -> None:
    """Refuse a key in a git repository.

    Raises:
        ConfigError: It lies in one.
    """
    for folder in file.resolve().parents:
        if (folder / ".git").exists():
            raise ConfigError(
                f"{file} lies in the git repository {folder}, where it could be committed.",
                hint=f"Name a place outside, or set {setting} to it first.",
            )


def put_key(file: Path, content: bytes, mode: int) -> None:
    """Write a file whole, or not at all where there is one."""
    with storage_errors("write", file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with atomic_file(file, mode=mode, replace=False) as stream:
                stream.write(content)
        except FileExistsError:
            raise ConfigError(f"{file} is there already, and a key is never overwritten.") from None


def to_npy(array: NDArray[Any]) -> bytes:
    """An array as an .npy file, without pickle."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def from_npy(data: bytes) -> NDArray[Any]:
    """The array of an .npy file, without pickle."""
    array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array
