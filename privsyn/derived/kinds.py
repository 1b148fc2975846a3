"""The kinds of things that are made from a finished release: the one place that names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Where the code of a kind is, to be imported on demand.

    Attributes:
        makes: "module:Class" of its Derived (derived/base.py).
        settings: "module:Class" of its section of ``methods``, by which dvc.yaml and Airflow make
            it, too. None: it has none, and is made by its command alone.
        command: What a user types.
    """

    makes: str
    settings: str | None
    command: str


MORE, STUDENTS = "more", "distill"
"""Their names: keys of ``derived`` in certificates."""

KINDS: Mapping[str, Kind] = {
    MORE: Kind("privsyn.derived.more:More", None, "privsyn more RELEASE -n COUNT"),
    STUDENTS: Kind(
        "privsyn.derived.student.kind:Students",
        "privsyn.derived.student.settings:DistillConfig",
        "privsyn distill RELEASE",
    ),
}

SECTIONS: Mapping[str, str] = {
    name: kind.settings for name, kind in KINDS.items() if kind.settings is not None
}
"""Sections of ``methods`` that are no method."""
