"""Folders of image models: whether they are complete and what they make, read without torch.

A generator is a folder that ``diffusers`` loads. Two kinds are known: a U-Net over pixels, with or
without classes, and a pipeline that follows a prompt, such as Stable Diffusion. An encoder is the
folder of the embedded encoder or of EfficientNet-Lite0, or a CLIP or ViT folder of transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privsyn.errors import ModelError
from privsyn.files import MODEL_FILES, WEIGHTS, matching
from privsyn.models.model_files import check_weights, read_json, refuse_adapter
from privsyn.models.settings import ModelsConfig

BUILTIN = Path(__file__).parents[1] / "builtin" / "image"
BUILTIN_ENCODER = Path(__file__).parents[1] / "builtin" / "image_encoder"
EFFICIENTNET = "efficientnet-lite0"
"""Model type of the folder that models/images/image_embed.py writes and reads."""
OWN = "channels"
"""Setting in ``config.json`` of the embedded encoder's kind of model."""
SETTINGS = "privsyn.json"
"""Optional file of a generator's folder: its labels, null class, block, steps, guidance, heads
and scale of times."""

DIGESTED = (*MODEL_FILES, *(f"*/{pattern}" for pattern in MODEL_FILES))
ADAPTERS = ("adapter_config.json", "*/adapter_config.json")
"""Also in a generator's parts: its text encoder is a model of transformers."""
_PREPARED = ("preprocessor_config.json", "processor_config.json")
_WEIGHT_FILES = (*(f"*/{pattern}" for pattern in WEIGHTS), "*/*.bin")
_SHOWN = 62
"""Most labels in a message."""
_PROMPT_STEPS, _CLASS_STEPS, _PROMPT_GUIDANCE = 30, 50, 7.5


@dataclass(frozen=True)
class ImageFacts:
    """Facts about a generator's images, from its folder and the config.

    Attributes:
        prompted: True for a pipeline that follows a prompt, False for a U-Net over pixels.
        size: Height and width, in pixels.
        mode: L or RGB.
        classes: Classes of a U-Net over pixels, the null class included; 0 without classes.
        labels: Label of class 0, 1, ... of a class-conditional model.
        null_class: The class that means "no class", for guidance.
        block: Side of the blocks of pixels that the network reads as channels.
        steps: Denoising steps of a fresh sample.
        guidance: Weight of the class or prompt; 1 switches guidance off.
        any_class: Whether its classes are not the dataset's labels.
        heads: Attention heads of every level of a U-Net over pixels; None: as its config says.
        time_scale: What a U-Net over pixels reads for a step of its schedule.
    """

    prompted: bool
    size: tuple[int, int]
    mode: str
    steps: int
    guidance: float
    classes: int = 0
    labels: tuple[str, ...] = ()
    null_class: int | None = None
    block: int = 1
    any_class: bool = False
    heads: int | None = None
    time_scale: float = 1.0

    def suffix(self, cfg: ModelsConfig) -> str:
        """The part of the config that shapes an image, for the revision."""
        text = f"+steps={self.steps}+guidance={self.guidance:g}"
        if self.any_class:
            text += "+class=any"
        if self.prompted:
            text += f"+{cfg.dtype}"
        return text


def check_generator(folder: Path, where: str) -> None:
    """Refuse a generator's folder that lacks a part or has a truncated file."""
    refuse_adapter(folder, where, ADAPTERS)
    read_json(folder / "model_index.json", where)
    check_weights(folder, where, _WEIGHT_FILES)


def check_encoder(folder: Path, where: str) -> None:
    """Refuse an encoder's folder that lacks a part or has a truncated file."""
    refuse_adapter(folder, where)
    config = read_json(folder / "config.json", where)
    check_weights(folder, where)
    ours = OWN in config or config.get("model_type") == EFFICIENTNET
    # A folder of timm says in config.json how images are prepared.
    if not (ours or "architecture" in config or matching(folder, _PREPARED)):
        raise ModelError(
            f"{where}: not an image encoder: no preprocessor_config.json says how it reads images.",
            hint="Name a folder of CLIP, ViT, ResNet or timm, or use builtin.",
        )


