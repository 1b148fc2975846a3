"""Settings of a student, ``methods.distill``; sizes, and names that certificates hold.

A leaf: methods and the DAG files read it, so it loads nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from privsyn.data.public_files import ReadsFiles
from privsyn.files import OnDisk, Sha256

MORE: Final = "more"
STUDENTS: Final = "distill"
"""Keys of ``derived`` in certificates, and names of commands. STUDENTS is also the one section of
``methods`` that is not a method: dvc.yaml and Airflow make students by it."""

COMMANDS: Mapping[str, str] = {
    MORE: "privsyn more RELEASE -n COUNT",
    STUDENTS: "privsyn distill RELEASE",
}
"""What makes each of them from a finished release."""

Size = Literal["4.4M", "11.2M", "28.8M", "41.4M"]

SIZES: Mapping[Size, tuple[int, int, int]] = {
    "4.4M": (256, 656, 3),
    "11.2M": (320, 856, 7),
    "28.8M": (512, 1320, 8),
    "41.4M": (512, 1336, 12),
}
"""Width, width of the feed-forward layers, layers. Named as in Yu et al. 2023; the counts hold for
the embedded model's 8,192 tokens, and a larger vocabulary makes a student larger."""


class DistillConfig(ReadsFiles):
    """Settings of a student. None of them changes what a release costs."""

    student: Size = Field(
        default="4.4M", description="Size, as the paper counts it; not used if init is a directory."
    )
    init: Annotated[str, OnDisk("model", ("random", "tiny"), pinned=True)] = Field(
        default="random",
        min_length=1,
        description="random; tiny: from the tiny language model (its token embeddings, and "
        "its layers where the student is as wide); or the directory of a causal language model, "
        "which then is the student's architecture, tokenizer and start; or its name under files.",
    )
    init_digest: Sha256 | None = Field(
        default=None, description="SHA-256 of the directory's files."
    )
    epochs: int = Field(default=10, ge=1, le=1000, description="Passes over the synthetic texts.")
    batch_size: int = Field(default=64, ge=1, le=65_536, description="Texts per step.")
    learning_rate: float = Field(
        default=1e-3,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Highest learning rate; the paper tries 3e-5, 1e-4, 3e-4, 1e-3, 3e-3.",
    )
    warmup_share: float = Field(
        default=0.05,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="Share of the steps over which the learning rate rises; then it falls to 0 "
        "along a cosine.",
    )
    max_tokens: int = Field(
        default=128,
        ge=1,
        le=8192,
        description="Tokens of a text that are read at most, its end included.",
    )
    distill_logits: bool = Field(
        default=False,
        description="Also follow the teacher's next-token probabilities on the synthetic texts. "
        "Only for a release that brings the model that wrote it.",
    )
    temperature: float = Field(
        default=1.0,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="Softens both distributions of distill_logits.",
    )
    logit_weight: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Weight of the divergence to the teacher beside the texts' own loss.",
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="Public seed of weights and order of texts. Null: from the operating system.",
    )
    baselines: tuple[Literal["public", "private", "non_private"], ...] = Field(
        default=("public",),
        description="What to compare a student with, on held-out real texts. public: the public "
        "model whose tokens the student reads, as it is. private: the same "
        "student trained on the records by DP-SGD, which is a release with a charge of its "
        "own. non_private: trained on the private texts, for its accuracy alone, which is "
        "internal; the model is deleted.",
    )
