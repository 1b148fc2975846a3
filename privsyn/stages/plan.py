"""plan: config -> event -> cost. Opens no file of the dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from privsyn.backends.image_folders import refuse_unknown_label
from privsyn.backends.load import ModelIdentity, describe_role
from privsyn.config import Config
from privsyn.data.artifacts import private_folder
from privsyn.dp.accountant import Guarantee, guarantee, rho
from privsyn.dp.events import dump
from privsyn.errors import ConfigError
from privsyn.ledger import Preview
from privsyn.methods.base import Method, Role, Trained, load_method
from privsyn.release import IDENTITY, DatasetIdentity, ModelUse, Plan, release_id
from privsyn.stages.base import Context


def plan(ctx: Context, method_name: str, *, open_account: bool = False) -> Plan:
    """Cost and identity of the release that the config describes.

    Args:
        ctx: Config and ledger.
        method_name: Which method.
        open_account: Create the account if it is new, so that the release gets its id. Without it
            nothing is written anywhere.

    Raises:
        ConfigError: A setting is out of bounds, or the model cannot be found.
        BudgetError: The ledger cannot be read, or the account is another one.
    """
    config = ctx.config
    method = load_method(method_name)
    if open_account:
        private_folder(ctx.workspace.state)
    # A dry run leaves no trace: digests of model files are kept only where there is a state folder.
    cache = ctx.workspace.cache if ctx.workspace.state.is_dir() else None
    given = config.method(method_name)
    models = {role: describe_role(config.models, role, cache) for role in method.roles(given)}
    texts = config.dataset.images is None
    _check_modality(config, method_name, models)
    if config.evaluate.enabled and config.evaluate.embeddings:
        # Refused now, not after the budget is spent.
        describe_role(config.models, "embedder" if texts else "image_embedder", cache)
    settings = method.resolve(given, models)
    dataset = config.dataset.resolved(ctx.day)
    target = Guarantee(config.privacy.epsilon, config.privacy.delta)
    planned = method.plan(settings, target, config.account.adjacency, config.unit, dataset.labels)
    cost = guarantee(planned.event, target.delta)
    if cost.epsilon > target.epsilon:
        raise ConfigError(
            f"methods.{method_name} would cost epsilon={cost.epsilon:.6g}, more than "
            f"privacy.epsilon={target.epsilon:.6g}."
        )
    account = ctx.open_account() if open_account else ctx.ledger.find_account(config.account.name)
    cells = len(method.cells(settings, dataset.labels))
    fewest, most = planned.rows or (cells, cells)
    fields: dict[str, Any] = {
        "method": method_name,
        "settings": settings.model_dump(mode="json"),
        "dataset": DatasetIdentity(
            name=dataset.name,
            version=dataset.version,
            label=dataset.label,
            labels=dataset.labels,
            text=dataset.text,
            unit=dataset.unit,
            holdout=dataset.holdout,
            images=dataset.images,
        ).model_dump(mode="json"),
        "account": config.account.name,
        "adjacency": config.account.adjacency.value,
        "unit": config.account.unit,
        "max_records_per_unit": dataset.max_records_per_unit,
        "target_epsilon": target.epsilon,
        "target_delta": target.delta,
        "draw": config.privacy.draw,
        "models": {
            role: ModelUse(
                source=model.source, revision=model.revision, dtype=config.models.dtype
            ).model_dump(mode="json")
            for role, model in models.items()
        },
        "partition_key": account.key_id if account else None,
    }
    return Plan(
        **fields,
        release_id=release_id({key: fields[key] for key in IDENTITY}) if account else None,
        epsilon=cost.epsilon,
        delta=cost.delta,
        rho=rho(planned.event),
        event=dump(planned.event),
        derived=dict(planned.derived),
        invariants=planned.invariants,
        warnings=planned.warnings,
        rows=most,
        min_rows=None if fewest == most else fewest,
        shards=_shards(method, config.performance.shards, cells, most),
    )


def _shards(method: Method, wanted: int, cells: int, rows: int) -> int:
    """Parts the release is generated in: a trained model writes in any number."""
    if isinstance(method, Trained):
        return min(wanted, rows)
    return 1 if method.whole else min(wanted, cells)


def _check_modality(config: Config, method: str, models: Mapping[Role, ModelIdentity]) -> None:
    """Refuse a method that draws texts for a dataset of images, or images of another form."""
    wanted, generator = config.dataset.images, models.get("image")
    if wanted is None and generator is None:
        return
    if wanted is None or generator is None:
        reads, holds = ("texts", "images") if generator is None else ("images", "texts")
        raise ConfigError(
            f"methods.{method} draws {reads}, and dataset {config.dataset.name} holds {holds} "
            f"(dataset.images is {'set' if wanted else 'not set'}).",
            hint=f"Set methods.{method}.modality={holds[:-1]}, or name another dataset."
            if method == "private_evolution"
            else "Use private_evolution for images.",
        )
    for label in config.dataset.labels if generator.labels else ():
        refuse_unknown_label(generator.labels, label, f"models.image={config.models.image}")
    if generator.image is not None and generator.image != (wanted.size, wanted.size, wanted.mode):
        height, width, mode = generator.image
        raise ConfigError(
            f"models.image={config.models.image} draws {height}x{width} {mode} images, and "
            f"dataset.images asks for {wanted.size}x{wanted.size} {wanted.mode}.",
            hint=f"Set dataset.images.size={height} and dataset.images.mode={mode}.",
        )


def preview(ctx: Context, planned: Plan) -> Preview:
    """What the account could still pay, and whether this release fits. Writes nothing."""
    return ctx.ledger.preview(ctx.account, planned.privacy_event(), planned.release_id)


def report(planned: Plan, account: Preview) -> dict[str, Any]:
    """The plan and its account as one JSON-able answer."""
    balance = account.balance
    return planned.model_dump(mode="json") | {
        "account": {
            "name": planned.account,
            "cap": {"epsilon": balance.cap.epsilon, "delta": balance.cap.delta},
            "spent": balance.spent_epsilon,
            "left": balance.left_epsilon,
            "share": balance.share,
            "order": balance.order,
            "budget": balance.budget,
            "asked": account.asked if math.isfinite(account.asked) else None,
            "fits": account.fits,
            "state": account.entry.state.value if account.entry else None,
        }
    }
