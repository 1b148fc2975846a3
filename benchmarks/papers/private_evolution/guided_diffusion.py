"""OpenAI's checkpoints of diffusion models over 64x64 pixels, as folders that diffusers loads.

    python benchmarks/papers/private_evolution/guided_diffusion.py imagenet64_cond_270M_250K.pt
        imagenet64 [--labels FILE] [--size 64]

``--labels`` names the classes, one a line; otherwise they are numbers.

Two families of one U-Net are known: *improved diffusion* (Nichol and Dhariwal 2021: four heads,
4,000 steps, convolutions between sizes) and *guided diffusion* (Dhariwal and Nichol 2021: heads of
64 channels, 1,000 steps, residual blocks between sizes). Their state dicts name layers alike, so
depth, widths and classes follow from names and shapes. What does not (heads, steps, noise schedule)
is that of the released ImageNet models; both have the cosine schedule and predict the noise.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privsyn.errors import ModelError, StorageError
from privsyn.models.images.image_folders import SETTINGS
from privsyn.models.torch_runtime import quiet

State = Mapping[str, Tensor]

SIDE = 64
"""Side of the images in pixels of the released checkpoints."""
_CHANNELS, _HEADS, _HEAD_WIDTH, _GROUPS = 3, 4, 64, 32
_TRAINED_STEPS = {True: 4000, False: 1000}
"""Steps of the training's schedule: of improved diffusion, and of guided diffusion."""
_RESCALED = 1000
"""The networks without classes read times as if there were so many steps."""
_STEPS = 100
"""Denoising steps of a fresh image: Lin et al. 2024, appendix J."""
_RESIDUAL = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
}
_ENDS = {
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "label_emb": "class_embedding",
    "input_blocks.0.0": "conv_in",
    "out.0": "conv_norm_out",
    "out.2": "conv_out",
}


@dataclass(frozen=True)
class _Shape:
    """What names and shapes of a state dict say.

    Attributes:
        improved: Whether convolutions and not residual blocks change the size.
        levels: Sizes of the features, the images' size included.
        blocks: Residual blocks a level, on the way down.
        widths: Channels of each level.
        attends: Whether a level has attention.
        shifts: Whether times scale and shift the features, and not only shift them.
    """

    improved: bool
    levels: int
    blocks: int
    widths: tuple[int, ...]
    attends: tuple[bool, ...]
    shifts: bool

    @classmethod
    def of(cls, state: State) -> _Shape:
        """The shape of a state dict; KeyError or ZeroDivisionError if it is of another network."""
        places = 1 + max(int(m[1]) for m in _matches(r"output_blocks\.(\d+)\.", state))
        convolved = {m[1] for m in _matches(r"output_blocks\.(\d+)\.[12]\.conv\.weight", state)}
        residual = {m[1] for m in _matches(r"output_blocks\.(\d+)\.[12]\.in_layers\.0\.w", state)}
        levels = 1 + len(convolved) + len(residual)
        blocks = places // levels - 1
        first = [1 + level * (blocks + 1) for level in range(levels)]
        outer = [state[f"input_blocks.{place}.0.out_layers.3.weight"] for place in first]
        gain = state["input_blocks.1.0.emb_layers.1.weight"]
        return cls(
            improved=not residual,
            levels=levels,
            blocks=blocks,
            widths=tuple(len(weight) for weight in outer),
            attends=tuple(f"input_blocks.{place}.1.qkv.weight" in state for place in first),
            shifts=len(gain) == 2 * len(outer[0]),
        )

    def homes(self) -> Iterator[tuple[str, str, str]]:
        """A block's name in the state dict, its name in diffusers, and what it is."""
        between = "convolution" if self.improved else "residual"
        for level in range(self.levels):
            down, last = f"down_blocks.{level}", level == self.levels - 1
            for block in range(self.blocks):
                home = f"input_blocks.{1 + level * (self.blocks + 1) + block}"
                yield f"{home}.0", f"{down}.resnets.{block}", "residual"
                if self.attends[level]:
                    yield f"{home}.1", f"{down}.attentions.{block}", "attention"
            if not last:
                home = f"input_blocks.{(level + 1) * (self.blocks + 1)}.0"
                yield home, f"{down}.downsamplers.0", between
        yield "middle_block.0", "mid_block.resnets.0", "residual"
        yield "middle_block.1", "mid_block.attentions.0", "attention"
        yield "middle_block.2", "mid_block.resnets.1", "residual"
        for level in range(self.levels):
            up, attends = f"up_blocks.{level}", self.attends[self.levels - 1 - level]
            for block in range(self.blocks + 1):
                home = f"output_blocks.{level * (self.blocks + 1) + block}"
                yield f"{home}.0", f"{up}.resnets.{block}", "residual"
                if attends:
                    yield f"{home}.1", f"{up}.attentions.{block}", "attention"
            if level < self.levels - 1:
                yield f"{home}.{1 + attends}", f"{up}.upsamplers.0", between

    def config(self, state: State, side: int) -> dict[str, Any]:
        """Arguments of ``UNet2DModel``; ValueError for other images than RGB."""
        if state["input_blocks.0.0.weight"].shape[1] != _CHANNELS:
            raise ValueError("its images are not of red, green and blue alone")
        plain = ("", "") if self.improved else ("Resnet", "sample")
        kinds = [
            "Attn{}Block2D" if attends else f"{plain[0]}{{}}{plain[1]}Block2D"
            for attends in self.attends
        ]
        between = "conv" if self.improved else "resnet"
        return {
            "sample_size": side,
            "in_channels": _CHANNELS,
            "out_channels": len(state["out.2.weight"]),
            "down_block_types": [kind.format("Down") for kind in kinds],
            "up_block_types": [kind.format("Up") for kind in reversed(kinds)],
            "block_out_channels": self.widths,
            "layers_per_block": self.blocks,
            "downsample_type": between,
            "upsample_type": between,
            # Improved diffusion has as many heads at each level, which diffusers has no argument
            # for: the folder's settings say it, and the loader sets it.
            "attention_head_dim": None if self.improved else _HEAD_WIDTH,
            "norm_num_groups": _GROUPS,
            "attn_norm_num_groups": _GROUPS,
            "resnet_time_scale_shift": "scale_shift" if self.shifts else "default",
            "num_class_embeds": len(state["label_emb.weight"])
            if "label_emb.weight" in state
            else None,
        }


