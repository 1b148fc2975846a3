"""Settings of InvisibleInk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from privsyn.methods.shared.prompts import LogitConfig, Prompt
from privsyn.section import PAPER, SMALL

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Vinod et al. 2025, section 5, Tables 1 and 9, as for MIMIC (Yelp has 200 tokens); the prompts
    # have the form of its Table 5. The paper counts the public row in B: its 8 is 7 references.
    PAPER: {
        "batch_size": 7,
        "max_tokens": 500,
        "temperature": 1.1,
        "top_k": 100,
        "guidance": 1.0,
        "whole_sentences": False,
        "texts_per_label": 1000,
        "prompt": {
            "private": "Here is {document}.\nCategory: \u201c{label}\u201d\n"
            "Text: \u201c{reference}\u201d\nPlease output one more similar text of a fictional "
            "case, of the same kind and category.",
            "public": "Please output a fictional text. It is {document}.\n"
            "Category: \u201c{label}\u201d",
            "chat": True,
        },
    },
    # Measured with models of 2 to 135 million parameters: benchmarks/RESULTS.md.
    SMALL: {
        "batch_size": 12,
        "max_tokens": 48,
        "temperature": 0.8,
        "guidance": 3.0,
        "top_k": 100,
        "texts_per_label": 20,
    },
}


class InvisibleInkConfig(LogitConfig):
    """Settings of InvisibleInk. All are public; none is read from the data."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    batch_size: int = Field(
        default=8,
        ge=1,
        le=1_000_000,
        description="References per text (B), the public row not counted: the public divisor.",
    )
    temperature: float = Field(default=1.1, gt=0, description="Sampling temperature (tau).")
    top_k: int | None = Field(
        default=100,
        ge=1,
        description="Public top-k that defines the support (k). Null: the whole vocabulary.",
    )
    guidance: float | None = Field(
        default=None,
        ge=1,
        description="Factor on the private difference before the clip. Null: the model's own "
        "default (3 for the tiny model, 1 for others).",
    )
    texts_per_label: int = Field(
        default=100, ge=1, le=1_000_000, description="Texts to write per label."
    )


class InvisibleInkSettings(InvisibleInkConfig):
    """Settings with the model's defaults filled in."""

    prompt: Prompt
    guidance: float = Field(default=1.0, ge=1)
