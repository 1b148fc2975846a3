"""Sections that a certificate alone tells: settings, and an accuracy that was paid for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from privsyn.release import certificate
from privsyn.report.blocks import Bar, Bars, Block, Fact, Facts, Number, Numbers
from privsyn.report.document import LEAVES, Section

MOST_CHARS = 2000
"""Of a setting, such as a prompt."""


def settings_of(sealed: Mapping[str, Any]) -> Section:
    """The public settings a release was drawn with, what was solved for, and what was counted."""
    paid = certificate.origin(sealed)
    plan = paid["plan"]
    models = {f"models.{role}": use["source"] for role, use in plan.get("models", {}).items()}
    held = plan["dataset"].get("holdout")
    asked = {
        **dict(_flat(plan["settings"])),
        **dict(_flat(plan.get("derived", {}))),
        **models,
        **({"dataset.holdout": held} if held is not None else {}),
        **dict(_flat(paid.get("drawn", {}), "drawn.")),
    }
    items = tuple(Fact(name, _cut(value), code=True) for name, value in asked.items())
    return Section("settings", "Settings it was drawn with", LEAVES, (Facts(items),))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value not in (None, "", [], ()):
            yield f"{before}{name}", value


def _cut(value: Any) -> str | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= MOST_CHARS else f"{said[:MOST_CHARS]} ..."


def paid_accuracy(sealed: Mapping[str, Any]) -> list[Section]:
    """What a release paid for to have measured on held-out real records; none where it did not."""
    found = paid_for(sealed)
    if not found:
        return []
    blocks: list[Block] = []
    if found["value"] is not None:
        bar = Bar("this release", found["value"], found["low"], found["high"], ours=True)
        blocks.append(Bars((bar,), "Accuracy on held-out real records, drawn with noise"))
    numbers = {name: value for name, value in _flat(found) if _is_number(value)}
    blocks.append(Numbers(tuple(Number(name, float(value)) for name, value in numbers.items())))
    words = f"Its cost, epsilon {found['epsilon']:g}, is part of the release's."
    title = "How good is it, beside real records?"
    return [Section("accuracy", title, LEAVES, tuple(blocks), advice=words)]


def paid_for(sealed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The accuracy on a certificate; empty where it has none."""
    return dict(certificate.origin(sealed).get("accuracy") or {})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
