"""Privacy units: one spelling per id, and keyed hashes that place a unit in a bucket.

Privacy. A person whose id is spelled in two ways would be two units and count twice: the stated
epsilon would be false for them. So every reader of every format spells ids by ``unit_id``. Two
people whose ids it spells alike are one unit: they are protected together, and some of their
records are not used. A rule that must err errs to that side.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

ID_RULE = "privsyn-ids/2"
"""Name of the rule that ``unit_id`` follows. The rule is part of what a unit is, so plans and
certificates name it, and another rule has another name."""

EXACT = 2**53
"""Floats of this size and more cannot tell neighboring whole numbers apart."""


class UnitKey:
    """The secret key of the lineage, and the hashes made with it.

    Privacy. Names, shares and the order of records are the same in every release of the lineage.
    Buckets are not: every release hashes units with a random seed of its own, so that its buckets
    are independent of those of other releases, as [B19] in dp/bounds.md asks. The seed lies beside
    the partition and is deleted with it. After that nobody can compute a bucket, not even with the
    key.

    Args:
        key: 16 to 64 secret bytes.
        seed: Secret of the release, for ``bucket``: random text that no other release has.
    """

    def __init__(self, key: bytes, seed: str = "") -> None:
        if not 16 <= len(key) <= 64:
            raise ValueError(f"key of {len(key)} bytes; it must have 16 to 64")

        # Each ``person`` gives an independent hash of one key.
        def keyed(purpose: bytes, size: int) -> hashlib.blake2b:
            return hashlib.blake2b(key=key, person=b"privsyn " + purpose, digest_size=size)

        self._unit, self._record = keyed(b"unit", 24), keyed(b"record", 16)
        # privacy: of fixed length, so that no two pairs of seed and unit run together alike
        fresh = hashlib.sha256(seed.encode()).digest()
        self._bucket, check = keyed(b"bucket", 16), keyed(b"check", 16)
        self._bucket.update(fresh)
        check.update(fresh)
        self.check = check.hexdigest()

    def name(self, unit: str) -> tuple[str, float]:
        """Name and share of a unit, by its id alone."""
        hasher = self._unit.copy()
        hasher.update(unit.encode())
        digest = hasher.digest()
        share = (int.from_bytes(digest[16:]) >> 11) / 2.0**53  # 53 bits: exact, in [0, 1)
        return digest[:16].hex(), share

    def bucket(self, unit: str) -> int:
        """A number for the unit in this release, uniform below 2^128."""
        hasher = self._bucket.copy()
        hasher.update(unit.encode())
        return int.from_bytes(hasher.digest())

    def order(self, unit: str, label: str | None, content: str, row: tuple[int, ...]) -> str:
        """Keyed hash of a record: decides which of a unit's are kept, and their order."""
        hasher = self._record.copy()
        label = label or ""
        lengths = f"{len(unit)} {len(label)} "  # or two records could join to the same text
        hasher.update(f"{lengths}{f'{row} ' if row else ''}{unit}{label}{content}".encode())
        return hasher.hexdigest()


NOTHING = frozenset(
    r"null \n \\n none nan -nan nat na n/a nil undefined missing unknown blank empty deleted "
    "removed redacted inf -inf infinity -infinity 1#ind -1#ind 1#inf -1#inf 1#qnan -1#qnan nanind "
    "-nanind na_character_ na_integer_ dbnull systemdbnull __hive_default_partition__ 0000-00-00 "
    "00000000-0000-0000-0000-000000000000 00000000000000000000000000000000 #na #n/a #nv #n/d "
    "#null! #ref! #value! #name? #num! #div/0! #wert! #bezug! #valeur! #spill! #calc!".split()
) | {"#n/a n/a", "not available", "not applicable", "object object", "no value"}
NOTHING |= {"deleted by user", "removed by reddit"}
"""What tools write where there is nothing, without case, width, brackets, quotes and points: part
of ``ID_RULE``, so public and fixed. Rows of many people have such an id; together they are nobody.
"""
_AROUND = dict.fromkeys(map(ord, "()[]<>{}'\"`."))


def spells_nothing(text: str) -> bool:
    """Whether a text is another tool's word for nothing: neither an id nor a text."""
    if len(text) >= 64:
        return False
    plain = unicodedata.normalize("NFKC", trimmed(text)).translate(_AROUND)
    return plain.strip().casefold() in NOTHING


def unit_id(value: Any) -> str | None:
    """The one spelling of an id, independent of file format, column type and writer.

    A whole number is one id in every spelling: 12, 12.0, 1.2e1 and +12, as number or text. Text is
    in Unicode's composed form (NFC), without spaces and invisible characters at its ends. Leading
    zeros stay: 007 is not 7. Case stays, except in a UUID. A time with a zone is converted to UTC;
    midnight without a zone is the date. A float of 2**53 or more, or a text that spells one, is not
    an id: it has lost digits, and several people may share it (``lost_digits``). What other tools
    write for nothing (``NOTHING``) is no id, and neither is a text without a letter or digit.

    Args:
        value: Text, a whole number, a Decimal, a UUID or its 16 bytes, a date or a time.

    Returns:
        The id. None for a missing value, an empty text, a word for nothing, a truth value, a number
        with a fraction, a float that lost digits, and text that UTF-8 cannot hold.
    """
    name = _spell(value)
    return name if name and any(map(str.isalnum, name)) and not spells_nothing(name) else None


