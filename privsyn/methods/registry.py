"""Which methods there are, and how one is found by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from privsyn.errors import ConfigError
from privsyn.methods.base import Method, as_teacher
from privsyn.spelling import nearest
from privsyn.students.settings import COMMANDS, STUDENTS, DistillConfig

METHODS: Mapping[str, str] = {
    "private_prediction": "privsyn.methods.private_prediction.method:PrivatePrediction",
    "invisible_ink": "privsyn.methods.invisible_ink.method:InvisibleInk",
    "private_evolution": "privsyn.methods.private_evolution.method:PrivateEvolution",
    "keyphrase_seeding": "privsyn.methods.keyphrase_seeding.method:KeyphraseSeeding",
    "dp_lora": "privsyn.methods.dp_lora.method:DPLora",
}
"""Name -> "module:Class", imported on demand."""

FIRST = "private_evolution"
"""What a new project begins with, and what is run where no method is named."""


def teachers() -> list[str]:
    """Names of the methods whose releases bring the model that wrote them."""
    return [name for name in METHODS if as_teacher(load_method(name))]


def load_method(name: str) -> Method[Any]:
    """The method of a name.

    Raises:
        ConfigError: No such method; the nearest name is given.
    """
    if name in COMMANDS:
        raise ConfigError(
            f"method={name!r} makes no release of its own, but is made from a finished one.",
            hint=f"Run: {COMMANDS[name]}",
        )
    try:
        module, _, attribute = METHODS[name].partition(":")
    except KeyError:
        near = nearest(name, [*METHODS, STUDENTS])
        raise ConfigError(
            f"method={name!r} is not known; known: {', '.join(METHODS)}.",
            hint=f"Did you mean {near}?" if near else "",
        ) from None
    method: Method[Any] = getattr(importlib.import_module(module), attribute)()
    return method


def settings_model(name: str) -> type[Any]:
    """The config model of a section of ``methods``.

    Raises:
        ConfigError: No such section; the nearest name is given.
    """
    return DistillConfig if name == STUDENTS else load_method(name).Config
