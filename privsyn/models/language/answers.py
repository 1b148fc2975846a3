"""The text in a language model's answer, without its thoughts and without markup.

The rules are public and read one answer alone, so they are post-processing. JSON keeps its entities
and the content of its strings.
"""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from privsyn.section import read_table


@cache
def _forms() -> dict[str, str]:
    """The regular expressions of answers.yaml, by name, each after those that it is made of."""
    forms: dict[str, str] = {}
    content = read_table(Path(__file__).with_suffix(".yaml"))
    for name, form in content.items():
        whole = form if isinstance(form, str) else f"(?:{'|'.join(form)})"
        forms[name] = re.sub(r"\{([a-z_]+)\}", lambda part: forms[part[1]], whole)
    return forms


@cache
def _form(name: str) -> re.Pattern[str]:
    """One of answers.yaml. Read where there is an answer: a plan has none."""
    return re.compile(_forms()[name])


# gpt-oss: <|channel|>analysis<|message|>..., the text in channel "final"
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)[^<]{0,80}<\|message\|>")
_FINAL = "final"
# The same without its special tokens: "analysisWe need to ...assistantfinalDear clinic"
_BARE_CHANNEL = re.compile(r"(?:assistant)?analysis(?=[A-Z])")
_BARE_FINAL = re.compile(r"assistant\s?final(?=\S|\s)")
# Gemma 4: <|channel>thought\n...<channel|>
_PIPED_CHANNEL = re.compile(r"<\|channel>.*?(?:<channel\|>|\Z)", re.DOTALL)
_WRAPPED = re.compile(
    r"(?is)\s*<(answer|response|output|final|text|solution|message|reply|result)>\s*(.*)"
)
_FENCED = re.compile(r"(?s)\s*```\w*\n(.*?)(?:\n\s*```.*)?\Z")

_LISTS = (("first_label", "second_label"), ("first_number", "second_number"))
_LAYERS = ("first_label", "first_number", "label", "bullet")
"""Beginnings of a text that are no part of it, in the order in which they are looked for."""
_QUOTES = (
    ("**", "**"),
    ('"', '"'),
    ("\u201c", "\u201d"),
    ("\u201e", "\u201c"),
    ("\u300c", "\u300d"),
    ("\u00ab", "\u00bb"),
)
_SINGLE_QUOTES = re.compile(r"(?s)['\u2018](\S.*[.!?])['\u2019]\Z|`([^`]+)`\Z")
"""Around a text; an apostrophe at one end alone is part of a word."""
_LONGER = 3
"""The text in a JSON object is so many times as long as the object's other strings."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
)
_BREAKS = re.compile("\r\n?|[\x85\u2028\u2029]")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2060-\u2064\u202a-\u202e\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Control characters, and invisible characters that hide, reorder or carry text."""
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")


def as_text(answer: str) -> str:
    """The text of an answer: without thoughts, up to the first special token, entities replaced.

    Empty if the model was still thinking, or if another turn begins. Total, and linear in the
    length of the answer. Spaces at an end stay if nothing was removed there.

    >>> as_text("<think>They want a note.</think>Bills &amp; visits<|im_end|>more")
    'Bills & visits'
    """
    text = without_thoughts(plain_marks(answer))
    if is_json(text):
        return text
    moved = True
    while moved and (match := _form("begins").match(text)):
        text = text[match.end() :]
        moved = match.end() > 0
    if wrapped := _WRAPPED.match(text):
        name, text = wrapped[1].lower(), wrapped[2]
        text = re.split(rf"(?i)\s*</{name}>", text, maxsplit=1)[0]
    if fenced := _FENCED.match(text):
        text = fenced[1]
    end = _form("special").search(text)
    return text[: end.start()].rstrip() if end else text


def plain_marks(text: str) -> str:
    r"""The text without control characters, with HTML entities replaced.

    >>> plain_marks("Babies &amp; toddlers\x1b[31m, now\x00")
    'Babies & toddlers, now'
    """
    if not is_json(text):
        for _ in range(3):  # "&amp;amp;"
            plain = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
            if plain == text:
                break
            text = plain
    text = _ESCAPES.sub("", text)
    text = _BREAKS.sub("\n", text)
    return _CONTROLS.sub("", text).replace("\xa0", " ")


