"""Object stores by URL: a folder of this machine, or a bucket of S3, Google or Azure.

An object appears completely or not at all. Credentials come from the environment, by the names of
the clouds' own tools (``AWS_ACCESS_KEY_ID``, ``GOOGLE_APPLICATION_CREDENTIALS``,
``AZURE_STORAGE_ACCOUNT_NAME`` ...). A URL with credentials is refused. No error quotes a server's
answer, which may hold them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from privsyn.data.artifacts import atomic_file, storage_errors, wipe
from privsyn.errors import ConfigError, StorageError

SCHEMES = ("file", "s3", "gs", "az")
"""Allowed schemes of a URL."""

PART_BYTES = 1 << 23
"""Bytes of one part of an upload or a download; a few parts are in memory at once."""

STALE_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses between attempts to read an object that exists: stores may show it late."""

CLIENT: dict[str, Any] = {
    "timeout": timedelta(seconds=120),
    "connect_timeout": timedelta(seconds=10),
}
RETRIES: dict[str, Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=90)}
"""Time limits of a request, and retries after a failure."""

AGAIN_SECONDS = (0.5, 2.0)
"""Pauses between attempts of an interrupted upload, which the library does not retry."""


class NoSuchObject(StorageError):
    """An object does not exist, or is not visible yet."""


def open_store(url: str, setting: str) -> FolderStore | BucketStore:
    """The store at a URL. It connects on the first call.

    Args:
        url: ``file:///absolute/folder``, ``s3://bucket/prefix``, ``gs://...`` or ``az://...``.
        setting: Setting with the URL, for messages: ``services.vault``.

    Raises:
        ConfigError: It is not a valid URL, holds credentials, or the cloud settings are incomplete.
    """
    check_url(url, setting)
    folder = local_folder(url)
    if folder is not None:
        return FolderStore(folder)
    return BucketStore(url.rstrip("/"), setting)


def local_folder(url: str) -> Path | None:
    """The folder of a ``file://`` URL; None for other URLs."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def check_url(url: str, setting: str) -> None:
    """Refuse text that is not a URL of a store, without quoting it: it may hold a secret.

    Raises:
        ConfigError: Names the setting and the valid form.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    # Nothing of the URL is quoted below: before it is parsed nobody knows which part is a secret.
    hint = "Use file:///absolute/folder, s3://bucket/prefix, gs://bucket/prefix or az://..."
    local = parts.scheme == "file"
    # In a bucket's URL an @ in the path may be a password that was put in the wrong place.
    secret = "@" in parts.netloc if local else "@" in url or ":" in parts.netloc
    if secret or parts.query or parts.fragment:
        raise ConfigError(
            f"{setting} holds a user, a password or options: only an address is allowed.",
            hint="Give credentials in the environment, such as AWS_ACCESS_KEY_ID.",
        )
    if parts.scheme not in SCHEMES:
        raise ConfigError(f"{setting} must begin with one of {', '.join(SCHEMES)}.", hint=hint)
    if local != (not parts.netloc) or (local and not parts.path.strip("/")):
        raise ConfigError(f"{setting} has no bucket or folder.", hint=hint)


def _check_name(name: str) -> str:
    path = PurePosixPath(name)
    # Names are made of ids that others may have written: none may lead out of the store.
    if path.is_absolute() or ".." in path.parts or not re.fullmatch(r"[\w./-]*", name):
        raise ValueError(f"{name!r} is not a name of an object")
    return name


def _some(folder: str) -> str:
    if not _check_name(folder).strip("./"):
        # An empty name is a prefix of every object.
        raise ValueError("refusing to delete a whole store")
    return folder


