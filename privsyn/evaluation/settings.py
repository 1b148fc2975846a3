"""Settings of the internal evaluation: ``evaluate``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
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
    audit: Literal["off", "report", "block"] = Field(
        default="report",
        description="Disclosure audit against held-out units. report: its numbers stay inside. "
        "block: a release whose empirical epsilon exceeds its claim stays in quarantine. Whether "
        "it does is a function of private records that no epsilon covers, and shows outside.",
    )

    @field_validator("audit", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        """YAML 1.1 reads off as false."""
        return "off" if value is False else value

    @model_validator(mode="after")
    def _blocks_by_what_is_measured(self) -> EvaluateConfig:
        if self.audit == "block" and not self.enabled:
            raise ValueError("audit=block needs enabled=true: evaluate is what audits")
        return self
