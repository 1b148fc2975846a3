"""The deployment's key, which encrypts the keys of releases and is on every machine that draws.

256 random bits in base64, from the environment or a file of mode 0600. Never in a message, a log or
a pickle.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from privsyn.errors import ConfigError
from privsyn.release.signature import check_place, put_key, read_key, refuse_repository
from privsyn.vault.sealing import KEY_BYTES, key_id

VARIABLE = "PRIVSYN_VAULT_KEY"
"""Environment variable with the key itself; it takes precedence over ``services.vault_key``."""


class DeploymentKey:
    """The key. Its text form shows only its id."""

    def __init__(self, key: bytes, value: str) -> None:
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


def load(file: Path | None) -> DeploymentKey:
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


def new(file: Path, *, refused: Sequence[Path] = (), anywhere: bool = False) -> str:
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
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{where} is not {KEY_BYTES} bytes in base64.",
            hint="Make one: privsyn keys new --vault",
        )
    return key
