"""The vault: encrypted objects of a release under ``VAULT/<release id>/<nonce>/``, and the key.

The deployment's key encrypts the keys of releases and is on every machine that draws: 256 random
bits in base64, from the environment or a file of mode 0600. Never in a message, a log or a pickle.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from privsyn.data.artifacts import (
    atomic_file,
    check_place,
    put_key,
    read_key,
    refuse_repository,
    storage_error,
)
from privsyn.errors import ConfigError
from privsyn.ledger.draws import SealedDraws, VaultRow
from privsyn.object_store import ObjectStore, open_store
from privsyn.vault.sealing import KEY_BYTES, ReleaseKey, WrongKey, key_id

VARIABLE = "PRIVSYN_VAULT_KEY"
"""Environment variable with the key itself; it takes precedence over ``services.vault_key``."""


class DeploymentKey:
    """The key. Its text form shows only its id."""

    def __init__(self, key: bytes, value: str) -> None:
        # Private to the class: neither repr nor pickle of this object can show it.
        self.__key = key
        self.origin = value
        self.id = key_id(key)

    def __repr__(self) -> str:
        return f"DeploymentKey({self.id})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("the vault's key does not leave its process")

    @property
    def secret(self) -> bytes:
        """The key's bytes."""
        return self.__key


def load_key(file: Path | None) -> DeploymentKey:
    """The key from the environment, or else from a file.

    Raises:
        ConfigError: There is no key, it cannot be read, other users can read it, or it is invalid.
    """
    value = os.environ.get(VARIABLE)
    if value:
        return DeploymentKey(_decoded(value.encode(), VARIABLE), VARIABLE)
    if file is None:
        raise ConfigError(
            f"services.vault needs a key, and neither {VARIABLE} nor services.vault_key is set.",
            hint="Make one, once for all machines: privsyn keys new --vault",
        )
    setting = "services.vault_key"
    try:
        content = read_key(file, setting)
    except FileNotFoundError:
        raise ConfigError(
            f"{setting}: {file} does not exist.",
            hint="Copy the deployment's key here; only the first time: privsyn keys new --vault",
        ) from None
    return DeploymentKey(_decoded(content, f"{setting}={file}"), setting)


def new_key(file: Path, *, refused: Sequence[Path] = (), anywhere: bool = False) -> str:
    """Make a key in a new file of mode 0600. Never overwrites a file.

    Args:
        file: The new file.
        refused: Folders whose content is published; the file must not be in one.
        anywhere: Whether the file may be in a git repository.

    Returns:
        The key's id.

    Raises:
        ConfigError: The file exists, or is in a published folder or a repository.
        StorageError: It cannot be written.
    """
    check_place(file, refused, "services.vault_key")
    if not anywhere:
        refuse_repository(file, "services.vault_key")
    key = secrets.token_bytes(KEY_BYTES)
    put_key(file, base64.b64encode(key) + b"\n", 0o600)
    return key_id(key)


def _decoded(text: bytes, where: str) -> bytes:
    try:
        # validate: without it foreign letters are skipped and a damaged key would decode.
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{where} is not {KEY_BYTES} bytes in base64.",
            hint="Make one: privsyn keys new --vault",
        )
    return key


_SPOOLED = 1 << 23
"""Bytes of an encrypted object in memory; a larger one goes to a temporary file."""


