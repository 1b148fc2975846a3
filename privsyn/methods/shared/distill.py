"""Settings of a student, ``methods.distill``; its sizes, and names in certificates.

Methods and DAG files import this module, so it imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from privsyn.data.public_files import ReadsFiles
from privsyn.files import OnDisk

MORE: Final = "more"
STUDENTS: Final = "distill"
"""Keys of ``derived`` in certificates, and names of commands. STUDENTS is also the only section of
``methods`` that is not a method: dvc.yaml and Airflow use it to make students."""

COMMANDS: Mapping[str, str] = {
    MORE: "privsyn more RELEASE -n COUNT",
    STUDENTS: "privsyn distill RELEASE",
}
"""Command that makes each of them from a finished release."""

Size = Literal["4.4M", "11.2M", "28.8M", "41.4M"]

SIZES: Mapping[str, tuple[int, int, int]] = {
    "4.4M": (256, 656, 3),
    "11.2M": (320, 856, 7),
    "28.8M": (512, 1320, 8),
    "41.4M": (512, 1336, 12),
}
"""Width, width of the feed-forward layers, layers. The names are those of Yu et al. 2023; the
parameter counts hold for a vocabulary of 8,192 tokens, and a larger one makes a student larger."""


class DistillConfig(ReadsFiles):
    """Settings of a student. They do not change the cost of a release."""

    student: Size = "4.4M"
    """Size, as counted in the paper; not used if init is a directory."""
    init: Annotated[str, OnDisk("model", ("random",))] = Field(default="random", min_length=1)
    """random, or the directory of a causal language model, for the student's architecture,
    tokenizer and first weights."""
    epochs: int = Field(default=10, ge=1, le=1000)
    """Passes over the synthetic texts."""
    batch_size: int = Field(default=64, ge=1, le=65_536)
    """Texts per step."""
    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    """Highest learning rate: it rises in a twentieth of the steps, then falls to 0 along a cosine.
    The paper tries 3e-5, 1e-4, 3e-4, 1e-3, 3e-3."""
    max_tokens: int = Field(default=128, ge=1, le=8192)
    """Most tokens of a text, including its end."""
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    """Public seed of weights and order of texts. Null: from the operating system."""
