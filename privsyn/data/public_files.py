"""Public files: opened by path if not private; and texts compared with them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import stat
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import PrivateAttr

from privsyn.address import Address, Source, is_address, overlap
from privsyn.data.words import words as words_of
from privsyn.errors import ConfigError
from privsyn.files import open_file
from privsyn.section import Section


def words(text: str) -> list[str]:
    """The words of a text, in the form in which they are compared.

    >>> words("Beta-blockers: 2 mg (O\u2019Neill)")
    ['beta', 'blockers', '2', 'mg', 'o', 'neill']
    """
    return words_of(unicodedata.normalize("NFKC", text).casefold().replace("_", " "))


SHORTEST_TEXT, SHORTEST_NUMBER = 16, 9
"""Fewest letters and digits of a shared text, and digits of a shared number, that are no accident.
Terms of a vocabulary are shorter, so a term that occurs in a record is no match."""


class PublicFiles:
    """Opens public files by path.

    Args:
        root: Folder that relative paths start from.
        private: Pairs of what a private place holds and its path or address. No setting may name
            such a place.
    """

    def __init__(self, root: Path = Path(), private: Sequence[tuple[str, Source]] = ()) -> None:
        self._root = root
        self._private = [(what, place) for what, place in private if isinstance(place, Path)]
        self._addresses = [(what, place) for what, place in private if isinstance(place, Address)]

    def read(self, setting: str, value: str) -> bytes:
        """The bytes of a public file.

        Args:
            setting: The setting that names the file, for messages.
            value: A path.

        Raises:
            ConfigError: The file is missing, not a regular file, or in a private place.
        """
        self.check(setting, value)
        path = self.path(value)
        try:
            with open_file(path) as stream:
                # The open file, not the path: a link may have changed since the check.
                self._refuse_same(setting, value, [os.fstat(stream.fileno())])
                return stream.read()
        except OSError as error:
            raise _refusal(
                setting, value, f"cannot be read: {error.strerror}", "Check the path."
            ) from None

    def folder(self, setting: str, value: str) -> Path:
        """The folder of a public model; parameters and errors as for ``read``."""
        path = self.path(value)
        if not path.is_dir():
            raise _refusal(setting, value, "is not a directory", "Name the folder of a model.")
        self.check(setting, value)
        return path

    def check(self, setting: str, value: str) -> None:
        """Refuse a path that is, is in, or holds a private place. A missing path is fine.

        Raises:
            ConfigError: The path touches a private place; says which.
        """
        for what, address in self._addresses:
            if is_address(value) and overlap(str(address), value):
                raise _private(setting, value, what)
        path = self.path(value)
        try:
            self._refuse_place(setting, value, path)
            if path.is_dir():
                # Links are followed, since reading follows them, and real paths end their circles.
                seen: set[str] = set()
                for folder, folders, files in os.walk(path, followlinks=True):
                    if (real := os.path.realpath(folder)) in seen:
                        folders.clear()
                        continue
                    seen.add(real)
                    for name in (*folders, *files):
                        self._refuse_place(setting, value, Path(folder, name))
        except OSError as error:
            raise _refusal(
                setting, value, f"cannot be read: {error.strerror}", "Check the path."
            ) from None

    def path(self, value: str) -> Path:
        """Path of a file, from the folder that relative ones start from."""
        return self._root / Path(value).expanduser()

    def _refuse_place(self, setting: str, value: str, path: Path) -> None:
        # Links are resolved on both sides; a folder is refused, too, if private files are below it.
        real = Path(os.path.realpath(path))
        for what, place in self._private:
            private = Path(os.path.realpath(place))
            if (
                real == private
                or private in real.parents
                or (real.is_dir() and real in private.parents)
            ):
                raise _private(setting, value, what)
        chain = [place.stat() for place in (real, *real.parents) if place.exists()]
        self._refuse_same(setting, value, chain)  # a bind mount, or another case of letters

    def _refuse_same(self, setting: str, value: str, chain: Sequence[os.stat_result]) -> None:
        """Refuse a private file under another name: a hard link or a mount."""
        places = {(status.st_dev, status.st_ino) for status in chain}
        # Searching every private file is slow: only a file with a second name can be one of them.
        linked = any(stat.S_ISREG(status.st_mode) and status.st_nlink > 1 for status in chain)
        for what, place in self._private:
            for private in [place, *(place.rglob("*") if linked and place.is_dir() else ())]:
                try:
                    status = private.stat()
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) in places:
                    raise _private(setting, value, what)


R = TypeVar("R", bound="ReadsFiles")


class ReadsFiles(Section):
    """Settings that name public files and read them only through one ``PublicFiles``."""

    _door: PublicFiles | None = PrivateAttr(default=None)
    _section: str = PrivateAttr(default="")
    _config: ReadsFiles | None = PrivateAttr(default=None)

    def through(self, door: PublicFiles, section: str, config: ReadsFiles | None = None) -> Self:
        """A copy of these settings that reads through ``door``.

        Args:
            door: Opens the files.
            section: Section of params.yaml, for messages.
            config: Settings of the config, which say where the files are, if these settings are
                those of a plan, which says what they hold. None: these settings themselves.
        """
        bound = self.model_copy()
        bound._door, bound._section, bound._config = door, f"{section}.", config
        return bound

    def resolved(self, kind: type[R], settings: Mapping[str, Any]) -> R:
        """These settings as ``kind``, updated by ``settings``; paths of files do not change."""
        filled = kind(**{**dict(self), **settings})
        filled._door, filled._section = self._door, self._section
        filled._config = self._config or self
        return filled

    def given_name(self, field: str) -> str:
        """Path that the config gives for a setting."""
        return str(getattr(self._config or self, field))

    def read(self, field: str) -> bytes:
        """The bytes of the public file that a setting names."""
        return (self._door or PublicFiles()).read(self._section + field, self.given_name(field))

    def folder(self, field: str) -> Path:
        """The model folder that a setting names."""
        return (self._door or PublicFiles()).folder(self._section + field, self.given_name(field))


def shares_text(
    public: Iterable[bytes], private: Iterable[Iterable[str]], public_values: Iterable[str] = ()
) -> bool:
    """Whether public files share a line, or a value of a line, with the private file. Internal.

    Lines, strings of JSON lines and cells of CSV lines are compared word by word, without case and
    punctuation, if they are long enough not to agree by chance. The result is one bit about the
    records. It goes to their owner and stops the release before any draw.

    Args:
        public: Contents of the public files, plain or .gz.
        private: Lines and values of each row of the private file.
        public_values: Public values of the private file, such as its labels.
    """

    def telling(pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            key = " ".join(words(piece))
            size = len(key.replace(" ", ""))
            if size >= SHORTEST_TEXT or sum(map(str.isdigit, key)) >= SHORTEST_NUMBER:
                yield key

    # Keys of the public files are held, not those of the private file, which may be far larger.
    keys = {key for data in public for key in telling(pieces(_text_of(data).splitlines()))}
    keys -= set(telling(public_values))
    return bool(keys) and any(key in keys for row in private for key in telling(row))


_DELIMITERS = ",;\t|"


def pieces(lines: Iterable[str], delimiter: str = ",") -> Iterator[str]:
    """Lines, strings in JSON lines, and cells in CSV lines.

    Cells end at any of the usual delimiters, and at ``delimiter``.
    """
    for line in lines:
        yield line
        try:
            yield from _strings(json.loads(line))
        except (ValueError, RecursionError):
            for end in dict.fromkeys(delimiter + _DELIMITERS):
                if end not in line:
                    continue
                try:
                    yield from next(csv.reader([line], delimiter=end), [])
                except csv.Error:
                    continue


def _text_of(data: bytes) -> str:
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return ""
    return data.decode("utf-8", "replace")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from value.splitlines()
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, int | float):
        yield str(value)


def _private(setting: str, value: str, what: str) -> ConfigError:
    return _refusal(
        setting,
        value,
        f"is, is in, or holds {what}, but must name a public file",
        "Name a file outside of it.",
    )


def _refusal(setting: str, value: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"{setting}={value} {why}.", hint=hint)
