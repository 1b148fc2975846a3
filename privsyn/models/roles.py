"""Roles of models: for each, its setting, and how the model is identified and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.errors import ModelError
from privsyn.models import model_identity
from privsyn.models.images.loading import load_image_embedder, load_image_model
from privsyn.models.language.loading import (
    load_embedder,
    load_language_model,
    load_text_model,
    load_trainable_model,
)
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.spelling import nearest


@dataclass(frozen=True)
class ModelRole:
    """The role of a model.

    Attributes:
        setting: The setting that names the model.
        describe: Returns its identity, from settings and a cache folder for digests (or None).
        load: Loads the model, from settings of models and of performance.
    """

    setting: str
    describe: Callable[[ModelsConfig, Path | None], ModelIdentity]
    load: Callable[[ModelsConfig, PerformanceConfig], Any]


ROLES: Mapping[str, ModelRole] = {
    "language": ModelRole("models.language", model_identity.describe, load_language_model),
    "text": ModelRole("models.language", model_identity.describe_text, load_text_model),
    "embedder": ModelRole("models.embedder", model_identity.describe_embedder, load_embedder),
    "image": ModelRole("models.image", model_identity.describe_image, load_image_model),
    "image_embedder": ModelRole(
        "models.image_embedder", model_identity.describe_image_embedder, load_image_embedder
    ),
    "base": ModelRole("models.language", model_identity.describe_base, load_trainable_model),
}
"""The roles, which methods.base.Role explains."""


def describe_role(cfg: ModelsConfig, role: str, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the model in a role.

    Raises:
        ModelError: The model cannot be used, or there is no such role.
    """
    return _role(role).describe(cfg, cache_dir)


def load_role(cfg: ModelsConfig, role: str, performance: PerformanceConfig) -> Any:
    """Load the model in a role.

    Raises:
        ModelError: The model cannot be used, or there is no such role.
    """
    return _role(role).load(cfg, performance)


def _role(name: str) -> ModelRole:
    if name not in ROLES:
        near = nearest(name, list(ROLES))
        raise ModelError(
            f"role={name!r} is not a role of a model; known are: {', '.join(ROLES)}.",
            hint=f"Did you mean {near}?" if near else "Ask for one of these in the method's roles.",
        )
    return ROLES[name]
