"""Texts that are none: the prompt said again, or the assistant speaking for itself.

Public rules on one text and its public prompt. Each refuses fewer than one in 200 real records of
the sets they were measured on: benchmarks/RESULTS.md.
"""

from __future__ import annotations

import re

_ECHO = 5
"""Words in a row that a text has of its prompt, and a text of its own has not."""
_FIRST = 3
"""Words that a text begins with, as its prompt does, and a text of its own does not."""

_SLOT = re.compile(r"(?m)^[\W_]*(\w[\w ]{0,39}?)[ \t]*:(?:[ \t]*(\S.*))?")
"""What stands before a colon at the beginning of a line, and behind it."""
_SPECIAL = re.compile(r"<\|[^|\s]{1,40}\|>")
_PLACEHOLDER = re.compile(r"\[[A-Z]?[a-z][A-Za-z' /_-]{1,30}\]")
_WORDS_PER_PLACE = 30
"""Words of a text for each of its placeholders, at most: speeches have brackets too."""

_OPENINGS = (
    r"(?:i(?:'m| am) sorry|sorry|i apologi[sz]e|apologies) for (?:any|the) "
    r"(?:confusion|misinterpretation|misunderstanding)",
    r"(?:i(?:'m| am) sorry\W+(?:but )?)?(?:i(?:'m| am) (?:unable|not able) to|i (?:cannot|can't)) "
    r"(?:assist|fulfill?|generate)",
    r"i(?:'m| am) here to (?:help|assist)",
    r"(?:how|what) can i (?:help|assist) you",
    r"the answer (?:to|for) (?:the|this|that|your)\b",
    r"(?:the|this) topic\b",
    r"this (?:sentence|statement|phrase) (?:has|implies|is|means|requires|seems|suggests)\b",
    r"(?:the|this) (?:above|given|original|provided) (?:text|question|sentence|topic)\b",
    r"(?:the|this) (?:\w+ ){0,3}(?:text|question|answer|sentence|title)(?: \w+){0,4} ?:",
    r"here(?:'s| is| are) (?:an?|the|one|some|another|your) (?:\S+ ){0,4}"
    r"(?:text|topic|sample|example|summary|version|sentence|response|answer)\b[^\n.!?:]{0,80}:",
)
"""How chat models begin where they answer instead of writing: all that is known of them."""
_OF_ITSELF = re.compile(
    r"\b(?:smollm|(?:as|i(?:'m| am)) an? (?:\w+ )?(?:ai|(?:large )?language model)\b"
    r"|i(?:'m| am| was) (?:designed|programmed) to (?:assist|be|do|help|provide)\b)",
    re.IGNORECASE,
)
"""What they say of themselves, wherever it stands."""
_ASSISTANT = re.compile("|".join(_OPENINGS), re.IGNORECASE)


def says_its_prompt(text: str, prompt: str) -> bool:
    """Whether a text repeats its prompt: words in a row, its first ones, a slot, or a whole line.

    Or has no word but those of its prompt, in whatever order.

    >>> says_its_prompt("Topic: my bill", "Topic: bills")
    True
    """
    said, asked = words(text), words(prompt)
    lines = (f"{name}: {value}" for name, value in _slots(prompt) if value)
    return (
        not set(runs(said, _ECHO)).isdisjoint(runs(asked, _ECHO))
        or (said != [] and set(said) <= set(asked))
        or _begin_alike(said, asked)
        or _begin_alike(said[1:], asked[2:])  # This is a note: The following is a note
        or any(line in text.casefold() for line in lines)
        or not {name for name, _ in _slots(text)}.isdisjoint(sum(_slots(prompt), ()))
        or _is_within(words(text.strip().split("\n", 1)[0]), asked)
    )


def speaks_as_assistant(text: str) -> bool:
    """Whether a text is a chat model's answer, or has places left to fill in.

    >>> speaks_as_assistant("As an AI, I have no bills.")
    True
    """
    said = text.replace("\u2019", "'")
    places = _PLACEHOLDER.findall(text)
    return (
        _ASSISTANT.match(said.lstrip("\"'*_#> \n\t\u201c\u2018")) is not None
        or _OF_ITSELF.search(said) is not None
        or (len(set(places)) > 1 and len(text.split()) <= _WORDS_PER_PLACE * len(places))
    )


def words(text: str) -> list[str]:
    """The words of a text, whatever is between them."""
    return re.findall(r"\w+", text.casefold())


def runs(of: list[str], count: int) -> list[tuple[str, ...]]:
    """So many words in a row, from every word on."""
    return list(zip(*(of[start:] for start in range(count)), strict=False))


def _begin_alike(said: list[str], asked: list[str]) -> bool:
    return len(asked) >= _FIRST and said[:_FIRST] == asked[:_FIRST]


def _slots(text: str) -> list[tuple[str, str]]:
    """What stands before and behind the colons of lines, in small letters.

    A special token ends a line.
    """
    lines = _SPECIAL.sub("\n", text.casefold())
    return [(name, value.strip()) for name, value in _SLOT.findall(lines)]


def _is_within(line: list[str], of: list[str]) -> bool:
    """Whether a line is some words in a row of others."""
    return bool(line) and tuple(line) in runs(of, len(line))
