"""The parts of a private source and their bytes: opened, unpacked, in bounded lines, fingerprints.

A source is one file, a folder of files or the objects of an address; its parts are read in the
order of their names, as if they were one file.

Keyed fingerprints find a file that was used before. If a file comes again under another version,
budget is spent twice on the same people. If another file comes under the same version, a release
repeats an old announcement. Comparing fingerprints finds both. A fingerprint is a keyed hash of the
whole content: copying, renaming and packing do not change it, and without the key it shows nothing.
But whether two are equal is a fact of the data, so they are internal: they stay in the ledger's
database and the state folder, and are never published, not even as part of another digest.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PosixPath, PurePath
from typing import TYPE_CHECKING, Any, AnyStr, BinaryIO, cast

from privsyn.address import Address, Source
from privsyn.data.object_store import BucketStore
from privsyn.errors import DataError, StorageError
from privsyn.files import open_file

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Part:
    """One of the files of a source. In an f-string it is the source and the part's number.

    Privacy: files and folders may be named after people, and messages reach logs and alerts.
    """

    called = ""

    def __format__(self, spec: str) -> str:
        return self.called or str(self)


class _File(Part, PosixPath): ...


class _Object(Part, Address): ...


def parts(path: Source) -> list[Source]:
    """The files of a folder, or the objects of an address, by name; else the file itself.

    Names that begin with ``_`` or ``.`` are skipped: other tools write such files beside parts.

    Raises:
        DataError: There is no part.
        StorageError: The store cannot be reached or refuses.
    """
    if isinstance(path, Address):
        files: list[Source] = [Address(f"{path.bucket}/{key}") for key in object_keys(path)]
        prefix = len(path.parts) - (path.pattern is not None)
        files = [part for part in files if part == path or _is_visible(part.parts[prefix:])]
    elif path.is_dir():
        files = [part for part in _files(path) if _is_visible(part.relative_to(path).parts)]
    else:
        return [path]
    if not files:
        raise DataError(f"{path} holds no file.", hint="Set dataset.path to where the records are.")
    return numbered(path, sorted(files, key=str))


def numbered(path: Source, files: Sequence[Source]) -> list[Source]:
    """Files of a source, in their order, as parts with numbers; the source itself as it is."""
    if list(files) == [path]:
        return [path]
    named = [_Object(file) if isinstance(file, Address) else _File(file) for file in files]
    for number, part in enumerate(named, 1):
        part.called = f"part {number} of {len(files)} of {path}"
    return list(named)


_LOGS = (
    "_delta_log",  # Delta
    ".hoodie(_partition_metadata)?",  # Hudi
    # Iceberg
    "metadata/([^/]*[.]metadata[.]json[^/]*|snap-[^/]*|[^/]*-m[0-9]+[.]avro|version-hint.*)",
    "schema/schema-[0-9]+",  # Paimon
    "_spark_metadata|_(committed|started)_[0-9]+",  # Spark
    "base_[0-9]{7}(_v[0-9]+)?|(delete_)?delta_[0-9]{7}_[0-9]{7}[^/]*|_orc_acid_version",  # Hive
    "ducklake-[^/]*.parquet",  # DuckLake
)
"""Marks of tables whose log says which files count."""
_MARK = re.compile(f"(^|/)({'|'.join(_LOGS)})(/|$)", re.IGNORECASE)
_ABOVE = ("_delta_log", ".hoodie", "metadata", "schema", "_spark_metadata")
_BESIDE = re.compile("[.]hoodie_|_committed_|_started_|.*delta_0|_orc_acid", re.IGNORECASE)


def refuse_table(path: Source) -> None:
    """Refuse files of a table with a log, by its mark in the source or in a folder above it.

    Privacy: some of its files hold rows that the table has deleted or replaced. By them people
    would come back whom their controller erased.

    Raises:
        DataError: It is such a table, or lies in one.
        StorageError: The store cannot be reached or refuses.
    """
    if any(map(_MARK.search, _around(path))):
        raise DataError(
            f"{path} is or lies in a table with a log (of Delta, Hudi, Iceberg, Paimon, DuckLake, "
            "Hive or Spark): its log says which of the files count, and others hold rows that were "
            "deleted.",
            hint="Name the table itself: the folder of _delta_log, iceberg://catalog/space.table "
            "or an Iceberg *.metadata.json. Of others export a snapshot as Parquet, elsewhere.",
        )


def _around(path: Source) -> Iterator[str]:
    """Names of all that is in a source, and of what may mark a table in a folder above it."""
    if isinstance(path, Address):
        yield from object_keys(path)
        for end in range(2, len(path.parts)):
            for mark in _ABOVE:
                yield from _store(path).names("/".join((*path.parts[2:end], mark)))
        return
    whole, folders = path.resolve(), {*path.absolute().parents}
    yield whole.name
    for place, inner, names in os.walk(whole):
        yield from (f"{place}/{name}" for name in (*inner, *names))
        links = (link for name in names if (link := Path(place, name)).is_symlink())
        folders.update(parent for link in links for parent in link.resolve().parents)
    for folder in folders | {*whole.parents}:
        yield str(folder)
        for mark in _ABOVE:
            yield from map(str, (*folder.glob(mark), *folder.glob(f"{mark}/*")))
        # One listing: a folder above may hold very many others.
        for _, inner, names in islice(os.walk(folder), 1):
            yield from (f"{folder}/{name}" for name in filter(_BESIDE.match, (*inner, *names)))


_RENAME = "Rename it by what it is, such as .jsonl.gz, .csv.zst or .parquet."
_BEGINNINGS = (
    (b"version https://git-lfs", "", "a pointer of Git LFS in place of the data", "git lfs pull"),
    (b"/annex/objects/", "", "a pointer of git-annex in place of the data", "git annex get ."),
    ((b"\xff\xfe", b"\xfe\xff"), "", "in UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\x1f\x8b", ".gz", "packed by gzip", _RENAME),
    (b"\x28\xb5\x2f\xfd", ".zst", "packed by zstd", _RENAME),
    (b"BZh", ".bz2", "packed by bzip2", _RENAME),
    (b"\xfd7zXZ", ".xz", "packed by xz", _RENAME),
    (b"PAR1", ".parquet", "Parquet", _RENAME),
    (b"PK\3\4", ".npz .zip", "a zip archive or a workbook", "Unpack it, or save it as CSV."),
)
"""First bytes of a file, the suffixes that tell it, what it is, and the next step."""


@contextmanager
def explained(path: Source) -> Iterator[None]:
    """Turn the refusal of a file into one that says what lies in its place, where that is known."""
    try:
        yield
    except DataError as error:
        raise (None if isinstance(error, StorageError) else _mistaken(path)) or error from None


def _mistaken(path: Source) -> DataError | None:
    if isinstance(path, Path) and not path.exists():
        pointers = (place.with_name(f"{place.name}.dvc") for place in (path, *path.parents[:-1]))
        for pointer in filter(Path.is_file, pointers):
            return DataError(f"{path} is not here: DVC holds it.", hint=f"dvc pull {pointer}")
        return None
    try:
        with open_object(path) if isinstance(path, Address) else open_file(path) as stream:
            head = stream.read(100)
    except (OSError, StorageError):
        return None
    for beginning, suffixes, what, step in _BEGINNINGS:
        if head.startswith(beginning) and path.suffix.lower() not in suffixes.split():
            return DataError(f"{path} is {what}, whatever its name says.", hint=step)
    return None


def is_folder(path: object) -> bool:
    """Whether it is a folder of this machine."""
    return isinstance(path, Path) and path.is_dir()


def there(path: Source) -> bool:
    """Whether the file, the folder, or an object at the address exists.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    if isinstance(path, Address):  # a catalog is asked when its table is read
        return path.parts[0] == "iceberg:" or bool(object_keys(path))
    return path.exists()


