"""Vectors of images: the embedded encoder, a CLIP or ViT folder, or EfficientNet-Lite0.

A function of the image alone brings it to the encoder's size and mode. Passes have one fixed number
of rows; dummies fill the last. Methods that vote or measure by these vectors need this: a record's
vector must not depend on the other records.

EfficientNet's weights are in a package of the Python registry (models/references.py). Its layers
are written here, so that none of its code runs, and without the last layer, which names classes.

Source: Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
Table 1, in the Lite form of its authors: no squeeze and excitation, ReLU6, stem and head unscaled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from privsyn.errors import ModelError
from privsyn.models.images.image_folders import EFFICIENTNET
from privsyn.models.model_files import read_json
from privsyn.models.trial import refuse_mixing_rows

Pixels = NDArray[np.uint8]
"""Shape (height, width) of mode L, or (height, width, 3) of mode RGB."""

ROW_MULTIPLE = 16


class ImageEncoder(nn.Module):  # type: ignore[misc]
    """Three convolutions and a linear layer; public statistics standardize the output.

    Args:
        size: Side of the square images it reads, in pixels; a multiple of 4.
        channels: Output channels of the three convolutions.
        width: Numbers in a vector.
    """

    def __init__(self, size: int, channels: Sequence[int], width: int) -> None:
        super().__init__()
        self.size, self.channels, self.width = size, tuple(channels), width
        inputs = (1, *self.channels[:2])
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=1 if i == 0 else 2, padding=1, bias=False)
            for i, (a, b) in enumerate(zip(inputs, self.channels, strict=True))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in self.channels)
        self.project = nn.Linear(self.channels[-1] * (size // 4) ** 2, width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def features(self, images: Tensor) -> Tensor:
        """Features before standardization, of images (n, 1, size, size) in [0, 1]."""
        x = images * 2 - 1
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x)))
        projected: Tensor = self.project(x.flatten(1))
        return projected

    def forward(self, images: Tensor) -> Tensor:
        """Vectors, shape (n, width)."""
        standardized: Tensor = (self.features(images) - self.mean) / self.deviation
        return standardized

    @classmethod
    def read(cls, folder: Path, where: str) -> ImageEncoder:
        """Read a folder with ``config.json`` and ``model.safetensors``.

        Raises:
            ModelError: The two files do not fit together.
        """
        config = read_json(folder / "config.json", where)
        try:
            encoder = cls(int(config["size"]), config["channels"], int(config["width"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _unfit(where, error) from None
        _read_weights(encoder, folder, where)
        return encoder


def _read_weights(network: nn.Module, folder: Path, where: str) -> None:
    """Put a folder's weights into a network, as float32."""
    from safetensors.torch import load_file

    try:
        weights = load_file(folder / "model.safetensors")
        network.load_state_dict({name: value.float() for name, value in weights.items()})
    except (OSError, RuntimeError, ValueError) as error:
        raise _unfit(where, error) from None
    network.eval()


def _unfit(where: str, error: Exception) -> ModelError:
    return ModelError(
        f"{where}: config.json and model.safetensors do not fit together ({type(error).__name__}).",
        hint="Remove the folder, then copy or fetch it again.",
    )


def as_pixels(sample: Any, size: tuple[int, int], mode: str) -> Pixels:
    """An image in a size (height, width) and mode (L or RGB); black if the array is not an image.

    It never raises, and the result depends on the array alone.

    >>> as_pixels(np.full((2, 2), 7, np.uint8), (3, 4), "RGB").shape
    (3, 4, 3)
    """
    height, width = size
    array = np.asarray(sample)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    colors = array.ndim == 3 and array.shape[2] in (3, 4)
    # privacy: a record that is not an image must not stop the run, which would reveal it.
    if array.dtype != np.uint8 or array.size == 0 or not (array.ndim == 2 or colors):
        return np.zeros((height, width) if mode == "L" else (height, width, 3), np.uint8)
    picture = Image.fromarray(np.ascontiguousarray(array))
    picture = picture if picture.mode == mode else picture.convert(mode)
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture, np.uint8)


