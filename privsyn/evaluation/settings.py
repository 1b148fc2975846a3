"""Settings of the evaluation: ``evaluate``."""

from __future__ import annotations

from pydantic import (
    Field,
)

from privsyn.section import Section


class PaidConfig(Section):
    """An accuracy that may be published, paid for with the release."""

    epsilon: float = Field(
        ge=1e-3,
        le=100,
        allow_inf_nan=False,
        description="Part of privacy.epsilon that pays for it; the generator gets the rest.",
    )


class EvaluateConfig(Section):
    """Evaluation against held-out real records: internal, but for what is paid for."""

    enabled: bool = Field(default=True, description="Train on synthetic, test on held-out real.")
    embeddings: bool = Field(
        default=True, description="Compare texts by sentence embeddings too (models.embedder)."
    )
    embedded_texts: int = Field(
        default=2000, ge=2, description="Texts a side that are embedded at most."
    )
    public_alone: bool = Field(
        default=True,
        description="Have the public model write as many texts alone and measure them too: no "
        "private data, no budget; kept once written.",
    )
    paid: PaidConfig | None = Field(
        default=None,
        description="Publish how often a classifier trained on the release is right about held-out "
        "units, with noise: part of the release and of its cost. Null: no such number.",
    )
