"""What the generator's images are worth, judged by the encoder and its classifier.

Both were trained on the same public images, so the figures compare settings and runs of this tool;
they are no measure of another generator.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.linalg import sqrtm

from privsyn.models.images.loading import load_image_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tools.base_image.diffusion import Images
from tools.base_image.encoder import Judge


def frechet_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Distance of the normal distributions fitted to two sets of vectors (Heusel et al. 2017)."""
    a, b = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    shift = one.mean(0) - other.mean(0)
    return float(shift @ shift + np.trace(a) + np.trace(b) - 2 * np.trace(sqrtm(a @ b)).real)


def contact_sheet(rows: list[list[np.ndarray]], scale: int = 2) -> Image.Image:
    """Images of one size side by side, row under row."""
    sheet = Image.fromarray(np.vstack([np.hstack(row) for row in rows]))
    return sheet.resize((sheet.width * scale, sheet.height * scale), Image.Resampling.NEAREST)


def report(
    images: Path,
    work: Path,
    models: list[str],
    number: int,
    steps: list[int],
    guidances: list[float],
    sheet: Path | None,
    threads: int,
) -> list[dict[str, Any]]:
    """Print, for each model, number of steps and guidance, the figures of ``number`` images.

    Returns:
        One row each: accuracy of the classifier (all, and by class), the distance to the real test
        images in the encoder's features, and images per second of processor time.
    """
    data, judge = Images.read(images), Judge(work)
    real = judge.vectors(data.test)
    half = judge.vectors(data.train[: len(data.test)])
    print(json.dumps({"floor": round(frechet_distance(half, real), 4)}), flush=True)
    rows, drawn = [], []
    for model in models:
        for count in steps:
            for guidance in guidances:
                cfg = ModelsConfig(image=model, image_steps=count, image_guidance=guidance)
                performance = PerformanceConfig(device="cpu", rows_per_pass=64, threads=threads)
                api = load_image_model(cfg, performance, rng=np.random.default_rng(0))
                began, made, truth = time.process_time(), [], []
                for label in range(data.classes):
                    made += api.random(number // data.classes, str(label))
                    truth += [label] * (number // data.classes)
                spent = time.process_time() - began
                stacked = np.stack(made)
                named = judge.classes(stacked) == np.array(truth)
                by_class = [float(named[np.array(truth) == c].mean()) for c in range(data.classes)]
                row = {
                    "model": Path(model).name,
                    "steps": count,
                    "guidance": guidance,
                    "accuracy": round(float(named.mean()), 4),
                    "by_class": [round(share, 3) for share in by_class],
                    "distance": round(frechet_distance(judge.vectors(stacked), real), 4),
                    "images_per_cpu_second": round(len(made) / spent, 1),
                }
                print(json.dumps(row), flush=True)
                rows.append(row)
                per_class = number // data.classes
                drawn += [made[c * per_class :][:20] for c in range(data.classes)]
    if sheet is not None:
        contact_sheet(drawn).save(sheet)
    return rows
