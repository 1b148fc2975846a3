"""Read foreign files safely, lock and digest files, and mark settings that name files."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, get_args, get_origin

import yaml
from filelock import FileLock
from pydantic import BaseModel, BeforeValidator

from privsyn.address import Address, source


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. A pipe or a device is refused at once.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    # Opened first and checked on the open file: a check by name could be of another file.
    stream = open(path, "rb", opener=_at_once)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_file(path: Path) -> bytes:
    """The bytes of a regular file. Errors as ``open_file``."""
    with open_file(path) as stream:
        return stream.read()


def read_json(path: Path) -> Any:
    """The JSON value in a regular file. Errors as ``open_file`` and ``parse_json``."""
    return parse_json(read_file(path))


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON value.

    Raises:
        ValueError: It is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_yaml(content: bytes) -> Any:
    """Parse a YAML value and refuse repeated keys: YAML would silently drop the first.

    Raises:
        ValueError: It is not YAML, repeats a key or is nested too deeply. The message has the line
            and quotes only the key.
    """
    try:
        return yaml.load(content.decode("utf-8"), Loader=_EachKeyOnce)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        # privacy: the line's number alone. The parser's own message quotes the text around it.
        where = f" at line {mark.line + 1}" if mark else ""
        if isinstance(error, _KeyTwice):
            raise ValueError(f"names {error.problem} twice, again{where}.") from None
        raise ValueError(f"is not valid YAML{where}.") from None
    except RecursionError:
        raise ValueError("is nested too deep.") from None


class _KeyTwice(yaml.MarkedYAMLError):
    """A mapping names a key twice."""


class _EachKeyOnce(yaml.SafeLoader):
    """Refuses a mapping that names a key twice. Keys merged by ``<<`` may be overridden."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # On nodes and not on the built mapping: merged keys of `<<` come later and are no repeats.
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise _KeyTwice(problem=f"{key.value!r:.80}", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def _at_once(name: str, flags: int) -> int:
    # Opening a pipe without O_NONBLOCK waits for a writer, perhaps forever.
    return os.open(name, flags | os.O_NONBLOCK)


@dataclass(frozen=True)
class OnDisk:
    """Marks a setting, inside ``Annotated``.

    Attributes:
        kind: ``private``: the records. ``file``: a public file that is read. ``model``: a public
            folder with a model, or a hub id. ``place``: where a service is or writes.
            ``unmarked``: of type Path without a mark.
        words: Values that are not paths, such as ``builtin``.
    """

    kind: Literal["private", "file", "model", "place", "unmarked"]
    words: tuple[str, ...] = ()


def marks(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, OnDisk]]:
    """Names (with dots) and marks of all settings of a section that are on disk, also nested ones.

    >>> class Section(BaseModel):
    ...     words: Annotated[str, OnDisk("file")] | None
    ...     count: int
    >>> [(name, mark.kind) for name, mark in marks(Section)]
    [('words', 'file')]
    """
    for name, field in model.model_fields.items():
        yield from _marks(field.annotation, tuple(field.metadata), f"{prefix}{name}")


