"""From correct sentences to what one writer would type."""

from __future__ import annotations

import re
from random import Random

from tools.portal.people import Style

_SPELLED_OUT = (
    ("t's been", "t has been"), ("here's been", "here has been"),
    ("can't", "cannot"), ("won't", "will not"), ("I'm", "I am"), ("I've", "I have"),
    ("I'd", "I would"), ("I'll", "I will"), ("it's", "it is"), ("It's", "It is"),
    ("there's", "there is"), ("There's", "There is"), ("that's", "that is"), ("That's", "That is"),
    ("we're", "we are"), ("We're", "We are"), ("we've", "we have"), ("We've", "We have"),
    ("We'll", "We will"), ("you're", "you are"), ("they'd", "they would"), ("n't", " not"),
)  # fmt: skip

_LOWERED_AFTER_COMMA = frozenset(
    "the my it it's this these that we we're we've can could is are was would need just please "
    "still thanks thank nobody no nothing do does if last any two every after before only there "
    "there's been being on by at from when getting ever an a some another both looking sorry "
    "your their our somebody someone whenever you because which since now finally good here "
    "what who how as stairs something while go never then also again answers half part prior "
    "give let paying pain things temperature not about regarding me quick update will".split()
)

_KEYBOARD = {
    "a": "s", "b": "v", "c": "x", "d": "f", "e": "r", "f": "g", "g": "h", "h": "j", "i": "o",
    "k": "l", "l": "k", "m": "n", "n": "m", "o": "p", "p": "o", "r": "t", "s": "a", "t": "y",
    "u": "i", "v": "b", "w": "e", "y": "u",
}  # fmt: skip


def joined(greeting: str, sentences: list[str], signature: str, style: Style, rng: Random) -> str:
    """One line of text from the parts of a message."""
    body = [_opened(sentence, style, rng) for sentence in sentences]
    if greeting.endswith(",") and rng.random() < 0.6:
        body[0] = lowered(body[0])
    text = " ".join(body)
    text = _punctuated(text, style, rng)
    if signature and style.register == "terse" and rng.random() < 0.3:
        text = text.rstrip(".")
    text = " ".join(part for part in (greeting, text, signature) if part)
    return _typed(text, style, rng)


def lowered(sentence: str) -> str:
    """The sentence as it goes on after a comma; names and I keep their capital."""
    if sentence.split(" ", 1)[0].lower() in _LOWERED_AFTER_COMMA:
        return sentence[0].lower() + sentence[1:]
    return sentence


def _opened(sentence: str, style: Style, rng: Random) -> str:
    """Capitalise; a terse writer leaves out the subject."""
    if style.register == "terse" and rng.random() < 0.5:
        sentence = re.sub(r"^(I'm|I've|I|It's|We're|We've|There's) (?=[a-z])", "", sentence)
    return sentence[:1].upper() + sentence[1:]


def _punctuated(text: str, style: Style, rng: Random) -> str:
    def stop(match: re.Match[str]) -> str:
        share = rng.random()
        if share < style.run_on and match.group(1) != "I":
            return ", " + match.group(1).lower()
        if share < style.run_on + style.dots:
            return "... " + match.group(1)
        if share < style.run_on + style.dots + style.exclaims:
            return "! " + match.group(1)
        return match.group()

    return re.sub(r"(?<!Dr)(?<!Mrs)(?<!Mr)\. ([A-Z])(?=[a-z' ])", stop, text)


def _typed(text: str, style: Style, rng: Random) -> str:
    if style.spells_out:
        for short, full in _SPELLED_OUT:
            text = text.replace(short, full)
    wrong = dict(style.misspells)
    short_forms = dict(style.shortens)
    words = [
        _slipped(_swapped(word, wrong, short_forms, rng), style, rng) for word in text.split(" ")
    ]
    if style.shouts:
        at = rng.randrange(len(words))
        if re.fullmatch(r"[a-z]{3,7}", words[at]):
            words[at] = words[at].upper()
    text = " ".join(words)
    if not style.apostrophes:
        text = re.sub(r"(?<=[a-z])'(?=[a-z])|(?<=\bI)'(?=[a-z])", "", text)
    if style.lowercase:
        text = re.sub(
            r"\b(?!(?:MRN|INV|CLM)-)[A-Z](?=[a-z']*\b)", lambda m: m.group().lower(), text
        )
    return text


def _swapped(word: str, wrong: dict[str, str], short: dict[str, str], rng: Random) -> str:
    stem = word.rstrip(".,?!")
    if not stem.isalpha():
        return word
    tail = word[len(stem) :]
    for table, share in ((short, 0.85), (wrong, 0.6)):
        found = table.get(stem) or table.get(stem.lower())
        if found and rng.random() < share:
            return (found.capitalize() if stem[0].isupper() else found) + tail
    return word


def _slipped(word: str, style: Style, rng: Random) -> str:
    """A slip of the finger; never in a number, a name or an address."""
    if not style.typo_rate or rng.random() >= style.typo_rate:
        return word
    stem = word.rstrip(".,?!")
    if len(stem) < 4 or not (stem.isalpha() and stem.islower()):
        return word
    at = rng.randrange(1, len(stem) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + _KEYBOARD.get(word[at], word[at]) + word[at + 1 :]