class ImageEmbedder:
    """Vectors of images by an encoder, with independent rows.

    Args:
        network: Vectors of prepared images, shape (rows, width), for a fixed number of rows.
        prepare: Turns any sample into the numbers that ``network`` reads, always of one shape.
        device: Where the network reads them.
        source: The model's name in messages.
        revision: Digest of the model's files.
        rows_per_pass: Images per forward pass, rounded up to a multiple of 16.

    Raises:
        ModelError: It is not an image encoder, or rows are not independent on this machine.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        prepare: Callable[[Any], NDArray[Any]],
        device: Any,
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
    ) -> None:
        self.revision = revision
        self._network, self._prepare, self._device = network, prepare, device
        self._slots = -(-rows_per_pass // ROW_MULTIPLE) * ROW_MULTIPLE
        try:
            self._dummy = prepare(np.zeros((1, 1), np.uint8))
            self.width = self._pass([]).shape[1]
        except Exception as error:  # a model's forward may raise anything
            raise ModelError(
                f"{source}: not an image encoder ({type(error).__name__}).",
                hint="Name a folder of CLIP, ViT, ResNet or timm, or use builtin.",
            ) from None
        rng = np.random.default_rng(0)  # public randomness: which images are embedded
        shapes = [(28, 28), (8, 8), (33, 20, 3)]
        made = (rng.integers(0, 256, shapes[i % 3]) for i in range(2 * self._slots))
        rows = [prepare(image.astype(np.uint8)) for image in made]
        refuse_mixing_rows(rows, self._pass, f"{source}: with rows_per_pass={self._slots}")

    def embed(self, samples: Sequence[Pixels], /) -> NDArray[np.float32]:
        """Vectors of the images, in order, shape (images, width). Any array gives a vector."""
        out = np.empty((len(samples), self.width), np.float32)
        for start in range(0, len(samples), self._slots):
            rows = [self._prepare(sample) for sample in samples[start : start + self._slots]]
            out[start : start + len(rows)] = self._pass(rows)[: len(rows)]
        return out

    def _pass(self, rows: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """One forward pass of a fixed shape; dummies fill the rows after the given ones."""
        filled = np.stack([*rows, *[self._dummy] * (self._slots - len(rows))])
        with torch.inference_mode():
            vectors = self._network(torch.from_numpy(filled).to(self._device))
            array: NDArray[np.float32] = vectors.float().cpu().numpy()
        return array


def encoder_embedder(encoder: Any, device: Any, **common: Any) -> ImageEmbedder:
    """An embedder over an ImageEncoder on its device. Other arguments: those of ImageEmbedder."""
    side = (encoder.size, encoder.size)
    return ImageEmbedder(
        lambda images: encoder(images[:, None].float() / 255),
        lambda sample: as_pixels(sample, side, "L"),
        device,
        **common,
    )


def transformers_embedder(
    model: Any, processor: Any, device: Any, *, unit: bool = True, **common: Any
) -> ImageEmbedder:
    """An embedder over a model of transformers. Other arguments: those of ImageEmbedder.

    CLIP and similar models give their projected image features. Others give their pooled output, or
    the first token's vector. With ``unit`` vectors have length 1.
    """

    def network(pixels: Tensor) -> Tensor:
        if hasattr(model, "get_image_features"):
            states = model.get_image_features(pixel_values=pixels)
        else:
            states = model(pixel_values=pixels)
        if not isinstance(states, Tensor):
            pooled = getattr(states, "pooler_output", None)
            states = states.last_hidden_state[:, 0] if pooled is None else pooled
        vectors = states.flatten(1).float()
        return F.normalize(vectors, dim=-1) if unit else vectors

    def prepare(sample: Any) -> NDArray[Any]:
        array = np.asarray(sample)
        side = array.shape[:2] if array.ndim >= 2 and array.size else (1, 1)
        picture = Image.fromarray(as_pixels(sample, (side[0], side[1]), "RGB"))
        # Tensors, since the processor of timm's models gives nothing else.
        pixels = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        return np.asarray(pixels, np.float32)

    return ImageEmbedder(network, prepare, device, **common)


SIDE = 224
"""Side of the images in pixels, as in the model's training."""
WIDTH = 1280
"""Numbers in a vector: the means of the last features over the image."""
_STEM = 32
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Per stage: blocks, kernel, stride of the first block, expansion, channels."""
_EPSILON = 1e-3
_NORMS = {
    "_conv_stem": "_bn0",
    "_expand_conv": "_bn0",
    "_depthwise_conv": "_bn1",
    "_project_conv": "_bn2",
    "_conv_head": "_bn1",
}
"""The batch norm after each convolution, by the names in the package's file."""
_CENTER, _SCALE = 127.0, 128.0