def _spell(value: Any) -> str | None:
    """An id or a label in its one spelling."""
    if isinstance(value, str):
        return _of_text(value)
    # Before int: a bool is an int in Python.
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        # Of at most 4,000 digits: Python refuses to print 4,300.
        return str(value) if abs(value) < _TOO_LONG else None
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < EXACT
        return str(int(value)) if whole else None
    if isinstance(value, Decimal):
        whole = value.is_finite() and value.adjusted() < _DIGITS and value == value.to_integral()
        return str(int(value)) if whole else None
    if isinstance(value, bytes):
        return _of_bytes(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):  # a datetime is a date, too
        return _of_text(value.isoformat())
    return None


def label_id(value: Any) -> str | None:
    """The one spelling of a label: as an id, and a truth value as true or false.

    It finds the declared label of a record. Releases spell labels as ``dataset.labels`` does. A
    label may be a word for nothing, such as none: the public list says so.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    label = _spell(value)
    return label.lower() if label in ("True", "TRUE", "False", "FALSE") else label


def lost_digits(value: Any) -> bool:
    """Whether a value is a float that has lost digits, or a text that spells one.

    A text has lost them where the number it spells is 2**53 or more, and where a program rounded it
    for display, as spreadsheets do: 1.23457E+11; also within quotes and brackets: [1.5e+16].
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        text = trimmed(value)
        inner = re.split(r"[^\w.,+-]+", text) if text[:1] in _OPENING else [text]
        return any(_number(part.rstrip(",")) == _LOST for part in inner)
    return isinstance(value, float) and abs(value) >= EXACT


def alike(unit: str) -> str:
    """An id without case, width, spaces and leading zeros, to find ids that may be one person."""
    text = "".join(unicodedata.normalize("NFKC", unit).casefold().split())
    return text.lstrip("0") if text.isdecimal() else text


def trimmed(text: str) -> str:
    """A text in composed form, without spaces, control and invisible characters at its ends."""
    text = unicodedata.normalize("NFC", text)
    start, end = 0, len(text)
    while start < end and _is_blank(text[start]):
        start += 1
    while start < end and _is_blank(text[end - 1]):
        end -= 1
    return text[start:end]


_DIGITS = 4000
"""Digits of the longest whole number that is an id; Python's own limit is 4,300 digits."""
_TOO_LONG = int("1" + "0" * _DIGITS)
_LOST = "lost"
_NUMBER = re.compile(r"([+-]?)(0|[1-9][0-9]*)(\.[0-9]*)?(?:[eE]([+-]?[0-9]{1,9}))?")
_OPENING = tuple("[({<='\"")
_COMMA = re.compile(r"[+-]?[0-9]+,(?:[0-9]*[eE][+-]?[0-9]+|00?)")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r" ?([Zz]|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def _is_blank(letter: str) -> bool:
    if letter.isalnum():
        return False
    kind = unicodedata.category(letter)
    return kind[0] == "Z" or kind in ("Cc", "Cf")


def _of_text(text: str) -> str | None:
    text = trimmed(text)
    if not text:
        return None
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # surrogates that stand for undecodable bytes
            return None
        return text
    if text[0] in "+-0123456789" and (number := _number(text)) is not None:
        return None if number == _LOST else number
    if text[0] in _OPENING and lost_digits(text):
        return None
    if _UUID.fullmatch(text):
        return text.lower()
    return _moment(text)


def _of_bytes(value: bytes) -> str | None:
    """Bytes as text, or as a UUID if there are 16 and they are not printable text."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if len(value) == 16 and (text is None or not text.strip(" \t\r\n").isprintable()):
        return str(UUID(bytes=value))
    return None if text is None else _of_text(text)


def _number(text: str) -> str | None:
    """A whole number in digits; _LOST for a float that lost digits; None for other text."""
    if "," in text:  # 1,23457E+11 and 12,0 in many countries, or 1,234.00
        mark = "." if _COMMA.fullmatch(text) else "" if _GROUPED.fullmatch(text) else ","
        text = text.replace(",", mark)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, exponent = match.groups()
    if fraction is None and exponent is None:
        digits = whole
    else:
        written = whole + (fraction or ".")[1:]
        # Digits and zeros, not float(): a float would round the number that is to be checked.
        zeros = int(exponent or 0) - len(written) + len(whole)
        # Zeros stand for digits that were not printed: by spreadsheets (E+), by %g in six digits.
        # A short one is exact: R writes 1e+05 for 100000. So is Java's 1.0E7, without a sign.
        if zeros > 0 and (exponent or "")[:1] == "+" and ("E" in text or len(written) >= 6):
            return _LOST
        digits = written.rstrip("0")
        zeros += len(written) - len(digits)
        digits = digits.lstrip("0")
        if not digits:
            digits, zeros = "0", 0
        if zeros < 0:
            return None  # a number with a fraction, such as 2024.17, is a text like others
        if len(digits) + zeros > 16 or int(digits) * 10**zeros >= EXACT:
            # No writer of floats spells one as 12e45, without a point and a sign: as hashes are.
            as_float = fraction is not None or (exponent or "")[:1] in ("+", "-")
            return _LOST if as_float else None
        digits += "0" * zeros
    return f"-{digits}" if sign == "-" and digits != "0" else digits


def _moment(text: str) -> str:
    """A date with a time in one spelling; any other text as it is."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return text
    day, minutes, seconds, fraction, zone = match.groups()
    seconds, fraction = seconds or "00", (fraction or "").rstrip("0")
    stamp = f"{day}T{minutes}:{seconds}"
    if zone:
        zone = "+00:00" if zone in ("Z", "z", "UTC") else zone
        try:
            # The fraction is added below as text: Python keeps six digits of it, some writers nine.
            stamp = datetime.fromisoformat(stamp + zone).astimezone(UTC).isoformat()[:19]
        except (ValueError, OverflowError):
            return text
    elif stamp.endswith("T00:00:00") and not fraction:
        return day
    return stamp + (f".{fraction}" if fraction else "") + ("Z" if zone else "")
