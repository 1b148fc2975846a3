"""Names and values as MLflow takes them."""

from __future__ import annotations

import re

from privsyn.errors import ConfigError

MAX_PARAM, MAX_TAG, MAX_DIGEST, MAX_BATCH = 6000, 5000, 36, 100
"""Longest values, and most of them in a call."""


def as_key(name: str) -> str:
    """A name MLflow accepts: it refuses most punctuation."""
    return re.sub(r"[^\w.\-/ ]", "_", name)[:250]


def shortened(value: object, limit: int) -> str:
    """A value of so many characters at most."""
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def quoted(value: str) -> str:
    """A value in quotes, for a filter of MLflow.

    Raises:
        ConfigError: It holds a quote.
    """
    if "'" in value:
        raise ConfigError(f"the name of a release, stage or model may not hold a quote: {value!r}.")
    return f"'{value}'"
