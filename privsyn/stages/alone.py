"""What the public model writes alone with a release's settings: free, kept once written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.methods.base import Backends
from privsyn.methods.shared.alone import Alone, BoundsTexts, Recipe, write_alone
from privsyn.methods.shared.prompts import MIN_TOKENS, resolved_prompt
from privsyn.models.roles import describe_role, load_role
from privsyn.release.plan import Plan
from privsyn.stages.base import Context

_MOST_TOKENS = 64


def public_alone(
    ctx: Context, plan: Plan, labels: Sequence[str | None], backends: Backends | None
) -> list[str] | None:
    """One text per label from the public prompt of a release's settings.

    Reads no record and costs nothing. Kept in the cache by model, settings and labels.

    Args:
        ctx: Config.
        plan: The release.
        labels: Label of each text.
        backends: Models already loaded; None loads what the config names.

    Returns:
        The texts; None where no language model here can write them (a server, a grammar, other
        models loaded).
    """
    models = ctx.config.models
    if models.server is not None or (backends and "language" not in backends.models):
        return None
    identity = describe_role(models, "language", ctx.workspace.cache)
    method, settings = ctx.planned(plan)
    if isinstance(method, Alone):
        recipe = method.alone(settings, plan.dataset.labels)
    else:
        recipe = Recipe(
            prompt=resolved_prompt(None, identity, plan.dataset.subject),
            max_tokens=method.longest_text(settings)
            if isinstance(method, BoundsTexts)
            else _MOST_TOKENS,
            min_tokens=MIN_TOKENS,
        )
    if recipe is None:
        return None
    asked = {
        "model": backends.language.revision if backends else identity.revision,
        "recipe": recipe.model_dump(mode="json"),
        "labels": list(labels),
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    file = ctx.workspace.cache / "alone" / f"{digest[:32]}.json"
    if (kept := _kept(file, len(labels))) is not None:
        return kept
    model = backends.language if backends else load_role(models, "language", ctx.config.performance)
    rng = np.random.default_rng(int(digest[:16], 16))  # public randomness
    texts = write_alone(recipe, model, labels, rng, plan.dataset.labels)
    private_folder(file.parent)
    write_json_atomic(file, texts, mode=0o600)
    return texts


def _kept(file: Path, count: int) -> list[str] | None:
    try:
        texts = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return [str(text) for text in texts] if len(texts) == count else None
