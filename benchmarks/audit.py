"""Canary audit: the epsilon that attacks prove, for each method as it is and for broken builds.

    python benchmarks/audit.py STATE [--models toys|tiny] [--methods invisible_ink ...]
        [--builds "as it is" ...]

Every pair of method and build is a throw-away release of its own under STATE (ledger, account and
key included), by the stages of ``privsyn run`` in this process. Its records are canaries: a prefix
of the sample's messages and a suffix of words drawn at random (after *The Canary's Echo*, Meeus et
al. 2025). Which of them are in is the pipeline's own coin, the keyed hash of dataset.holdout = 1/2,
so one run is as many fair coins as there are canaries (``privsyn.evaluation.one_run``).

The attacker is the strongest that the guarantee speaks of: he knows every canary, all settings and
every noisy answer of the mechanism, and not who was in, nor the noise. What a canary would add to
each answer he gets from the method's own code, run on that canary alone with the answers put in
(``Replayed``). Noisy vectors: least squares for all canaries at once, with the noise's variance.
Drawn tokens: log-likelihood ratio of the exponential mechanism. The quarter with the highest scores
is named as in, the quarter with the lowest as out; both shares were fixed before the first run.

Models are toys (``privsyn.models.testing``: logits by hash that rise for words of the reference, a
bag of words that is trained, seconds a run) or the embedded language model and embedder (``tiny``,
minutes). The attack is on clip, sensitivity and noise, which are the same code for both.

Broken builds are made here, by a noise source and by functions that replace others for the length
of a run: no setting reaches them. Finished pairs are lines of STATE/results.jsonl and are left out;
one that was killed begins again, from nothing.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.resources
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import yaml
from canary_attack import Answer, Recorded, Run, contributions, scores
from numpy.typing import NDArray

from privsyn.data.journal import Journal
from privsyn.data.sample import SHIPPED
from privsyn.data.unit_key import UnitKey
from privsyn.dp.clipping import LATTICE
from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.evaluation.one_run import CONFIDENCE, Guesses
from privsyn.methods.base import Backends, TrainsModel
from privsyn.models.roles import describe_role
from privsyn.models.settings import ModelsConfig
from privsyn.models.testing.language import FakeLogitModel, FakeTextModel
from privsyn.models.testing.training import FakeTrainableModel, FakeTrainer
from privsyn.stages.base import open_context
from privsyn.stages.drawing import load_models
from privsyn.stages.generate import generate
from privsyn.stages.partition import partition as partition_stage
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.train import train
from privsyn.tracking.null import NullTracker

CANARIES = 128
NAMED = 32
"""Named as in, and as many as out."""

EPSILON, DELTA = 1.0, 1e-5
LABELS = ("Billing", "Symptoms")
MANY = 8
"""Records of a canary where the bound on a unit is what is broken."""

METHODS: Mapping[str, Mapping[str, Any]] = {
    "invisible_ink": {
        "batch_size": 2, "guidance": 5, "top_k": 100, "temperature": 1.0, "max_tokens": 12,
        "max_reference_tokens": 24, "texts_per_label": 16,
    },
    "private_prediction": {
        "batch_size": 8, "buckets_per_label": 8, "clip_bound": 0.5, "svt_threshold": None,
        "max_tokens": 12, "max_reference_tokens": 24,
    },
    "private_evolution": {
        "modality": "text", "rounds": 3, "population": 32, "lookahead": 1, "degrees": [0.5],
        "text": {"max_tokens": 8},
    },
    "keyphrase_seeding": {
        "vocabulary_size": 100, "terms_per_document": 6, "phrases_per_document": 6,
        "features": 512, "sequence_length": 3, "sequences_per_label": 20, "use_llm": False,
    },
    "dp_lora": {
        "sampling_rate": 1.0, "expected_batch": 32, "steps": 3, "rank": 2, "clip_norm": 0.02,
        "target_modules": ["q_proj"], "max_tokens": 24, "micro_batch": 2, "texts_per_label": 4,
    },
}  # fmt: skip


@contextmanager
def unclipped(method: str) -> Iterator[None]:
    """The method without its clip, for the length of the block."""
    room = f"privsyn.methods.{method}.method"

    def grid(x: NDArray[Any], bound: float) -> NDArray[np.int64]:
        return np.rint(np.asarray(x, np.float64) * LATTICE).astype(np.int64)

    def difference(private: Any, public: Any, bound: float, gain: float = 1.0) -> Any:
        return np.nan_to_num(gain * (np.asarray(private, np.float64) - public))

    def recentred(z: Any, c: float) -> Any:
        rows = np.nan_to_num(np.asarray(z, np.float64))
        return rows - rows.mean(axis=-1, keepdims=True)

    def pulled(trainer: FakeTrainer, units: Sequence[Any]) -> NDArray[np.int64]:
        steps = CLIP_STEPS / METHODS["dp_lora"]["clip_norm"]
        total = np.zeros(trainer.size)
        for unit in units:
            total += np.trunc(trainer.gradient(unit).ravel() * steps)
        return total.astype(np.int64)

    def whole(gradients: Any, clip_norm: float) -> Any:
        return [(part.float() * (CLIP_STEPS / clip_norm)).trunc_() for part in gradients]

    broken = {
        "invisible_ink": {f"{room}.clip_difference": difference, f"{room}.to_grid": grid},
        "private_prediction": {f"{room}.clip_recentre": recentred, f"{room}.to_grid": grid},
        "dp_lora": {
            "privsyn.models.training.dp_trainer.clip_to_lattice": whole,
            "privsyn.models.testing.training.FakeTrainer.clipped_sum": pulled,
        },
    }[method]
    with ExitStack() as stack:
        for name, function in broken.items():
            stack.enter_context(patch(name, function))
        yield


class Build(NamedTuple):
    """What is run.

    Attributes:
        quieter: The noise is divided by it.
        records: Records of a canary.
        clipped: Whether there is a clip.
    """

    quieter: float = 1.0
    records: int = 1
    clipped: bool = True


BUILDS: Mapping[str, Build] = {
    "as it is": Build(),
    "noise off": Build(quieter=math.inf),
    "clip off": Build(clipped=False),
    f"sensitivity of one record, units of {MANY}": Build(quieter=MANY, records=MANY),
}
CLIPS = ("invisible_ink", "private_prediction", "dp_lora")
"""Methods that clip; the others count."""


def words() -> list[str]:
    """Public words of the suffixes; they are what the toys can say."""
    room = importlib.resources.files("privsyn.methods.keyphrase_seeding")
    known = gzip.decompress((room / "vocabulary.txt.gz").read_bytes()).decode().split()
    return list(dict.fromkeys(known[1000:1200]))


class Counted:
    """An Embedder: which of the words stand in a text."""

    def __init__(self) -> None:
        self._places = {word: i for i, word in enumerate(words())}
        self.width = len(self._places)
        self.revision = describe_role(ModelsConfig(), "embedder").revision

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of counts per text."""
        rows = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                if word in self._places:
                    row[self._places[word]] += 1
        return rows


