"""The private key that signs releases: a file in PEM, made once and read where releases are signed.

Its bytes are in no message, log, pickle or other file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.errors import ConfigError
from privsyn.release.key_files import check_place, put_key, read_key, refuse_repository
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

    pem = read_key(file, "signing.key")
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
    check_place(file, refused, "signing.key")
    if not anywhere:
        refuse_repository(file, "signing.key")
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
    put_key(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how), 0o600)
    shown = key.public_key()
    put_key(public, shown.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644)
    return public, str(SSlibKey.from_crypto(shown).keyid)
