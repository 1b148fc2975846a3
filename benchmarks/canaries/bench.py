"""A throw-away release of invented canaries, attacked: the epsilon that is shown of a method.

The release is drawn by the stages of ``privsyn run`` in a project of its own, with ledger, account
and key, in a folder that holds nothing else. Its records are canaries: a prefix of the sample's
messages and a suffix of words drawn at random (after *The Canary's Echo*, Meeus et al. 2025). Which
of them are in is the pipeline's own coin, the keyed hash of dataset.holdout = 1/2, so one run is as
many fair coins as there are canaries (``privsyn.evaluation.audit``). The quarter with the highest
scores is named as in, the quarter with the lowest as out.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from canaries.attack import ACCOUNT, Answer, Recorded, Run, contributions
from canaries.posterior import scores
from privsyn.data.sample import SHIPPED
from privsyn.data.unit_key import UnitKey
from privsyn.data.words import VOCABULARY
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.errors import ConfigError
from privsyn.evaluation.audit import CONFIDENCE, Guesses
from privsyn.methods.base import Backends, TrainsModel
from privsyn.release.workdir import TRAIN, journal_file
from privsyn.stages.base import Context, open_context, open_plan
from privsyn.stages.draw import generate, load_models, train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.tracking import MlflowTracker

EPSILON, DELTA = 1.0, 1e-5
LABELS = ("Billing", "Symptoms")

MARKER = "throw-away.txt"
"""Says that a folder is ours to delete."""

METHODS: Mapping[str, Mapping[str, Any]] = {
    "invisible_ink": {
        "batch_size": 2, "guidance": 5, "top_k": 100, "temperature": 1.0, "max_tokens": 12,
        "texts_per_label": 16,
    },
    "private_prediction": {
        "batch_size": 8, "buckets_per_label": 8, "clip_bound": 0.5, "svt_threshold": None,
        "max_tokens": 24,
    },
    "private_evolution": {
        "modality": "text", "rounds": 3, "population": 32, "lookahead": 1, "degrees": [0.5],
        "text": {"max_tokens": 8},
    },
    "keyphrase_seeding": {
        "vocabulary_size": 100, "phrases_per_document": 6,
        "features": 512, "sequence_length": 3, "sequences_per_label": 20, "use_llm": False,
    },
    "dp_lora": {
        "sampling_rate": 1.0, "expected_batch": 32, "steps": 3, "rank": 2, "clip_norm": 0.02,
        "target_modules": ["q_proj"], "max_tokens": 24, "texts_per_label": 4,
    },
}  # fmt: skip
"""Settings under which each method takes seconds with toy models, minutes with the tiny one."""


@dataclass(frozen=True)
class Bench:
    """What is drawn.

    Attributes:
        method: The method.
        units: Canaries; a quarter is named as in, a quarter as out.
        records: Records of a canary, all alike, so that they push the same way.
        suffix: Words of a canary that are drawn at random.
        settings: On top of METHODS.
    """

    method: str
    units: int = 128
    records: int = 1
    suffix: int = 8
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(
                f"method={self.method} has no audit.", hint=f"Name one of {', '.join(METHODS)}."
            )
        if not 16 <= self.units <= 4096 or not 1 <= self.suffix <= len(words()):
            raise ConfigError(
                f"canaries={self.units}, of {self.suffix} words: 16 to 4096 canaries of 1 to "
                f"{len(words())} words can be audited."
            )

    @property
    def names(self) -> list[str]:
        """The canaries."""
        return [f"canary-{i:03d}" for i in range(self.units)]


def words() -> list[str]:
    """Public words of the suffixes."""
    known = gzip.decompress(VOCABULARY.read_bytes()).decode().split()
    return list(dict.fromkeys(known[1000:1200]))


def canaries(bench: Bench) -> list[dict[str, str]]:
    """The private file: prefixes of messages, suffixes of words drawn at random."""
    rng = random.Random(20260615)
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as lines:
        messages = [json.loads(line)["text"].split()[:6] for line in lines]
    rows = []
    for i, unit in enumerate(bench.names):
        text = " ".join([*rng.choice(messages), *rng.sample(words(), bench.suffix)])
        rows += [{"unit": unit, "label": LABELS[i % 2], "text": text}] * bench.records
    return rows


def project(folder: Path, bench: Bench) -> Path:
    """Make a throw-away project; its params.yaml.

    Raises:
        ConfigError: Something lies in the folder that no audit put there.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ConfigError(
            f"{folder} is not empty, and no audit made it: it will not be touched.",
            hint="Name a folder that is not there.",
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARKER).write_text("Made by an audit of canaries, and deleted by it.\n")
    rows = canaries(bench)
    (folder / "canaries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    zero = bench.method == "dp_lora"
    params = {
        "dataset": {
            "name": "canaries", "path": "canaries.jsonl", "label": "label", "unit": "unit",
            "labels": list(LABELS), "holdout": 0.5, "max_records_per_unit": bench.records,
            "document": "a message from a patient to a clinic",
        },
        "account": {
            "name": ACCOUNT, "unit": "canary", "epsilon": 10.0, "delta": 1e-3,
            "adjacency": "replace_null" if zero else "add_remove",
        },
        "privacy": {"epsilon": EPSILON, "delta": DELTA},
        "models": {"language": "tiny"},
        "methods": {bench.method: {**METHODS[bench.method], **bench.settings}},
        "evaluate": {"by": "nothing"},
        "performance": {
            "shards": bench.units,
            "rows_per_pass": 2 if bench.method in ("invisible_ink", "private_prediction") else 16,
        },
    }  # fmt: skip
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return folder / "params.yaml"


def opened(params: Path) -> Context:
    """The context of a throw-away project, without lineage.

    Raises:
        ConfigError: The project is another one: its account, ledger or folder is not an audit's.
    """
    ctx = open_context(params)  # no override, from the environment or elsewhere
    ctx.__dict__["tracker"] = MlflowTracker("")  # no lineage of what is thrown away
    services = ctx.config.services
    if (
        ctx.config.account.name != ACCOUNT
        or services.ledger is not None
        or not (ctx.workspace.root / MARKER).is_file()
    ):
        raise ConfigError(
            f"{params}: account {ctx.config.account.name} is not a throw-away.",
            hint=f"An audit charges {ACCOUNT}, in a ledger of its own, and no other account.",
        )
    return ctx


def released(
    params: Path,
    backends: Backends | None = None,
    noise: Callable[[], NoiseSource] = OpenDPNoise,
) -> Run:
    """Plan, reserve, partition and draw.

    Args:
        params: Of a throw-away project.
        backends: The models; None loads those of the project.
        noise: Where noise comes from.

    Raises:
        ConfigError: See opened.
    """
    ctx = opened(params)
    made: list[list[Answer]] = []

    def recorded() -> Recorded:
        made.append([])
        return Recorded(noise(), made[-1])

    ctx.noise = recorded
    (method,) = ctx.config.methods
    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    backends = backends or load_models(ctx, planned)
    parts, shards = partition(ctx, planned), []
    trains = isinstance(open_plan(ctx, planned).method, TrainsModel)
    for part in [TRAIN] if trains else range(parts):
        before = len(made)
        if trains:
            train(ctx, planned, backends=backends)
        else:
            generate(ctx, planned, int(part), backends)
        answers = [answer for one in made[before:] for answer in one]
        shards.append((journal_file(ctx.workspace.scratch(planned.id), part), answers))
    return Run(ctx, planned, backends, shards)


def audited(
    folder: Path,
    bench: Bench,
    backends: Backends | None = None,
    noise: Callable[[], NoiseSource] = OpenDPNoise,
) -> dict[str, Any]:
    """One release, attacked: what was claimed of it and what is shown.

    Args:
        folder: Made anew, and left for who wants to look; it holds invented records alone.
        bench: What is drawn.
        backends: The models; None loads those of the project.
        noise: Where noise comes from.

    Raises:
        ConfigError: The folder, or the account in it, is not a throw-away.
    """
    began = time.process_time()
    run = released(project(folder, bench), backends, noise)
    scored = scores(contributions(run, bench.names), bench.units)
    key = UnitKey(run.ctx.open_account().partition_key.reveal())
    inside = np.array([key.name(unit)[1] >= 0.5 for unit in bench.names])
    order, named = np.argsort(scored, kind="stable"), bench.units // 4
    right = int(inside[order[-named:]].sum() + (~inside[order[:named]]).sum())
    guesses = Guesses(bench.units, 2 * named, right, both=True)
    return {
        "method": bench.method, "claimed": run.planned.epsilon, "delta": run.planned.delta,
        "canaries": bench.units, "in": int(inside.sum()), "named": guesses.named, "right": right,
        "confidence": CONFIDENCE,
        "p_value_at_claim": guesses.p_value(run.planned.epsilon, run.planned.delta),
        "least_epsilon": guesses.least_epsilon(run.planned.delta),
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip
