"""What lies in the scratch folder of a release while it is drawn: the one place that says it."""

from __future__ import annotations

import json
from pathlib import Path

from privsyn.data.partition import MARKER, shard_name
from privsyn.errors import DataError


def samples(shard: int) -> str:
    """Where the finished samples of a shard lie until certify merges them."""
    return f"samples/shard-{shard:05d}.json"


EXHIBITS = "exhibits"
"""Where the pictures and tables of a draw lie until certify takes them along."""

MODEL = "model"
"""Where the files of a model lie that the release is drawn from, until certify takes them.

Public like the samples: only what a private mechanism gave out may be put there.
"""

TRAINED_BY = "trained.json"
"""Says that the model is whole, and by which noise it was trained."""


def noise_of_training(scratch: Path) -> str:
    """Kind of the noise source a release's model was trained with.

    Raises:
        DataError: It is not trained yet.
    """
    try:
        return str(json.loads((scratch / TRAINED_BY).read_bytes())["noise"])
    except FileNotFoundError:
        raise DataError(
            "the release's model is not trained yet.",
            hint="Run the stage train first; where it was killed it resumes at no cost.",
        ) from None


BUCKETS = "buckets"
"""Folder of the records, in their buckets."""


def bucket_files(shard: int) -> tuple[str, str]:
    """Names of the files that a shard's records are read from."""
    return f"{BUCKETS}/{MARKER}", f"{BUCKETS}/{shard_name(shard)}"


RUN = "run.json"
"""What is pinned when the release begins, such as how many shards it has."""

TRAIN = "train"
"""The part of a release that is neither shard nor partition: its model's training."""

GIVEN_UP = "given-up.json"
"""In the place of RUN once the release is lost: the ledger may still have to be told."""


ACCURACY = "accuracy"
"""The part in which the accuracy is drawn that a release pays for."""

HELD_OUT = "held-out"
"""Records of the held-out units, for that; beside the buckets."""


PARTITION = "partition"
"""The part that sorts the records; it draws nothing."""


def part_name(part: int | str) -> str:
    """What the ledger calls a part of a release."""
    return PARTITION if part == PARTITION else f"shard-{part}"


def journal_file(scratch: Path, part: int | str) -> Path:
    """The journal of a part: made before any draw, so that a missing one is never a new one."""
    return scratch / (f"journal-{part:05d}" if isinstance(part, int) else f"journal-{part}")