def without_thoughts(text: str) -> str:
    """The parts of an answer after and between its thoughts.

    >>> without_thoughts("They want a note.</think>My bill is late.")
    'My bill is late.'
    >>> without_thoughts("<think>They want a note.")
    ''
    """
    channels = list(_CHANNEL.finditer(text))
    if channels:
        last = channels[-1]
        text = text[last.end() :] if last[1] == _FINAL else text[: channels[0].start()]
    elif _BARE_CHANNEL.match(text):
        final = _BARE_FINAL.search(text)
        text = text[final.end() :] if final else ""
    text = _PIPED_CHANNEL.sub("", text)
    if steps := _form("steps").match(text):
        answer = _form("answer").search(text, steps.end())
        text = text[answer.end() :] if answer else text
    parts, start, depth = [], 0, 0
    for mark in _form("mark").finditer(text):
        if mark["empty"]:  # <think/>
            if not depth:
                parts.append(text[start : mark.start()])
                start = mark.end()
        elif mark["end"] or mark["end_bracket"]:
            if not depth:  # the opening is in the prompt, or missing: all so far was thought
                parts = []
            depth = max(0, depth - 1)
            start = mark.end()
        else:
            if not depth:
                parts.append(text[start : mark.start()])
            depth += 1
    if not depth:
        parts.append(text[start:])
    whole = "".join(parts)
    return whole.lstrip() if start else whole


def one_text(answer: str, *, plain: bool = True) -> str:
    r"""The one text in an answer; empty where the answer holds several.

    Announcement, label, quotation marks, fence and JSON around one text are removed.

    Args:
        answer: After ``as_text``.
        plain: Whether JSON and a list are no texts. False removes an announcement only.

    >>> one_text('Option 1: "My bill is late."'), one_text("1. My bill.\n2. Our bill.")
    ('My bill is late.', '')
    """
    text = answer.strip()
    if plain and _form("several").match(text):
        return ""
    introduced = _form("introduced").match(text)
    text = text[introduced.end() :] if introduced else text
    while plain:
        if _is_list(text):
            return ""
        inner = _unwrapped(text).strip()
        if inner == text:
            break
        text = inner
    return text


def _is_list(text: str) -> bool:
    """Whether a text is a list of texts, by their labels, numbers or bullets."""
    for first, second in _LISTS:
        match = _form(first).match(text)
        if match and _form(second).search(text, match.end()):
            return True
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) > 1 and all(_form("bullet").match(line) for line in lines)


def _unwrapped(text: str) -> str:
    """The text without one layer around it."""
    if is_json(text) or text.startswith("["):
        return _from_json(text)
    if fenced := _FENCED.match(text):
        return fenced[1]
    lines = text.splitlines()
    if lines and all(line.startswith(">") for line in lines):
        return "\n".join(line.lstrip("> ") for line in lines)
    for layer in _LAYERS:
        if (match := _form(layer).match(text)) and match.end() < len(text):
            return text[match.end() :]
    single = _SINGLE_QUOTES.match(text)
    return single[1] or single[2] if single else unquoted(text)


def _from_json(text: str) -> str:
    """The text in JSON, which may be cut off; empty where it holds several, the text if no JSON."""
    for ending in ("", '"}', "}", '"]', "]", '"}]', '"]}'):
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(text + ending)
        except (ValueError, RecursionError):
            continue
        strings = sorted(_strings(value), key=len, reverse=True)
        if text[end:].strip().startswith(("{", "[")) or not strings:
            return ""
        if len(strings) > 1 and len(strings[0]) < _LONGER * len(strings[1]):
            return ""
        return plain_marks(strings[0])
    return text


def _strings(value: Any) -> list[str]:
    """All strings in a JSON value, without names."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _strings(part)]


def is_thought(answer: str) -> bool:
    """Whether an answer consists only of thoughts."""
    text = plain_marks(answer)
    return bool(text.strip()) and not without_thoughts(text).strip()


def close_thought(prompt: str) -> str:
    r"""Close a thought that a rendered prompt leaves open, as some templates do.

    >>> close_thought("<|assistant|><think>\n")
    '<|assistant|><think>\n\n</think>\n\n'
    """
    if prompt.endswith("<|start|>assistant") and "<|channel|>" in prompt:  # gpt-oss
        return prompt + f"<|channel|>{_FINAL}<|message|>"
    marks = list(_form("mark").finditer(prompt[-200:]))
    if not marks or marks[-1]["end"] or marks[-1]["end_bracket"] or marks[-1]["empty"]:
        return prompt
    last = marks[-1]
    if prompt[-200:][last.end() :].strip():
        return prompt
    # Mistral's brackets have no line breaks around them.
    lines = last[0][0] == "<"
    return prompt + (f"\n{_closing(last[0])}\n\n" if lines else _closing(last[0]))


def _closing(opening: str) -> str:
    """The mark that closes a thought opened by ``opening``."""
    for begin, end in (("START_", "END_"), ("start_", "end_"), ("begin_of_", "end_of_")):
        if begin in opening:
            return opening.replace(begin, end)
    return f"{opening[0]}/{opening[1:]}"


def is_json(text: str) -> bool:
    """Whether a text is a JSON record."""
    return text.lstrip().startswith(("{", "[{"))


def unquoted(text: str) -> str:
    """The text without quotation marks around it, and without a single mark at one end.

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
