"""The vault: encrypted intermediates of a release that several machines draw, and their journal.

Every release has its own key of 256 random bits. An object is a header (a random salt and a random
nonce prefix) followed by segments of AES-256-GCM. HKDF derives each object's key from the release's
key and the salt. A segment's nonce is the prefix, the segment's number, and a mark on the last one
(the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizar 2015). So no segment can be
moved, left out, repeated or cut off. An object's name is authenticated with it, so no object passes
for another. A journal entry is one AES-256-GCM message under a key derived for its part, with a
random nonce of 96 bits, authenticated with its number.

The release's key is stored wrapped (RFC 3394) by the deployment's key. Destroying it makes every
copy of the objects and entries unreadable. The deployment's key is on every machine that draws: 256
random bits in base64, from the environment or a file of mode 0600. Never in a message, a log or a
pickle. Objects lie under ``VAULT/<release id>/<nonce>/``.

The journal of a part that any of several machines may draw is in the ledger's database. It has the
same entries as a ``Journal``'s file, chained by the same checksums, one row each. All draws of one
call are one commit, before they are used. Only one process writes: a commit locks the part's lease
and checks its token, so the commit of a process that lost the lease fails, and nobody sees its
draws.

The effect of a full disk must not depend on the draws. The length of a row depends on key and room
alone, and rows are encrypted, so a commit fails for lack of space independently of the draws.

Public values that draws depend on, and draws that are files, are encrypted in the vault. Their
names contain a keyed digest of their content, so a late write of a process that lost its lease
replaces nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import io
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from privsyn.data.artifacts import (
    atomic_file,
    check_place,
    put_key,
    read_key,
    refuse_repository,
    storage_errors,
)
from privsyn.data.journal import (
    Draws,
    damage_error,
    header_of,
    line_of,
    parse_line,
    public_entry,
    refuse_other,
)
from privsyn.data.object_store import NoSuchObject, ObjectStore, open_store
from privsyn.errors import ConfigError, PrivsynError, ReleaseLost, VerificationError
from privsyn.ledger.draws import DrawRows, SealedDraws, VaultRow
from privsyn.ledger.leases import Lease

KEY_BYTES = 32
SEGMENT_BYTES = 1 << 20
"""Plain bytes of a segment; about twice as many are in memory."""

_MAGIC = b"psv1"
_SALT, _PREFIX, _NONCE, _TAG = 32, 7, 12, 16


class WrongKey(Exception):
    """A key does not fit the encrypted data."""


@dataclass(frozen=True)
class ReleaseKey:
    """The key of a release, for the processes that draw it. Never shown, compared or pickled.

    Attributes:
        release_id: The release; it is authenticated with everything that the key encrypts.
    """

    release_id: str
    _key: bytes = field(repr=False, compare=False)
    _part_keys: dict[str, bytes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a release's key does not leave its process")

    @classmethod
    def new(cls, release_id: str) -> ReleaseKey:
        """A new key from the operating system's randomness."""
        return cls(release_id, secrets.token_bytes(KEY_BYTES))

    def wrapped(self, by: bytes) -> bytes:
        """This key, encrypted with the deployment's key."""
        # Bound to the release's id: a wrapped key moved to another release does not unwrap.
        return aes_key_wrap(_derive(by, b"", b"wrap " + self.release_id.encode()), self._key)

    @classmethod
    def unwrapped(cls, release_id: str, wrapped: bytes, by: bytes) -> ReleaseKey:
        """Decrypt a wrapped key.

        Raises:
            WrongKey: It was wrapped by another key or for another release, or was changed.
        """
        wrapping = _derive(by, b"", b"wrap " + release_id.encode())
        try:
            return cls(release_id, aes_key_unwrap(wrapping, wrapped))
        except InvalidUnwrap:
            raise WrongKey from None

    def seal(self, name: str, source: IO[bytes], target: IO[bytes]) -> None:
        """Encrypt a stream as the object of this name, in bounded memory."""
        # A fresh key and prefix per object: a nonce is never used twice under one key.
        salt, prefix = secrets.token_bytes(_SALT), secrets.token_bytes(_PREFIX)
        target.write(_MAGIC + salt + prefix)
        box, bound = AESGCM(self._object_key(salt)), self._bound("object", name)
        for number, segment, last in _segments(source, SEGMENT_BYTES):
            target.write(box.encrypt(_segment_nonce(prefix, number, last=last), segment, bound))

    def open(self, name: str, source: IO[bytes], target: IO[bytes]) -> None:
        """Decrypt the object of this name to a stream. Use the output only if this returns.

        Raises:
            VerificationError: It is another object, was changed or cut off, or has another key.
        """
        head = source.read(len(_MAGIC) + _SALT + _PREFIX)
        salt, prefix = head[len(_MAGIC) : len(_MAGIC) + _SALT], head[len(_MAGIC) + _SALT :]
        # An object that was cut off within its head.
        if not head.startswith(_MAGIC) or len(prefix) != _PREFIX:
            raise _tampering_error(name)
        box, bound = AESGCM(self._object_key(salt)), self._bound("object", name)
        for number, segment, last in _segments(source, SEGMENT_BYTES + _TAG):
            nonce = _segment_nonce(prefix, number, last=last)
            try:
                target.write(box.decrypt(nonce, segment, bound))
            except InvalidTag:
                raise _tampering_error(name) from None

    def seal_entry(self, part: str, number: int, text: bytes) -> bytes:
        """Encrypt an entry of a part's journal. The result is 28 bytes longer than the text."""
        nonce = secrets.token_bytes(_NONCE)
        bound = self._bound("entry", part, str(number))
        return nonce + AESGCM(self._part_key(part)).encrypt(nonce, text, bound)

    def open_entry(self, part: str, number: int, sealed: bytes) -> bytes:
        """The text of an entry.

        Raises:
            VerificationError: It is another entry, or was changed.
        """
        bound = self._bound("entry", part, str(number))
        try:
            box = AESGCM(self._part_key(part))
            return box.decrypt(sealed[:_NONCE], sealed[_NONCE:], bound)
        except (InvalidTag, ValueError):
            raise _tampering_error(f"entry {number} of {part}") from None

    @property
    def seed(self) -> str:
        """The secret that assigns units to buckets. It is gone with the key."""
        return _derive(self._key, b"", b"allocation").hex()

    def digest(self, value: bytes) -> str:
        """A keyed digest of 30 hexadecimal digits, which shows nothing without the key."""
        # Keyed: without the key a digest of a guessed draw proves nothing.
        key = _derive(self._key, b"", b"digest")
        return hashlib.blake2b(value, key=key, digest_size=15).hexdigest()

    def _object_key(self, salt: bytes) -> bytes:
        return _derive(self._key, salt, b"object")

    def _part_key(self, part: str) -> bytes:
        if part not in self._part_keys:  # cached: it is used for every token
            self._part_keys[part] = _derive(self._key, b"", b"entries of " + part.encode())
        return self._part_keys[part]

    def _bound(self, *words: str) -> bytes:
        # A zero byte cannot be in a name, so two lists of words never make the same bytes.
        return "\0".join(("privsyn 1", self.release_id, *words)).encode()


