"""Settings of keyphrase seeding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from privsyn.data.public_files import ReadsFiles
from privsyn.data.settings import TextExample
from privsyn.files import OnDisk
from privsyn.methods.keyphrase_seeding.dp_kde import Ensemble, Noise
from privsyn.methods.shared.prompts import Candidates
from privsyn.models.language.text_variation import LabelWords, MaxTokens
from privsyn.section import SHA256, read_presets

SHIPPED = "builtin"


TEMPERATURE = 0.8
"""Of the language model; its answers are post-processing."""

# What ``evidence`` stands for (benchmarks/RESULTS.md); the paper has neither of the three.
FALSE_DISCOVERY_RATE = 0.2
"""Share of the chosen terms that may be noise [K2]."""
LABEL_CONTRAST = 2.0
"""Power of a label's share of a phrase's scores, in proportion to which phrases are drawn [K10]."""
LABEL_EVIDENCE = 2.0
"""Standard deviations by which a phrase in a prompt is its label's [K12]."""
NARROW = 0.5
"""Width of the kernel of independent phrases, times the paper's."""
ENSEMBLE_POWER = 40.0
"""Power of the scores under an ensemble: high scores alone are drawn [K8]."""


class KeyphraseSeedingConfig(ReadsFiles):
    """Settings of keyphrase prompt seeding. All are public; none comes from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_presets(__file__)

    vocabulary: Annotated[str, OnDisk("file", (SHIPPED,))] = Field(default=SHIPPED, min_length=1)
    """Public vocabulary: builtin, or a file with one term a line, plain or .gz."""
    vocabulary_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the budget that the choice of terms costs: of zCDP under Gaussian noise, of pure
    loss under Laplace noise."""
    noise: Noise = "gaussian"
    """Noise: laplace (the paper) or gaussian."""
    vocabulary_size: int = Field(default=1000, ge=1, le=100_000)
    """Terms that are chosen at most (N)."""
    phrases_per_document: int = Field(default=10, ge=1, le=10_000)
    """Terms of a record that count for the choice (S), and its sequences in an estimate (M)."""
    # A feature is one cosine and one sine of the same angle [K5].
    features: int = Field(default=2000, ge=2, le=1_000_000, multiple_of=2)
    """Fourier features of an estimate (I), even."""
    evidence: bool = True
    """Believe what noise does not explain: choose fewer than vocabulary_size terms where their
    counts bear no more, prefer the phrases of one label, and show none that other labels have as
    well. False: as in the paper."""
    sequence_length: int = Field(default=10, ge=1, le=1000)
    """Phrases of a sequence (L)."""
    sequences_per_label: int = Field(default=1000, ge=1, le=1_000_000)
    """Sequences, and so texts, per label."""
    ensemble: Ensemble = "independent"
    """Phrases of a sequence: drawn alone, or given those before them by L or by log2 L
    estimates."""
    use_llm: bool = True
    """Have a language model write texts; false: the phrases are it."""
    name_labels: bool = True
    """Whether a prompt may name the {label} of its sequence."""
    prompt: str | None = None
    """Prompt around the {phrases}; may name {label}, and {examples} before them. Null: a list of
    the examples, or without examples the model's own prompt."""
    candidates: Candidates = 4
    max_tokens: MaxTokens = 64

    @model_validator(mode="after")
    def _prompt_names_what_it_may(self) -> KeyphraseSeedingConfig:
        if self.prompt is not None:
            if self.prompt.count("{phrases}") != 1:
                raise ValueError("prompt must contain {phrases} exactly once")
            if "{label}" in self.prompt and not self.name_labels:
                raise ValueError("prompt names the {label}, which name_labels=false forbids")
        return self

    @property
    def false_discovery_rate(self) -> float:
        """Share of the chosen terms that may be noise alone; 1: always N are chosen [K2]."""
        return FALSE_DISCOVERY_RATE if self.evidence else 1.0

    @property
    def label_contrast(self) -> float:
        """Power of a label's share of a phrase's scores; 0 is the paper's draw [K10]."""
        return LABEL_CONTRAST if self.evidence else 0.0

    @property
    def label_evidence(self) -> float:
        """Deviations by which a phrase stands out to be shown [K12]; 0: phrases are the release."""
        return LABEL_EVIDENCE if self.evidence and self.use_llm else 0.0

    @property
    def bandwidth(self) -> float:
        """Width of the kernel (h), times the paper's."""
        return NARROW if self.evidence and self.ensemble == "independent" else 1.0

    @property
    def score_power(self) -> float:
        """Power of the scores in proportion to which phrases are drawn [K8]."""
        return 1.0 if self.ensemble == "independent" else ENSEMBLE_POWER


class KeyphraseSeedingSettings(KeyphraseSeedingConfig):
    """Settings after the vocabulary and the prompt are filled in."""

    vocabulary_digest: str = Field(pattern=SHA256)
    label_descriptions: LabelWords = Field(default={})
    examples: tuple[TextExample, ...] = ()
    # A release of other texts keeps its id.
    roles: tuple[str, ...] = Field(default=(), exclude_if=lambda roles: not roles)
