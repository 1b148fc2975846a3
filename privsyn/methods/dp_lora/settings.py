"""Settings of DP-LoRA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from privsyn.methods.shared.prompts import Candidates, LabelSplit, WholeSentences
from privsyn.models.language.text_variation import TOP_P, LabelWords, TopP
from privsyn.models.protocols import PromptTemplate, Sampling
from privsyn.models.rows import begin_with
from privsyn.section import Section, read_presets


class DPLoraConfig(Section):
    """Settings of DP-LoRA. All are public; none comes from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_presets(__file__)

    sampling_rate: float = Field(default=0.05, gt=0, le=1)
    """Probability of every unit to be in the sample of a step (q)."""
    steps: int = Field(default=100, ge=1, le=65536)
    """Steps of training (T)."""
    expected_batch: float = Field(default=128, gt=0)
    """Units a step is expected to sample, a public number: noisy sums are divided by it.
    sampling_rate times what you take the dataset's size to be."""
    clip_norm: float = Field(default=1.0, ge=1e-6, le=1e6)
    """L2 norm every unit's whole gradient is clipped to (C). A clip_bound, of other methods, bounds
    each number by itself."""
    noise_multiplier: float | None = Field(default=None, ge=0.0625, le=1e4)
    """Noise over the clip norm (sigma). Null: the least that privacy.epsilon allows."""
    rank: int = Field(default=16, ge=1, le=1024)
    """Inner size of the adapter."""
    target_modules: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Linear layers to adapt, by their last names, or [all-linear]. Null: as PEFT takes them for
    the architecture."""
    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    """Learning rate (AdamW) of the first step; it falls to zero over the steps."""
    max_tokens: int = Field(default=128, ge=1, le=65536)
    """Longest record read and longest text written."""
    prompt: str | None = None
    """What stands before a record; may name the {label}. Null: the model's own, with a line for the
    label."""
    texts_per_label: int = Field(default=100, ge=1, le=10_000_000)
    """Texts released per label."""
    label_split: LabelSplit = None
    top_k: int | None = Field(default=None, ge=1)
    """Likeliest tokens that are sampled among. Null: all."""
    top_p: TopP = TOP_P
    candidates: Candidates = 4
    whole_sentences: WholeSentences = True

    def rate(self, step: int) -> float:
        """Learning rate of a step, 0-based: the last steps, which are small, average the noise."""
        return self.learning_rate * (1 - step / self.steps)


class DPLoraSettings(DPLoraConfig):
    """Settings after the prompt is filled in."""

    prompt: str
    label_descriptions: LabelWords = Field(default={})

    @property
    def sampling(self) -> Sampling:
        """The rules by which the model draws tokens."""
        return Sampling(1.0, self.top_k, self.top_p, self.whole_sentences)

    def template(self, labels: Sequence[str]) -> PromptTemplate:
        """The prompt of a record, with the record's place after it."""
        public = self.prompt
        if labels and "{label}" not in public:
            public = with_label(public)
        spoken = tuple(self.label_descriptions.items())
        return PromptTemplate(public + "{reference}", public, False, spoken)


_LABEL_LINE = "Topic: {label}\n"


def with_label(public: str) -> str:
    """The prompt with a line for the label."""
    return begin_with(_LABEL_LINE, public)
