"""Messages between two machines that hold one key, sealed: nobody else reads or writes them.

AES-256-GCM under keys of the connection, one a direction, which HKDF-SHA256 derives from the shared
key and a fresh random number of either side. Nonces count, so that no message can be repeated, left
out or moved; a message of another connection, or one sent back, is under another key. Whoever gets
hold of the shared key can read what was recorded before.

The gloo of torch's wheels is built without TLS (its transport ``TCP_TLS``), hence this.
"""

from __future__ import annotations

import secrets
from typing import NoReturn

_COUNTER_BYTES = 12


class WrongKey(Exception):
    """A message was sealed under another key, or changed on its way."""


def fresh_nonce() -> bytes:
    """A number nobody has used; each side sends one in clear."""
    return secrets.token_bytes(32)


class Channel:
    """One end of a connection between rank 0 and another rank. Not pickled.

    Args:
        secret: The key that both hold.
        pair: The other rank, and how many there are.
        leads: Whether this end is rank 0's.
        nonces: Of rank 0 and of the other, as they were sent.
    """

    def __init__(
        self, secret: bytes, pair: tuple[int, int], leads: bool, nonces: tuple[bytes, bytes]
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        boxes = [AESGCM(_derived(secret, pair, nonces, side)) for side in (b"lead", b"follow")]
        self._out, self._in = boxes if leads else boxes[::-1]
        self._sent = self._received = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("a connection's keys do not leave its process")

    def seal(self, message: bytes) -> bytes:
        """The next message to send."""
        nonce, self._sent = self._sent.to_bytes(_COUNTER_BYTES), self._sent + 1
        return self._out.encrypt(nonce, message, None)

    def open(self, sealed: bytes) -> bytes:
        """The next message that came.

        Raises:
            WrongKey: It is another one.
        """
        from cryptography.exceptions import InvalidTag

        nonce, self._received = self._received.to_bytes(_COUNTER_BYTES), self._received + 1
        try:
            return self._in.decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            raise WrongKey from None


def _derived(
    secret: bytes, pair: tuple[int, int], nonces: tuple[bytes, bytes], side: bytes
) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"privsyn ranks 1: %d of %d, %s" % (*pair, side)
    return HKDF(SHA256(), 32, b"".join(nonces), info).derive(secret)
