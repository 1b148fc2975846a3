"""Settings of InvisibleInk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from privsyn.methods.shared.prompts import LogitConfig, Prompt
from privsyn.section import read_presets


class InvisibleInkConfig(LogitConfig):
    """Settings of InvisibleInk. All are public; none is read from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_presets(__file__)

    batch_size: int = Field(default=8, ge=1, le=1_000_000)
    """References per text (B), the public row not counted: the public divisor."""
    temperature: float = Field(default=1.1, gt=0)
    """Sampling temperature (tau)."""
    top_k: int | None = Field(default=100, ge=1)
    """Public top-k that defines the support (k). Null: the whole vocabulary."""
    guidance: float | None = Field(default=None, ge=1)
    """Factor on the private difference before the clip. Null: the model's own default (3 for the
    tiny model, 1 for others)."""
    texts_per_label: int = Field(default=100, ge=1, le=1_000_000)
    """Texts to write per label."""


class InvisibleInkSettings(InvisibleInkConfig):
    """Settings with the model's defaults filled in."""

    prompt: Prompt
    guidance: float = Field(default=1.0, ge=1)
