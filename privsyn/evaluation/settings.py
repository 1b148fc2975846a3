"""Settings of the internal evaluation: ``evaluate``."""

from __future__ import annotations

from pydantic import (
    Field,
)

from privsyn.section import Section


class EvaluateConfig(Section):
    """Internal evaluation against held-out real records."""

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
    perplexity_texts: int = Field(
        default=32,
        ge=0,
        description="Texts a side whose perplexity under models.language is compared; 0: none.",
    )
    in_context_records: int = Field(
        default=0,
        ge=0,
        description="Real records that models.language labels with synthetic examples in its "
        "prompt; 0: none. Slow on a CPU: a pass a record, a label and a set of examples.",
    )