def key_id(key: bytes) -> str:
    """Public name of a deployment's key, which shows nothing about the key."""
    return hmac.digest(key, b"privsyn vault key", "sha256")[:8].hex()


def _derive(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    info = b"privsyn vault 1: " + purpose
    return HKDF(SHA256(), KEY_BYTES, salt or None, info).derive(key)


def _segments(source: IO[bytes], size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Number, bytes, and whether it is the last, of each segment; there is always one."""
    segment, number = source.read(size), 0
    # One segment ahead: the last one must be marked before it is encrypted.
    while following := source.read(size):
        yield number, segment, False
        segment, number = following, number + 1
    yield number, segment, True


def _segment_nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    # The last byte marks the last segment, so that an object cannot be cut at a segment's end.
    return prefix + number.to_bytes(4, "big") + bytes([last])


def _tampering_error(name: str) -> VerificationError:
    return VerificationError(
        f"the vault's {name} differs from what was stored: it was changed, cut off or replaced.",
        hint="Restore it, or mark the release as lost: its cost stays charged.",
    )


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
        return DeploymentKey(_decode(value.encode(), VARIABLE), VARIABLE)
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
    return DeploymentKey(_decode(content, f"{setting}={file}"), setting)


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


def _decode(text: bytes, where: str) -> bytes:
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
        with storage_errors("read", file), file.open("rb") as source:
            self._put(name, source)

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


T = TypeVar("T")

_PAGE = 1024
"""Rows per page when the journal is only searched."""


class LedgerJournal(Draws):
    """A journal in the ledger's database.

    Args:
        rows: The journal's rows.
        vault: The release's objects in the vault, and its key.
        lease: The right to draw the part.
    """

    def __init__(self, rows: DrawRows, vault: ReleaseVault, lease: Lease) -> None:
        super().__init__(f"{lease.part} of {lease.release_id}")
        self._rows, self._vault, self._lease = rows, vault, lease
        self._crc = 0
        self._waiting: list[bytes] = []
        self._waiting_keys: list[str] = []
        self._next = 0

    @classmethod
    def create(
        cls, draws: SealedDraws, vault: ReleaseVault, part: str, header: Mapping[str, Any]
    ) -> None:
        """Make an empty journal, durably. Does nothing if it exists.

        Raises:
            VerificationError: It exists with another header, or is damaged.
        """
        expected = header_of(header)
        line, _ = line_of(json.dumps(expected, sort_keys=True), 0)
        made = draws.create(vault.release_id, part, vault.key.seal_entry(part, 0, line))
        where = f"{part} of {vault.release_id}"
        first, _ = parse_line(where, 1, vault.key.open_entry(part, 0, made), 0)
        refuse_other(where, first, expected)

    @classmethod
    def open(
        cls, draws: SealedDraws, vault: ReleaseVault, lease: Lease, header: Mapping[str, Any]
    ) -> LedgerJournal:
        """Open the journal of the lease's part. Never makes one.

        Raises:
            ReleaseLost: The journal is gone, and the draws with it.
            LeaseHeld: Another process has taken the lease.
            VerificationError: The header differs, or an entry is damaged or missing.
        """
        journal = cls(draws.open(lease), vault, lease)
        try:
            journal._load(journal._rows.load(), header)
        except BaseException:
            journal.close()
            raise
        return journal

    def draw_all(
        self, items: Sequence[tuple[str, Callable[[], T]]], *, room: int | None = None
    ) -> list[T]:
        """As ``Draws.draw_all``; the draws of a failed call are stored nowhere."""
        try:
            return super().draw_all(items, room=room)
        except BaseException as error:
            if self._waiting:
                for text in self._waiting_keys:
                    # They were not committed: replaying one would return a draw that the next
                    # attempt does not see.
                    self._values.pop(text, None)
                self._waiting, self._waiting_keys = [], []
                if self._failure is None:
                    self._failure = (
                        error
                        if isinstance(error, PrivsynError)
                        else ReleaseLost(
                            f"journal {self.where}: a step ended before it was written."
                        )
                    )
            raise

    def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        self._rows.close()

    def _load(self, sealed: list[bytes], header: Mapping[str, Any]) -> None:
        bodies = []
        for value, crc in _open_lines(self._vault, self._lease.part, sealed):
            bodies.append(value)
            self._crc = crc
        if not bodies:
            raise ReleaseLost(
                f"journal {self.where} is gone; its draws cannot be replayed.",
                hint="Restore the ledger's database, or mark the release as lost: its cost stays "
                "charged.",
            )
        refuse_other(self.where, bodies[0], header_of(header))
        self._replay(bodies[1:], lambda number: damage_error(self.where, number + 2))
        self._next, self._durable = len(bodies), len(bodies) - 1

    def _try_room(self, key: str, room: int) -> None:
        self._lease.check()  # before the draw: without the lease its result would be discarded

    def _append(self, text: str) -> None:
        line, self._crc = line_of(text, self._crc)
        number = self._next + len(self._waiting)
        self._waiting.append(self._vault.key.seal_entry(self._lease.part, number, line))
        self._waiting_keys.append(json.loads(text)["k"])

    def _sync(self) -> None:
        try:
            self._rows.append(self._next, self._waiting)
        except PrivsynError as error:
            self._failure = error
            raise
        self._next += len(self._waiting)
        self._waiting, self._waiting_keys = [], []
        self._durable = self._next - 1

    def _store(self, name: str, value: bytes) -> str:
        digest = self._vault.key.digest(value)
        self._vault.put_bytes(self._object(name, digest), value)
        return digest

    def _read_stored(self, name: str, digest: str) -> bytes:
        try:
            content = self._vault.get_bytes(self._object(name, digest))
        except NoSuchObject:
            raise ReleaseLost(
                f"journal {self.where}: one of its files is gone from the vault; its release "
                "cannot be resumed.",
                hint="Restore the object, or mark the release as lost: its cost stays charged.",
            ) from None
        return content

    def _delete(self, name: str, digest: str) -> None:
        self._vault.delete(self._object(name, digest))

    def _object(self, name: str, digest: str) -> str:
        return object_name(self._lease.part, name, digest)


def entries(draws: SealedDraws, vault: ReleaseVault, part: str) -> int:
    """Number of stored entries of a part, read without its lease."""
    return max(0, sum(1 for _ in _rows(draws, vault, part)) - 1)


def public_file(draws: SealedDraws, vault: ReleaseVault, part: str, key: str) -> bytes | None:
    """A public value in a part's journal, read without its lease; None if it is not there yet."""
    entry, name = public_entry(key)
    for value, _ in _open_lines(vault, part, _rows(draws, vault, part)):
        if value.get("k") == entry:
            return vault.get_bytes(object_name(part, name, value["v"]))
    return None


def _open_lines(
    vault: ReleaseVault, part: str, sealed: Iterable[bytes]
) -> Iterator[tuple[dict[str, Any], int]]:
    """The value of each line of a part's journal, and the checksum that the next one continues."""
    crc = 0
    for number, body in enumerate(sealed):
        line = vault.key.open_entry(part, number, body)
        value, crc = parse_line(f"{part} of {vault.release_id}", number + 1, line, crc)
        yield value, crc


def _rows(draws: SealedDraws, vault: ReleaseVault, part: str) -> Iterator[bytes]:
    """The encrypted rows of a part, page by page: a part may have one row per token."""
    start = 0
    while page := draws.rows(vault.release_id, part, start, _PAGE):
        yield from page
        start += len(page)


def object_name(part: str, name: str, digest: str) -> str:
    """Name of a journal's file among the release's objects."""
    return f"journal-{part}/{name}-{digest}"
