"""Settings of InvisibleInk."""

from __future__ import annotations

from pydantic import Field

from privsyn.methods.shared.prompts import PromptConfig, WholeSentences
from privsyn.section import Section


class InvisibleInkConfig(Section):
    """Settings of InvisibleInk. All are public; none is read from the data."""

    batch_size: int = Field(
        default=8, ge=1, le=1_000_000, description="References per text (B): the public divisor."
    )
    max_tokens: int = Field(default=64, ge=1, le=100_000, description="Most tokens of a text (T).")
    temperature: float = Field(
        default=1.1, gt=0, allow_inf_nan=False, description="Sampling temperature (tau)."
    )
    min_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Fewest tokens before a text may end or break its line. Null: 5.",
    )
    top_k: int = Field(default=100, ge=1, description="Public top-k that defines the support (k).")
    guidance: float | None = Field(
        default=None,
        ge=1,
        allow_inf_nan=False,
        description="Factor on the private difference before the clip. Null: the model's own "
        "default (3 for builtin, 1 for others).",
    )
    whole_sentences: WholeSentences = True
    max_reference_tokens: int = Field(
        default=64, ge=1, description="References are cut and padded to exactly this length."
    )
    texts_per_label: int = Field(
        default=100, ge=1, le=1_000_000, description="Texts to write per label."
    )
    prompt: PromptConfig | None = Field(
        default=None, description="Prompts. Null: the model's own default."
    )


class InvisibleInkSettings(InvisibleInkConfig):
    """Settings with the model's defaults filled in."""

    prompt: PromptConfig
    guidance: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    min_tokens: int = Field(default=0, ge=0)
