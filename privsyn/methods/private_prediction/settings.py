"""Settings of private prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator

from privsyn.methods.shared.prompts import LogitConfig, Prompt
from privsyn.section import read_presets


class PrivatePredictionConfig(LogitConfig):
    """Settings of private prediction. All are public; none is read from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_presets(__file__)

    batch_size: int = Field(default=255, ge=1, le=1_000_000)
    """Expected references per bucket (s): the public divisor."""
    buckets_per_label: int = Field(default=2, ge=1, le=1_000_000)
    """Buckets per label."""
    clip_bound: float = Field(default=10.0, gt=0, le=1e6)
    """Clip bound of logits (c)."""
    temperature: float | None = Field(default=2.0, gt=0)
    """Temperature of private tokens (tau). Null: the lowest from 0.4 to 0.7 at which
    privacy.epsilon pays for all tokens of a bucket, or 0.7."""
    private_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Private tokens per bucket (r). Null: as many as privacy.epsilon pays for."""
    svt_threshold: float | None = Field(default=0.5, ge=0, le=2)
    """Least distance between private and public predictions of a private token (theta). Null: every
    token is private."""
    svt_noise: float = Field(default=0.2, gt=0)
    """Noise on the threshold (sigma), as a share of batch_size."""
    top_k: int | None = Field(default=None, ge=1)
    """Draw from this many likeliest tokens of the public model. Null: from all."""
    max_texts: int = Field(default=1000, ge=1, le=1_000_000)
    """Most texts per bucket."""
    json_schema: dict[str, Any] | None = None
    """Public JSON schema: only tokens that continue a valid record are drawn."""

    @property
    def min_tokens(self) -> int:
        """Fewest tokens of a text: a grammar decides where a JSON record ends."""
        return 0 if self.json_schema is not None else super().min_tokens

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            from jsonschema import SchemaError
            from jsonschema.validators import validator_for

            try:
                validator_for(value).check_schema(value)
            except SchemaError as error:
                raise ValueError(f"not a JSON schema: {error.message}") from None
            # privacy and safety: resolving a reference would open a file or a connection.
            if outside := [one for one in _references(value) if not one.startswith("#")]:
                raise ValueError(f"refers to {outside[0]}: put the definition under $defs")
        return value


def _references(node: Any) -> list[str]:
    """What a JSON schema refers to."""
    if isinstance(node, list):
        return [reference for item in node for reference in _references(item)]
    if not isinstance(node, dict):
        return []
    references = [node[key] for key in ("$ref", "$dynamicRef") if isinstance(node.get(key), str)]
    return references + _references(list(node.values()))


class PrivatePredictionSettings(PrivatePredictionConfig):
    """Settings with the model's defaults filled in."""

    prompt: Prompt