class _Conv(nn.Conv2d):  # type: ignore[misc]
    """A convolution with TensorFlow's SAME padding: an odd pixel goes to the right."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups)
        total = kernel - stride  # for a side that the stride divides
        self._pads = (total // 2, total - total // 2) * 2

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, self._pads) if any(self._pads) else x
        out: Tensor = super().forward(padded)
        return out


class _Block(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = inputs * expand
        self.widens, self.adds = expand > 1, stride == 1 and inputs == outputs
        if self.widens:
            self.expand_conv = _Conv(inputs, inner)
        self.depthwise_conv = _Conv(inner, inner, kernel, stride, groups=inner)
        self.project_conv = _Conv(inner, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu6(self.expand_conv(x)) if self.widens else x
        projected: Tensor = self.project_conv(F.relu6(self.depthwise_conv(out)))
        return x + projected if self.adds else projected


class EfficientNetLite(nn.Module):  # type: ignore[misc]
    """Images (n, 3, SIDE, SIDE), values from -1 to 1, to vectors (n, WIDTH).

    ``convert`` has merged the batch norms into the convolutions before them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = _Conv(3, _STEM, 3, 2)
        blocks, inputs = [], _STEM
        for repeats, kernel, stride, expand, outputs in _STAGES:
            for number in range(repeats):
                blocks.append(_Block(inputs, outputs, kernel, 1 if number else stride, expand))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = _Conv(inputs, WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        """The vectors."""
        x = self.blocks(F.relu6(self.conv_stem(images)))
        vectors: Tensor = F.relu6(self.conv_head(x)).mean((2, 3))
        return vectors

    @classmethod
    def read(cls, folder: Path, where: str) -> EfficientNetLite:
        """Read a folder that ``convert`` wrote.

        Raises:
            ModelError: The weights belong to another network.
        """
        network = cls()
        _read_weights(network, folder, where)
        return network


def convert(file: Path, folder: Path) -> None:
    """Write the package's file, a state dict of torch, as a folder. It reads tensors only.

    In a trained network a batch norm only scales and shifts, so each is merged into the convolution
    before it.

    Args:
        file: The file, with a checked digest.
        folder: The new folder; it must not exist.
    """
    from safetensors.torch import save_file

    # weights_only: a pickle from a registry must not run code.
    state = torch.load(file, map_location="cpu", weights_only=True)
    weights: dict[str, Tensor] = {}
    for name, kernel in state.items():
        *home, layer = name.removesuffix(".weight").split(".")
        if layer not in _NORMS:
            continue
        norm = ".".join((*home, _NORMS[layer]))
        mean, variance, gain, shift = (
            state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        scale = gain / torch.sqrt(variance + _EPSILON)
        key = ".".join(part.lstrip("_") for part in (*home, layer))
        weights[f"{key}.weight"] = (kernel * scale[:, None, None, None]).contiguous()
        weights[f"{key}.bias"] = shift - mean * scale
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    config = {"model_type": EFFICIENTNET, "size": SIDE, "width": WIDTH}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def efficientnet_embedder(
    network: Any, device: Any, *, rows_per_pass: int, **common: Any
) -> ImageEmbedder:
    """An embedder over the network on its device. Other arguments: those of ImageEmbedder."""

    def centered(pixels: Tensor) -> Tensor:
        images = pixels.permute(0, 3, 1, 2).float()
        images = images.contiguous(memory_format=torch.channels_last)
        vectors: Tensor = network((images - _CENTER) / _SCALE)
        return vectors

    return ImageEmbedder(
        centered,
        lambda sample: as_pixels(sample, (SIDE, SIDE), "RGB"),
        device,
        **common,
        rows_per_pass=min(rows_per_pass, ROW_MULTIPLE),  # large images: more are no faster
    )
