"""Texts that a release must not hold: prompts repeated, assistants' answers, loops, half sentences.

These are public rules on one text and its public prompt. Each refuses fewer than one in 200 real
records of the measured sets: benchmarks/RESULTS.md. ``Ending`` also cuts a text before a public
stop, or after its last whole sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from privsyn.data.conversations import is_monologue
from privsyn.data.words import LETTER, MARKS, SENTENCE_ENDS, runs, word_count, word_ends, words
from privsyn.models.language.answers import is_json, one_text, unquoted
from privsyn.section import read_table

_ECHO = 5
"""A run of so many words of the prompt marks a text that repeats its prompt."""
_FIRST = 3
"""So many equal first words mark a text that repeats its prompt."""

_SLOT = rf"(?m)^[\W_]*(\w[\w {MARKS}]{{0,39}}?)[ \t]*[:\uff1a](?:[ \t]*(\S.*))?"
"""A line's parts before and after its first colon."""
_SPECIAL = re.compile(r"<\|[^|\s]{1,40}\|>")
_PLACEHOLDER = re.compile(r"\[[A-Z]?[a-z][A-Za-z' /_-]{1,30}\]")
_WORDS_PER_PLACE = 30
"""Most words per placeholder of a template: in a longer text, brackets may be part of speech."""

_FORMS = read_table(Path(__file__).with_suffix(".yaml"))
_ASSISTANT = "(?i)" + "|".join(_FORMS["openings"]).replace("<cannot>", _FORMS["cannot"])
_OF_ITSELF = re.compile(_FORMS["of_itself"], re.IGNORECASE)
_THOUGHT = re.compile(_FORMS["thought"], re.IGNORECASE)


def says_its_prompt(text: str, prompt: str) -> bool:
    """Whether a text repeats its prompt: a run of words, its first words, a slot, or a whole line.

    Also whether it has no other words than its prompt, in any order.

    >>> says_its_prompt("Topic: my bill", "Topic: bills")
    True
    """
    written, requested = words(text.casefold()), words(prompt.casefold())
    lines = (f"{name}: {value}" for name, value in _slots(prompt) if value)
    return (
        not set(runs(written, _ECHO)).isdisjoint(runs(requested, _ECHO))
        or (written != [] and set(written) <= set(requested))
        or _begin_alike(written, requested)
        or _begin_alike(written[1:], requested[2:])  # This is a note: The following is a note
        or any(line in text.casefold() for line in lines)
        or not {name for name, _ in _slots(text)}.isdisjoint(sum(_slots(prompt), ()))
        or _is_within(words(text.casefold().strip().split("\n", 1)[0]), requested)
    )


def speaks_as_assistant(text: str) -> bool:
    """Whether a text is a chat model's answer, or has places left to fill in.

    >>> speaks_as_assistant("As an AI, I have no bills.")
    True
    """
    written = text.replace("\u2019", "'")
    places = _PLACEHOLDER.findall(text)
    return (
        re.match(_ASSISTANT, written.lstrip("\"'*_#> \n\t\u201c\u2018")) is not None
        or _OF_ITSELF.search(written) is not None
        or (len(set(places)) > 1 and word_count(text) <= _WORDS_PER_PLACE * len(places))
    )


def is_no_text(text: str) -> bool:
    """Whether a text is not what the prompt asks for: an assistant's answer, or a thought."""
    return speaks_as_assistant(text) or thinks_aloud(text)


def thinks_aloud(text: str) -> bool:
    """Whether a text begins as a model's thoughts about its task.

    >>> thinks_aloud("Okay, the user wants a short message. Let me think")
    True
    """
    return _THOUGHT.match(text.replace("\u2019", "'").lstrip("\"'*_#>([- \n\t")) is not None


def _begin_alike(written: list[str], requested: list[str]) -> bool:
    first = runs(requested, _FIRST)[:1]
    return first != [] and runs(written, _FIRST)[:1] == first