def object_keys(address: Address) -> list[str]:
    """Keys of the objects of an address, sorted; empty if there is none.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    store = _store(address)
    if address.pattern is not None:
        return [key for key in store.names("/".join(address.parts[2:-1])) if address.names(key)]
    # The key may name one object, or be the prefix of several.
    return [address.key] if store.exists(address.key) else store.names(address.key)


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
    return BucketStore(address.bucket, "dataset.path", private=True)


def _is_visible(names: tuple[str, ...]) -> bool:
    return not any(name.startswith((".", "_")) for name in names)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (file for name in names if (file := Path(place, name)).is_file())


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


WAY_OUT = {
    **dict.fromkeys((".xlsx", ".xls"), "In Excel: Save as, CSV UTF-8 (comma delimited)."),
    **dict.fromkeys((".zip", ".7z", ".tar", ".tgz"), "Unpack it and name what is in it."),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".pkl"), "Write it as Parquet, by pandas."),
    **dict.fromkeys((".png", ".jpg", ".jpeg"), "Images need the setting dataset.images."),
    ".dvc": "It is a pointer of DVC: dvc pull, and name the file without .dvc.",
}
"""Suffix of a format that is not supported -> how to convert it."""


@contextmanager
def open_bytes(path: Source) -> Iterator[BinaryIO]:
    """The decompressed bytes of a file, buffered, in constant memory.

    Raises:
        DataError: The file cannot be read, or its compression is damaged or cut off. Raised while
            reading, too, as long as that happens inside the block.
    """
    try:
        with _decompress(path) as stream:
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


def _decompress(path: Source) -> BinaryIO:
    place: Any = open_object(path) if isinstance(path, Address) else path
    match split_suffix(path)[1]:
        case ".gz":
            stream: Any = gzip.open(place)
        case ".bz2":
            stream = bz2.open(place)
        case ".xz":
            stream = lzma.open(place)
        case ".zst":
            stream = _Chunks(_zstd(place if isinstance(path, Address) else path.open("rb")))
        case _ if isinstance(path, Address):
            return cast(BinaryIO, place)
        case _:
            return path.open("rb", buffering=1 << 20)
    return cast(BinaryIO, io.BufferedReader(stream, 1 << 20))


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    """The content of a .zst file, frame by frame."""
    import zstandard

    # zstandard's own reader ends without an error on a truncated file, so records would be missing.
    frame: Any = None
    try:
        with file:
            while block := file.read(1 << 14):
                while block:
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(block)
                    block = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise OSError("not a zstandard file, or damaged") from error
    if frame is not None:
        raise EOFError  # cut off within a frame


_CHUNK = 1 << 20


def fingerprint(path: Source, key: bytes) -> str:
    """Keyed hash of a file's content, or of all files of a folder with their names below it.

    A compressed file (.gz, .zst, .bz2, .xz) is hashed by its content, so compressing it again
    changes nothing. The same rows in another order are another file. Objects of an address count
    like files of a folder. Their ETags are not used: an ETag depends on how an object was uploaded,
    and has no key.

    Args:
        path: The private file or folder.
        key: The ledger's secret for sources (``Releases.source_key``), 16 to 64 bytes.

    Returns:
        40 hex digits.

    Raises:
        DataError: It is missing or cannot be read, or its compression is damaged.
    """
    if not 16 <= len(key) <= 64:
        raise ValueError(f"key of {len(key)} bytes; it must have 16 to 64")
    whole = hashlib.blake2b(key=key, person=b"privsyn source", digest_size=20)
    for name, file in _files_below(path):
        content = hashlib.blake2b(key=key, person=b"privsyn content", digest_size=32)
        with open_bytes(file) as stream:
            while chunk := stream.read(_CHUNK):
                content.update(chunk)
        # With its length before it: otherwise a name could end where a digest begins.
        whole.update(f"{len(name)} {name}".encode("utf-8", "surrogateescape"))
        whole.update(content.digest())
    return whole.hexdigest()


def _files_below(path: Source) -> Iterator[tuple[str, Source]]:
    """(name below the folder, path) of each file; for a single file its path without a name."""
    if isinstance(path, Address):
        yield from _objects(path)
        return
    if not path.is_dir():
        check_file(path)
        yield "", path
        return
    inside = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        inside += [file for name in sorted(files) if (file := Path(folder, name)).is_file()]
    for part in numbered(path, inside):
        yield os.path.relpath(part, path), part


def _objects(address: Address) -> Iterator[tuple[str, Source]]:
    keys = object_keys(address)
    if not keys:
        raise DataError(f"{address} does not exist.", hint="Set dataset.path to the objects.")
    folder = "/".join(address.parts[2 : len(address.parts) - (address.pattern is not None)])
    for part in numbered(address, [Address(f"{address.bucket}/{key}") for key in keys]):
        yield "/".join(part.parts[2:]).removeprefix(folder).lstrip("/"), part
