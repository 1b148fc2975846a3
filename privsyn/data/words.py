"""The words of a text: between spaces, or letter by letter in scripts that have none between words.

In such a script (Han, Kana, Thai, Lao, Khmer, Burmese and some others) a letter with its marks is
one word of the list, and two letters count as much as one word of another script. Everything here
depends on the text alone.
"""

from __future__ import annotations

import gzip
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path


def _points(blocks: str, kind: str) -> str:
    """The code points of blocks (``first-last`` each) of a category, for a class."""
    ends = [map(ord, block.split("-")) for block in blocks.split()]
    points = [chr(point) for first, last in ends for point in range(first, last + 1)]
    return "".join(point for point in points if re.match(kind, unicodedata.category(point)))


# Line breaking classes ID and SA of UAX 14, and their kin: letters with no space between words.
# Thai to Balinese; Vai; Javanese to Tai Viet; Kana, Bopomofo. Then Han, Yi; cuneiform, hieroglyphs,
# Tangut, old Kana; the other planes of Han.
_UNSPACED = _points(
    "\u0e00-\u109f \u1780-\u17ff \u1950-\u1aad \u1b00-\u1b7f \ua500-\ua61f \ua980-\uaadf "
    "\u3005-\u312f \u31a0-\u31ff \uff66-\uff9d",
    "L|N[lo]",
) + (
    "\u3400-\u4dbf\u4e00-\ua4cf\uf900-\ufaff\uff9e\uff9f"
    "\U00012000-\U000167ff\U00016f00-\U0001b2ff\U00020000-\U0003ffff"
)
# The marks of letters in every script but Latin, Greek and Cyrillic, whose words stay as they were.
MARKS = _points("\u0591-\u1aad \u1b00-\u1cff \ua800-\uabff \ufb1e-\ufb1e \u3099-\u309a", "M")
"""Marks that belong to the letter before them, for a class of a regular expression."""
_STACKERS = "\u1039\u17d2\u1a60\u1b44\ua9c0"  # the next letter stands below the last
LETTER = rf"[{_UNSPACED}](?:[{MARKS}]|(?<=[{_STACKERS}])[{_UNSPACED}])*"
"""A letter, with its marks, of a script that has no spaces between words."""
SPACED = rf"[^\W{_UNSPACED}]"
"""A letter or digit of a script that has them. Use it for ``\\w`` of a word's edge."""
WORD = rf"{SPACED}+(?:[{MARKS}]+{SPACED}*)*|{LETTER}"
"""A word, or such a letter."""
TOKEN = rf"{SPACED}(?:{SPACED}|[{MARKS}])+|{LETTER}"
"""The same, without words of one letter: the token of classifiers."""
SENTENCE_ENDS = "\u3002\uff01\uff0e\uff1f\uff61\u0589\u061f\u06d4\u0964\u0965\u0f0d\u104b"
SENTENCE_ENDS += "\u1362\u1367\u17d4\u17d5\u203c\u2047-\u2049"
"""Ends of sentences, for a class of a regular expression, beside ``.!?``."""
# These are compiled at their first use, which takes ten milliseconds.
_PIECE = rf"([^\w\s]*{LETTER}[^\w\s]*)|[^\s{_UNSPACED}]+"
ENGLISH = frozenset(
    "the and with that this you it my have what how not your from they would please she his when "
    "there been which were who their are for".split()
)
"""Words of which nearly every longer English text has one, and other languages have none."""
VOCABULARY = Path(__file__).with_name("vocabulary.txt.gz")
"""Frequent words and phrases of public text, most frequent first: tools/vocabulary.py."""
_FREQUENT = 15_000
"""A name of a person is seldom among so many of them; months, countries and large firms are."""
_TITLES = "dr mr mrs ms miss prof professor doctor nurse herr frau madame dear hi hello hey"
_CAPITAL = r"(?:[DO]['\u2019])?([^\W\d_a-z][^\W\d_]+)"
_PEOPLE = (
    rf"\b(?:(?i:{_TITLES.replace(' ', '|')}|name is)\b\.?[ ])+{_CAPITAL}(?:[ ]{_CAPITAL})?",
    rf"[.!?,\n]\s*{_CAPITAL}(?:[ ]{_CAPITAL})?\W*\Z",
)
_WITHIN = rf"(?<=[^\W_])\s[(\"\u201c]?{_CAPITAL}"
_NO_NAMES = frozenset(
    f"{_TITLES} sir madam team all there thanks thank regards best cheers sincerely yours love "
    "bye greetings please help will may apr sep st".title().split()
)
"""Words that stand where names do."""
_OTHER_LETTER = r"[^\W\d_\u0000-\u024f\u1e00-\u1eff\ufb00-\ufb06\uff21-\uff5a]"


