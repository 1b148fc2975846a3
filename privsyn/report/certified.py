"""Sections that a certificate alone tells: settings, and an accuracy that was paid for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from privsyn.dp.accountant import shown
from privsyn.release import certificate
from privsyn.report.blocks import Bar, Bars, Block, Fact, Facts, Words
from privsyn.report.document import LEAVES, Section

MOST_CHARS = 2000
"""Of a setting, such as a prompt."""


def settings_of(sealed: Mapping[str, Any]) -> Section:
    """The public settings a release was drawn with, what was solved for, and what was counted.

    Of what is made from a release its own settings come first.
    """
    paid = certificate.origin(sealed)
    plan = paid["plan"]
    models = {f"models.{role}": use["source"] for role, use in plan.get("models", {}).items()}
    held = plan["dataset"].get("holdout")
    own = {
        name: value
        for kind, made in sealed.get("derived", {}).items()
        if isinstance(made, Mapping)
        for name, value in _flat(made.get("settings") or {}, f"{kind}.")
    }
    asked = {
        **own,
        **dict(_flat(_of_modality(plan["settings"]))),
        **dict(_flat(plan.get("derived", {}))),
        **models,
        **({"dataset.holdout": held} if held is not None else {}),
        **dict(_flat(paid.get("drawn", {}), "drawn.")),
    }
    items = tuple(Fact(name, _cut(value), code=True) for name, value in asked.items())
    title = "Settings it was drawn with"
    if own:
        title = "Settings it was made with, and those of the release it was made from"
    return Section("settings", title, LEAVES, (Facts(items),))


def _of_modality(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without those of another kind of records than theirs."""
    own = settings.get("modality")
    others = {"text", "image"} - {own} if own is not None else set()
    return {name: value for name, value in settings.items() if name not in others}


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
    """How often a classifier is right about held-out units, by a mechanism that was paid for."""
    found = paid_for(sealed)
    if not found:
        return []
    blocks: list[Block] = []
    if found["value"] is not None:
        bars = [
            Bar(name, float(found["value"]), float(found[low]), float(found[high]), ours=True)
            for name, low, high in (
                ("people like those tested", "low", "high"),
                ("those tested themselves", "noise_low", "noise_high"),
            )
        ]
        blocks.append(Bars(tuple(bars), "Accuracy, drawn with noise"))
    said = tuple(f"{words[:1].upper()}{words[1:]}." for words in accuracy_said(sealed))
    blocks.append(Words(said, points=True))
    return [Section("accuracy", "How good, for real people held out", LEAVES, tuple(blocks))]


def paid_for(sealed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The accuracy on a certificate; empty where it has none.

    What is made from the release has none: it was not what was tested.
    """
    return dict(sealed.get("accuracy") or {})


def accuracy_said(sealed: Mapping[str, Any]) -> tuple[str, ...]:
    """The accuracy that a release pays for, in sentences; nothing where it pays for none."""
    found = paid_for(sealed)
    if not found:
        return ()
    unit, confidence = sealed["plan"]["unit"], f"{found['confidence']:.0%}"
    value = f"is about {found['value']:.3f}" if found["value"] is not None else "is lost in noise"
    return (
        f"the accuracy, for held-out {unit}s, of a classifier trained on this file alone {value}",
        f"for {unit}s like them it lies between {found['low']:.3f} and {found['high']:.3f} "
        f"({confidence}: noise and sampling); for them themselves between "
        f"{found['noise_low']:.3f} and {found['noise_high']:.3f} ({confidence}: noise alone)",
        f"it cost epsilon {shown(found['epsilon'])} of what the release did, with delta 0: "
        f"discrete Laplace noise of scale {found['noise']['scale']:.4g} {unit}s on how many it is "
        "right and wrong about",
    )