class FolderStore:
    """Objects as files of mode 0600 in folders of mode 0700, durable once stored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = f"file://{folder}"

    def put(self, name: str, source: IO[bytes]) -> None:
        """Store the bytes of a file as a file of the folder."""
        target = self._folder / _check_name(name)
        with storage_errors("write", target):
            # Level by level: mkdir gives its mode to the last folder alone, and parents would be
            # readable.
            for folder in reversed([f for f in target.parents if f.is_relative_to(self._folder)]):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            source.seek(0)
            # Written aside and renamed, so that no reader sees half an object.
            with atomic_file(target) as out:
                while part := source.read(PART_BYTES):
                    out.write(part)

    def get(self, name: str, target: IO[bytes]) -> None:
        """Write a file's bytes to ``target``."""
        file = self._folder / _check_name(name)
        with storage_errors("read", file):
            try:
                stream = file.open("rb")
            except FileNotFoundError:
                raise missing(self.where, name) from None
            with stream:
                while part := stream.read(PART_BYTES):
                    target.write(part)

    def exists(self, name: str) -> bool:
        """Whether the file exists."""
        return (self._folder / _check_name(name)).is_file()

    def names(self, folder: str = "") -> list[str]:
        """Names of all files in a folder, sorted."""
        paths = (self._folder / _check_name(folder)).rglob("*")
        return sorted(f.relative_to(self._folder).as_posix() for f in paths if f.is_file())

    def folders(self) -> list[str]:
        """Names of the top folders, sorted."""
        if not self._folder.is_dir():
            return []
        return sorted(f.name for f in self._folder.iterdir() if f.is_dir())

    def remove(self, name: str) -> None:
        """Delete a file."""
        wipe(self._folder / _check_name(name))

    def delete(self, folder: str) -> None:
        """Delete a folder and all in it."""
        wipe(self._folder / _some(folder))


