"""The signature over a release folder, and the keys that make it and check it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.data.artifacts import (
    atomic_file,
    check_place,
    put_key,
    read_key,
    refuse_repository,
    sha256_file,
)
from privsyn.errors import ConfigError, VerificationError
from privsyn.files import parse_json, read_file
from privsyn.layout import SIGNATURE
from privsyn.release.certificate import canonical, differences, digest, is_plain_file, origin, read
from privsyn.release.settings import PASSPHRASE_VARIABLE

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

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
        # An empty passphrase counts as unset: the library refuses one for a key that is not
        # encrypted.
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
    # privacy: a private key in a folder that is published or in git would leave with it.
    check_place(file, refused, "signing.key")
    if not anywhere:
        refuse_repository(file, "signing.key")
    for path in (file, public):
        # lexists: a dangling link would be followed by the write.
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


STATEMENT = "https://in-toto.io/Statement/v1"
PAYLOAD = "application/vnd.in-toto+json"
PREDICATE = "urn:privsyn:release:v1"
UNSIGNED = "not signed"
KEY_ID = r"[0-9a-f]{64}"


_PUBLIC_HINT = "Name the file whose path `privsyn keys new` printed: it ends in .pub.pem."


def public_key(file: Path) -> SSlibKey:
    """A public key from a PEM file. Its id is securesystemslib's: a digest of the key.

    Raises:
        ConfigError: The file cannot be read, or holds no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(read_file(file)))
    except OSError as error:
        raise ConfigError(
            f"public key {file} cannot be read: {error.strerror}.",
            hint=_PUBLIC_HINT,
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(
            f"{file} holds no public key in PEM of a kind that can be used.",
            hint=_PUBLIC_HINT,
        ) from None


def statement(folder: Path, sealed: Mapping[str, Any]) -> dict[str, Any]:
    """What is signed of a release: its files by digest, and its certificate's facts.

    Args:
        folder: The release.
        sealed: Its certificate.
    """
    plan = origin(sealed)["plan"]
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": sha}} for name, sha in sorted(files(folder).items())
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "release": str(sealed.get("name", plan["release_id"])),
            "class": sealed["class"],
            "certificate": {"sha256": digest(sealed)},
            "dataset": {"name": plan["dataset"]["name"], "version": plan["dataset"]["version"]},
            "method": plan["method"],
            "account": plan["account"],
            "guarantee": {
                "epsilon": plan["epsilon"],
                "delta": plan["delta"],
                "adjacency": plan["adjacency"],
                "unit": plan["unit"],
                "max_records_per_unit": plan["max_records_per_unit"],
            },
        },
    }


