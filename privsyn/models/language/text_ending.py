"""Where a text that a model wrote ends, before a public stop or after its last whole sentence.

And whether it is one at all: small models repeat their prompt, or themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from privsyn.models.language.scraps import runs, says_its_prompt, speaks_as_assistant, words

STOPS = ("\n\n",)
"""Where the config says nothing: a blank line."""

# A full stop after few letters may be that of "Dr.", "p.m." or "etc."; not after "it" or "you".
_SENTENCES = re.compile(
    r"(?s).*(?:[!?]|(?:\w{4}|\d|\b(?!(?:al|ca|cf|ed|etc|fig|no|nos|pp|vol|vs)\.)[a-z]{2,3})\.)"
    r"[\"')\]]*(?=\s|$)"
)
# "Here is the message you asked for:", which a chat model says before the text itself.
_ANNOUNCED = re.compile(
    r"(?i)(?:(?:sure|certainly|of course)\s*[,!.][^\n]*"
    r"|here(?:'s| is| are) (?:a|an|the|one|some|another|your)\b(?: \S+){0,16})\s*:\s*\n\s*"
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
    """

    stops: tuple[str, ...] = STOPS
    least: int = 5

    @classmethod
    def of(cls, max_tokens: int, stops: tuple[str, ...] = STOPS, least: int = 5) -> Ending:
        """The rules for texts of so many tokens: never short by more than a quarter of them."""
        return cls(stops, min(least, max(1, max_tokens // 4)))

    def cut(self, text: str, most: int | None = None) -> str:
        """The text before the first stop, of ``most`` words; whole sentences where none ended it.

        >>> Ending().cut("The visit is at three. Please bring your")
        'The visit is at three.'
        """
        text = text.strip()
        announced = _ANNOUNCED.match(text)
        text = written = text[announced.end() :] if announced else text
        for stop in self.stops:
            text = self._stopped(text, stop)
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        if most is not None and len(ends) > most:
            text = self.whole(text[: ends[most - 1]])
        elif text == written:  # no stop: it may end where the tokens did
            text = self.whole(text)
        return text.strip()

    def short(self, text: str) -> bool:
        """Whether the text has fewer words than ``least``."""
        return len(text.split()) < self.least

    def failed(self, text: str, prompt: str) -> bool:
        """Whether the text is short, a chat model's answer, its prompt again, or a circle.

        >>> Ending().failed("Words to build on: bill.", "Words to build on: bill")
        True
        """
        return self.short(text) or self.strayed(text, prompt)

    def strayed(self, text: str, prompt: str) -> bool:
        """Whether the text is a chat model's answer, says its prompt again, or is a circle."""
        pairs = runs(words(text)[-_STRETCH:], 2)
        return (
            len(set(pairs)) < _LOOP * len(pairs)
            or says_its_prompt(text, prompt)
            or speaks_as_assistant(text)
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
        if _is_json(text):
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
    return text if _is_json(text) else _LAST_WORD.sub("", text)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "[{"))


def unquoted(text: str) -> str:
    """The text without the quotation marks around all of it."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].strip()
    return text
