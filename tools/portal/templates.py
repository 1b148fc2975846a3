"""The notation of the grammar: how a template is written, parsed and expanded.

    [a|b|]       one of the alternatives, nestable, possibly empty
    <rule>       a shared rule of ``phrases``, drawn anew at every use
    {slot}       a fact of the patient or the message
    {2..9}       a whole number from a range
    (am/is)      first form if the writer is the patient, second if somebody writes for them
    ~            at the end: a question mark after a question's first word, else a full stop

A label's grammar is lines of ``kind: template``; an indented line continues the one before, and
``== name`` opens a scenario. Lines above the first scenario serve the whole label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

KINDS = ("topic", "fact", "detail", "ask", "follow", "aside")


class Scene(Protocol):
    """What a template is expanded against."""

    @property
    def third_person(self) -> bool:
        """Whether somebody writes for the patient."""

    def pick(self, n: int) -> int:
        """A whole number from 0 to n - 1."""

    def rule(self, name: str) -> str:
        """A template of a shared rule, or its text."""

    def slot(self, name: str) -> str:
        """The value of a fact."""


@dataclass(frozen=True)
class Choice:
    """One of several sequences."""

    options: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True)
class Rule:
    """A shared rule by name."""

    name: str


@dataclass(frozen=True)
class Slot:
    """A fact by name."""

    name: str


@dataclass(frozen=True)
class Range:
    """A whole number, both ends included."""

    low: int
    high: int


@dataclass(frozen=True)
class Pair:
    """First-person form and third-person form."""

    first: tuple[Node, ...]
    third: tuple[Node, ...]


Node = str | Choice | Rule | Slot | Range | Pair

_BEFORE_VOWEL = re.compile(
    r"\b([Aa]) (?=(?!uri|uni|use|usu|one|eu)[aeiou]|[AEIO]|MRI|RSV|hour|8|11\b|18\b)"
)
_TOKEN = re.compile(r"<(\w+)>|\{(\d+)\.\.(\d+)\}|\{(\w+)\}|([\[\]|()/])|([^<>{}\[\]|()/]+)")
_QUESTION = re.compile(
    r"(?:and |also,? |so |oh and |pls |but )*(?:can|could|would|will|is|are|do|does|did|have|has|"
    r"should|shall|may|what|which|when|where|who|how|why|any|am|was|were)\b",
    re.IGNORECASE,
)

_ASKS_WITHIN = re.compile(
    r"\b(?:can|could) (?:you|someone) (?:tell|say|explain|confirm)\b|\bdo you know\b"
)


@cache
def parse(template: str) -> tuple[Node, ...]:
    """Read one template.

    Raises:
        ValueError: A bracket is not closed, or a character is not part of the notation.
    """
    tokens = []
    end = 0
    for match in _TOKEN.finditer(template):
        if match.start() != end:
            break
        tokens.append(match)
        end = match.end()
    if end != len(template):
        raise ValueError(f"cannot read {template[end : end + 20]!r} in template {template!r}")
    nodes, rest = _sequence(tokens, 0, stop="")
    if rest != len(tokens):
        raise ValueError(f"unbalanced brackets in template {template!r}")
    return nodes


def _sequence(tokens: Sequence[re.Match[str]], at: int, stop: str) -> tuple[tuple[Node, ...], int]:
    nodes: list[Node] = []
    while at < len(tokens):
        rule, low, high, slot, mark, text = tokens[at].groups()
        if mark and mark in stop:
            break
        if rule:
            nodes.append(Rule(rule))
        elif low:
            nodes.append(Range(int(low), int(high)))
        elif slot:
            nodes.append(Slot(slot))
        elif text:
            nodes.append(text)
        elif mark == "[":
            parts, at = _parts(tokens, at + 1, "|", "]")
            nodes.append(Choice(tuple(parts)))
        elif mark == "(":
            parts, at = _parts(tokens, at + 1, "/", ")")
            if len(parts) == 1:
                nodes.extend(("(", *parts[0], ")"))
            else:
                nodes.append(Pair(*parts))
        elif mark == "/":
            nodes.append("/")
        else:
            raise ValueError(f"unexpected {mark!r} in template {tokens[at].string!r}")
        at += 1
    return tuple(nodes), at


def _parts(
    tokens: Sequence[re.Match[str]], at: int, between: str, close: str
) -> tuple[list[tuple[Node, ...]], int]:
    parts = []
    while True:
        nodes, at = _sequence(tokens, at, stop=between + close)
        if at >= len(tokens):
            raise ValueError(f"no closing {close!r} in template {tokens[0].string!r}")
        parts.append(nodes)
        if tokens[at].group() == close:
            return parts, at
        at += 1


def expand(template: str, scene: Scene) -> str:
    """Expand one template to a sentence, first letter as written."""
    text = _render(parse(template), scene)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r",? ([.,?!;~])", r"\1", text)
    text = re.sub(r",(?=[.?!~])", "", text)
    text = re.sub(r"\b(the|my|his|her|this|that) the (?=\d)", r"\1 ", text)
    text = _BEFORE_VOWEL.sub(r"\1n ", text)
    if text.endswith("~"):
        last = re.split(r"(?<=[.!?])(?<!Dr\.) ", text[:-1])[-1]
        asks = _QUESTION.match(last) or _ASKS_WITHIN.search(last)
        text = text[:-1] + ("?" if asks else ".")
    return text


def _render(nodes: tuple[Node, ...], scene: Scene) -> str:
    return "".join(_render_node(node, scene) for node in nodes)


def _render_node(node: Node, scene: Scene) -> str:
    match node:
        case str():
            return node
        case Choice(options):
            return _render(options[scene.pick(len(options))], scene)
        case Rule(name):
            return _render(parse(scene.rule(name)), scene)
        case Slot(name):
            return scene.slot(name)
        case Range(low, high):
            return str(low + scene.pick(high - low + 1))
        case Pair(first, third):
            return _render(third if scene.third_person else first, scene)


def names(template: str) -> tuple[set[str], set[str]]:
    """The rules and the slots a template refers to, itself only."""
    rules = set(re.findall(r"<(\w+)>", template))
    slots = {name for name in re.findall(r"\{(\w+)\}", template) if not name.isdigit()}
    return rules, slots


@dataclass(frozen=True)
class Scenario:
    """One reason to write, and the sentences that go with it.

    Attributes:
        name: Unique within the label.
        lines: Templates by kind.
        who: ``any``, ``adult`` or ``child``: the patients it makes sense for.
    """

    name: str
    lines: dict[str, tuple[str, ...]]
    who: str = "any"


@dataclass(frozen=True)
class Label:
    """A label's scenarios, and the lines all of them share."""

    name: str
    shared: dict[str, tuple[str, ...]]
    scenarios: tuple[Scenario, ...] = field(default=())


def read_label(name: str, grammar: str) -> Label:
    """Read the grammar of one label.

    Raises:
        ValueError: A line is of no known kind, or a template cannot be read.
    """
    sections: list[tuple[str, str, dict[str, list[str]]]] = [("", "any", {})]
    current: list[str] = []
    for line in grammar.strip().splitlines():
        if not line.strip():
            continue
        if line.startswith("=="):
            title, _, who = line[2:].partition(",")
            sections.append((title.strip(), who.strip() or "any", {}))
        elif line.startswith(" "):
            current[-1] += " " + line.strip()
        else:
            kind, colon, template = line.partition(": ")
            if kind not in KINDS or not colon:
                raise ValueError(f"{name}: line {line[:40]!r} does not start with one of {KINDS}")
            current = sections[-1][2].setdefault(kind, [])
            current.append(template.strip())
    for _, _, lines in sections:
        for templates in lines.values():
            for template in templates:
                parse(template)
    (_, _, shared), *rest = sections
    return Label(
        name,
        _frozen(shared),
        tuple(Scenario(title, _frozen(lines), who) for title, who, lines in rest),
    )


def _frozen(lines: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(templates) for kind, templates in lines.items()}
