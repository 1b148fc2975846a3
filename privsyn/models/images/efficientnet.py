"""EfficientNet-Lite0 with its ImageNet weights: an encoder that no method here was made with.

The weights come with a package of the Python registry (models/packaged.py); the layers are written
here, so that none of its code runs. The last layer, which names classes, is left out.

Source: Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
Table 1, in the Lite form of its authors: no squeeze and excitation, ReLU6, stem and head unscaled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from privsyn.errors import ModelError
from privsyn.models.images.image_embed import ROW_MULTIPLE, ImageEmbedder, as_pixels
from privsyn.models.images.image_folders import EFFICIENTNET

SIDE = 224
"""Pixels a side, as it was trained."""
WIDTH = 1280
"""Numbers in a vector: the averages of the last features."""
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
"""Blocks, kernel, stride of the first block, expansion, channels."""
_EPSILON = 1e-3
_NORMS = {
    "_conv_stem": "_bn0",
    "_expand_conv": "_bn0",
    "_depthwise_conv": "_bn1",
    "_project_conv": "_bn2",
    "_conv_head": "_bn1",
}
"""In the package's file, the batch norm behind each convolution."""
_CENTRE, _SCALE = 127.0, 128.0


class _Conv(nn.Conv2d):  # type: ignore[misc]
    """A convolution, padded as TensorFlow's SAME: more on the right where that is uneven."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups)
        total = kernel - stride  # of a side that the stride divides
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

    Its batch norms are part of the convolutions before them: see ``convert``.
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
        """From a folder that ``convert`` wrote.

        Raises:
            ModelError: The weights are of another network.
        """
        from safetensors.torch import load_file

        network = cls()
        try:
            network.load_state_dict(load_file(folder / "model.safetensors"))
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"{where}: model.safetensors does not fit {EFFICIENTNET} ({type(error).__name__}).",
                hint=f"Remove the folder, then `privsyn models fetch {EFFICIENTNET}`.",
            ) from None
        network.eval()
        return network


def convert(file: Path, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write the package's file, a state dict of torch, as a folder; tensors alone are read.

    Every batch norm, which only scales and shifts once a network is trained, is multiplied into
    the convolution before it.

    Args:
        file: The file, whose digest was checked.
        folder: The folder to make; must not exist.
        progress: Called with steps done and all steps.
    """
    from safetensors.torch import save_file

    progress(0, 1)
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
        own = ".".join(part.lstrip("_") for part in (*home, layer))
        weights[f"{own}.weight"] = (kernel * scale[:, None, None, None]).contiguous()
        weights[f"{own}.bias"] = shift - mean * scale
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    config = {"model_type": EFFICIENTNET, "size": SIDE, "width": WIDTH}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    progress(1, 1)


def efficientnet_embedder(
    network: Any, device: Any, *, source: str, revision: str, rows_per_pass: int
) -> ImageEmbedder:
    """An embedder over a network that was settled on a device. Arguments as ImageEmbedder."""

    def run(rows: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            images = torch.from_numpy(rows).to(device).permute(0, 3, 1, 2).float()
            images = images.contiguous(memory_format=torch.channels_last)
            vectors: NDArray[np.float32] = network((images - _CENTRE) / _SCALE).cpu().numpy()
        return vectors

    return ImageEmbedder(
        run,
        lambda sample: as_pixels(sample, (SIDE, SIDE), "RGB"),
        width=WIDTH,
        source=source,
        revision=revision,
        rows_per_pass=min(rows_per_pass, ROW_MULTIPLE),  # large images: more are no faster
    )
