"""Texts as sequences of words: how terms, lines and texts are compared."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """The words of a text as they are compared. Total: any string has some or none.

    >>> words("Beta-blockers: 2 mg (O\u2019Neill)")
    ['beta', 'blockers', '2', 'mg', 'o', 'neill']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _WORD.findall(text.casefold())
