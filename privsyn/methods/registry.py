"""The methods, by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from privsyn.errors import ConfigError
from privsyn.methods.base import Method
from privsyn.methods.shared.distill import COMMANDS, STUDENTS, DistillConfig
from privsyn.section import nearest

METHODS: Mapping[str, str] = {
    "private_prediction": "privsyn.methods.private_prediction.method:PrivatePrediction",
    "invisible_ink": "privsyn.methods.invisible_ink.method:InvisibleInk",
    "private_evolution": "privsyn.methods.private_evolution.method:PrivateEvolution",
    "keyphrase_seeding": "privsyn.methods.keyphrase_seeding.method:KeyphraseSeeding",
    "dp_lora": "privsyn.methods.dp_lora.method:DPLora",
    "columns_alone": "privsyn.methods.columns_alone.method:ColumnsAlone",
}
"""Name -> "module:Class". Imported on demand: some methods load torch."""

FIRST = "private_evolution"
"""Method of a new project, and the default without a configured one."""
COLUMNS_ALONE = "columns_alone"
"""Method of a project whose records have no text."""


def load_method(name: str) -> Method[Any]:
    """Load a method by name.

    Raises:
        ConfigError: There is no such method; says the nearest name.
    """
    if name in COMMANDS:
        raise ConfigError(
            f"method={name!r} is not a method: it works on a finished release.",
            hint=f"Run: {COMMANDS[name]}",
        )
    try:
        # Imported here: planning one method must not load the libraries of the others.
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
        ConfigError: There is no such section; says the nearest name.
    """
    return DistillConfig if name == STUDENTS else load_method(name).Config
