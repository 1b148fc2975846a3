"""Where a text that a model wrote ends, before a public stop or after its last whole sentence.

And whether it is one at all: small models repeat their prompt, or themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from privsyn.models.language.answers import is_json
from privsyn.models.language.scraps import (
    runs,
    says_its_prompt,
    speaks_as_assistant,
    thinks_aloud,
    words,
)

STOPS = ("\n\n",)
"""Where the config says nothing: a blank line."""

# A full stop after few letters may be that of "Dr.", "p.m." or "etc."; not after "it" or "you".
_SENTENCES = re.compile(
    r"(?s).*(?:[!?]|(?:\w{4}|\d|\b(?!(?:al|ca|cf|ed|etc|fig|no|nos|pp|vol|vs)\.)[a-z]{2,3})\.)"
    r"[\"')\]\u201d\u201c\u2019\u00bb]*(?=\s|$)"
)
# "Here is the message you asked for:", which a chat model says before the text itself.
_ANNOUNCED = re.compile(
    r"(?i)(?:(?:sure|certainly|of course)\s*[,!.][^\n]*"
    r"|here(?:'s| is| are) (?:a|an|the|one|some|another|your)\b(?: \S+){0,16})\s*:\s*\n\s*"
)
_SUBJECT = re.compile(
    r"(?i)[*_#>\s]{0,4}(?:subject|betreff|objet|asunto|oggetto|onderwerp)\W{0,3}:"
)
_HEADER = re.compile(
    r"(?i)(?:[*_#> ]{0,4}(?:from|to|cc|date|sent|re|fwd?)\W{0,3}:[^\n]*\n\s*){0,5}"
    + _SUBJECT.pattern.removeprefix("(?i)")
    + r"[^\n]*(?:\n\s*|\Z)(?:[*_#> ]{0,4}(?:from|to|cc|date|sent|re|fwd?)\W{0,3}:[^\n]*\n\s*){0,5}"
)
"""Lines of a letter's header, a subject among them."""
_ENDED = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\u061f\u0964]\W*\Z|[:;)\]}\d]\s*\Z")
# Words that no English sentence ends with, or hardly one; and marks that something follows.
_BREAKS_OFF = re.compile(
    r"(?i)(?:\b(?:the|an?|and|or|but|nor|because|of|my|your|our|their|its|whose|than|if|when|while"
    r"|which|who|i|we|they|very|to|for|with|from|at|is|are|was|were|am|would|could|should|will|have|has"
    r"|had|don't|can't|cannot|i'm|i've|please|every|as|into|between|during)|[,\u2013\u2014&(-])\s*\Z"
)
_LAST_PART = re.compile(r"[^.!?,;:\n]*\Z")
_SIGNED = 5
"""Words of a signature, at most."""
_QUOTES = (
    ("**", "**"),
    ('"', '"'),
    ("\u201c", "\u201d"),
    ("\u201e", "\u201c"),
    ("\u00ab", "\u00bb"),
)
_LAST_WORD = re.compile(r"(?<=\S)\s+\S{0,39}\w\Z")

_LOOP = 2 / 3
"""Different pairs of words among those of a text, at least; people's texts have more than .9."""
_STRETCH = 64
"""Words from a text's end on that pairs are counted in: of a long text more are the same."""


