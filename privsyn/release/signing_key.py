"""The private key that signs releases: a file in PEM, made once and read where releases are signed.

Its bytes are in no message, log, pickle or other file.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.data.artifacts import private_opener, storage_error, sync_folder
from privsyn.errors import ConfigError
from privsyn.files import open_file
from privsyn.release.settings import PASSPHRASE_VARIABLE

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

PUBLIC = ".pub.pem"
"""Ending of the public key beside a private one."""


def load(file: Path) -> CryptoSigner:
    """The signer of a private key.

    Args:
        file: PEM, encrypted or not.

    Raises:
        FileNotFoundError: There is no such file.
        ConfigError: It cannot be read, others may read or change it, it holds no key that can sign,
            or the passphrase is missing or wrong.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    try:
        with open_file(file) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            pem = stream.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"signing.key: {file} cannot be read: {error.strerror}.") from None
    if mode & 0o027:
        raise ConfigError(
            f"signing.key: {file} can be read or written by others (mode {mode & 0o777:04o}).",
            hint=f"chmod 600 {file}; if others may have read it, make a new key.",
        )
    passphrase = os.environ.get(PASSPHRASE_VARIABLE)
    try:
        return CryptoSigner(load_pem_private_key(pem, passphrase.encode() if passphrase else None))
    except TypeError:
        wants = "is not encrypted, and a passphrase is set" if passphrase else "is encrypted"
        raise ConfigError(
            f"signing.key: {file} {wants}.",
            hint=f"{'Unset' if passphrase else 'Set'} the environment variable "
            f"{PASSPHRASE_VARIABLE}.",
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        tried = " with this passphrase" if passphrase else ""
        raise ConfigError(
            f"signing.key: {file} holds no private key in PEM that can sign{tried}.",
            hint="Make one: privsyn keys new",
        ) from None


def new(file: Path, *, refused: Sequence[Path] = (), anywhere: bool = False) -> tuple[Path, str]:
    """Make an Ed25519 key: the private file with mode 0600, and the public one beside it.

    Nothing is overwritten. Encrypted with the passphrase in PRIVSYN_SIGNING_PASSPHRASE, if set.

    Args:
        file: Where the private key goes.
        refused: Folders whose content is published: never there.
        anywhere: Whether it may lie in a git repository.

    Returns:
        The public key's file, and the key's id.

    Raises:
        ConfigError: A file is there, or the place is one that is published or in a repository.
        StorageError: It cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        KeySerializationEncryption,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )
    from securesystemslib.signer import SSlibKey

    public = file.with_name(f"{file.stem}{PUBLIC}")
    check_place(file, refused)
    if not anywhere:
        _refuse_repository(file)
    for path in (file, public):
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} is there already, and a key is never overwritten.",
                hint="Name another place: privsyn keys new PATH",
            )
    key, passphrase = Ed25519PrivateKey.generate(), os.environ.get(PASSPHRASE_VARIABLE)
    how: KeySerializationEncryption = (
        BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    )
    _put(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how), 0o600)
    shown = key.public_key()
    _put(public, shown.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
    return public, str(SSlibKey.from_crypto(shown).keyid)


def check_place(file: Path, refused: Sequence[Path]) -> None:
    """Refuse a key in a folder whose content leaves.

    Raises:
        ConfigError: It lies in one.
    """
    place = file.resolve()
    for folder in refused:
        if place.is_relative_to(folder.resolve()):
            raise ConfigError(
                f"signing.key: {file} lies in {folder}, whose content is published.",
                hint="Keep the key outside of the project.",
            )


def _refuse_repository(file: Path) -> None:
    for folder in file.resolve().parents:
        if (folder / ".git").exists():
            raise ConfigError(
                f"{file} lies in the git repository {folder}, where it could be committed.",
                hint="Name a place outside, or set signing.key to it first.",
            )


def _put(file: Path, content: bytes, mode: int) -> None:
    """Write a file whole, or not at all where there is one."""
    half = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(half, "xb", opener=private_opener) as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.link(half, file)  # fails where there is a file; a rename would replace it
        sync_folder(file.parent)
    except FileExistsError:
        raise ConfigError(f"{file} is there already, and a key is never overwritten.") from None
    except OSError as error:
        raise storage_error("write", file, error) from error
    finally:
        with suppress(OSError):
            half.unlink()
