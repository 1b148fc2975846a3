"""Opening the private file, plain or compressed, and reading lines of bounded length."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, AnyStr, BinaryIO, cast

from privsyn.data.address import Address, Source
from privsyn.data.readers.objects import open_object, there
from privsyn.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
LONGEST_LINE = 1 << 24
"""Lines of more bytes (in CSV: characters) are dropped. The bound is fixed, so no record changes
it. A text of a million characters fits, even if every character is escaped."""


def check_file(path: Source, setting: str = "dataset.path") -> None:
    """Refuse a path that is not a readable file.

    Args:
        path: The file.
        setting: The setting that names the file, for messages.

    Raises:
        DataError: It does not exist, is a folder, or may not be read.
    """
    if isinstance(path, Address):
        if not there(path):
            raise DataError(f"{path} does not exist.", hint=f"Set {setting} to the objects.")
        return
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file.", hint=f"Set {setting} to a file.")
    if not path.exists():
        raise DataError(f"{path} does not exist.", hint=f"Set {setting} to the private file.")
    if not path.is_file():
        raise DataError(f"{path} is not a regular file.", hint=f"Set {setting} to a file.")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path} may not be read.", hint="Check the file's permissions.")


def split_suffix(path: PurePath) -> tuple[str, str]:
    """Suffix of the format and of the compression, lower case: ``(".csv", ".gz")``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        return (suffixes[-2] if len(suffixes) > 1 else ""), suffixes[-1]
    return (suffixes[-1] if suffixes else ""), ""


_WAY_OUT = {
    ".xlsx": "In Excel: Save as, CSV UTF-8 (comma delimited).",
    ".xls": "In Excel: Save as, CSV UTF-8 (comma delimited).",
    ".ods": "In LibreOffice: Save as, Text CSV, in UTF-8.",
    ".txt": "A text file has no columns: write a CSV with a header, or JSON Lines.",
    ".zip": "Unpack it and name the file in it.",
    ".7z": "Unpack it and name the file in it.",
    ".tar": "Unpack it and name the folder.",
    ".tgz": "Unpack it and name the folder.",
    ".feather": "Write it as Parquet: pandas.read_feather(...).to_parquet(...).",
    ".arrow": "Write it as Parquet: pandas.read_feather(...).to_parquet(...).",
    ".orc": "Write it as Parquet: pandas.read_orc(...).to_parquet(...).",
    ".pkl": "Write it as Parquet: frame.to_parquet(...).",
    ".db": "Export the table as CSV or Parquet.",
    ".sqlite": "Export the table as CSV or Parquet.",
}
"""Suffix of a format that is not supported -> how to convert it."""


def way_out(suffix: str) -> str:
    """How to convert a file of this format to a supported one."""
    return _WAY_OUT.get(suffix, "Convert the file; if its name is wrong, rename it.")


@contextmanager
def open_bytes(path: Source) -> Iterator[BinaryIO]:
    """The decompressed bytes of a file, buffered, in constant memory.

    Raises:
        DataError: The file cannot be read, or its compression is damaged or cut off. Raised while
            reading, too, as long as that happens inside the block.
    """
    try:
        with _decompressed(path) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        # No cause is attached: gzip's own message quotes the first bytes of the file.
        reason = getattr(error, "strerror", None) or "its compression is damaged or cut off"
        raise DataError(
            f"{path} cannot be read: {reason}.", hint="Copy or export the file again."
        ) from None


def bounded_lines(read: Callable[[int], AnyStr]) -> Iterator[AnyStr | None]:
    """Lines of a stream, by its ``readline``. None stands for a line beyond LONGEST_LINE."""
    while line := read(LONGEST_LINE):
        if _cut(line):
            # Skip to the end of the line: its rest must not be read as a row.
            while (rest := read(LONGEST_LINE)) and _cut(rest):
                pass
            yield None
        else:
            yield line


def _cut(line: AnyStr) -> bool:
    if len(line) < LONGEST_LINE:
        return False
    return not (line.endswith(("\n", "\r")) if isinstance(line, str) else line.endswith(b"\n"))


def _decompressed(path: Source) -> BinaryIO:
    place: Any = open_object(path) if isinstance(path, Address) else path
    match split_suffix(path)[1]:
        case ".gz":
            stream: Any = gzip.open(place)
        case ".bz2":
            stream = bz2.open(place)
        case ".xz":
            stream = lzma.open(place)
        case ".zst":
            stream = _ZstdReader(place if isinstance(path, Address) else path.open("rb"))
        case _ if isinstance(path, Address):
            return cast(BinaryIO, place)
        case _:
            return path.open("rb", buffering=1 << 20)
    return cast(BinaryIO, io.BufferedReader(stream, 1 << 20))


class _ZstdReader(io.RawIOBase):
    """Decompressed bytes of a .zst file, frame by frame."""

    # zstandard's own reader ends without an error on a truncated file, so records would be missing.
    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._file = file
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._output:
            if not self._input:
                self._input = self._file.read(1 << 14)
                if not self._input:
                    if self._frame is not None:
                        # Cut off within a frame.
                        raise EOFError
                    return 0
            if self._frame is None:
                self._frame = self._new_frame()
            try:
                self._output = memoryview(self._frame.decompress(self._input))
            except self._error as error:
                raise OSError("not a zstandard file, or damaged") from error
            self._input = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        view = memoryview(buffer).cast("B")
        n = min(len(view), len(self._output))
        view[:n] = self._output[:n]
        self._output = self._output[n:]
        return n
