"""The image experiments of Lin et al. 2024 on a generator whose classes are not the labels.

    python benchmarks/papers/private_evolution/images.py cifar10 [--plan] [-S models.image=FOLDER]
    python benchmarks/papers/private_evolution/images.py camelyon17 --small

Prints one JSON object. ``--plan`` reads no record and no weights but the digests. ``--small`` takes
the paper's rounds, noise, degrees and steps on a random U-Net of 8x8 pixels with three classes and
on scans of digits, a few images a label: it shows that the configuration runs, and its distances
mean nothing. ``camelyon17-stages`` is figure 21: 17 rounds of 10 steps, then 16 of 40.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from privsyn.data.images import note_of
from privsyn.data.sample import write_digits
from privsyn.stages.base import open_context
from privsyn.stages.evaluate import evaluate
from privsyn.stages.plan import plan
from privsyn.stages.run import draw

HERE = Path(__file__).parent
STAGES = {
    "rounds": 33,
    "noise_multiplier": 2 * 2**0.5,
    "degrees": [
        tenths / 10 for tenths in (10, 10, 10, 10, 9, 9, 9, 9, 8, 8, 8, 8, 8, 7, 7, 7, 7)
    ] + [fortieths / 40 for fortieths in range(20, 4, -1)],
    "image_steps": [10] * 17 + [40] * 16,
}  # fmt: skip
"""Appendix K, figure 21, which prints 9.92; that is the cost of 29 rounds."""
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "cifar10": ("cifar10", {}),
    "camelyon17": ("camelyon17", {}),
    "camelyon17-stages": (
        "camelyon17",
        {"privacy.epsilon": 10.74}
        | {f"methods.private_evolution.{name}": value for name, value in STAGES.items()},
    ),
}
PRINTED = {"cifar10": 0.67, "camelyon17": 10.00, "camelyon17-stages": 9.92}
"""Epsilon, as the paper prints it."""
SMALL = {
    "models.image": "tiny",
    "models.image_embedder": "builtin",
    "dataset.images.size": 8,
    "dataset.path": "digits.npz",
    "account.unit": "scan",
    "dataset.unit": "scan",
    "methods.private_evolution.population": 3,
    "methods.private_evolution.lookahead": 1,
    "validation.min_share": 0,
}


def write_tiny(folder: Path) -> None:
    """A random U-Net of 8x8 pixels with three classes of its own."""
    import torch
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
        norm_num_groups=4,
        attention_head_dim=8,
        num_class_embeds=3,
    )
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(folder)
    settings = {"labels": ["honeycomb", "velvet", "bib"]}
    (folder / "privsyn.json").write_text(json.dumps(settings), encoding="utf-8")


def write_records(folder: Path, labels: Sequence[str]) -> None:
    """Scans of digits in color, named by the labels in turn."""
    write_digits(folder / "digits.npz")
    with np.load(folder / "digits.npz") as arrays:
        names = [labels[number % len(labels)] for number in arrays["label"]]
        images = np.repeat(arrays["image"][..., None], 3, axis=3)
        scans = arrays["scan"]
    np.savez_compressed(folder / "digits.npz", image=images, label=names, scan=scans)


def measure(name: str, root: Path, given: Sequence[str], *, only_plan: bool) -> dict[str, Any]:
    """The row of one experiment in a project."""
    ctx = open_context(root / "params.yaml", given)
    planned = plan(ctx, "private_evolution", open_account=not only_plan)
    row: dict[str, Any] = {
        "experiment": name,
        "epsilon": round(planned.epsilon, 4),
        "printed": PRINTED[name],
        "delta": planned.delta,
    }
    if only_plan:
        return row
    draw(ctx, planned)
    folder = ctx.workspace.release(planned.id)
    classes = Counter(note_of(file.read_bytes(), "Class") for file in folder.glob("images/*.png"))
    row |= {"images": classes.total(), "classes": dict(classes.most_common(8))}
    report = evaluate(ctx, planned)
    if report is not None:
        found = json.loads((report / "evaluation.json").read_text(encoding="utf-8"))
        wanted = ("fid", "fid_real", "downstream.accuracy", "downstream.real")
        row |= {
            metric["name"]: round(metric["value"], 4)
            for metric in found["metrics"]
            if metric["name"] in wanted
        }
    return row


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Print one JSON object, and return it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=CHANGES)
    parser.add_argument("--small", action="store_true", help="a tiny random model and digits")
    parser.add_argument("--plan", action="store_true", help="what it would cost, and no more")
    parser.add_argument("--folder", type=Path, help="the project; by default a temporary one")
    parser.add_argument("-S", dest="settings", action="append", default=[], metavar="k=v")
    asked = parser.parse_args(arguments)
    file, changes = CHANGES[asked.experiment]
    with tempfile.TemporaryDirectory() as temporary:
        root = asked.folder or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        text = (HERE / f"{file}.yaml").read_text(encoding="utf-8")
        (root / "params.yaml").write_text(text, encoding="utf-8")
        if asked.small:
            write_tiny(root / "tiny")
            write_records(root, yaml.safe_load(text)["dataset"]["labels"])
            changes = changes | SMALL | {"models.image": str(root / "tiny")}
        given = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        row = measure(asked.experiment, root, [*given, *asked.settings], only_plan=asked.plan)
    print(json.dumps(row))
    return row


if __name__ == "__main__":
    main()
