"""Descriptions of a release for registries, catalogs and reviewers: templates over its facts.

``templates/`` holds their words: ``deployment.yaml`` is an entry of the OpenDP Deployments
Registry, ``croissant.yaml`` a Croissant 1.1 description, ``checklist.md`` a privacy review,
``card.md`` a dataset card. Words of a certificate, which anyone may have written, are escaped by
``ReleaseFacts.words`` for where they go; no word of it is ever read as a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from privsyn.dp.accountant import format_epsilon
from privsyn.layout import ARTIFACT
from privsyn.release.advice import RESEMBLANCE, scale_of
from privsyn.release.facts import UNSTATED, ReleaseFacts, one_line
from privsyn.release.settings import Card
from privsyn.section import read_table
from privsyn.sentences import fill, template

TEMPLATES = Path(__file__).parent / "templates"
WORD = "the curator's word"


@dataclass(frozen=True)
class Review:
    """A row of the checklist.

    Attributes:
        question: What is asked.
        answer: What the certificate or the curator says.
        where: How it is checked.
    """

    question: str
    answer: str
    where: str


def deployment(facts: ReleaseFacts) -> dict[str, Any]:
    """The entry of the registry, tier 3: plain values under the names of its schema."""
    labels = ", ".join(facts.labels)
    domain = f"Collections of {facts.things}" + f", each with a label among {labels}" * bool(labels)
    domain += "".join(f", with {facts.words(n)} ({what})" for n, what in facts.domains.items())
    filled: dict[str, Any] = fill(
        read_table(TEMPLATES / "deployment.yaml"),
        _template_values(facts)
        | {
            "slug": re.sub(r"[^a-z0-9]+", "-", facts.file_name.lower()).strip("-"),
            "curators": [facts.deployment.get("curators", UNSTATED)],
            "domain": f"{domain}.",
        },
    )
    return filled


def croissant(facts: ReleaseFacts) -> dict[str, Any] | None:
    """The Croissant description with its RAI fields; None of a release that is a model."""
    if facts.is_model:
        return None
    # JSON needs no escapes for Markdown, which would show as backslashes.
    facts = replace(facts, words=one_line)
    types = facts.plan.dataset.columns
    filled: dict[str, Any] = fill(
        read_table(TEMPLATES / "croissant.yaml"),
        _template_values(facts)
        | {
            "fields": [
                _field(name, what, _TYPES[types[name].dtype] if name in types else "Text")
                for name, what in facts.columns.items()
            ],
            "resemblance": RESEMBLANCE.format(unit=facts.unit),
        },
    )
    if not facts.is_images:
        filled["distribution"].pop()
    return filled


def checklist(facts: ReleaseFacts) -> tuple[Review, ...]:
    """The questions of NIST SP 800-226, answered. Public: certificate and ``deployment`` alone.

    For a page, whose template escapes what it prints, give facts whose ``words`` is ``one_line``.
    """
    known = _template_values(facts)
    # Taken apart before it is filled: what a curator wrote cannot become a question of its own.
    _, *parts = re.split(r"^## ", _template("checklist.md"), flags=re.MULTILINE)
    rows = []
    for part in parts:
        question, rest = part.split("\n", 1)
        answer, where = rest.split("Checked by: ")
        rows.append(Review(question, _text(answer, known), _text(where, known)))
    return tuple(rows)


def markdown(facts: ReleaseFacts) -> str:
    """The checklist as a page of Markdown."""
    rows = "\n".join(
        f"| {row.question} | {_cell(row.answer)} | {_cell(row.where)} |" for row in checklist(facts)
    )
    return (
        f"# Differential privacy of {facts.words(facts.file_name)}\n\n"
        "Questions after NIST SP 800-226, *Guidelines for Evaluating Differential Privacy "
        "Guarantees*, answered from the certificate of the release.\n\n"
        f"| question | answer | checked by |\n|---|---|---|\n{rows}\n"
    )


def card(facts: ReleaseFacts, front: Mapping[str, Any], form: str) -> str:
    """The dataset card of a release, as README.md of a folder with it in it.

    Args:
        facts: The release.
        front: Its front matter, as the Hugging Face hub reads it.
        form: What it is exported as.
    """
    known = _template_values(facts) | {
        "front": yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True),
        "form": form,
        "things": facts.things,
        "epsilon": format_epsilon(facts.plan.epsilon),
        "scale": scale_of(facts.judged_epsilon, facts.risk.right),
        "resemblance": RESEMBLANCE.format(unit=facts.unit),
    }
    return template(_template("card.md")).render(known)


def to_json(described: dict[str, Any]) -> str:
    """A description as JSON that may stand inside a page: markup is written as escapes."""
    text = json.dumps(described, indent=2, ensure_ascii=True)
    # A page embeds this in a script element, which "</script>" in a text would end.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") + "\n"


def to_yaml(entry: dict[str, Any]) -> str:
    """An entry as YAML: texts are quoted where they need it, and no tag is written."""
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)


def _template_values(facts: ReleaseFacts) -> dict[str, Any]:
    """What the names in a template stand for."""
    software = facts.paid["software"]
    return {
        "facts": facts,
        "plan": facts.plan,
        "stated": dict.fromkeys(get_args(Card)) | dict(facts.deployment),
        "unstated": UNSTATED,
        "word": WORD,
        "labels": ", ".join(facts.labels),
        "columns": "; ".join(f"{facts.words(n)}: {what}" for n, what in facts.domains.items()),
        **{
            name: facts.words(software[name]) if software.get(name) else None
            for name in ("opendp", "privsyn")
        },
    }


def _text(text: str, known: Mapping[str, Any]) -> str:
    return template(" ".join(text.split())).render(known)


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


_TYPES = {"string": "Text", "int64": "Integer", "float64": "Float", "date32": "Date"}


def _field(name: str, description: str, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"records/{name}",
        "name": name,
        "description": description,
        "dataType": f"sc:{kind}",
        "source": {"fileObject": {"@id": ARTIFACT}, "extract": {"column": name}},
    }


def _cell(text: str) -> str:
    """A text that stays in its cell: the curator's own words may hold bars and breaks."""
    return " ".join(text.split()).replace("\\|", "|").replace("|", "\\|")
