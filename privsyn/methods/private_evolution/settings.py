"""Settings of private evolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from privsyn.methods.shared.prompts import LabelSplit
from privsyn.models.language.text_variation import TextConfig, TextSettings
from privsyn.section import Section, read_presets


class PrivateEvolutionConfig(Section):
    """Settings of private evolution. All are public; none is read from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_presets(__file__)
    image_presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_presets(
        __file__, "image_presets.yaml"
    )

    modality: Literal["image", "text"] = "image"
    """What a record is."""
    rounds: int = Field(default=8, ge=1, le=1000)
    """Rounds of votes (T)."""
    noise_multiplier: float | None = Field(default=None, gt=0, le=1e6)
    """Noise on a bin over the sensitivity of the votes (sigma). Null: the least that
    privacy.epsilon allows."""
    threshold: float | None = Field(default=None, ge=0, le=1e9)
    """Votes subtracted from every bin (H). Null: twice its noise."""
    lookahead: int = Field(default=4, ge=0, le=64)
    """Variations whose mean vector represents a candidate (k). 0: its own vector."""
    population: int = Field(default=100, ge=1, le=1_000_000)
    """Records released per label (N_syn)."""
    voted: int | None = Field(default=None, ge=1)
    """Records released per label that votes choose. The model writes the others by the noisy table
    of tokens, at no cost. Null, or without a table: all."""
    expansion: int = Field(default=1, ge=1, le=1000)
    """Candidates per released record (L). Above 1 a vote keeps the candidates with the most votes
    unchanged, and makes L - 1 variations of each; the last vote chooses the released ones."""
    degrees: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        default=(0.9, 0.3), min_length=1
    )
    """Degree of variation, 0 to 1, from the first round to the last, interpolated linearly."""
    image_steps: tuple[Annotated[int, Field(ge=1, le=1000)], ...] | None = Field(
        default=None, min_length=1
    )
    """Denoising steps of a variation of degree 1, from the first round to the last, interpolated
    like degrees; a variation takes its degree's share of them. Null: those of models.image."""
    label_split: LabelSplit = None
    word_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the budget (of zCDP) for a noisy table of how often the records of a label use each
    token: the model then writes half of the candidates with such frequencies. 0: none, as in the
    papers. Images have none, nor has a server without logit_bias."""
    mean_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the budget (of zCDP) for the noisy mean vector of each label, which says whose
    candidate a first one is: a text that was written for one label and is like another's stands
    there. 0: none, as in the papers. Nothing without two labels."""
    text: TextConfig = Field(default=TextConfig())
    """Prompts and lengths for texts."""

    @model_validator(mode="after")
    def _steps_are_of_images(self) -> PrivateEvolutionConfig:
        if self.image_steps is not None and self.modality != "image":
            raise ValueError("image_steps is for modality=image: leave it out")
        if len(self.image_steps or ()) > self.rounds:
            raise ValueError(
                f"image_steps has {len(self.image_steps or ())} entries for rounds={self.rounds}"
            )
        return self

    @model_validator(mode="after")
    def _votes_have_a_share(self) -> PrivateEvolutionConfig:
        if self.word_share + self.mean_share >= 1:
            raise ValueError(
                f"word_share={self.word_share:g} and mean_share={self.mean_share:g} leave nothing "
                "for votes: their sum must be below 1"
            )
        # [E12]
        if self.modality == "text" and not (self.text.name_labels or self.mean_share):
            raise ValueError(
                "text.name_labels=false needs mean_share above 0, which says whose candidate a "
                "text is that was written for no label"
            )
        return self

    @model_validator(mode="after")
    def _degrees_are_of_rounds(self) -> PrivateEvolutionConfig:
        if len(self.degrees) > self.rounds > 1:
            raise ValueError(f"degrees has {len(self.degrees)} entries for rounds={self.rounds}")
        return self

    def degree(self, round_: int) -> float:
        """Degree of variation in a round, 1-based."""
        return self._in_round(round_, self.degrees)

    def steps(self, round_: int) -> int | None:
        """Denoising steps in a round, 1-based; None: the generator's own."""
        return None if self.image_steps is None else round(self._in_round(round_, self.image_steps))

    def _in_round(self, round_: int, values: Sequence[float]) -> float:
        at = (round_ - 1) / max(1, self.rounds - 1)
        return float(np.interp(at, np.linspace(0, 1, len(values)), values))

    @property
    def table_share(self) -> float:
        """Share of the budget for the table of tokens; 0 without one [E11]."""
        return self.word_share if self.modality == "text" else 0.0

    @property
    def most_voted(self) -> int | None:
        """Most records per label that votes choose; None: all [E16]."""
        return self.voted if self.table_share else None


class PrivateEvolutionSettings(PrivateEvolutionConfig):
    """Settings with the text model's own prompts, and the public facts, filled in."""

    text: TextSettings = Field(default=TextSettings())
