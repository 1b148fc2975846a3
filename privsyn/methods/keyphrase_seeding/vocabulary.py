"""Public vocabularies, and which of their terms occur in a document.

A vocabulary file holds one term a line, UTF-8, plain or .gz; terms may have several words, and the
order of lines breaks ties. Blank lines, terms without a letter or digit, and terms that read like
an earlier one are left out. Terms and texts are compared as sequences of words: runs of letters and
digits, compatibility forms unified (NFKC), case folded.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.data.words import words
from privsyn.errors import ConfigError

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick

BUILTIN = Path(__file__).with_name("vocabulary.txt.gz")
"""Frequent words and phrases of public text, most frequent first: tools/vocabulary.py."""


class Vocabulary:
    """Terms by number, found in texts in time linear in the text (Aho and Corasick 1975).

    What is found in a text depends on that text and the terms alone.

    Args:
        terms: Terms in order; those without a word and later duplicates are left out.

    >>> found = Vocabulary(["heart", "heart failure", "fail"])
    >>> [found.terms[i] for i in found.find("Heart failure, failing HEART.")]
    ['heart failure', 'heart']
    """

    def __init__(self, terms: Iterable[str]) -> None:
        patterns: dict[str, str] = {}
        for term in terms:
            if pattern := _spaced(term):
                patterns.setdefault(pattern, " ".join(term.split()))
        self.terms: Sequence[str] = tuple(patterns.values())
        self._patterns = tuple(patterns)

    def __len__(self) -> int:
        """Number of terms."""
        return len(self.terms)

    @classmethod
    def parse(cls, data: bytes, name: str) -> Vocabulary:
        """The vocabulary of a file's bytes.

        Raises:
            ConfigError: They are not UTF-8, or hold no term.
        """
        try:
            text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        except (UnicodeDecodeError, OSError, EOFError, zlib.error):
            raise _refused(name, "is not UTF-8 text, plain or .gz") from None
        vocabulary = cls(text.splitlines())
        if not vocabulary.terms:
            raise _refused(name, "holds no term")
        return vocabulary

    def subset(self, numbers: Iterable[int]) -> Vocabulary:
        """A vocabulary of some of the terms, in the order given."""
        return Vocabulary(self.terms[number] for number in numbers)

    def find(self, text: str) -> list[int]:
        """Numbers of the terms that occur, in the order they occur, repeats included.

        Whole words only; where terms overlap the leftmost is taken, and of those the longest.
        """
        matches = self._automaton.find_matches_as_indexes(_spaced(text))
        return [number for number, _, _ in matches]

    def first(self, text: str, most: int) -> list[int]:
        """The first ``most`` distinct terms of a text, in order."""
        return list(dict.fromkeys(self.find(text)))[:most]

    @cached_property
    def _automaton(self) -> AhoCorasick:
        from ahocorasick_rs import AhoCorasick, MatchKind

        return AhoCorasick(self._patterns, MatchKind.LeftmostLongest, store_patterns=False)


def _spaced(text: str) -> str:
    """Every word between two blanks of its own, so that a match begins and ends with words."""
    parts = words(text)
    return f" {'  '.join(parts)} " if parts else ""


def _refused(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"methods.keyphrase_seeding.vocabulary={name} {why}.",
        hint="Name a file with one term a line, or builtin.",
    )