def files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a release but its signature, by its path inside; links unread."""
    return {
        name: sha256_file(path) if is_plain_file(path) else "no plain file"
        for name, path in _walk(folder)
        if name != SIGNATURE
    }


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, inside, names in os.walk(folder):
        # os.walk lists links to folders as folders and does not enter them: they would go unsigned.
        links = [name for name in inside if (Path(place) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(place) / name
            yield path.relative_to(folder).as_posix(), path


def sign(folder: Path, signer: CryptoSigner) -> str:
    """Sign a release as it lies there; a signature by the same key that still holds is kept.

    Returns:
        Id of the key.

    Raises:
        VerificationError: The folder holds no certificate.
        StorageError: Disk full or no permission.
    """
    from securesystemslib.dsse import Envelope

    _, sealed = read(folder)
    key = signer.public_key
    if check(folder, sealed, key)[0]:
        # Signing again could change the bytes and so the published digests, at no gain.
        return str(key.keyid)
    payload = json.dumps(statement(folder, sealed), sort_keys=True, separators=(",", ":")).encode()
    envelope = Envelope(payload, PAYLOAD, {})
    envelope.sign(signer)
    with atomic_file(folder / SIGNATURE, mode=0o644) as stream:
        stream.write(canonical(envelope.to_dict()))
    return str(key.keyid)


def signed_by(folder: Path) -> str | None:
    """Id of the key that a release says it is signed by, unchecked; None if by none.

    Raises:
        VerificationError: There is a signature that cannot be read, or more than one.
    """
    envelope = _envelope(folder)
    return None if envelope is None else _signer(envelope)


def check(folder: Path, sealed: Mapping[str, Any], key: SSlibKey | None) -> tuple[bool | None, str]:
    """Whether a key signed a release as it lies there.

    Args:
        folder: The release.
        sealed: Its certificate.
        key: The public key; None looks at what was signed, and not at who signed.

    Returns:
        True: it did. False: there is a signature, and it is not of this folder or was changed.
        None: there is no signature, it is another key's, or no key was given. And why.
    """
    try:
        envelope = _envelope(folder)
        if envelope is None:
            return None, UNSIGNED
        name = _signer(envelope)
        if key is None:
            whole = _count_files(envelope, folder, sealed)
            command = f"privsyn verify {folder} --key PUBLIC.pub.pem"
            return None, f"signed by {name}: all {whole} files; the key is not checked: {command}"
        if name != key.keyid:
            return None, f"signed by {name}, not by {key.keyid}, the key of --key"
        _hold(envelope, key)
        return True, f"signed by {name}: all {_count_files(envelope, folder, sealed)} files"
    except VerificationError as error:
        return False, error.message


def _envelope(folder: Path) -> Envelope | None:
    """The envelope of a release; None if there is none.

    Raises:
        VerificationError: It is not of the one form that ``sign`` writes.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    try:
        raw = read_file(folder / SIGNATURE)
        envelope = Envelope.from_dict(parse_json(raw))
        notes = any(one.unrecognized_fields for one in envelope.signatures.values())
        # One form of bytes alone: fields that nobody checks could carry anything.
        same = canonical(envelope.to_dict()) == raw and not notes
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VerificationError(f"{SIGNATURE} cannot be read: {error.strerror}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, Error):
        same = False
    if not same or envelope.payload_type != PAYLOAD:
        raise VerificationError(f"{SIGNATURE} is no envelope of a release")
    return envelope


def _signer(envelope: Envelope) -> str:
    # A second signature could be shown as the expected one while the first is checked.
    if len(envelope.signatures) != 1:
        raise VerificationError(
            f"{SIGNATURE} holds {len(envelope.signatures)} signatures, and a release has one"
        )
    (name,) = envelope.signatures
    if not re.fullmatch(KEY_ID, name):
        raise VerificationError(f"{SIGNATURE} names no key by its id")
    return str(name)


def fits(folder: Path) -> bool:
    """Whether what is signed of a release is what lies there, whoever signed it: no key is used."""
    try:
        envelope = _envelope(folder)
        if envelope is not None:
            _signer(envelope)
            _count_files(envelope, folder, read(folder)[1])
    except VerificationError:
        return False
    return envelope is not None


def _hold(envelope: Envelope, key: SSlibKey) -> None:
    from securesystemslib.exceptions import Error

    try:
        envelope.verify([key], 1)
    except (Error, ValueError):
        raise VerificationError(
            "the signature does not hold: it was changed, or is another key's under this id"
        ) from None


def _count_files(envelope: Envelope, folder: Path, sealed: Mapping[str, Any]) -> int:
    """How many files a statement covers: all there are.

    Raises:
        VerificationError: It is not of this folder as it is.
    """
    try:
        payload = parse_json(envelope.payload)
        named = {subject["name"]: subject["digest"]["sha256"] for subject in payload["subject"]}
        ours = statement(folder, sealed)
        known = payload["_type"] == STATEMENT and payload["predicateType"] == PREDICATE
        signed = {field: payload["predicate"].get(field) for field in ours["predicate"]}
        # A name that is there twice would hide one of its digests in the dict above.
        whole = known and len(named) == len(payload["subject"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise VerificationError(f"{SIGNATURE} holds no statement on a release")
    if signed != ours["predicate"]:
        raise VerificationError("the signature is of another certificate")
    digests = {subject["name"]: subject["digest"]["sha256"] for subject in ours["subject"]}
    wrong = {
        "not signed": sorted(digests.keys() - named.keys()),
        "missing": sorted(named.keys() - digests.keys()),
        "changed": sorted(
            name for name in digests.keys() & named.keys() if digests[name] != named[name]
        ),
    }
    if message := differences(wrong):
        raise VerificationError(f"files are not those that were signed: {message}")
    return len(digests)
