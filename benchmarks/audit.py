"""Canary audit: the epsilon that attacks prove, for each method as it is and for broken builds.

    python benchmarks/audit.py STATE [--methods invisible_ink ...] [--builds "as it is" ...]

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
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from privsyn.data.journal import Journal
from privsyn.data.partition import _Key, load_shard, partition
from privsyn.data.records import Bucket, Private
from privsyn.data.sample import SHIPPED
from privsyn.dp.clipping import LATTICE
from privsyn.dp.mechanisms import _FINER, CLIP_STEPS
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.evaluation.one_run import CONFIDENCE, Guesses
from privsyn.methods.base import Backends, Draw, TrainsModel
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, open_context
from privsyn.stages.drawing import load_models
from privsyn.stages.generate import generate
from privsyn.stages.partition import partition as partition_stage
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.train import train
from privsyn.testing import NullJournal
from privsyn.tracking.null import NullTracker

CANARIES = 64
NAMED = 16
"""Named as in, and as many as out."""

EPSILON, DELTA = 1.0, 1e-5
LABELS = ("Billing", "Symptoms")
MANY = 8
"""Records of a canary where the bound on a unit is what is broken."""

METHODS: Mapping[str, Mapping[str, Any]] = {
    "invisible_ink": {
        "batch_size": 2, "guidance": 5, "top_k": 100, "temperature": 1.0, "max_tokens": 12,
        "max_reference_tokens": 24, "texts_per_label": 8,
    },
    "private_prediction": {
        "batch_size": 8, "buckets_per_label": 4, "clip_bound": 4, "svt_threshold": None,
        "private_tokens": 24, "max_tokens": 12, "max_reference_tokens": 24,
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
        "sampling_rate": 1.0, "expected_batch": 32, "steps": 3, "rank": 2, "clip_norm": 0.1,
        "target_modules": ["q_proj"], "max_tokens": 24, "texts_per_label": 4,
    },
}  # fmt: skip


class Answer(NamedTuple):
    """One answer of a mechanism.

    Attributes:
        draw: Method of the noise source.
        given: What came out.
        scale: Of the noise, as priced.
    """

    draw: str
    given: Any
    scale: float


class Recorded:
    """A noise source that notes its answers; ``by`` times too quiet, which is what breaks it."""

    def __init__(self, by: float, answers: list[Answer]) -> None:
        self._true: NoiseSource = OpenDPNoise()
        self._by, self._answers = by, answers
        self.kind = "opendp" if by == 1 else "broken"

    def _noted(self, draw: str, scale: float, given: Any) -> Any:
        self._answers.append(Answer(draw, given, scale))
        return given

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """See NoiseSource."""
        off = math.isinf(self._by)
        drawn = (
            int(np.argmax(scores))
            if off
            else self._true.noisy_max(scores, scale / self._by, sensitivity)
        )
        return int(self._noted("noisy_max", scale, drawn))

    def _vector(self, draw: str, values: NDArray[np.int64], scale: float) -> Any:
        off = math.isinf(self._by)
        drawn = values if off else getattr(self._true, draw)(values, scale / self._by)
        return self._noted(draw, scale, drawn)

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("laplace", values, scale)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("gaussian", values, sigma)

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("fine_gaussian", values, sigma)

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """See NoiseSource. Not an answer: samples are secret."""
        return self._true.sample(units, rate)


class Told(BaseException):
    """All answers were replayed: what a method does after its last one is of no interest."""


class Replayed:
    """Gives the answers of a finished run, whatever it is asked, and notes what it was asked."""

    kind = "replayed"

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = answers
        self.asked: list[NDArray[np.int64]] = []

    def _next(self, values: NDArray[np.int64]) -> Any:
        given = self._answers[len(self.asked)].given
        self.asked.append(np.array(values))
        if len(self.asked) == len(self._answers):
            raise Told
        return given

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """See NoiseSource."""
        return int(self._next(scores))

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return np.asarray(self._next(values))

    gaussian = fine_gaussian = laplace

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """Everybody: the attacker does not know the sample."""
        return np.ones(units, np.bool_)


class Kept(NullJournal):
    """A journal that draws anew, about the public things that the run was about."""

    def __init__(self, kept: Mapping[str, bytes]) -> None:
        self._kept = kept

    def keep(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What the run kept."""
        return self._kept[key] if key in self._kept else make()

    def draw_file(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A checkpoint."""
        return make()


class Apart:
    """A trainer whose sums are noted unit by unit."""

    def __init__(self, true: Any, sums: list[NDArray[np.int64]]) -> None:
        self._true, self._sums = true, sums

    def __getattr__(self, name: str) -> Any:
        return getattr(self._true, name)

    def clipped_sum(self, units: Sequence[Any]) -> NDArray[np.int64]:
        """The sum; what each unit adds goes into the notes, shape (units, numbers)."""
        own = np.stack([self._true.clipped_sum([unit]) for unit in units])
        self._sums.append(own)
        return np.asarray(own.sum(axis=0))


class ApartModel:
    """A model to be trained whose trainers note their sums."""

    def __init__(self, true: Any) -> None:
        self._true = true
        self.sums: list[NDArray[np.int64]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._true, name)

    def trainer(self, training: Any) -> Apart:
        """See TrainableModel."""
        return Apart(self._true.trainer(training), self.sums)


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

    def whole(gradients: Any, clip_norm: float) -> Any:
        return [(part.float() * (CLIP_STEPS / clip_norm)).trunc_() for part in gradients]

    broken = {
        "invisible_ink": {f"{room}.clip_difference": difference, f"{room}.to_grid": grid},
        "private_prediction": {f"{room}.clip_recentre": recentred, f"{room}.to_grid": grid},
        "dp_lora": {"privsyn.models.training.dp_trainer.clip_to_lattice": whole},
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


def canaries(records: int) -> list[dict[str, str]]:
    """The private file: prefixes of messages, suffixes of words drawn at random."""
    rng = random.Random(20260615)
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as lines:
        messages = [json.loads(line)["text"].split()[:6] for line in lines]
    room = importlib.resources.files("privsyn.methods.keyphrase_seeding")
    words = gzip.decompress((room / "vocabulary.txt.gz").read_bytes()).decode().split()[1000:]
    return [
        {
            "unit": f"canary-{i:03d}",
            "label": LABELS[i % 2],
            "text": " ".join([*rng.choice(messages), *rng.sample(words, 8)]),
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
    zero = method in ("dp_lora",)
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
        "methods": {method: dict(METHODS[method])},
        "evaluate": {"enabled": False},
        "performance": {
            "shards": CANARIES, "threads": 1, "texts_per_pass": 1,
            "rows_per_pass": 2 if method in ("invisible_ink", "private_prediction") else 16,
        },
    }  # fmt: skip
    (folder / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return folder / "params.yaml"


class Run(NamedTuple):
    """A throw-away release up to its last answer.

    Attributes:
        ctx: Its context.
        planned: Its plan.
        backends: Its models.
        shards: Answers of each shard.
        kept: What its draws were about.
    """

    ctx: Context
    planned: Plan
    backends: Backends
    shards: list[list[Answer]]
    kept: dict[str, bytes]


def released(params: Path, method: str, build: Build) -> Run:
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
    backends = load_models(ctx, planned)
    with patch.object(Journal, "keep", keep):
        parts = partition_stage(ctx, planned)
        train(ctx, planned, backends=backends)
        if not isinstance(ctx.planned(planned)[0], TrainsModel):
            for shard in range(parts):
                generate(ctx, planned, shard, backends)
    return Run(ctx, planned, backends, [answers for answers in shards if answers], kept)


def contributions(run: Run, units: Sequence[str]) -> Iterator[tuple[Answer, Any, Any]]:
    """Every answer, what is asked without records, and what canaries add, shape (canaries, .)."""
    ctx, planned = run.ctx, run.planned
    method, settings = ctx.planned(planned)
    key = ctx.open_account().partition_key.reveal()
    source = ctx.source(planned)
    cells = method.cells(settings, planned.dataset.labels)
    parts = 1 if method.whole else planned.shards
    out = ctx.workspace.root / "everybody"
    if not out.exists():
        partition(source.model_copy(update={"holdout": 0.0}), key, cells, out, parts)
    names = {_Key(key).place(unit).unit: i for i, unit in enumerate(units)}
    for shard, answers in enumerate(run.shards):
        everybody = load_shard(out, shard, cells, parts)
        if isinstance(method, TrainsModel):
            yield from _trained(run, everybody, answers, names)
            continue

        def asked(buckets: Sequence[Bucket], answers: Sequence[Answer] = answers) -> Any:
            noise = Replayed(answers)
            performance = ctx.config.performance
            draw = Draw(run.backends, noise, Kept(run.kept), performance)  # type: ignore[arg-type]
            try:
                for _ in method.run(settings, planned.mechanism(), buckets, draw):  # type: ignore
                    pass
            except Told:
                pass
            return noise.asked

        alone = asked([Bucket(b.cell, Private([]), Private([])) for b in everybody])
        present = {names[unit] for bucket in everybody for unit in bucket.units.reveal()}
        added = {
            i: asked([_only(bucket, names, i) for bucket in everybody]) for i in sorted(present)
        }
        for k, answer in enumerate(answers):
            own = np.zeros((len(units), len(alone[k])), np.float64)
            for i, values in added.items():
                own[i] = values[k] - alone[k]
            yield answer, alone[k], own


def _only(bucket: Bucket, names: Mapping[str, int], i: int) -> Bucket:
    """A bucket with the records of one canary alone."""
    pairs = [
        (text, unit)
        for text, unit in zip(bucket.contents.reveal(), bucket.units.reveal(), strict=True)
        if names[unit] == i
    ]
    texts, units = [text for text, _ in pairs], [unit for _, unit in pairs]
    return Bucket(bucket.cell, Private(texts), Private(units))


def _trained(
    run: Run, buckets: Sequence[Bucket], answers: Sequence[Answer], names: Mapping[str, int]
) -> Iterator[tuple[Answer, Any, Any]]:
    """As contributions, of a method that trains: one run with all canaries, each summed alone."""
    method, settings = run.ctx.planned(run.planned)
    model = ApartModel(run.backends.base)
    noise = Replayed(answers)
    backends = Backends({**run.backends.models, "base": model})
    performance = run.ctx.config.performance
    draw = Draw(backends, noise, Kept(run.kept), performance)  # type: ignore[arg-type]
    try:
        method.train(settings, run.planned.mechanism(), buckets, draw)  # type: ignore[attr-defined]
    except Told:
        pass
    order = [names[unit] for unit in sorted({u for b in buckets for u in b.units.reveal()})]
    for answer, own in zip(answers, model.sums, strict=True):
        ordered = np.zeros(own.shape)
        ordered[order] = own * float(_FINER)
        yield answer, np.zeros(own.shape[1]), ordered


def scores(found: Iterator[tuple[Answer, Any, Any]], units: int) -> NDArray[np.float64]:
    """How much the answers speak for each canary having been in."""
    ratio = np.zeros(units)
    normal, right = np.eye(units) * 4, np.full(units, 2.0)  # a coin: mean 1/2, variance 1/4
    vectors = False
    for answer, alone, own in found:
        if answer.draw == "noisy_max":
            public = log_softmax(alone / answer.scale)
            moved = own / answer.scale
            ratio += moved[:, answer.given] - logsumexp(public + moved, axis=1)
        else:
            vectors = True
            design = own / answer.scale
            normal += design @ design.T
            right += design @ ((answer.given - alone) / answer.scale)
    return np.linalg.solve(normal, right) if vectors else ratio


def audited(folder: Path, method: str, name: str) -> dict[str, Any]:
    """One release, attacked."""
    build = BUILDS[name]
    began = time.process_time()
    params = project(folder, method, build)
    with ExitStack() as stack:
        if not build.clipped:
            stack.enter_context(unclipped(method))
        run = released(params, method, build)
        units = [f"canary-{i:03d}" for i in range(CANARIES)]
        scored = scores(contributions(run, units), CANARIES)
    key = _Key(run.ctx.open_account().partition_key.reveal())
    inside = np.array([key.place(unit).share >= 0.5 for unit in units])
    order = np.argsort(scored, kind="stable")
    right = int(inside[order[-NAMED:]].sum() + (~inside[order[:NAMED]]).sum())
    guesses = Guesses(CANARIES, 2 * NAMED, right, both=True)
    return {
        "method": method, "build": name, "claimed": run.planned.epsilon,
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
    parser.add_argument("--builds", nargs="+", choices=list(BUILDS), default=list(BUILDS))
    asked = parser.parse_args()
    asked.state.mkdir(parents=True, exist_ok=True)
    file = asked.state / "results.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for method in asked.methods:
        for number, name in enumerate(BUILDS):
            known = any((row["method"], row["build"]) == (method, name) for row in done)
            if known or name not in asked.builds or (name == "clip off" and method not in CLIPS):
                continue
            row = audited(asked.state / f"{method}-{number}", method, name)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            done.append(row)
            shutil.rmtree(asked.state / f"{method}-{number}")
    print("| method | build | claimed epsilon | right of named | least epsilon | CPU s |")
    print("|---|---|---|---|---|---|")
    for row in done:
        verdict = " **above**" if row["least_epsilon"] > row["claimed"] else ""
        print(
            f"| {row['method']} | {row['build']} | {row['claimed']:.3f} | {row['right']} of "
            f"{row['named']} | {row['least_epsilon']:.2f}{verdict} | {row['cpu_s']:.0f} |"
        )


if __name__ == "__main__":
    main()
