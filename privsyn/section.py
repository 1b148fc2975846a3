"""A section of params.yaml: a frozen model that refuses keys it does not know."""

from __future__ import annotations

from pydantic import (
    BaseModel,
    ConfigDict,
)

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class Section(BaseModel):
    """A frozen part of the config that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
