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
