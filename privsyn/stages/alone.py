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
from privsyn.models.trial import refuse_no_numbers
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
    role, recipe = _recipe(ctx, plan)
    if models.server is not None or (backends and role not in backends.models) or recipe is None:
        return None
    identity = describe_role(models, role, ctx.workspace.cache)
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


def try_alone(ctx: Context, plan: Plan, loaded: Backends) -> None:
    """Have the public model begin a text as ``public_alone`` would; nothing is kept.

    Args:
        ctx: Config.
        plan: The release.
        loaded: Models of the release that are loaded already, which are taken as they are.

    Raises:
        ModelError: It does not load, or cannot write by the release's settings.
    """
    role, recipe = _recipe(ctx, plan)
    if ctx.config.models.server is not None or recipe is None:
        return
    model = loaded.models.get(role) or load_role(ctx.config.models, role, ctx.config.performance)
    labels = [plan.dataset.labels[0] if plan.dataset.labels else None]
    if not isinstance(recipe, Recipe):
        model.check()  # the method tries its prompts
        return
    rows = model.public_rows(recipe.prompt.template, labels, recipe.max_tokens)
    refuse_no_numbers(rows.logits())


def _recipe(ctx: Context, plan: Plan) -> tuple[Role, Recipe | TextSettings | None]:
    """The role that writes the public texts of a release, and how; None where it cannot be told."""
    method, settings = ctx.planned(plan)
    fresh = method.fresh(settings) if isinstance(method, WritesFresh) else None
    if fresh is not None:
        return "text", fresh
    if isinstance(method, Alone):
        return "language", method.alone(settings, plan.dataset.labels)
    identity = describe_role(ctx.config.models, "language", ctx.workspace.cache)
    prompt = resolved_prompt(None, identity, plan.dataset.subject)
    return "language", Recipe(prompt=prompt, max_tokens=_MOST_TOKENS, min_tokens=MIN_TOKENS)


def _kept(file: Path, count: int) -> list[str] | None:
    try:
        texts = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return [str(text) for text in texts] if len(texts) == count else None
