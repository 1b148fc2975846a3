"""What the public model writes alone with a release's settings: free, kept once written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.errors import ModelError
from privsyn.methods.base import Backends, Role, unwatched
from privsyn.methods.shared.alone import Alone, Recipe, WritesFresh, write_alone, write_fresh
from privsyn.methods.shared.prompts import MIN_TOKENS, resolved_prompt
from privsyn.models.language.text_variation import TextSettings
from privsyn.models.roles import describe_role, load_role
from privsyn.release.plan import Plan
from privsyn.stages.base import Context

_MOST_TOKENS = 64


def public_alone(
    ctx: Context,
    plan: Plan,
    labels: Sequence[str | None],
    backends: Backends | None,
    progress: Callable[[int, int], None] = unwatched,
) -> list[str] | None:
    """One text per label as a release's settings have the public model write, without records.

    Reads no record and costs nothing. Kept in the cache by model, settings and labels.

    Args:
        ctx: Config.
        plan: The release.
        labels: Label of each text.
        backends: Models already loaded; None loads what the config names.
        progress: Called with texts written and texts to write, where they are not kept already.

    Returns:
        The texts; None where no language model here can write them (a server, a grammar, other
        models loaded).
    """
    models = ctx.config.models
    method, settings = ctx.planned(plan)
    fresh = method.fresh(settings) if isinstance(method, WritesFresh) else None
    role: Role = "language" if fresh is None else "text"
    if models.server is not None or (backends and role not in backends.models):
        return None
    identity = describe_role(models, role, ctx.workspace.cache)
    if fresh is not None:
        recipe: Recipe | TextSettings | None = fresh
    elif isinstance(method, Alone):
        recipe = method.alone(settings, plan.dataset.labels)
    else:
        prompt = resolved_prompt(None, identity, plan.dataset.subject)
        recipe = Recipe(prompt=prompt, max_tokens=_MOST_TOKENS, min_tokens=MIN_TOKENS)
    if recipe is None:
        return None
    asked = {
        "model": backends.models[role].revision if backends else identity.revision,
        "recipe": recipe.model_dump(mode="json"),
        "labels": list(labels),
        "every": list(plan.dataset.labels),
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    file = ctx.workspace.cache / "alone" / f"{digest[:32]}.json"
    if (kept := _kept(file, len(labels))) is not None:
        return kept
    model = backends.models[role] if backends else load_role(models, role, ctx.config.performance)
    rng = np.random.default_rng(int(digest[:16], 16))  # public randomness
    if isinstance(recipe, Recipe):
        texts = write_alone(recipe, model, labels, rng, plan.dataset.labels, progress=progress)
    else:
        try:
            texts = write_fresh(recipe, model, labels, rng, progress)
        except ModelError:  # it wrote no text
            return None
    private_folder(file.parent)
    write_json_atomic(file, texts, mode=0o600)
    return texts


def _kept(file: Path, count: int) -> list[str] | None:
    try:
        texts = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return [str(text) for text in texts] if len(texts) == count else None
