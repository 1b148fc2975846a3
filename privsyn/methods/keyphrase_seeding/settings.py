"""Settings of keyphrase seeding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from privsyn.data.public_files import ReadsFiles
from privsyn.data.settings import TextExample
from privsyn.files import OnDisk, Sha256
from privsyn.methods.keyphrase_seeding.dp_kde import Ensemble, Noise
from privsyn.methods.shared.prompts import Candidates
from privsyn.models.language.text_variation import LabelWords, MaxTokens, TopP
from privsyn.section import PAPER, SMALL

SECTION = "methods.keyphrase_seeding"

SHIPPED = "builtin"


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Nagesh et al. 2025, section 3: epsilon 6 = 1 + 5; the other budgets by vocabulary_share.
    # Prompts name the kind of document and the terms, never the class. Ours: features, max_tokens
    # and temperature.
    PAPER: {
        "noise": "laplace",
        "vocabulary_share": 1 / 6,
        "terms_per_document": 10,
        "vocabulary_size": 1000,
        "false_discovery_rate": 1.0,
        "phrases_per_document": 10,
        "bandwidth": 1.0,
        "score_power": 1.0,
        "label_contrast": 0.0,
        "label_evidence": 0.0,
        "sequence_length": 10,
        "sequences_per_label": 1000,
        "ensemble": "independent",
        "labels_public": False,
        "prompt": "Write {document} that contains the following terms: {phrases}",
        "candidates": 1,
        "features": 2000,
        "max_tokens": 300,
        "temperature": 1.0,
        "top_p": 1.0,
    },
    # Measured with a model of 135 million parameters: benchmarks/RESULTS.md.
    SMALL: {
        "noise": "gaussian",
        "ensemble": "independent",
        "terms_per_document": 5,
        "vocabulary_size": 300,
        "phrases_per_document": 5,
        "features": 4000,
        "sequence_length": 6,
        "sequences_per_label": 40,
        "max_tokens": 48,
    },
}


class KeyphraseSeedingConfig(ReadsFiles):
    """Settings of keyphrase prompt seeding. All are public; none comes from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    vocabulary: Annotated[str, OnDisk("file", (SHIPPED,), pinned=True)] = Field(
        default=SHIPPED,
        min_length=1,
        description="Public vocabulary: builtin, or a file with one term a line, plain or .gz, or "
        "its name under files.",
    )
    vocabulary_digest: Sha256 | None = Field(
        default=None, description="SHA-256 the vocabulary must have."
    )
    epsilon_vocabulary: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Epsilon of the choice of terms alone: pure under Laplace noise, at "
        "privacy.delta under Gaussian noise. Null: by vocabulary_share.",
    )
    vocabulary_share: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="Share of the budget the choice of terms costs: of zCDP where all noise is "
        "Gaussian, of privacy.epsilon elsewhere.",
    )
    vocabulary_noise: Noise | None = Field(
        default=None,
        description="Noise on the counts of terms: laplace (the paper) or gaussian. Null: as "
        "noise.",
    )
    epsilon_kde: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Epsilon of all estimates of a label: pure under Laplace noise, at "
        "privacy.delta under Gaussian noise. Null: all that privacy.epsilon leaves. Under Gaussian "
        "noise alone vocabulary_share is in proportion to it.",
    )
    noise: Noise = Field(
        default="gaussian", description="Noise on the estimates: laplace (the paper) or gaussian."
    )
    terms_per_document: int = Field(
        default=10, ge=1, le=10_000, description="Terms of a record that count for the choice (S)."
    )
    vocabulary_size: int = Field(
        default=1000, ge=1, le=100_000, description="Terms that are chosen at most (N)."
    )
    false_discovery_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the chosen terms that may be noise alone: fewer are chosen where "
        "their noisy counts bear no more. 1: always N, as in the paper. Null: 0.2.",
    )
    phrases_per_document: int = Field(
        default=10, ge=1, le=10_000, description="Sequences of a record in an estimate (M)."
    )
    features: int = Field(
        default=2000, ge=2, le=1_000_000, description="Fourier features of an estimate (I), even."
    )
    bandwidth: float | None = Field(
        default=None,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="Width of the kernel, times the paper's. Null: 0.5 for independent phrases, 1 "
        "(the paper's) for an ensemble.",
    )
    score_threshold: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Scores below so many standard deviations of the noise count as zero.",
    )
    score_power: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Phrases are drawn in proportion to this power of their scores: 1 is the "
        "paper's independent draw, a large one takes high scores alone. Null: 1 for independent "
        "phrases, 40 for an ensemble.",
    )
    label_contrast: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="Phrases are drawn in proportion to this power of their label's share of their "
        "scores over all labels, too: 0 is the paper's draw, which a label's common phrases win. "
        "Null: 2.",
    )
    label_evidence: float | None = Field(
        default=None,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Standard deviations of the noise by which a phrase's score has to be above "
        "the mean of the other labels' to stand in a prompt; a prompt may have none then. 0: all "
        "do, as in the paper. Null: 2 where there is a language model, else 0.",
    )
    sequence_length: int = Field(
        default=10, ge=1, le=1000, description="Phrases of a sequence (L)."
    )
    sequences_per_label: int = Field(
        default=1000, ge=1, le=1_000_000, description="Sequences, and so texts, per label."
    )
    ensemble: Ensemble = Field(
        default="independent",
        description="Phrases of a sequence: drawn alone, or given those before them by L or by "
        "log2 L estimates.",
    )
    use_llm: bool = Field(
        default=True, description="Have a language model write texts; false: the phrases are it."
    )
    labels_public: bool = Field(
        default=True, description="Whether a prompt may name the {label} of its sequence."
    )
    prompt: str | None = Field(
        default=None,
        description="Prompt around the {phrases}; may name {label}, and {examples} before them. "
        "Null: a list of the examples, or without examples the model's own prompt.",
    )
    candidates: Candidates = 4
    max_tokens: MaxTokens = 64
    temperature: float = Field(
        default=0.8, ge=0, allow_inf_nan=False, description="Temperature of the language model."
    )
    top_p: TopP = None

    @model_validator(mode="after")
    def _features_are_pairs(self) -> KeyphraseSeedingConfig:
        # A feature is one cosine and one sine of the same angle [K5].
        if self.features % 2:
            raise ValueError(f"features={self.features} must be even: cosines and sines in pairs")
        return self

    @model_validator(mode="after")
    def _prompt_names_what_it_may(self) -> KeyphraseSeedingConfig:
        if self.prompt is not None:
            if self.prompt.count("{phrases}") != 1:
                raise ValueError("prompt must contain {phrases} exactly once")
            if "{label}" in self.prompt and not self.labels_public:
                raise ValueError("prompt names the {label}, which labels_public=false forbids")
        return self


class KeyphraseSeedingSettings(KeyphraseSeedingConfig):
    """Settings after the vocabulary, the kernel and the prompt are filled in."""

    vocabulary_digest: Sha256
    label_descriptions: LabelWords = Field(default={})
    examples: tuple[TextExample, ...] = ()
    vocabulary_noise: Noise = "laplace"
    bandwidth: float = Field(default=1.0, gt=0, le=100, allow_inf_nan=False)
    score_power: float = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    false_discovery_rate: float = Field(default=1.0, gt=0, le=1)
    label_contrast: float = Field(default=0.0, ge=0, le=1000, allow_inf_nan=False)
    label_evidence: float = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
