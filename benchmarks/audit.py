"""Canary audit: the epsilon that attacks prove, for each method as it is and for broken builds.

    PYTHONPATH=. python benchmarks/audit.py STATE [--models toys|loud|tiny]
        [--methods invisible_ink ...] [--builds "as it is" ...]

Every pair of method and build is a throw-away release of its own under STATE, drawn and attacked by
``benchmarks/canaries``.

Models are toys (``tests.fakes``: a bag of words that is trained, logits by hash that
rise by 2 for words of the reference, seconds a run), the same with logits that rise by 40
(``loud``), or the embedded language model and embedder (``tiny``, minutes). Loud logits, and
canaries whose words are half of those there are, are the worst that can happen to a method that
clips, and what a clip is for. The worst for keyphrase seeding, which reads no logits, is a record
that takes its whole sensitivity: one sequence of two phrases, of a vocabulary that holds the
canaries' words alone. The attack is on clip, sensitivity and noise, which are the same code for
all.

Broken builds are made here, by a noise source and by functions that replace others for the length
of a run: no setting reaches them. Finished pairs are lines of STATE/results.jsonl and are left out;
one that was killed begins again, from nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from canaries.attack import Relayed
from canaries.bench import METHODS, Bench, audited, words
from numpy.typing import NDArray

from privsyn.dp.clipping import LATTICE
from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.methods.base import Backends
from privsyn.models.loading import describe_role
from privsyn.models.settings import ModelsConfig
from tests.fakes import (
    FakeLogitModel,
    FakeTextModel,
    FakeTrainableModel,
    FakeTrainer,
    hashed_script,
)

MANY = 8
"""Records of a canary where the bound on a unit is what is broken."""

LOUD = 40.0
"""What a word of the reference adds to its logit."""

WORST: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "invisible_ink": (100, {"top_k": 200}),
    "private_prediction": (100, {}),
    "private_evolution": (8, {"population": 256}),
    "keyphrase_seeding": (
        8,
        {
            "phrases_per_document": 1, "vocabulary_size": len(words()),
            "vocabulary_share": 0.05, "ensemble": "logarithmic", "sequence_length": 2,
        },
    ),
}  # fmt: skip
"""The worst: words of a canary's suffix, and settings on top of METHODS."""


class Quieter(Relayed):
    """OpenDP's noise, ``by`` times too quiet: what breaks a build."""

    kind = "broken"

    def __init__(self, by: float) -> None:
        self._true, self._by = OpenDPNoise(), by

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """See NoiseSource."""
        if math.isinf(self._by):
            return int(np.argmax(scores))
        return self._true.noisy_max(scores, scale / self._by, sensitivity)

    def _vector(self, draw: str, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        if math.isinf(self._by):
            return values
        drawn: NDArray[np.int64] = getattr(self._true, draw)(values, scale / self._by)
        return drawn

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """See NoiseSource."""
        return self._true.sample(units, rate)


@contextmanager
def unclipped(method: str) -> Iterator[None]:
    """The method without its clip, for the length of the block."""
    room = f"privsyn.methods.{method}.method"

    def grid(x: NDArray[Any], bound: float) -> NDArray[np.int64]:
        return np.rint(np.asarray(x, np.float64) * LATTICE).astype(np.int64)

    def difference(private: Any, public: Any, bound: float, gain: float = 1.0) -> Any:
        return np.nan_to_num(gain * (np.asarray(private, np.float64) - public))

    def recentered(z: Any, c: float) -> Any:
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
        "private_prediction": {f"{room}.clip_recenter": recentered, f"{room}.to_grid": grid},
        "dp_lora": {
            "privsyn.models.training.lora.clip_to_lattice": whole,
            "tests.fakes.FakeTrainer.clipped_sum": pulled,
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

    def noise(self) -> NoiseSource:
        """Where its noise comes from."""
        return OpenDPNoise() if self.quieter == 1 else Quieter(self.quieter)


BUILDS: Mapping[str, Build] = {
    "as it is": Build(),
    "noise off": Build(quieter=math.inf),
    "clip off": Build(clipped=False),
    f"sensitivity of one record, units of {MANY}": Build(quieter=MANY, records=MANY),
}
CLIPS = ("invisible_ink", "private_prediction", "dp_lora")
"""Methods that clip; the others count."""


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


def toys(worst: bool) -> Backends:
    """Toys in every role of text, under the revisions that plans name; the worst are loud."""
    config, known = ModelsConfig(language="tiny"), words()

    def said(prompt: str, before: int) -> str:
        rng = random.Random(f"{prompt} {before}")
        return " ".join(rng.sample(known, 8))

    revision = {role: describe_role(config, role).revision for role in ("language", "text", "base")}
    vocabulary = ("<end>", *known)
    places = {word: place for place, word in enumerate(vocabulary)}

    hashed = hashed_script(vocabulary)

    def loud(label: str | None, reference: str | None, tokens: tuple[int, ...]) -> Any:
        # A trace of a hash, or the same token would be the first among equals at every place.
        logits = hashed(label, None, tokens) / np.float32(200)
        logits[[places[word] for word in (reference or "").split() if word in places]] = LOUD
        logits[0] = -LOUD  # no text ends before its last token
        return logits

    return Backends(
        {
            "language": FakeLogitModel(
                vocabulary, loud if worst else None, revision=revision["language"]
            ),
            "text": FakeTextModel(said, revision=revision["text"]),
            "embedder": Counted(),
            "base": FakeTrainableModel(vocabulary, revision=revision["base"]),
        }
    )


def run(folder: Path, method: str, name: str, models: str) -> dict[str, Any]:
    """One release of a build, attacked."""
    build = BUILDS[name]
    suffix, own = WORST.get(method, (8, {})) if models == "loud" else (8, {})
    if method == "private_prediction":  # else it would buy no token for so many records
        own = {**own, "clip_bound": METHODS[method]["clip_bound"] / build.records}
    if method == "keyphrase_seeding" and own:
        public = folder.with_suffix(".txt")
        public.write_text("\n".join(words()))
        own = {**own, "vocabulary": str(public.absolute())}
    bench = Bench(method, records=build.records, suffix=suffix, settings=own)
    with ExitStack() as stack:
        if not build.clipped:
            stack.enter_context(unclipped(method))
        backends = None if models == "tiny" else toys(models == "loud")
        row = audited(folder, bench, backends, build.noise)
    return {"models": models, "build": name, **row}


def main() -> None:
    """Run what is not on file, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--models", choices=("toys", "loud", "tiny"), default="toys")
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
            row = run(asked.state / f"{method}-{number}", method, name, asked.models)
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
