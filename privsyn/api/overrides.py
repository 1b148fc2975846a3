"""Settings as Python gives them, in the form in which the command line takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.errors import ConfigError


def as_overrides(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings by dotted name as ``a.b.c=value``.

    Raises:
        ConfigError: No setting can have such a value. The value is not shown.
    """
    return tuple(f"{key}={_plain(key, value)}" for key, value in settings.items())


def _plain(key: str, value: Any) -> str:
    try:
        # JSON is YAML, which the overrides are read as, and it quotes what YAML would read as
        # another type.
        return json.dumps(str(value) if isinstance(value, Path) else value)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{key} is a {type(value).__name__}, which is no setting.",
            hint="Give a word, a number, true or false, or a list or dict of such.",
        ) from None