@dataclass(frozen=True)
class Ending:
    """Rules by which texts end. All are public, and look at one text alone.

    Attributes:
        stops: A text ends before the first of these that follows ``least`` words. A blank line
            behind a colon is none.
        least: Words without which a text is short.
        full: Words from which a text without an end has run out of tokens. None: not known.
    """

    stops: tuple[str, ...] = STOPS
    least: int = 5
    full: int | None = None

    @classmethod
    def of(cls, max_tokens: int, stops: tuple[str, ...] = STOPS, least: int = 5) -> Ending:
        """The rules for texts of so many tokens: never short by more than a quarter of them."""
        return cls(stops, min(least, max(1, max_tokens // 4)), max(least, max_tokens // 2))

    def cut(self, text: str, most: int | None = None) -> str:
        """The text before the first stop, of ``most`` words; whole sentences where none ended it.

        Without what announces it, a header with its subject, and quotation marks around it.

        >>> Ending().cut("The visit is at three. Please bring your")
        'The visit is at three.'
        """
        text = text.strip()
        announced = _ANNOUNCED.match(text)
        text = text[announced.end() :] if announced else text
        header = _HEADER.match(text)
        if header and not self.short(text[header.end() :]):
            text = text[header.end() :]
        text = written = unquoted(text.strip())
        for stop in self.stops:
            text = self._stopped(text, stop)
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        if most is not None and len(ends) > most:
            text = self.whole(text[: ends[most - 1]])
        elif text == written:  # no stop: it may end where the tokens did
            text = self.whole(text)
        return unquoted(text.strip())

    def short(self, text: str) -> bool:
        """Whether the text has fewer words than ``least``."""
        return len(text.split()) < self.least

    def failed(self, text: str, prompt: str) -> bool:
        """Whether the text is short, a header without a body, breaks off, or has strayed.

        >>> Ending().failed("Words to build on: bill.", "Words to build on: bill")
        True
        """
        return (
            self.short(text)
            or _SUBJECT.match(text) is not None  # cut takes one with a body away
            or self.breaks_off(text)
            or self.strayed(text, prompt)
        )

    def breaks_off(self, text: str) -> bool:
        """Whether the text ends within a sentence, as far as its last words tell.

        >>> Ending().breaks_off("I would like to know about the")
        True
        """
        if is_json(text) or _ENDED.search(text):
            return False
        long = self.full is not None and len(text.split()) >= self.full
        tail = _LAST_PART.search(text)  # "Thanks, Ann" needs no full stop
        return _BREAKS_OFF.search(text) is not None or (
            long and tail is not None and len(tail[0].split()) > _SIGNED
        )

    def strayed(self, text: str, prompt: str) -> bool:
        """Whether the text is a chat model's answer, says its prompt again, or is a circle."""
        pairs = runs(words(text)[-_STRETCH:], 2)
        return (
            len(set(pairs)) < _LOOP * len(pairs)
            or says_its_prompt(text, prompt)
            or speaks_as_assistant(text)
            or thinks_aloud(text)
        )

    def _stopped(self, text: str, stop: str) -> str:
        """The text before the first stop that follows enough words; no blank line after a colon."""
        at = text.find(stop)
        while at >= 0 and (
            self.short(text[:at]) or (stop.isspace() and text[:at].rstrip().endswith(":"))
        ):
            at = text.find(stop, at + len(stop))
        return text if at < 0 else text[:at]

    def unfinished(self, text: str) -> str:
        """A text that ran out of tokens: up to its last whole sentence, else its last whole word.

        Where enough words are left, either.

        >>> Ending().unfinished("The rash on my arm does not go aw")
        'The rash on my arm does not go'
        """
        whole = self.whole(text)
        if whole != text:
            return whole
        cut = whole_words(text)
        return text if self.short(cut) else cut

    def whole(self, text: str) -> str:
        """The text up to its last whole sentence, where enough words are left; JSON as it is.

        >>> Ending().whole("I have a rash on my arm. It beg")
        'I have a rash on my arm.'
        """
        if is_json(text):
            return text
        whole = _SENTENCES.match(text)
        return text if whole is None or self.short(whole[0]) else whole[0]


def whole_words(text: str) -> str:
    """The text without its last word, which may be half of one; JSON as it is.

    A word with a mark behind it is whole, and one of more than 40 letters no word: not all scripts
    put spaces between words.

    >>> whole_words("It does not go aw"), whole_words("It does not."), whole_words("It")
    ('It does not go', 'It does not.', 'It')
    """
    if is_json(text):
        return text
    return _LAST_WORD.sub("", text.rstrip("\ufffd"))  # half a character


def unquoted(text: str) -> str:
    """The text without quotation marks around all of it, or at one end without their other half.

    >>> unquoted('"I have a rash."'), unquoted('"I have a rash.'), unquoted('"Oh," I said.')
    ('I have a rash.', 'I have a rash.', '"Oh," I said.')
    """
    for begin, end in _QUOTES:
        starts, ends = text.startswith(begin), text.endswith(end) and len(text) > len(end)
        inner = text[len(begin) * starts : len(text) - len(end) * ends]
        alone = begin not in inner and end not in inner
        if starts and ends and alone:
            return unquoted(inner.strip())
        even = text.count(begin) % 2 == 0 if begin == end else text.count(begin) == text.count(end)
        if not even and (starts or (ends and alone)):
            return (text[len(begin) :] if starts else text[: -len(end)]).strip()
    return text