def toys() -> Backends:
    """Toys in every role of text, under the revisions that plans name."""
    config, known = ModelsConfig(language="tiny"), words()

    def said(prompt: str, before: int) -> str:
        rng = random.Random(f"{prompt} {before}")
        return " ".join(rng.sample(known, 8))

    revision = {role: describe_role(config, role).revision for role in ("language", "text", "base")}
    vocabulary = ("<end>", *known)
    return Backends(
        {
            "language": FakeLogitModel(vocabulary, revision=revision["language"]),
            "text": FakeTextModel(said, revision=revision["text"]),
            "embedder": Counted(),
            "base": FakeTrainableModel(vocabulary, revision=revision["base"]),
        }
    )


def canaries(records: int) -> list[dict[str, str]]:
    """The private file: prefixes of messages, suffixes of words drawn at random."""
    rng = random.Random(20260615)
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as lines:
        messages = [json.loads(line)["text"].split()[:6] for line in lines]
    known = words()
    return [
        {
            "unit": f"canary-{i:03d}",
            "label": LABELS[i % 2],
            "text": " ".join([*rng.choice(messages), *rng.sample(known, 8)]),
        }
        for i in range(CANARIES)
        for _ in range(records)
    ]


def project(folder: Path, method: str, build: Build) -> Path:
    """A throw-away project."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = canaries(build.records)
    (folder / "canaries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = dict(METHODS[method])
    if method == "private_prediction":  # else it would buy no token for so many records
        settings["clip_bound"] /= build.records
    zero = method == "dp_lora"
    params = {
        "dataset": {
            "name": "canaries", "path": "canaries.jsonl", "label": "label", "unit": "unit",
            "labels": list(LABELS), "holdout": 0.5, "max_records_per_unit": build.records,
            "document": "message from a patient to a clinic",
        },
        "account": {
            "name": "throw-away", "unit": "canary", "epsilon": 10.0, "delta": 1e-3,
            "adjacency": "replace_null" if zero else "add_remove",
        },
        "privacy": {"epsilon": EPSILON, "delta": DELTA},
        "models": {"language": "tiny"},
        "methods": {method: settings},
        "evaluate": {"enabled": False},
        "performance": {
            "shards": CANARIES, "threads": 1, "texts_per_pass": 1,
            "rows_per_pass": 2 if method in ("invisible_ink", "private_prediction") else 16,
        },
    }  # fmt: skip
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return folder / "params.yaml"


def released(params: Path, method: str, build: Build, models: str) -> Run:
    """Plan, reserve, partition and draw."""
    ctx = open_context(params)
    ctx.__dict__["tracker"] = NullTracker()  # no lineage of what is thrown away
    shards: list[list[Answer]] = []
    kept: dict[str, bytes] = {}

    def noise() -> Recorded:
        shards.append([])
        return Recorded(build.quieter, shards[-1])

    ctx.noise = noise
    true_keep = Journal.keep

    def keep(journal: Journal, key: str, make: Callable[[], bytes]) -> bytes:
        kept[key] = true_keep(journal, key, make)
        return kept[key]

    planned = plan(ctx, method, open_account=True)
    reserve(ctx, planned)
    backends = toys() if models == "toys" else load_models(ctx, planned)
    with patch.object(Journal, "keep", keep):
        parts = partition_stage(ctx, planned)
        train(ctx, planned, backends=backends)
        if not isinstance(ctx.planned(planned)[0], TrainsModel):
            for shard in range(parts):
                generate(ctx, planned, shard, backends)
    return Run(ctx, planned, backends, [answers for answers in shards if answers], kept)


def audited(folder: Path, method: str, name: str, models: str) -> dict[str, Any]:
    """One release, attacked."""
    build = BUILDS[name]
    began = time.process_time()
    params = project(folder, method, build)
    with ExitStack() as stack:
        if not build.clipped:
            stack.enter_context(unclipped(method))
        run = released(params, method, build, models)
        units = [f"canary-{i:03d}" for i in range(CANARIES)]
        scored = scores(contributions(run, units), CANARIES)
    key = UnitKey(run.ctx.open_account().partition_key.reveal())
    inside = np.array([key.place(unit).share >= 0.5 for unit in units])
    order = np.argsort(scored, kind="stable")
    right = int(inside[order[-NAMED:]].sum() + (~inside[order[:NAMED]]).sum())
    guesses = Guesses(CANARIES, 2 * NAMED, right, both=True)
    return {
        "models": models, "method": method, "build": name, "claimed": run.planned.epsilon,
        "delta": run.planned.delta, "canaries": CANARIES, "in": int(inside.sum()),
        "named": guesses.named, "right": right, "confidence": CONFIDENCE,
        "p_value_at_claim": guesses.p_value(run.planned.epsilon, run.planned.delta),
        "least_epsilon": guesses.least_epsilon(run.planned.delta),
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def main() -> None:
    """Run what is not on file, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--models", choices=("toys", "tiny"), default="toys")
    parser.add_argument("--builds", nargs="+", choices=list(BUILDS), default=list(BUILDS))
    asked = parser.parse_args()
    asked.state.mkdir(parents=True, exist_ok=True)
    file = asked.state / "results.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for method in asked.methods:
        for number, name in enumerate(BUILDS):
            ran = (asked.models, method, name)
            known = any((row["models"], row["method"], row["build"]) == ran for row in done)
            if known or name not in asked.builds or (name == "clip off" and method not in CLIPS):
                continue
            row = audited(asked.state / f"{method}-{number}", method, name, asked.models)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            done.append(row)
            shutil.rmtree(asked.state / f"{method}-{number}")
    print("| models | method | build | claimed epsilon | right of named | least epsilon | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for row in done:
        verdict = " **above**" if row["least_epsilon"] > row["claimed"] else ""
        print(
            f"| {row['models']} | {row['method']} | {row['build']} | {row['claimed']:.3f} "
            f"| {row['right']} of {row['named']} "
            f"| {row['least_epsilon']:.2f}{verdict} | {row['cpu_s']:.0f} |"
        )


if __name__ == "__main__":
    main()
