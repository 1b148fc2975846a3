"""Conversations as texts: turns behind public marks of their roles, and back.

A record's text depends on its own turns and the public roles alone. Every text that a model wrote
reads as turns, so each released text has some: post-processing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

Turn = tuple[str, str]
"""Role and words."""


def instruction(document: str | None, roles: Sequence[str]) -> str:
    """What prompts call a record."""
    marks = " or ".join(_mark(role) for role in roles)
    return f"{document or 'a conversation'}, in turns that each begin on a new line with {marks}"


def is_monologue(text: str, roles: Sequence[str]) -> bool:
    r"""Whether fewer than two of these roles speak in a text; never without ``roles``.

    >>> is_monologue("User: hi\nUser: hello?", ("user", "assistant"))
    True
    """
    begins = {line.partition(":")[0] + ":" for line in text.splitlines()}
    return bool(roles) and len(begins.intersection(map(_mark, roles))) < 2


def text_of(value: Any, roles: Sequence[str]) -> tuple[str | None, int]:
    """The text of a list of ``{role, content}`` or of its JSON, and how many turns are left out.

    Left out are turns of other roles and turns without words, such as calls of tools. Turns of one
    role that follow each other become one. The text is None where no turn is left. Never raises.
    """
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None, 0
    if not isinstance(value, list):
        return None, 0
    spoken = [turn for one in value if (turn := _turn(one, roles)) is not None]
    begins = re.compile(rf"(?m)^(?={_any(roles)})")
    # A line of a turn that begins like another turn is set in by a space.
    lines = [f"{_mark(role)} {begins.sub(' ', words)}" for role, words in _merged(spoken)]
    return "\n".join(lines) or None, len(value) - len(spoken)


def messages_of(text: str, roles: Sequence[str]) -> list[dict[str, str]]:
    """The turns of a text, alternating; words before the first mark are of the first role."""
    by_mark = {_mark(role): role for role in roles}
    _, *parts = re.split(rf"(?m)^({_any(roles)})", f"{_mark(roles[0])}\n{text}")
    pairs = zip(parts[::2], parts[1::2], strict=True)
    turns = [(by_mark[mark], words.strip()) for mark, words in pairs if words.strip()]
    return [{"role": role, "content": words} for role, words in _merged(turns)]


def add_messages(rows: Sequence[Mapping[str, Any]], roles: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a synthetic file with their turns, where records are conversations."""
    if not roles:
        return [dict(row) for row in rows]
    return [{**row, "messages": messages_of(row["text"], roles)} for row in rows]


def _mark(role: str) -> str:
    return f"{role[:1].upper()}{role[1:]}:"


def _any(roles: Sequence[str]) -> str:
    return "|".join(re.escape(_mark(role)) for role in roles)


def _turn(one: Any, roles: Sequence[str]) -> Turn | None:
    if not isinstance(one, dict):
        return None
    role, content = one.get("role"), one.get("content")
    if isinstance(content, list):  # parts of several kinds; only those in words are kept
        content = "\n".join(
            part["text"]
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    known = [name for name in roles if isinstance(role, str) and name == role.strip().lower()]
    words = content.strip() if isinstance(content, str) else ""
    # Surrogates stand for bytes that are no UTF-8.
    usable = known and words and re.search("[\ud800-\udfff]", words) is None
    return (known[0], words) if usable else None


def _merged(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Turns in which roles alternate."""
    for role, together in groupby(turns, key=itemgetter(0)):
        yield role, "\n".join(words for _, words in together)
