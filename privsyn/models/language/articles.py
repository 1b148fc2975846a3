"""What a record is, as an English sentence says it: with a or an, or as one of many.

The libraries for it were no better: inflect takes letters for words (a SOS, a EU report, a 8-page
letter), is slow to load, and makes a diagnosi of a diagnosis.
"""

from __future__ import annotations

import re


def with_document(prompt: str, document: str) -> str:
    """A prompt with its ``{document}``: behind ``a`` where ``an`` is due, as one of many if plural.

    >>> with_document("The following is a {document}.", "An abstract of an article.")
    'The following is an abstract of an article.'
    >>> with_document("Each is a {document}.", "user review")
    'Each is a user review.'
    >>> with_document("The following is a {document}.", "support tickets")
    'The following is one of the support tickets.'
    """
    noun = bare(document)
    if is_plural(noun):
        prompt = _ARTICLE.sub(lambda a: f"{'One' if a[1] == 'A' else 'one'} of the ", prompt)
    elif takes_an(noun):
        prompt = _ARTICLE.sub(r"\1n ", prompt)
    return prompt.replace("{document}", noun)


def bare(document: str) -> str:
    """What a record is, without the article before it and the full stop behind it.

    >>> bare("The complaint of a guest.")
    'complaint of a guest'
    """
    return _OUTER.sub("", document)


def takes_an(noun: str) -> bool:
    """Whether ``an`` stands before a noun: by its sound, as far as letters tell.

    A word of at most five capitals, or a single letter before a hyphen, is spelled: an SMS, an
    X-ray; so a NASA report is "an" by mistake.

    >>> takes_an("SMS"), takes_an("US address"), takes_an("unintended call"), takes_an("unit")
    (True, False, True, False)
    """
    if spelled := _SPELLED.match(noun):
        return spelled[0][0].upper() in "AEFHILMNORSX"
    return _SPOKEN_VOWEL.match(noun) is not None


def is_plural(noun: str) -> bool:
    """Whether a noun stands for many, by its ending before the first preposition.

    >>> is_plural("notes of a nurse"), is_plural("status of orders"), is_plural("movie news")
    (True, False, False)
    """
    head = _BEHIND.split(noun, maxsplit=1)[0].split()
    return bool(head) and _PLURAL.fullmatch(head[-1]) is not None


_ARTICLE = re.compile(r"\b([Aa]) (?=\{document\})")
_OUTER = re.compile(r"^\s*(?:an?|the)\s+(?=\S)|[.\s]+$", re.IGNORECASE)
_SPELLED = re.compile(r"[A-Z](?:[A-Z]{1,4})?(?=s?(?:[^\w]|_|$))|[a-z](?=-)")
# Checked against the 23,709 words of the CMU dictionary with a vowel, h or y at the beginning.
_SPOKEN_VOWEL = re.compile(
    r"(?!eu|ewe\b|one\b|once\b|ubiq|ufo|ugan|uk[reu]|unanim|uni(?!n|m|d|ss)|unimod|unidir"
    r"|ura[nl]|ure|uri|uro|uru|us[aeiu]|ut[aeio]|uv)[aeiou\u00c0-\u00dc]|hour|honest|honou?r|heir"
    r"|8|1[18](?!\d)",
    re.IGNORECASE,
)
_BEHIND = re.compile(
    r"\s*[,;:(]|\s(?:about|as|at|between|by|for|from|in|of|on|sent|that|to|which|who|with|written)\b"
)
_PLURAL = re.compile(r"(?!(?:news|series|species|means|lens|canvas|atlas)$)\w*[^\W_](?<![sui])s")