class BucketStore:
    """Objects in a bucket, by the library ``obstore``, which retries where that is safe.

    It connects on the first call of a process.

    Args:
        url: Of the bucket, or of a folder in it.
        setting: Setting with the URL, for messages.
        private: Names of its objects may be those of people: no message has them.
    """

    def __init__(self, url: str, setting: str, *, private: bool = False) -> None:
        self.where, self._setting, self._private = url, setting, private
        self._made: Any = None

    @property
    def _store(self) -> Any:
        if self._made is None:
            # Late: a project may name a store on a machine that never uses it and lacks the
            # library.
            try:
                from obstore.exceptions import BaseError
                from obstore.store import from_url
            except ImportError:
                raise ConfigError(
                    f"{self._setting}={self.where}: the library obstore is missing.",
                    hint="Run: pip install 'privsyn[cloud]'.",
                ) from None
            try:
                self._made = from_url(
                    self.where,
                    client_options=CLIENT | plain_http(),
                    retry_config=RETRIES,
                )
            except (BaseError, ValueError) as error:
                raise ConfigError(
                    f"{self._setting}={self.where} cannot be used: {type(error).__name__}.",
                    hint="Check the environment's settings of that cloud.",
                ) from None
        return self._made

    def put(self, name: str, source: IO[bytes]) -> None:
        """Store the bytes of a file as an object, with retries."""

        def once() -> None:
            # A failed attempt has read some of the file.
            source.seek(0)
            self._store.put(_check_name(name), source, chunk_size=PART_BYTES, max_concurrency=2)

        self._again("write", name, once, StorageError, AGAIN_SECONDS)

    def get(self, name: str, target: IO[bytes]) -> None:
        """Write an object's bytes to ``target``, with retries while it is not visible."""

        def once() -> None:
            # A failed attempt may have written a part.
            target.seek(0)
            target.truncate()
            for part in self._store.get(_check_name(name)).stream(PART_BYTES):
                target.write(part)

        self._again("read", name, once, NoSuchObject, STALE_SECONDS)

    def exists(self, name: str) -> bool:
        """Whether the object exists."""
        try:
            with self._translate_errors("read", name):
                self._store.head(self._key_of(name))
        except NoSuchObject:
            return False
        return True

    def names(self, folder: str = "") -> list[str]:
        """Names of all objects in a folder, sorted."""
        with self._translate_errors("list", folder):
            listed = self._store.list(prefix=self._key_of(folder) or None)
            return sorted(item["path"] for chunk in listed for item in chunk)

    def folders(self) -> list[str]:
        """Names of the top folders, sorted."""
        with self._translate_errors("list", ""):
            paths = self._store.list_with_delimiter()["common_prefixes"]
            return sorted(PurePosixPath(name).name for name in paths)

    def remove(self, name: str) -> None:
        """Delete an object."""
        # Deleting twice is fine: a wipe that was killed is run again from its start.
        with suppress(NoSuchObject), self._translate_errors("delete", name):
            self._store.delete(_check_name(name))

    def delete(self, folder: str) -> None:
        """Delete all objects in a folder."""
        paths = self.names(_some(folder))
        if paths:
            with self._translate_errors("delete", folder):
                self._store.delete(paths)

    def _key_of(self, name: str) -> str:
        return name if self._private else _check_name(name)  # a source has names of its own

    def _again(
        self,
        action: str,
        name: str,
        once: Callable[[], None],
        passing: type[StorageError],
        pauses: Sequence[float],
    ) -> None:
        """Do something repeatable, with retries after these pauses for this error."""
        for pause in (*pauses, None):
            try:
                with self._translate_errors(action, name):
                    return once()
            except passing:
                # The last attempt: its error is what the user gets.
                if pause is None:
                    raise
                time.sleep(pause)

    def chunks(self, name: str) -> Iterator[bytes]:
        """An object's bytes in one request, so all are of one version."""
        with self._translate_errors("read", name):
            for part in self._store.get(name).stream(PART_BYTES):
                yield bytes(part)

    @contextmanager
    def _translate_errors(self, action: str, name: str) -> Iterator[None]:
        self._store  # noqa: B018  raises if the library or a setting is missing
        name = "" if self._private else name
        from obstore.exceptions import BaseError, NotFoundError

        try:
            yield
        except (NotFoundError, FileNotFoundError):
            raise missing(self.where, name or "such object") from None
        except (BaseError, OSError) as error:
            reason = _reason(error)
            denied = reason[:3] in ("401", "403")
            raise StorageError(
                f"cannot {action} {name or 'objects'} in {self.where}: {reason}.",
                hint="Check the credentials in the environment and what they may do."
                if denied
                else "Check that the store is up, its address and the credentials; run again.",
            ) from None


ObjectStore = FolderStore | BucketStore
"""A store of objects, whose names have slashes.

Every method raises StorageError if the store cannot be reached or refuses, or if its errors last
longer than the retries.
"""

_NO_ANSWER = {
    "ConnectionRefused": "connection refused",
    "dns error": "the host's name is unknown",
    "kind: Timeout": "no answer in time",
    "kind: Connect": "no connection",
}
"""What the library's words for a request without an answer mean."""


def _reason(error: Exception) -> str:
    """Why a request failed: its status, else one of our words, else the type of the error.

    privacy: the library quotes the server's answer, which may hold signed URLs or keys.
    """
    text = str(error)
    if status := re.search(r"status code: (\d{3})", text):
        known = {code.value: f" {code.phrase}" for code in HTTPStatus}
        return status[1] + known.get(int(status[1]), "")
    kind = type(error).__name__
    return next((words for sign, words in _NO_ANSWER.items() if sign in text), kind)


def missing(where: str, name: str) -> NoSuchObject:
    """Error for a missing object."""
    return NoSuchObject(
        f"{where} has no {name}.", hint="If it was deleted, restore it; otherwise run again."
    )


def plain_http() -> dict[str, Any]:
    """Allow plain HTTP if the environment names such an endpoint, as for a local store."""
    variables = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    named = (os.environ.get(key, "") for key in variables)
    # Refused otherwise: records and credentials would travel in the clear.
    return {"allow_http": True} if any(url.startswith("http://") for url in named) else {}
