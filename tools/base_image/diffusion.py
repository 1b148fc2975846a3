"""A small class-conditional diffusion model of grey images, trained on CPU or CUDA.

Velocity prediction (Salimans and Ho 2022) under the cosine schedule (Nichol and Dhariwal 2021), a
null class for guidance (Ho and Salimans 2022), and an exponential average of the weights.

The network sees blocks of ``block`` x ``block`` pixels as channels: at 28x28 a quarter of the cost.
The map is a permutation of pixels, so noise, schedule and samplers are those of pixel space.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, UNet2DModel
from torch import Tensor

_REPORT_EVERY = 50
_HELD_OUT = 512


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run but its images."""

    size: int = 28
    block: int = 2
    """Side of the blocks of pixels that become channels."""
    narrow: int = 48
    """Channels at the finer of the two resolutions."""
    wide: int = 96
    """Channels at the coarser one."""
    layers: int = 1
    noise_steps: int = 1000
    batch: int = 64
    steps: int = 2000
    warm_up: int = 100
    decay: float = 0.5
    """Share of the steps, at the end, over which the learning rate goes down to zero."""
    rate: float = 1e-3
    null_share: float = 0.1
    """Share of images shown without their class."""
    average: float = 0.998
    """Weight of the past in the averaged weights."""
    save_every: int = 250
    """Steps between two checkpoints, each with a held-out loss."""
    seed: int = 0

    def rate_at(self, step: int) -> float:
        """Learning rate of a step."""
        down = (self.steps - step) / max(1.0, self.decay * self.steps)
        return self.rate * max(0.0, min(1.0, (step + 1) / self.warm_up, down))

    def network(self, classes: int) -> UNet2DModel:
        """The untrained network; class number ``classes`` is the null class."""
        channels = self.block**2
        return UNet2DModel(
            sample_size=self.size // self.block,
            in_channels=channels,
            out_channels=channels,
            layers_per_block=self.layers,
            block_out_channels=(self.narrow, self.wide),
            down_block_types=("DownBlock2D",) * 2,
            up_block_types=("UpBlock2D",) * 2,
            norm_num_groups=8,
            attention_head_dim=16,
            num_class_embeds=classes + 1,
        )

    def scheduler(self) -> DDIMScheduler:
        """The noise schedule; ``trailing`` begins a short run at pure noise."""
        return DDIMScheduler(
            num_train_timesteps=self.noise_steps,
            beta_schedule="squaredcos_cap_v2",
            prediction_type="v_prediction",
            timestep_spacing="trailing",
            clip_sample=True,
            set_alpha_to_one=True,
        )