def read_facts(folder: Path, cfg: ModelsConfig) -> ImageFacts:
    """The facts about a generator, from its small files and the config.

    Raises:
        ModelError: The files are missing, do not fit together, or lack what the config asks for.
    """
    where = f"models.image={cfg.image}"
    index = read_json(folder / "model_index.json", where)
    settings = read_json(folder / SETTINGS, where) if (folder / SETTINGS).is_file() else {}
    pixels = index.get("unet", [None, None])[-1] == "UNet2DModel" and "vae" not in index
    try:
        facts = (
            _of_pixels(folder, where, settings) if pixels else _of_prompt(folder, where, settings)
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"{where}: the folder's config files do not fit together ({type(error).__name__}).",
            hint="Copy or download the model again.",
        ) from None
    if not facts.prompted and facts.guidance != 1 and facts.null_class is None:
        raise ModelError(
            f"{where}: {SETTINGS} says guidance={facts.guidance:g} and names no null_class.",
            hint="Name the class to guide away from there, or set guidance to 1.",
        )
    if cfg.image_class == "any" and not facts.classes:
        raise ModelError(
            f"models.image_class=any: {where} has no classes.",
            hint="Set it to label."
            if facts.prompted
            else "Set it to label: a model without classes draws every label alike.",
        )
    steps = cfg.image_steps or facts.steps
    return replace(facts, steps=steps, any_class=cfg.image_class == "any")


def refuse_unknown_label(
    labels: Sequence[str], label: str, where: str, what: str = "label"
) -> None:
    """Refuse a label that a model does not know; ``what``: its name in the message.

    Raises:
        ModelError: The label is unknown; the message lists the known ones.
    """
    if label not in labels:
        more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
        raise ModelError(
            f"{where}: {what} {label!r} is not one of the model's: "
            f"{', '.join(labels[:_SHOWN])}{more}.",
            hint="Use these in dataset.labels, a model that knows yours, or models.image_class=any "
            "if its classes are not your labels.",
        )


def _of_pixels(folder: Path, where: str, settings: dict[str, Any]) -> ImageFacts:
    unet = read_json(folder / "unet" / "config.json", where)
    block = int(settings.get("pixels_per_block", 1))
    channels = int(unet["in_channels"]) // block**2
    if block < 1 or channels not in (1, 3):
        raise ModelError(
            f"{where}: the network reads {unet['in_channels']} channels in blocks of {block}x"
            f"{block} pixels; known are gray (1) and RGB (3).",
            hint="Name a model of gray or RGB images.",
        )
    height, width = as_pair(unet["sample_size"])
    classes = int(unet.get("num_class_embeds") or 0)
    null = settings.get("null_class")
    real = classes - (null is not None)
    labels = tuple(str(label) for label in settings.get("labels", range(real)))
    if len(labels) > real or len(set(labels)) != len(labels):
        raise ModelError(
            f"{where}: {SETTINGS} lists {len(labels)} labels for {real} classes, or repeats one.",
            hint="List one label per class, in order.",
        )
    if null is not None and not len(labels) <= int(null) < classes:
        raise ModelError(
            f"{where}: {SETTINGS} says null_class={null}, which is a label's class, or not one of "
            f"{classes} classes.",
            hint="Name the class that the training used for images without a class.",
        )
    return ImageFacts(
        prompted=False,
        size=(height * block, width * block),
        mode="L" if channels == 1 else "RGB",
        classes=classes,
        labels=labels,
        null_class=None if null is None else int(null),
        block=block,
        steps=int(settings.get("steps", _CLASS_STEPS)),
        guidance=float(settings.get("guidance", 1.0)),
        heads=int(settings["attention_heads"]) if "attention_heads" in settings else None,
        time_scale=float(settings.get("time_scale", 1.0)),
    )


def _of_prompt(folder: Path, where: str, settings: dict[str, Any]) -> ImageFacts:
    part = "unet" if (folder / "unet").is_dir() else "transformer"
    height, width = as_pair(read_json(folder / part / "config.json", where)["sample_size"])
    stages = read_json(folder / "vae" / "config.json", where)["block_out_channels"]
    scale = int(2 ** (len(stages) - 1))
    return ImageFacts(
        prompted=True,
        size=(height * scale, width * scale),
        mode="RGB",
        steps=int(settings.get("steps", _PROMPT_STEPS)),
        guidance=float(settings.get("guidance", _PROMPT_GUIDANCE)),
    )


def as_pair(size: Any) -> tuple[int, int]:
    """Height and width, where a config of diffusers has one number for both."""
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)
