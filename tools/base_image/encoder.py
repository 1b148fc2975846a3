"""The small encoder of images: told apart by class, and enough kept to draw the image again.

Trained on augmented public images with two losses: classification, and the reconstruction of the
image before it was blurred. The first alone would fold all images of a class into one point, and a
comparison within a label would have nothing to go by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from privsyn.models.images.image_embed import ImageEncoder
from tools.base_image.diffusion import Images, orders


@dataclass(frozen=True)
class EncoderRecipe:
    """Everything that decides a run but its images."""

    width: int = 64
    narrow: int = 32
    wide: int = 64
    batch: int = 128
    epochs: int = 4
    rate: float = 3e-3
    reconstruction: float = 10.0
    """Weight of the squared error of the reconstruction."""
    seed: int = 0


def augmented(images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images (n, 1, size, size) in [0, 1] moved, and the same blurred, dimmed and noised."""
    n, size = len(images), images.shape[-1]

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator)

    angle, shear, scale = uniform(-0.2, 0.2), uniform(-0.2, 0.2), uniform(0.85, 1.3)
    map_ = torch.zeros(n, 2, 3)
    map_[:, 0, 0], map_[:, 1, 1] = angle.cos() * scale, angle.cos() * scale
    map_[:, 0, 1], map_[:, 1, 0] = (shear - angle.sin()) * scale, angle.sin() * scale
    map_[:, 0, 2], map_[:, 1, 2] = uniform(-0.15, 0.15), uniform(-0.15, 0.15)
    grid = F.affine_grid(map_, list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, align_corners=False)
    shown = moved
    if torch.rand((), generator=generator) < 0.5:
        small = int(torch.randint(size // 4 + 1, size, (), generator=generator))
        shown = F.interpolate(moved, (small, small), mode="bicubic", antialias=True)
        shown = F.interpolate(shown, (size, size), mode="bicubic").clamp(0, 1)
    shown = shown * uniform(0.6, 1.0)[:, None, None, None]
    noise = torch.randn(shown.shape, generator=generator)
    return moved, (shown + 0.05 * torch.rand((), generator=generator) * noise).clamp(0, 1)


def train_encoder(images: Path, work: Path, recipe: EncoderRecipe) -> None:
    """Train, then write ``work/encoder`` (the folder to ship) and ``work/head.safetensors``."""
    data = Images.read(images)
    size = data.train.shape[-1]
    torch.manual_seed(recipe.seed)
    encoder = ImageEncoder(size, (recipe.narrow, recipe.wide, recipe.wide), recipe.width)
    head = nn.Linear(recipe.width, data.classes)
    redraw = nn.Sequential(nn.Linear(recipe.width, 384), nn.ReLU(), nn.Linear(384, size * size))
    parts = nn.ModuleList([encoder, head, redraw])
    steps = max(1, recipe.epochs * (len(data.train) // recipe.batch))
    adam = torch.optim.AdamW(parts.parameters(), recipe.rate, weight_decay=0.01, fused=True)
    rates = torch.optim.lr_scheduler.OneCycleLR(adam, recipe.rate, total_steps=steps + 1)
    batches = orders(len(data.train), recipe.batch, recipe.seed, 0)
    generator = torch.Generator().manual_seed(recipe.seed)
    parts.train()
    for step in range(steps):
        rows = next(batches)
        clean = torch.from_numpy(data.train[rows])[:, None].float() / 255
        moved, shown = augmented(clean, generator)
        features = encoder.features(shown)
        named = F.cross_entropy(head(features), torch.from_numpy(data.train_labels[rows]))
        drawn = F.mse_loss(redraw(features), moved.flatten(1))
        (named + recipe.reconstruction * drawn).backward()
        adam.step()
        rates.step()
        adam.zero_grad()
        if (step + 1) % 100 == 0 or step + 1 == steps:
            report = {"step": step + 1, "of": steps, "class": round(float(named.detach()), 4)}
            print(
                json.dumps(report | {"reconstruction": round(float(drawn.detach()), 5)}), flush=True
            )
    parts.eval()
    known = _features(encoder, data.train[:20_000])
    encoder.mean.copy_(known.mean(0))
    encoder.deviation.copy_(known.std(0).clamp(min=1e-3))
    right = _features(encoder, data.test) @ head.weight.T + head.bias
    accuracy = float((right.argmax(1).numpy() == data.test_labels).mean())
    print(json.dumps({"test_accuracy": round(accuracy, 4)}), flush=True)
    folder = work / "encoder"
    folder.mkdir(parents=True, exist_ok=True)
    config = {"size": size, "mode": "L", "channels": encoder.channels, "width": recipe.width}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {name: _stored(value) for name, value in encoder.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(head.state_dict(), work / "head.safetensors")


def _stored(value: Tensor) -> Tensor:
    """Half precision for weights; running counts and statistics as they are."""
    return (value.half() if value.ndim > 1 else value).contiguous()


@torch.no_grad()
def _features(encoder: ImageEncoder, images: np.ndarray) -> Tensor:
    pixels = torch.from_numpy(images)[:, None].float() / 255
    return torch.cat([encoder.features(part) for part in pixels.split(500)])


class Judge:
    """The trained encoder with its classifier: says what an image shows.

    Args:
        work: Of ``train_encoder``.
    """

    def __init__(self, work: Path) -> None:
        self.encoder = ImageEncoder.read(work / "encoder", str(work))
        head = load_file(work / "head.safetensors")
        self._weight, self._bias = head["weight"], head["bias"]

    def classes(self, images: np.ndarray) -> np.ndarray:
        """Class numbers of uint8 images of the encoder's own size."""
        named: np.ndarray = (
            (_features(self.encoder, images) @ self._weight.T + self._bias).argmax(1).numpy()
        )
        return named

    def vectors(self, images: np.ndarray) -> np.ndarray:
        """Standardised features of such images."""
        features = _features(self.encoder, images)
        vectors: np.ndarray = ((features - self.encoder.mean) / self.encoder.deviation).numpy()
        return vectors