@dataclass(frozen=True)
class Images:
    """Public images with labels.

    Attributes:
        train: uint8, shape (n, height, width).
        train_labels: Class numbers, shape (n,).
        test: As train; for held-out figures.
        test_labels: As train_labels.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    @classmethod
    def read(cls, path: Path) -> Images:
        """From an ``.npz`` with train_images, train_labels, test_images, test_labels."""
        with np.load(path) as arrays:
            parts = [arrays[f"{a}_{b}"] for a in ("train", "test") for b in ("images", "labels")]
        return cls(parts[0], parts[1].astype(np.int64), parts[2], parts[3].astype(np.int64))

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.train_labels.max()) + 1


def as_signal(images: np.ndarray, block: int) -> Tensor:
    """Grey bytes to [-1, 1], blocks as channels: (n, h, w) to (n, block^2, h/block, w/block)."""
    scaled = torch.from_numpy(images).float()[:, None] / 127.5 - 1
    return F.pixel_unshuffle(scaled, block)


def orders(n: int, batch: int, seed: int, step: int) -> Iterator[np.ndarray]:
    """Row numbers of the batches from ``step`` on, each epoch in an order of its own."""
    per_epoch = n // batch
    while True:
        epoch, within = divmod(step, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(n)
        for i in range(within, per_epoch):
            yield order[i * batch : (i + 1) * batch]
        step = (epoch + 1) * per_epoch


def loss_of(
    network: UNet2DModel, alphas: Tensor, clean: Tensor, classes: Tensor, generator: torch.Generator
) -> Tensor:
    """Squared error of the velocity at times spread evenly over the batch."""
    n, device = len(clean), clean.device
    spread = (torch.arange(n) + torch.rand(n, generator=generator)) / n
    times = (spread * len(alphas)).long().clamp(max=len(alphas) - 1).to(device)
    noise = torch.randn(clean.shape, generator=generator).to(device)
    kept = alphas[times][:, None, None, None]
    noised = kept.sqrt() * clean + (1 - kept).sqrt() * noise
    velocity = kept.sqrt() * noise - (1 - kept).sqrt() * clean
    noised = noised.contiguous(memory_format=torch.channels_last)
    return F.mse_loss(network(noised, times, class_labels=classes).sample.float(), velocity)


def train(images: Path, work: Path, recipe: Recipe, device: str) -> None:
    """Train up to ``recipe.steps``; go on from ``work/checkpoint.pt``.

    ``work/curve.jsonl`` holds one line a report. ``steps`` may be changed between two calls: the
    learning rate's way down is laid out anew.
    """
    data = Images.read(images)
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    network = recipe.network(data.classes).to(device, memory_format=torch.channels_last)
    alphas = recipe.scheduler().alphas_cumprod.to(device)
    adam = torch.optim.AdamW(network.parameters(), recipe.rate, weight_decay=0.01, fused=True)
    averaged = {name: value.clone() for name, value in network.state_dict().items()}
    checkpoint = work / "checkpoint.pt"
    step, before = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        network.load_state_dict(saved["network"])
        adam.load_state_dict(saved["adam"])
        averaged, step, before = saved["averaged"], saved["step"], saved["seconds"]
    batches = orders(len(data.train), recipe.batch, recipe.seed, step)
    began, losses = time.monotonic(), []
    while step < recipe.steps:
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
        rows = next(batches)
        classes = torch.from_numpy(data.train_labels[rows])
        classes[torch.rand(len(rows), generator=generator) < recipe.null_share] = data.classes
        clean = as_signal(data.train[rows], recipe.block).to(device)
        for group in adam.param_groups:
            group["lr"] = recipe.rate_at(step)
        loss = loss_of(network, alphas, clean, classes.to(device), generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
        step += 1
        past = min(recipe.average, (1 + step) / (10 + step))
        for name, value in network.state_dict().items():
            averaged[name].lerp_(value, 1 - past)
        saves = step % recipe.save_every == 0 or step == recipe.steps
        if step % _REPORT_EVERY == 0 or saves:
            seconds = before + time.monotonic() - began
            report: dict[str, Any] = {
                "step": step,
                "images": step * recipe.batch,
                "seconds": round(seconds),
                "train": round(sum(losses) / len(losses), 5),
            }
            losses = []
            if saves:
                report["held_out"] = round(_held_out(data, recipe, averaged, device), 5)
                state = {"network": network.state_dict(), "adam": adam.state_dict()}
                state |= {"averaged": averaged, "step": step, "seconds": seconds}
                partial = checkpoint.with_suffix(".partial")
                torch.save(state, partial)
                partial.replace(checkpoint)
            with (work / "curve.jsonl").open("a") as lines:
                lines.write(json.dumps(report) + "\n")
            print(json.dumps(report), flush=True)
    facts = {**asdict(recipe), "classes": data.classes}
    (work / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n")


@torch.no_grad()
def _held_out(data: Images, recipe: Recipe, averaged: dict[str, Tensor], device: str) -> float:
    """Loss of the averaged weights on test images, always with the same noise."""
    network = recipe.network(data.classes).to(device)
    network.load_state_dict(averaged)
    generator = torch.Generator().manual_seed(0)
    alphas = recipe.scheduler().alphas_cumprod.to(device)
    clean = as_signal(data.test[:_HELD_OUT], recipe.block).to(device)
    classes = torch.from_numpy(data.test_labels[:_HELD_OUT]).to(device)
    return float(loss_of(network, alphas, clean, classes, generator))


def export(work: Path, folder: Path, labels: Sequence[str], steps: int, guidance: float) -> None:
    """Write the averaged weights as a folder that diffusers loads.

    Args:
        work: Of a finished run.
        folder: Gets ``model_index.json``, ``unet/``, ``scheduler/`` and ``privsyn.json``.
        labels: What class 0, 1, ... is called.
        steps: Denoising steps to use where the config sets none.
        guidance: Guidance to use where the config sets none; 1 is none.
    """
    facts = json.loads((work / "recipe.json").read_text())
    classes = facts.pop("classes")
    recipe = Recipe(**facts)
    if len(labels) != classes:
        raise ValueError(f"{len(labels)} labels for {classes} classes")
    network = recipe.network(classes)
    saved = torch.load(work / "checkpoint.pt", map_location="cpu", weights_only=True)
    network.load_state_dict(saved["averaged"])
    network.half().save_pretrained(folder / "unet")
    recipe.scheduler().save_pretrained(folder / "scheduler")
    index = {
        "_class_name": "DDIMPipeline",
        "scheduler": ["diffusers", "DDIMScheduler"],
        "unet": ["diffusers", "UNet2DModel"],
    }
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    own = {
        "labels": list(labels),
        "null_class": classes,
        "pixels_per_block": recipe.block,
        "steps": steps,
        "guidance": guidance,
    }
    (folder / "privsyn.json").write_text(json.dumps(own, indent=2) + "\n")
