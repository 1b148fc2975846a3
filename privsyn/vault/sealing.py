"""Encryption of the vault's objects and of journal entries.

Every release has its own key of 256 random bits. An object is a header (a random salt and a random
nonce prefix) followed by segments of AES-256-GCM. HKDF derives each object's key from the release's
key and the salt. A segment's nonce is the prefix, the segment's number, and a mark on the last one
(the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizar 2015). So no segment can be
moved, left out, repeated or cut off. An object's name is authenticated with it, so no object passes
for another. A journal entry is one AES-256-GCM message under a key derived for its part, with a
random nonce of 96 bits, authenticated with its number.

The release's key is stored wrapped (RFC 3394) by the deployment's key. Destroying it makes every
copy of the objects and entries unreadable.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import IO

from privsyn.errors import VerificationError

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
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        # Bound to the release's id: a wrapped key moved to another release does not unwrap.
        return aes_key_wrap(_derived(by, b"", b"wrap " + self.release_id.encode()), self._key)

    @classmethod
    def unwrapped(cls, release_id: str, wrapped: bytes, by: bytes) -> ReleaseKey:
        """Decrypt a wrapped key.

        Raises:
            WrongKey: It was wrapped by another key or for another release, or was changed.
        """
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        wrapping = _derived(by, b"", b"wrap " + release_id.encode())
        try:
            return cls(release_id, aes_key_unwrap(wrapping, wrapped))
        except InvalidUnwrap:
            raise WrongKey from None

    def seal(self, name: str, source: IO[bytes], target: IO[bytes]) -> None:
        """Encrypt a stream as the object of this name, in bounded memory."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        # A fresh key and prefix per object: a nonce is never used twice under one key.
        salt, prefix = secrets.token_bytes(_SALT), secrets.token_bytes(_PREFIX)
        target.write(_MAGIC + salt + prefix)
        box, bound = AESGCM(self._object_key(salt)), self._bound("object", name)
        segment, number = source.read(SEGMENT_BYTES), 0
        while True:
            # One segment ahead: the last one must be marked before it is encrypted.
            following = source.read(SEGMENT_BYTES)
            nonce = _segment_nonce(prefix, number, last=not following)
            target.write(box.encrypt(nonce, segment, bound))
            if not following:
                return
            segment, number = following, number + 1

    def open(self, name: str, source: IO[bytes], target: IO[bytes]) -> None:
        """Decrypt the object of this name to a stream. Use the output only if this returns.

        Raises:
            VerificationError: It is another object, was changed or cut off, or has another key.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        head = source.read(len(_MAGIC) + _SALT + _PREFIX)
        salt, prefix = head[len(_MAGIC) : len(_MAGIC) + _SALT], head[len(_MAGIC) + _SALT :]
        # An object that was cut off within its head.
        if not head.startswith(_MAGIC) or len(prefix) != _PREFIX:
            raise _changed(name)
        box, bound = AESGCM(self._object_key(salt)), self._bound("object", name)
        segment, number = source.read(SEGMENT_BYTES + _TAG), 0
        while True:
            following = source.read(SEGMENT_BYTES + _TAG)
            nonce = _segment_nonce(prefix, number, last=not following)
            try:
                target.write(box.decrypt(nonce, segment, bound))
            except InvalidTag:
                raise _changed(name) from None
            if not following:
                return
            segment, number = following, number + 1

    def seal_entry(self, part: str, number: int, text: bytes) -> bytes:
        """Encrypt an entry of a part's journal. The result is 28 bytes longer than the text."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        bound = self._bound("entry", part, str(number))
        return nonce + AESGCM(self._part_key(part)).encrypt(nonce, text, bound)

    def open_entry(self, part: str, number: int, sealed: bytes) -> bytes:
        """The text of an entry.

        Raises:
            VerificationError: It is another entry, or was changed.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        bound = self._bound("entry", part, str(number))
        try:
            box = AESGCM(self._part_key(part))
            return box.decrypt(sealed[:_NONCE], sealed[_NONCE:], bound)
        except (InvalidTag, ValueError):
            raise _changed(f"entry {number} of {part}") from None

    @property
    def seed(self) -> str:
        """The secret that assigns units to buckets. It is gone with the key."""
        return _derived(self._key, b"", b"allocation").hex()

    def digest(self, value: bytes) -> str:
        """A keyed digest of 30 hexadecimal digits, which shows nothing without the key."""
        # Keyed: without the key a digest of a guessed draw proves nothing.
        key = _derived(self._key, b"", b"digest")
        return hashlib.blake2b(value, key=key, digest_size=15).hexdigest()

    def _object_key(self, salt: bytes) -> bytes:
        return _derived(self._key, salt, b"object")

    def _part_key(self, part: str) -> bytes:
        if part not in self._part_keys:  # cached: it is used for every token
            self._part_keys[part] = _derived(self._key, b"", b"entries of " + part.encode())
        return self._part_keys[part]

    def _bound(self, *words: str) -> bytes:
        # A zero byte cannot be in a name, so two lists of words never make the same bytes.
        return "\0".join(("privsyn 1", self.release_id, *words)).encode()


def key_id(key: bytes) -> str:
    """Public name of a deployment's key, which shows nothing about the key."""
    return hmac.digest(key, b"privsyn vault key", "sha256")[:8].hex()


def _derived(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"privsyn vault 1: " + purpose
    return HKDF(SHA256(), KEY_BYTES, salt or None, info).derive(key)


def _segment_nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    # The last byte marks the last segment, so that an object cannot be cut at a segment's end.
    return prefix + number.to_bytes(4, "big") + bytes([last])


def _changed(name: str) -> VerificationError:
    return VerificationError(
        f"the vault's {name} differs from what was stored: it was changed, cut off or replaced.",
        hint="Restore it, or mark the release as lost: its cost stays charged.",
    )
