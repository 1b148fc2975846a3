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

_SORRY = (
    r"(?:(?:i(?:'m| am) (?:so |very |truly |really )?(?:sorry|afraid)|sorry|my apologies"
    r"|i apologi[sz]e|unfortunately|thank you for [^.!\n]{0,60}[.!])\W+(?:but |however,? |that )?)?"
    r"(?:as an? [^,.\n]{0,40}, )?"
)
_CANNOT = (
    r"i(?:(?:'m| am) (?:unable|not (?:able|allowed|permitted|comfortable|in a position))"
    r" to| cannot| can't| can not| won't| will not| could not| am not going to|'d rather not) "
    r"(?:to )?(?:directly |really |actually |ethically )?"
)
_OPENINGS = (
    r"(?:i(?:'m| am) sorry|sorry|i apologi[sz]e|apologies) for (?:any|the) "
    r"(?:confusion|misinterpretation|misunderstanding)",
    _SORRY + _CANNOT + r"(?:assist|fulfil|generate|fabricate|simulate|role-?play"
    r"|comply(?: with (?:that|this|your|the) (?:request|prompt|instruction)|\W*\Z|[.,])"
    r"|engage (?:in|with) (?:that|this|such|conversations?|discussions?|role)"
    r"|help (?:you )?(?:with (?:that|this|your request|the request|creating|writing)|create"
    r"|write|generate))",
    _SORRY + _CANNOT + r"(?:provide|create|write|share|produce|draft|compose|discuss|rewrite"
    r"|rephrase|make up)\b(?: \S+){0,5}? (?:that|this|such|request\w*|content|(?:an?|the|any)"
    r" (?:\w+ )?message|texts?|stor(?:y|ies)|examples?|advice|diagnos\w+|personal\w*"
    r"|information about|real|fake|fictional|private|confidential|sensitive|prompts?)\b",
    r"(?:i must |i have to |i'll have to |i need to )(?:respectfully )?(?:decline|refuse)\b",
    r"(?:je suis )?d[e\u00e9]sol[e\u00e9]e?\W+(?:mais )?je ne (?:peux|suis) pas",
    r"(?:lo siento|lo lamento)\W+(?:pero )?no puedo (?:ayudar|proporcionar|crear|generar|escribir)",
    r"(?:es )?tut mir (?:sehr )?leid\W+(?:aber )?(?:ich kann|dabei kann ich)\b[^.\n]{0,80}"
    r"(?:helfen|erstellen|schreiben|nachkommen|bereitstellen|generieren)",
    r"is there (?:anything|something) else (?:i can|you(?:'d| would) like)",
    r"(?:error\W{1,3})?(?:\d{3} )?(?:rate limit|too many requests|internal server error"
    r"|bad gateway|service unavailable|gateway time-?out)\b",
    r"<!doctype html|<html\b",
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

_THOUGHT = re.compile(
    r"(?:(?:ok(?:ay)?|alright|all right|hmm+|so|first|well|right|got it|wait)\W{1,3})*"
    r"(?:(?:the|this) user(?:'s)? (?:wants|asks|is asking|has asked|asked|needs|request|requested"
    r"|query|prompt|gave|has given|has provided|provided|would like|said)\b"
    r"|(?:we|i) (?:need|have|want|are asked|am asked|must|should) (?:to )?(?:\w+ ){0,2}"
    r"(?:write|produce|generate|create|craft|compose|output|come up with|draft|rephrase|rewrite"
    r"|paraphrase) (?:an?|one|the|some|this|something|it)\b"
    r"|let(?: me|'s| us) (?:think|see what|start by|try to|break|analy[sz]e|consider|craft|draft"
    r"|come up|write|figure|understand|brainstorm|parse|plan)\b"
    r"|(?:my )?(?:thinking|thought|reasoning) process\b"
    r"|(?:thinking|thoughts?|reasoning|analysis|plan|scratchpad)\s*:\s"
    r"|(?:the|this) (?:task|prompt|instruction|request) (?:is|asks|says|wants|requires)\b)",
    re.IGNORECASE,
)
"""How models begin that think about the task; without a mark where the template opens the thought
and the tokens ran out before its end."""


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


def is_no_text(text: str) -> bool:
    """Whether a text is none that anybody asked for: an assistant's answer, or a thought."""
    return speaks_as_assistant(text) or thinks_aloud(text)


def thinks_aloud(text: str) -> bool:
    """Whether a text begins as a model that thinks about what it is to write.

    >>> thinks_aloud("Okay, the user wants a short message. Let me think")
    True
    """
    return _THOUGHT.match(text.replace("\u2019", "'").lstrip("\"'*_#>([- \n\t")) is not None


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