def values(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, OnDisk]]:
    """Name, value and mark of every setting on disk whose value is not one of its words."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        for part in _parts(value):
            if isinstance(part, BaseModel):
                yield from values(part, f"{prefix}{name}.")
            elif isinstance(part, str | os.PathLike):
                for place, mark in _marks(field.annotation, tuple(field.metadata), name):
                    if place == name and str(part) not in mark.words:
                        yield f"{prefix}{name}", str(part), mark


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _parts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def _marks(annotation: Any, metadata: tuple[Any, ...], name: str) -> Iterator[tuple[str, OnDisk]]:
    for item in metadata:
        # The outermost mark counts: a setting can say more than the type it is made of.
        if isinstance(item, OnDisk):
            yield name, item
            return
    kinds = (annotation, get_origin(annotation))  # os.PathLike[str] is not a class
    if get_origin(annotation) is Annotated:
        inner, *extra = get_args(annotation)
        yield from _marks(inner, tuple(extra), name)
    elif any(isinstance(kind, type) and issubclass(kind, os.PathLike) for kind in kinds):
        yield name, OnDisk("unmarked")  # a test refuses such settings
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from marks(annotation, f"{name}.")
    else:
        for part in get_args(annotation):
            yield from _marks(part, (), name)


def _local(value: Any) -> Any:
    """A path of this machine, with ``~`` expanded. A URL is refused."""
    # `_source` has read it as an address already.
    if isinstance(value, Address):
        return value
    if isinstance(value, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", value):
        scheme = value.partition(":")[0].lower()
        raise ValueError(
            f"{scheme}:// is an address, but this setting takes a path of this machine: copy or "
            "mount the file and name its path"
        )
    try:
        return Path(value).expanduser() if isinstance(value, str | Path) else value
    except RuntimeError:
        raise ValueError(f"{str(value)!r}: this user has no home folder") from None


def _source(value: Any) -> Any:
    if not isinstance(value, str | os.PathLike):
        # YAML reads a file that is called 2024 as a number.
        raise ValueError("must be a path or an address; put a number in quotes")
    return _local(source(value)) if isinstance(value, str) else value


LocalPath = Annotated[Path, BeforeValidator(_local)]
"""A file or folder of this machine, relative to the project folder."""

SourcePath = Annotated[Path | Address, BeforeValidator(_source)]
"""A file or folder of this machine, or an address of an object store."""


def make_whole(file: Path, make: Callable[[Path], object]) -> None:
    """Make a file that a library writes step by step: under another name, renamed once it is whole.

    crash safety: what a kill or a full disk left of an earlier call is removed, and never found
    under the file's own name. Callers take turns. A file that is there, and not empty, stays.

    Args:
        file: The file. It is its owner's alone.
        make: Fills an empty file.
    """
    if file.exists() and file.stat().st_size:
        return
    draft = file.with_name(f"{file.name}.new")
    for left in file.parent.glob(f"{glob.escape(draft.name)}*"):  # its journal, too
        left.unlink()
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL, 0o600))
    make(draft)
    draft.replace(file)


def file_lock(path: Path, *, timeout: float) -> FileLock:
    """A lock for a with block. Later processes wait their turn.

    The kernel frees the lock when its holder dies, so a kill leaves nothing to clean up. The file
    stays: if it were removed, two processes could lock two files of one name. Without flock there
    is an error, not another kind of lock.

    Args:
        path: The lock file. Its folder is made if missing, readable by this user alone.
        timeout: Seconds to wait for another holder; then the block raises TimeoutError.

    Raises:
        OSError: The folder cannot be made.
    """
    # The folder may hold private records, and a lock may be the first file in it.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileLock(
        path,
        timeout=timeout,
        mode=0o600,
        thread_local=False,  # another thread may end the block
        fallback_to_soft=False,  # a soft lock would survive a kill
        preserve_lock_file=True,
    )


WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
SOURCE_FILE = "source.json"
"""Origin of a converted model, and the SHA-256 of each of its files."""
MODEL_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py", *WEIGHTS)
"""Files from which a model is loaded."""


def matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files of a folder that match any pattern, sorted."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def digest(folder: Path, cache_dir: Path | None, patterns: tuple[str, ...] = MODEL_FILES) -> str:
    """SHA-256 over names and contents of every file that loading may read."""
    whole = hashlib.sha256()
    for name, sha in file_digests(folder, cache_dir, patterns).items():
        if name == SOURCE_FILE:  # a model's origin does not change what it computes
            continue
        whole.update(f"{name}\0{sha}\n".encode())
    return whole.hexdigest()


def file_digests(
    folder: Path, cache_dir: Path | None, patterns: tuple[str, ...] = MODEL_FILES
) -> dict[str, str]:
    """SHA-256 of each file that matches a pattern, by its name, sorted.

    ``cache_dir`` caches digests by size and modification time. None: every file is read.
    """
    paths = matching(folder, patterns)
    digests = _digests(paths, cache_dir)
    return {
        path.relative_to(folder).as_posix(): sha for path, sha in zip(paths, digests, strict=True)
    }


def file_digest(path: Path, cache_dir: Path | None) -> str:
    """SHA-256 of one file, with the cache of ``file_digests``."""
    return _digests([path], cache_dir)[0]


def _digests(paths: list[Path], cache_dir: Path | None) -> list[str]:
    store = cache_dir / "model-digests.json" if cache_dir else None
    try:
        cache: dict[str, Any] = read_json(store) if store else {}
    except (OSError, ValueError):
        cache = {}
    fresh, digests = {}, []
    for path in paths:
        status = path.stat()
        key = str(path.resolve())
        entry = cache.get(key)
        if not (isinstance(entry, list) and entry[:2] == [status.st_size, status.st_mtime_ns]):
            with path.open("rb") as file:
                sha = hashlib.file_digest(file, "sha256").hexdigest()
            fresh[key] = entry = [status.st_size, status.st_mtime_ns, sha]
        digests.append(str(entry[2]))
    if store and fresh:
        with suppress(OSError):  # without a cache, the next run only takes longer
            store.parent.mkdir(parents=True, exist_ok=True)
            # A file per process, then a rename: two processes may write at the same time.
            part = store.with_name(f"{store.name}.{os.getpid()}")
            part.write_text(json.dumps({**cache, **fresh}), encoding="utf-8")
            part.replace(store)
    return digests
