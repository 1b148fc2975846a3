"""What clipping does to a prediction: figure 3 of Amin et al. 2024, by a model that a CPU runs.

    python benchmarks/papers/private_prediction/clipping.py TRAIN.jsonl.gz [--rows 16]

TRAIN is AG News. Tokens are drawn from logits averaged over private prompts, as params.yaml beside
this file has them, without clipping: nothing here is private. Prints a JSON object for each
function and bound c: L1 distances, over the tokens, of the softmax of averaged clipped logits from
that of averaged unclipped ones. The texts go to stderr.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.special import softmax

from privsyn.dp.clipping import clip_recenter
from privsyn.methods.shared.prompts import Prompt
from privsyn.models.loading import load_language_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig

CLIPS = {
    "none": (lambda z, _: z, (0,)),
    "fixed": (lambda z, c: np.clip(z, -c, c), (10, 14, 18, 20, 22, 24, 26, 28, 30, 32)),
    "recentered": (clip_recenter, (2, 4, 5, 6, 7, 8, 9, 10, 12)),
}
"""The functions and their bounds c."""
LABEL, TEMPERATURE, TOKENS, LONGEST = "Business", 1.5, 200, 64
"""Label of the prompts; the paper's lowest; tokens of all texts; of a text, and of a reference."""


def predictions(z: NDArray[np.float32]) -> dict[tuple[str, int], NDArray[np.float64]]:
    """Softmax of the averaged logits, shape (vocabulary,), by function and bound."""
    return {
        (name, c): softmax(clip(z, c).mean(axis=0, dtype=np.float64) / TEMPERATURE)
        for name, (clip, bounds) in CLIPS.items()
        for c in bounds
    }


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--rows", type=int, default=16)
    asked = parser.parse_args()
    params = yaml.safe_load(Path(__file__).with_name("params.yaml").read_text(encoding="utf-8"))
    prompt = Prompt(**params["methods"]["private_prediction"]["prompt"]).template
    with gzip.open(asked.train, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    texts = [row["text"] for row in records if row["label"] == LABEL][: asked.rows]
    model = load_language_model(ModelsConfig(language="smollm2"), PerformanceConfig())
    rows = model.private_rows(
        prompt, [LABEL] * len(texts), texts, LONGEST, LONGEST, declared={LABEL}
    )
    rng, text = np.random.default_rng(0), list[int]()
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(TOKENS):
        found = predictions(rows.logits())
        free = found.pop(("none", 0))
        for key, clipped in found.items():
            errors[key].append(float(np.abs(clipped - free).sum()))
        text.append(int(rng.choice(len(free), p=free)))
        rows.append([text[-1]] * len(texts))
        if text[-1] in model.ends or len(text) == LONGEST:
            print(model.decode(text), file=sys.stderr)
            rows.rewind()
            text.clear()
    for (name, c), seen in errors.items():
        ninth = np.quantile(seen, 0.9)
        row = {"mean": np.mean(seen), "median": np.median(seen), "nine of ten at most": ninth}
        print(json.dumps({"clip": name, "c": c} | {key: round(x, 4) for key, x in row.items()}))


if __name__ == "__main__":
    main()