class Vault:
    """The vault of a deployment. It connects on first use.

    Args:
        url: ``services.vault``.
        key_file: ``services.vault_key``.

    Raises:
        ConfigError: The URL is invalid.
    """

    def __init__(self, url: str, key_file: Path | None) -> None:
        self._store = open_store(url, "services.vault")
        self._key_file = key_file

    @property
    def where(self) -> str:
        """URL of the vault."""
        return self._store.where

    @cached_property
    def key(self) -> DeploymentKey:
        """The deployment's key.

        Raises:
            ConfigError: There is no key, or it cannot be read.
        """
        return load_key(self._key_file)

    def check(self) -> None:
        """Write, read and delete a small object.

        Raises:
            StorageError: The store refuses or cannot be reached.
        """
        # A hidden name, which releases() leaves out.
        name, value = f".probe-{secrets.token_hex(8)}", secrets.token_bytes(64)
        probe = ReleaseVault(self._store, name, "0", ReleaseKey.new(name))
        try:
            probe.put_bytes("probe", value)
            probe.get_bytes("probe")
        finally:
            self._store.delete(name)

    def place(self, release_id: str, nonce: str) -> str:
        """URL of a release's objects, for the ledger and for messages."""
        return f"{self._store.where}/{release_id}/{nonce}"

    def owns(self, place: str | None) -> bool:
        """Whether the ledger's URL of a release's objects is in this vault."""
        return place is not None and place.startswith(f"{self.where}/")

    def pin(self, draws: SealedDraws, release_id: str, shards: int) -> ReleaseVault:
        """Create the vault of a release that is about to begin, with a key, or find it.

        Raises:
            ConfigError: It was made with another key of the deployment.
            BudgetError: It has started elsewhere, or ended.
        """
        fresh = ReleaseKey.new(release_id)
        row = VaultRow(self.key.id, fresh.wrapped(self.key.secret), secrets.token_hex(16), shards)
        # The ledger keeps the first row: of two machines that pin at once both get the same key.
        return self._of(release_id, draws.pin(release_id, row))

    def find(self, draws: SealedDraws, release_id: str) -> ReleaseVault | None:
        """The vault of a release; None if it has none, or has ended.

        Raises:
            ConfigError: It was made with another key of the deployment.
        """
        row = draws.find_pin(release_id)
        return None if row is None else self._of(release_id, row)

    def holds(self, draws: SealedDraws, release_id: str, name: str) -> bool:
        """Whether an object of a release exists. Needs no key."""
        row = draws.find_pin(release_id)
        return row is not None and self._store.exists(f"{release_id}/{row.nonce}/{name}")

    def _of(self, release_id: str, row: VaultRow) -> ReleaseVault:
        refusal = ConfigError(
            f"{self.key.origin} holds key {self.key.id}, but release {release_id} is in the vault "
            f"under key {row.key_id}: nothing was drawn.",
            hint="Give this machine the same key as the others.",
        )
        # Before the unwrap, so that a wrong key of a machine is told apart from a damaged row.
        if row.key_id != self.key.id:
            raise refusal
        try:
            key = ReleaseKey.unwrapped(release_id, row.wrapped_key, self.key.secret)
        except WrongKey:
            raise refusal from None
        return ReleaseVault(self._store, release_id, row.nonce, key, row.shards)

    def releases(self) -> list[str]:
        """Ids of the releases with objects here."""
        return [name for name in self._store.folders() if not name.startswith(".")]

    def wipe(self, release_id: str) -> None:
        """Delete all objects of a release."""
        self._store.delete(release_id)


class ReleaseVault:
    """Encrypted objects of one release.

    Attributes:
        release_id: The release.
        nonce: Nonce of its run, so that a repeated id shares no objects.
        key: The release's key.
        shards: Number of parts it was started with.
    """

    def __init__(
        self, store: ObjectStore, release_id: str, nonce: str, key: ReleaseKey, shards: int = 0
    ) -> None:
        self._store = store
        self.release_id, self.nonce, self.key, self.shards = release_id, nonce, key, shards

    def put(self, name: str, file: Path) -> None:
        """Encrypt a file and store it durably under a name."""
        try:
            with file.open("rb") as source:
                self._put(name, source)
        except OSError as error:
            raise storage_error("read", file, error) from error

    def get(self, name: str, file: Path) -> None:
        """Fetch an object to a private file, completely or not at all.

        Raises:
            NoSuchObject: It does not exist.
            VerificationError: It differs from what was stored under this name.
        """
        # A file appears only after every segment was authenticated.
        with atomic_file(file) as target:
            self._get(name, target)

    def put_bytes(self, name: str, value: bytes) -> None:
        """Encrypt bytes and store them durably under a name."""
        self._put(name, io.BytesIO(value))

    def get_bytes(self, name: str) -> bytes:
        """The bytes of an object. Errors as ``get``."""
        target = io.BytesIO()
        self._get(name, target)
        return target.getvalue()

    def delete(self, name: str) -> None:
        """Delete an object. A missing one is fine."""
        self._store.remove(self._path(name))

    def _put(self, name: str, source: IO[bytes]) -> None:
        with SpooledTemporaryFile(_SPOOLED) as sealed:
            self.key.seal(name, source, sealed)
            self._store.put(self._path(name), sealed)

    def _get(self, name: str, target: IO[bytes]) -> None:
        with SpooledTemporaryFile(_SPOOLED) as sealed:
            self._store.get(self._path(name), sealed)
            sealed.seek(0)
            self.key.open(name, sealed, target)

    def _path(self, name: str) -> str:
        return f"{self.release_id}/{self.nonce}/{name}"