def convert(
    checkpoint: Path,
    folder: Path,
    *,
    labels: Sequence[str] = (),
    side: int = SIDE,
) -> None:
    """Write a checkpoint as a folder that ``models.image`` may name. It reads tensors only.

    Args:
        checkpoint: A ``.pt`` file: the state dict of a U-Net.
        folder: The new folder.
        labels: Name of class 0, 1, ...; by default their numbers.
        side: Side of its images in pixels.

    Raises:
        ModelError: The folder exists, or the file is no such checkpoint, or of another network.
        StorageError: The folder cannot be written, or is full.
    """
    where = str(checkpoint)
    if folder.exists():
        raise ModelError(f"{folder} exists already.", hint="Name another, or remove it.")
    state = _read(checkpoint, where)
    other = ModelError(
        f"{where}: not the U-Net of improved or guided diffusion.",
        hint="Convert one of their ImageNet checkpoints of 64x64 pixels, such as "
        "imagenet64_cond_270M_250K.pt; not a classifier, an upsampler or an optimizer.",
    )
    try:
        shape = _Shape.of(state)
        config, weights = shape.config(state, side), _rename(state, shape)
    except (KeyError, ValueError, ZeroDivisionError, IndexError, RuntimeError):
        raise other from None
    if side % (halves := 2 ** (shape.levels - 1)):
        raise ModelError(
            f"{where}: a side of {side} pixels is not a multiple of {halves}.",
            hint=f"Name that of the checkpoint's images, {SIDE} of the released ones.",
        )
    classes = config["num_class_embeds"] or 0
    if labels and (len(labels) != classes or len(set(labels)) != classes):
        raise ModelError(
            f"{where}: {len(set(labels))} different labels for {classes} classes.",
            hint="List one label per class, in order.",
        )
    with quiet():
        from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
        from safetensors import SafetensorError

        try:
            with torch.device("meta"):
                unet = UNet2DModel(**config)
            unet.load_state_dict(weights, assign=True)
        except (RuntimeError, ValueError, TypeError, ZeroDivisionError):
            raise other from None
        scheduler = DDPMScheduler(
            num_train_timesteps=_TRAINED_STEPS[shape.improved],
            beta_schedule="squaredcos_cap_v2",
            variance_type="learned_range",
        )
        # Under a hidden name until it is complete.
        building = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(building, ignore_errors=True)
        try:
            DDPMPipeline(unet, scheduler).save_pretrained(building)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(building, ignore_errors=True)
            raise StorageError(
                f"{folder} cannot be written ({type(error).__name__}).",
                hint="Free space, or name another folder.",
            ) from None
    settings: dict[str, Any] = {"steps": _STEPS}
    if shape.improved:
        settings["attention_heads"] = _HEADS
    if labels:
        settings["labels"] = list(labels)
    if not classes and shape.improved:
        settings["time_scale"] = _RESCALED / _TRAINED_STEPS[True]
    (building / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    building.rename(folder)


def _read(checkpoint: Path, where: str) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    try:
        # weights_only: a pickle from elsewhere must not run code.
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ModelError(f"{where}: there is no such file.", hint="Name a .pt file.") from None
    except Exception as error:  # torch raises whatever its parsers raise
        raise ModelError(
            f"{where}: not a checkpoint of tensors ({type(error).__name__}).",
            hint="Download it again. Files that hold anything but tensors are not read.",
        ) from None
    if not isinstance(state, dict) or not all(isinstance(one, Tensor) for one in state.values()):
        raise ModelError(
            f"{where}: not a state dict, which holds a tensor by name.",
            hint="Save model.state_dict(), without an optimizer.",
        )
    return {str(name): value for name, value in state.items()}


def _rename(state: State, shape: _Shape) -> dict[str, Tensor]:
    """The tensors by their names in diffusers.

    Raises:
        ValueError: A tensor has no place there.
    """
    weights: dict[str, Tensor] = {}
    left = dict(state)

    def take(source: str, target: str) -> None:
        for part in ("weight", "bias"):
            if (value := left.pop(f"{source}.{part}", None)) is not None:
                weights[f"{target}.{part}"] = value.float().contiguous()

    for source, target in _ENDS.items():
        take(source, target)
    for source, target, kind in shape.homes():
        if kind == "residual":
            for ours, theirs in _RESIDUAL.items():
                take(f"{source}.{ours}", f"{target}.{theirs}")
        elif kind == "convolution":
            take(f"{source}.{'op' if source.startswith('input') else 'conv'}", f"{target}.conv")
        else:
            take(f"{source}.norm", f"{target}.group_norm")
            for part in ("weight", "bias"):
                joined = left.pop(f"{source}.qkv.{part}").float()
                for name, value in zip("qkv", _split(joined, shape.improved), strict=True):
                    weights[f"{target}.to_{name}.{part}"] = value
                # A convolution over one place, (C, C, 1), is a linear layer.
                ending = left.pop(f"{source}.proj_out.{part}").float()
                plain = ending[..., 0] if ending.ndim == 3 else ending
                weights[f"{target}.to_out.0.{part}"] = plain.contiguous()
    if left:
        raise ValueError(f"{len(left)} tensors have no place")
    return weights


def _split(joined: Tensor, improved: bool) -> list[Tensor]:
    """Queries, keys and values of a joint layer, shape (3 C, C, 1) or (3 C,)."""
    rows = joined[..., 0] if joined.ndim == 3 else joined
    if improved:
        # Head by head, each with its three: (heads, 3, C / heads, ...) -> (3, C, ...).
        by_head = rows.unflatten(0, (_HEADS, 3, -1)).transpose(0, 1)
        rows = by_head.flatten(0, 2)
    return [part.contiguous() for part in rows.chunk(3)]


def _matches(pattern: str, state: State) -> Iterator[re.Match[str]]:
    return (match for name in state if (match := re.match(pattern, name)))


def main(args: Sequence[str] | None = None) -> None:
    """Convert a checkpoint."""
    parser = argparse.ArgumentParser(description="Convert a checkpoint for models.image.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--size", type=int, default=SIDE)
    given = parser.parse_args(args)
    names = given.labels.read_text(encoding="utf-8").splitlines() if given.labels else []
    convert(given.checkpoint, given.folder, labels=names, side=given.size)


if __name__ == "__main__":
    main()