def words(text: str) -> list[str]:
    """The words of a text, whatever is between them, in their own case.

    >>> words("My knee, since 9"), words("\u6211\u7684iPhone 15")
    (['My', 'knee', 'since', '9'], ['\u6211', '\u7684', 'iPhone', '15'])
    """
    return re.findall(r"\w+" if text.isascii() else WORD, text)


def worth(of: Sequence[str]) -> float:
    """How many words these are: two letters of ``LETTER`` are one."""
    return sum(_halves(of)) / 2


def runs(of: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Every shortest run of words that is worth ``count``.

    >>> runs(["a", "b", "c"], 2)
    [('a', 'b'), ('b', 'c')]
    """
    halves = _halves(of)
    if 1 not in halves:
        return list(zip(*(of[start:] for start in range(count)), strict=False))
    sums = [0, *accumulate(halves)]
    ends = [bisect_left(sums, total + 2 * count) for total in sums]
    return [tuple(of[start:end]) for start, end in enumerate(ends) if end <= len(of)]


def word_ends(text: str) -> list[int]:
    """Where each word of a text ends, between spaces or at each second letter of ``LETTER``."""
    ends, halves, last = list[int](), 0, 0
    for piece in re.finditer(_PIECE, text):
        halves += 1 if piece[1] else 2
        last = piece.end()
        if halves >= 2 * len(ends) + 2:
            ends.append(last)
    return ends + [last] * (halves % 2)


def word_count(text: str) -> int:
    """How long a text is, in words.

    >>> word_count("My knee hurts."), word_count("\u819d\u304c\u75db\u3044\u3067\u3059\u3002")
    (3, 3)
    """
    return len(text.split() if text.isascii() else word_ends(text))


def names(text: str) -> frozenset[str]:
    """The names in a public text, as far as capitals tell; none in scripts without capitals.

    A name is a capitalized word behind a title or a greeting or at the text's end, or one within a
    sentence that is no frequent word.

    >>> sorted(names("Hi, my visit with Dr. Reyes in Colby is on Tuesday. Thanks, Nina"))
    ['Colby', 'Nina', 'Reyes']
    """
    candidates = [name for form in _PEOPLE for pair in re.findall(form, text) for name in pair]
    if not ENGLISH.isdisjoint(text.casefold().split()):  # German nouns have capitals
        within = re.findall(_WITHIN, text)
        candidates += [name for name in within if name.casefold() not in _frequent()]
    capitalized = frozenset(
        name for name in candidates if name[:1].isupper() and not name.isupper()
    )
    return capitalized - _NO_NAMES


@cache
def _frequent() -> frozenset[str]:
    return frozenset(gzip.decompress(VOCABULARY.read_bytes()).decode().split("\n")[:_FREQUENT])


def is_latin(text: str) -> bool:
    """Whether at least half of a text's letters are Latin."""
    return 2 * len(re.findall(_OTHER_LETTER, text)) <= len(re.findall(r"[^\W\d_]", text))


def _halves(of: Sequence[str]) -> list[int]:
    return [2 if word < "\u0e00" or not re.match(LETTER, word) else 1 for word in of]