def _slots(text: str) -> list[tuple[str, str]]:
    """The parts before and after the colon of each line, in small letters.

    A special token ends a line.
    """
    lines = _SPECIAL.sub("\n", text.casefold())
    return [(name, value.strip()) for name, value in re.findall(_SLOT, lines)]


def _is_within(line: list[str], of: list[str]) -> bool:
    """Whether a line is a run of the other words."""
    return bool(line) and f" {' '.join(line)} " in f" {' '.join(of)} "


STOPS = ("\n\n",)
"""Default stops: a blank line."""

# A full stop after few letters may be that of "Dr.", "p.m." or "etc."; not after "it" or "you".
_SENTENCES = (
    r"(?s).*(?:(?:[!?]|(?:\w{4}|\d|\b(?!(?:al|ca|cf|ed|etc|fig|no|nos|pp|vol|vs)\.)[a-z]{2,3})\.)"
    rf"[\"')\]\u201d\u201c\u2019\u00bb]*(?=\s|$|{LETTER})|[{SENTENCE_ENDS}][^\w\s]*)"
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
# Thai and Lao have no mark at the end of a sentence.
_ENDED = re.compile(rf"[.!?\u2026{SENTENCE_ENDS}\u0e00-\u0eff]\W*\Z|[:;)\]}}\uff09\d]\s*\Z")
# Words that no English sentence ends with, or hardly one; and marks that something follows.
_BREAKS_OFF = re.compile(
    r"(?i)(?:\b(?:the|an?|and|or|but|nor|because|of|my|your|our|their|its|whose|than|if|when|while"
    r"|which|who|i|we|they|very|to|for|with|from|at|is|are|was|were|am|would|could|should|will|have|has"
    r"|had|don't|can't|cannot|i'm|i've|please|every|as|into|between|during)|[,\u2013\u2014&(-])\s*\Z"
)
_LAST_PART = re.compile(rf"[^.!?,;:\n\u060c\u061b\u3001\uff0c\uff1a\uff1b\u104a{SENTENCE_ENDS}]*\Z")
_SIGNED = 5
"""Most words of a signature."""
_LAST_WORD = re.compile(r"(?<=\S)\s+\S{0,39}\w\Z")

_LOOP = 2 / 3
"""Least share of different pairs among a text's pairs of words; texts of people have above .9."""
_STRETCH = 64
"""Words at a text's end whose pairs count: in a long text more pairs are equal anyway."""


@dataclass(frozen=True)
class Ending:
    """Rules for the ends of texts. All are public, and each looks at one text alone.

    Attributes:
        stops: A text ends before the first stop that follows ``least`` words. A blank line after a
            colon does not count.
        least: A text of fewer words is short.
        full: A text of so many words without an end has run out of tokens. None: not known.
        plain: Whether JSON and a list are no texts, but wrap one or several.
        roles: Of a conversation.
    """

    stops: tuple[str, ...] = STOPS
    least: int = 5
    full: int | None = None
    plain: bool = True
    roles: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, max_tokens: int, examples: Iterable[str] = (), roles: tuple[str, ...] = ()
    ) -> Ending:
        """The rules for texts of ``max_tokens``; ``least`` is at most a quarter of them.

        Where a public example is JSON or a list itself, so may a text be. In a conversation two
        ``roles`` must speak.
        """
        plain = all(one_text(example) and not is_json(example) for example in examples)
        least = min(cls.least, max(1, max_tokens // 4))
        full = max(cls.least, max_tokens // 2)
        return cls(least=least, full=full, plain=plain, roles=roles)

    def cut(self, text: str, most: int | None = None) -> str:
        """The text before the first stop, at most ``most`` words; whole sentences without a stop.

        It also drops what a model wraps a text in (answers.one_text) and a header with its subject.
        Empty where the answer holds several texts.

        >>> Ending().cut("The visit is at three. Please bring your")
        'The visit is at three.'
        """
        text = one_text(text, plain=self.plain)
        header = _HEADER.match(text)
        if header and not self.short(text[header.end() :]):
            text = text[header.end() :]
        text = written = unquoted(text.strip())
        for stop in self.stops:
            text = self._before_stop(text, stop)
        ends = word_ends(text)
        if most is not None and len(ends) > most:
            text = self.whole(text[: ends[most - 1]])
        elif text == written:  # no stop: the tokens may have run out within a sentence
            text = self.whole(text)
        return unquoted(text.strip())

    def short(self, text: str) -> bool:
        """Whether the text has fewer words than ``least``."""
        return word_count(text) < self.least

    def is_unusable(self, text: str, prompt: str) -> bool:
        """Whether it is short, a header without body or a monologue, breaks off, or strays.

        >>> Ending().is_unusable("Words to build on: bill.", "Words to build on: bill")
        True
        """
        return (
            self.short(text)
            or _SUBJECT.match(text) is not None  # cut() drops a header that has a body
            or self.is_monologue(text)
            or self.breaks_off(text)
            or self.strays(text, prompt)
        )

    def is_monologue(self, text: str) -> bool:
        """Whether it should be a conversation, and fewer than two roles speak."""
        return is_monologue(text, self.roles)

    def texts(self, written: Iterable[str]) -> list[str]:
        """Those that a release may hold: conversations, where one is; no assistant's answers."""
        some = [text for text in written if text.strip() and not is_no_text(text)]
        return [text for text in some if not self.is_monologue(text)] or some

    def breaks_off(self, text: str) -> bool:
        """Whether the text ends within a sentence, judged by its last words.

        >>> Ending().breaks_off("I would like to know about the")
        True
        """
        if is_json(text) or _ENDED.search(text):
            return False
        long = self.full is not None and word_count(text) >= self.full
        tail = _LAST_PART.search(text)  # "Thanks, Ann" needs no full stop
        return _BREAKS_OFF.search(text) is not None or (
            long and tail is not None and word_count(tail[0]) > _SIGNED
        )

    def strays(self, text: str, prompt: str) -> bool:
        """Whether the text is a chat model's answer, repeats its prompt, or goes in a circle."""
        pairs = runs(words(text.casefold())[-_STRETCH:], 2)
        return (
            len(set(pairs)) < _LOOP * len(pairs)
            or says_its_prompt(text, prompt)
            or speaks_as_assistant(text)
            or thinks_aloud(text)
        )

    def _before_stop(self, text: str, stop: str) -> str:
        """The text before the first stop after enough words; not a blank line after a colon."""
        at = text.find(stop)
        while at >= 0 and (
            self.short(text[:at]) or (stop.isspace() and text[:at].rstrip()[-1:] in ":\uff1a")
        ):
            at = text.find(stop, at + len(stop))
        return text if at < 0 else text[:at]

    def trim_unfinished(self, text: str) -> str:
        """A text that ran out of tokens, up to its last whole sentence or else its last whole word.

        Either way enough words must be left; otherwise the text stays as it is.

        >>> Ending().trim_unfinished("The rash on my arm does not go aw")
        'The rash on my arm does not go'
        """
        whole = self.whole(text)
        if whole != text:
            return whole
        cut = whole_words(text)
        return text if self.short(cut) else cut

    def whole(self, text: str) -> str:
        """The text up to its last whole sentence, if enough words are left; JSON stays as it is.

        >>> Ending().whole("I have a rash on my arm. It beg")
        'I have a rash on my arm.'
        """
        if is_json(text):
            return text
        whole = re.match(_SENTENCES, text)
        return text if whole is None or self.short(whole[0]) else whole[0]


def whole_words(text: str) -> str:
    """The text without its last word, which may be half a word; JSON stays as it is.

    A word before a punctuation mark is whole. More than 40 letters are not one word: some scripts
    have no spaces between words.

    >>> whole_words("It does not go aw"), whole_words("It does not."), whole_words("It")
    ('It does not go', 'It does not.', 'It')
    """
    if is_json(text):
        return text
    return _LAST_WORD.sub("", text.rstrip("\ufffd"))  # half a character
