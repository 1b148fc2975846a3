"""plan: config -> event -> cost. Opens no file of the dataset."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from pydantic import ValidationError

from privsyn.columns.marginals import Marginals
from privsyn.config import Config
from privsyn.data.artifacts import private_folder
from privsyn.data.settings import ImageConfig
from privsyn.data.unit_key import ID_RULE
from privsyn.dp.accountant import epsilon_without_secret, guarantee, mu, rho
from privsyn.dp.adjacency import Adjacency, Guarantee
from privsyn.dp.event_tree import is_amplified, scaled, without_secret
from privsyn.dp.events import Event, dump
from privsyn.dp.risk import risk
from privsyn.errors import BudgetExceeded, ConfigError
from privsyn.ledger.accounts import Account, Asked
from privsyn.ledger.balances import Preview
from privsyn.ledger.spec import ReleaseRequest
from privsyn.methods.base import READ_MODELS, Mechanism, Method, Role, Size, TrainsModel
from privsyn.methods.registry import METHODS, load_method
from privsyn.modalities.registry import drawn_with, modality_of
from privsyn.models.gpus import visible_cards
from privsyn.models.images.image_folders import check_encoder, refuse_unknown_label
from privsyn.models.language.questions import RULE
from privsyn.models.loading import describe_role
from privsyn.models.model_identity import ModelIdentity, locate, size_in_words
from privsyn.models.references import IMAGE_ENCODER, PACKAGED, ModelReference
from privsyn.progress import under_way
from privsyn.release.advice import CAUTIONS, of_accuracy, of_sizes, publicly, settings_advice
from privsyn.release.plan import (
    PLAN_SCHEMA,
    DatasetIdentity,
    ModelUse,
    Plan,
    accuracy_of,
    marginals_of,
    pricing_facts,
    release_id,
    settings_digest,
)
from privsyn.section import MANY, PAPER, PRESET, SMALL, explain
from privsyn.stages.base import Context


def plan(
    ctx: Context,
    method_name: str,
    *,
    open_account: bool = False,
    derived: Mapping[str, float] | None = None,
) -> Plan:
    """Cost and identity of the release that the config describes.

    Args:
        ctx: Config and ledger.
        method_name: Which method.
        open_account: Create the account if it is new, so that the release gets its id. Without it
            nothing is written anywhere.
        derived: What an earlier plan of the same release solved for: it is priced, not solved
            again. None: solve.

    Raises:
        ConfigError: A setting is out of bounds, or the model cannot be found.
        BudgetExceeded: ``open_account``, and a new account could not pay for it: it is not opened.
        PolicyBroken: The account's policy does not allow it; names every rule.
        BudgetError: The ledger cannot be read, or the account is another one.
    """
    config, method = ctx.config, load_method(method_name)
    if open_account:
        private_folder(ctx.workspace.state)
    given = ctx.settings(method_name)
    models = _models(ctx, method, given)
    dtype = config.models.dtype
    dataset = ctx.dataset
    identity = DatasetIdentity(
        **{name: getattr(dataset, name) for name in DatasetIdentity.model_fields}
    )
    settings = method.resolve(given, models, identity.subject)
    measured = config.evaluate.enabled and dataset.has_holdout
    aim = config.privacy
    request = ReleaseRequest(method_name, aim.epsilon, aim.delta, internal_metrics=measured)
    ctx.account.refuse(f"a release of {method_name}", request)
    price = _price(ctx, method, settings, identity, derived)
    mechanism, cost = price.mechanism, price.cost
    account = _admit(ctx, request, price, open_account=open_account)
    cells = len(method.cells(settings, dataset.labels))
    fewest, most = mechanism.rows or (cells, cells)
    planned = Plan(
        plan_schema=PLAN_SCHEMA,
        method=method_name,
        settings=settings.model_dump(mode="json"),
        dataset=identity,
        account=config.account.name,
        adjacency=config.account.adjacency,
        unit=config.account.unit,
        unit_ids=ID_RULE,
        max_records_per_unit=dataset.max_records_per_unit,
        target_epsilon=config.privacy.epsilon,
        target_delta=config.privacy.delta,
        draw=config.privacy.draw,
        columns=config.columns if identity.columns else None,
        paid_epsilon=price.paid,
        answers=RULE if "answers" in models else None,
        models={
            role: ModelUse(source=one.source, revision=one.revision, dtype=dtype)
            for role, one in models.items()
        },
        partition_key=account.key_id if account else None,
        amplified=price.open_epsilon is not None,
        release_id=None,
        settings_digest=_UNNAMED,
        epsilon=cost.epsilon,
        epsilon_without_secret=price.open_epsilon,
        delta=cost.delta,
        rho=rho(price.event),
        mu=mu(price.event),
        event=dump(price.event),
        derived=dict(mechanism.derived),
        invariants=(),
        warnings=tuple(_warnings(ctx, method, given, settings, models, price, cells)),
        audit_decides=config.evaluate.audit == "block",
        rows=most,
        min_rows=None if fewest == most else fewest,
        shards=_shards(config, method, cells, most),
        dates=config.dataset.dates(ctx.day),
    )
    return _name(ctx, planned, given)


def _name(ctx: Context, planned: Plan, given: Any) -> Plan:
    """A plan with its digest and, where its account is there, with the release's id."""
    fields, terms = planned.model_dump(mode="json"), ctx.account.terms
    digest = settings_digest(fields, given, planned.dataset, amplification=terms.amplification)
    name = None if planned.partition_key is None else release_id(fields)
    return planned.model_copy(update={"release_id": name, "settings_digest": digest})


_UNNAMED = "0" * 64
"""Digest of a plan until its fields are there, of which it is made."""


def _models(ctx: Context, method: Method[Any], given: Any) -> Mapping[Role, ModelIdentity]:
    """The models of a release, and what measures it: refused now, not after it is paid for."""
    config = ctx.config
    ctx.check_files(method.name)
    asks: tuple[Role, ...] = ("answers",) if config.dataset.questions else ()
    roles = (*method.roles(given), *asks)
    models = {role: describe_role(config.models, role, ctx.cache) for role in roles}
    _check_modality(config, method, models)
    _refuse_small(config, method.name, models)
    if config.evaluate.enabled and config.evaluate.models:
        modality = modality_of(config.dataset)
        if modality.embedder is not None:
            describe_role(config.models, modality.embedder, ctx.cache)
        name = config.evaluate.encoder or IMAGE_ENCODER
        encoder = ModelReference("evaluate.encoder", name, of_images=True)
        # One that was not fetched is left out of the report, which says so.
        if modality.generator == "image" and encoder.name not in PACKAGED:
            locate(encoder, check_encoder)
    return models


def _admit(
    ctx: Context, request: ReleaseRequest, price: _Price, *, open_account: bool
) -> Account | None:
    """The account, opened if asked for; refused by its terms at its own delta, or if it is new."""
    config, spec, of_which = ctx.config, ctx.account, f"a release of {request.method}"
    if spec.terms.limits_epsilon and price.cost.delta > config.account.delta:
        at_cap = request.at_price_of(price.event, config.account.delta)
        spec.refuse(of_which, at_cap)
    if not open_account:
        return ctx.find_account()
    ctx.ledger.accounts.check_first_release(spec, price.event, price.cost, f"of {request.method}")
    return ctx.open_account()


@dataclass(frozen=True)
class _Price:
    """What a release costs, and by what it is drawn.

    Attributes:
        mechanism: Of the generator.
        event: Of the whole release.
        cost: Of that event.
        paid: Epsilon of a published accuracy, if one is paid for.
        open_epsilon: Epsilon for whoever knows the secret that the cost counts on; None: none.
        marginals: What draws declared columns; None without any.
    """

    mechanism: Mechanism
    event: Event
    cost: Guarantee
    paid: float | None
    open_epsilon: float | None
    marginals: Marginals | None


def _price(
    ctx: Context,
    method: Method[Any],
    settings: Any,
    identity: DatasetIdentity,
    derived: Mapping[str, float] | None,
) -> _Price:
    """Solve for the target, or price what was solved for.

    Raises:
        ConfigError: The settings cannot be had for the target.
    """
    config = ctx.config
    target = Guarantee(config.privacy.epsilon, config.privacy.delta)
    adjacency, paid = config.account.adjacency, _paid_epsilon(config)
    columns = config.columns if identity.columns else None

    def mechanism_for(marginals: Marginals | None, *, secret: bool) -> Mechanism:
        facts = pricing_facts(
            adjacency, config.unit, identity.labels, paid, marginals, secret_places=secret
        )
        if derived is None:
            return method.calibrate(settings, target, facts)
        return method.rebuild(settings, target, facts, derived)

    with _computable(method.name, target):
        # privacy: swapping one unit for another has no proof that counts on the secret of its place
        secret = ctx.account.terms.amplification and adjacency is not Adjacency.REPLACE_ONE
        marginals = marginals_of(columns, identity, target, adjacency, config.unit)
        mechanism = mechanism_for(marginals, secret=secret)
        if is_amplified(mechanism.event):
            quieter = without_secret(scaled(mechanism.event, _WORTH_A_SECRET))
            if guarantee(mechanism.facts.whole(quieter), target.delta).epsilon <= target.epsilon:
                plain = mechanism_for(marginals, secret=False)
                # Noise that is set cannot grow: without the secret it may cost more.
                if guarantee(plain.whole, target.delta).epsilon <= target.epsilon:
                    mechanism = plain
        open_epsilon = epsilon_without_secret(mechanism.whole, target.delta)
        cost = guarantee(mechanism.whole, target.delta)
    if mechanism.refusal:
        raise ConfigError(mechanism.refusal)
    if cost.epsilon > target.epsilon:
        raise ConfigError(
            f"methods.{method.name} would cost epsilon={cost.epsilon:.6g}, more than "
            f"privacy.epsilon={target.epsilon:.6g}.",
            hint="Leave open (null) what sets its noise, which is then solved for; or raise "
            "privacy.epsilon.",
        )
    return _Price(mechanism, mechanism.whole, cost, paid, open_epsilon, marginals)


_WORTH_A_SECRET = 1.1
"""Nothing is counted on that is hardly needed: without it, noise would be as much larger."""


def _warnings(
    ctx: Context,
    method: Method[Any],
    given: Any,
    settings: Any,
    models: Mapping[Role, ModelIdentity],
    price: _Price,
    cells: int,
) -> Iterator[str]:
    """Cautions and advice of a plan, by public settings alone."""
    config, dataset, mechanism = ctx.config, ctx.config.dataset, price.mechanism
    there, where = publicly(dataset, config.account), f"methods.{method.name}"
    accuracy = accuracy_of(price.paid, config.account.adjacency)
    writers = [model.source for role, model in models.items() if role in WRITERS]
    yield from settings_advice(config, given, writers, price.cost.epsilon, risk(price.event).right)
    yield from of_sizes(where, mechanism, cells, there)
    yield from mechanism.warnings
    units = None if there is None else there.units
    if price.marginals and (advice := price.marginals.advice(units)):
        yield advice
    if accuracy:
        yield from of_accuracy(accuracy.scale, dataset, config.account)
    if config.preset(method.name) == PAPER:
        size = _parameters(models)
        yield from CAUTIONS.says(
            "paper",
            where=where,
            changed=config.changed(method.name),
            size=size,
            many=MANY,
            language=config.models.language,
            parameters=size_in_words(size),
        )
    name, tokens = longest(where, settings)
    if dataset.words is not None and tokens is not None:
        holds = about_words(tokens)
        yield from CAUTIONS.says(
            "too_long", setting=name, tokens=tokens, holds=holds, words=dataset.words
        )


def _parameters(models: Mapping[Role, ModelIdentity]) -> int:
    """Parameters of the largest model whose logits or gradients are read."""
    read = [model.parameters or 0 for role, model in models.items() if role in READ_MODELS]
    return max(read, default=0)


WRITERS: tuple[Role, ...] = ("language", "text", "base")
"""Roles of models that write texts."""


def longest(where: str, settings: Any) -> tuple[str, int | None]:
    """The setting that bounds a text's length, and how many tokens it allows; None: no setting."""
    sections = {"": settings, "text.": getattr(settings, "text", None)}
    part = next((part for part, section in sections.items() if hasattr(section, "max_tokens")), "")
    return f"{where}.{part}max_tokens", getattr(sections[part], "max_tokens", None)


def about_words(tokens: int) -> int:
    """English words of so many tokens, roughly."""
    return max(1, round(0.75 * tokens))


def methods_of(config: Config) -> list[str]:
    """The methods that ``pipeline`` names, in its order; beside them it may name the student.

    Raises:
        ConfigError: It names no method.
    """
    names = [name for name in config.pipeline if name in METHODS]
    if not names:
        raise ConfigError(
            "pipeline names no method.", hint="Name some in params.yaml: pipeline: [invisible_ink]"
        )
    return names


def for_texts(config: Config, method_name: str, texts: int, words: int | None = None) -> list[str]:
    """The overrides with which a release of a method holds so many records; sizes go along.

    Public numbers alone decide: the labels and ``account.public_size``.

    Args:
        config: The project's.
        method_name: Which method.
        texts: Records in all.
        words: About how many words each has; lengths follow. None: they stay.

    Raises:
        ConfigError: ``texts`` is no number of records, or more than the method writes.
    """
    if texts < 1:
        raise ConfigError(
            f"texts={texts} is not a whole number from 1 on.", hint="Pass a number such as 200."
        )
    there, labels = publicly(config.dataset, config.account), config.dataset.labels
    size = Size(texts, labels, words=words)
    if there is not None:
        size = replace(size, units=there.units, records=there.records)
    given = config.method(method_name)
    sizes = load_method(method_name).for_texts(given, size)
    plain = {key: value for key, value in sizes.items() if "." not in key}
    try:
        type(given).model_validate(given.model_dump() | plain)
    except ValidationError as error:
        raise ConfigError(
            f"texts={texts:,} is more or less than methods.{method_name} writes: "
            f"{explain(type(given), error, f'methods.{method_name}.')}",
            hint="Ask for another number.",
        ) from None
    return [f"methods.{method_name}.{key}={json.dumps(value)}" for key, value in sizes.items()]


def sized(config: Config, texts: int | None, methods: Sequence[str]) -> list[str]:
    """See ``for_texts``, for several methods; no overrides where no number is asked for."""
    names = () if texts is None else methods
    return [item for name in names for item in for_texts(config, name, texts or 0)]


def _paid_epsilon(config: Config) -> float | None:
    """What of the release's epsilon pays for a published accuracy.

    Raises:
        ConfigError: There is nobody to test on, nothing to tell apart, or nothing is left to the
            generator.
    """
    paid, dataset = config.evaluate.paid, config.dataset
    if paid is None:
        return None
    if not dataset.holdout:
        raise ConfigError(
            "evaluate.paid asks for an accuracy on held-out units, and dataset.holdout is 0.",
            hint=f"Set dataset.holdout, such as 0.2. Nobody of dataset.test_path is tested on: "
            f"account {config.account.name} protects the units of dataset.path alone.",
        )
    if not dataset.labels:
        raise ConfigError(
            "evaluate.paid asks for the accuracy of a classifier, and the dataset has no labels.",
            hint="Set dataset.label and dataset.labels, or evaluate.paid=null.",
        )
    if paid.epsilon >= config.privacy.epsilon:
        raise ConfigError(
            f"evaluate.paid.epsilon={paid.epsilon:g} leaves nothing of "
            f"privacy.epsilon={config.privacy.epsilon:g} to the generator.",
            hint="Lower the first, or raise the second: it is the cost of both together.",
        )
    return paid.epsilon


@contextmanager
def _computable(method: str, target: Guarantee) -> Iterator[None]:
    """Refuse settings at which the arithmetic of a plan, which reads no data, leaves its range."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except (ArithmeticError, ValueError, MemoryError) as error:
        reason = " ".join(f"{error}".split())[:200] or type(error).__name__
        raise ConfigError(
            f"methods.{method} cannot be planned for privacy.epsilon={target.epsilon:g} and "
            f"privacy.delta={target.delta:g}: a number is out of range ({reason}).",
            hint="Choose less extreme settings.",
        ) from None


def _shards(config: Config, method: Method[Any], cells: int, rows: int) -> int:
    """Parts the release is generated in: a trained model writes in any number."""
    wanted = config.performance.shards or max(1, len(visible_cards()))
    if isinstance(method, TrainsModel):
        return min(wanted, rows)
    return 1 if method.whole else min(wanted, cells)


def _refuse_small(config: Config, method: str, models: Mapping[Role, ModelIdentity]) -> None:
    """Refuse the values for small models with a large one whose logits or gradients are read."""
    size = _parameters(models)
    if config.preset(method) == SMALL and size >= MANY:
        raise ConfigError(
            f"methods.{method}.{PRESET}={SMALL} are values for language models below 1 billion "
            f"parameters, and models.language={config.models.language} has "
            f"{size_in_words(size)}.",
            hint=f"Take the paper's, -S methods.{method}={PAPER}, or write values in place of the "
            f"line {PRESET}.",
        )


def _check_modality(
    config: Config, method: Method[Any], models: Mapping[Role, ModelIdentity]
) -> None:
    """Refuse a method that draws texts for a dataset of images, or images of another form."""
    modality = modality_of(config.dataset)
    drawn = drawn_with(models, columns_alone=method.columns_alone)
    if modality.name != drawn.name:
        raise ConfigError(
            f"methods.{method.name} draws {drawn.things}, and dataset {config.dataset.name} holds "
            f"{modality.things} ({modality.chosen}).",
            hint=_INSTEAD[modality.name],
        )
    if modality.generator is not None:
        check_form(config, modality.form, models[modality.generator])


_INSTEAD = {
    "image": "Use private_evolution for images: methods.private_evolution.modality=image.",
    "text": "Name a method of texts, or set methods.private_evolution.modality=text; for a table "
    "alone dataset.text=null.",
    "table": "Use columns_alone, or name the column of a text.",
}
"""What draws records of a modality."""


def check_form(config: Config, wanted: ImageConfig, generator: ModelIdentity) -> None:
    """Refuse a generator of images that knows other labels, or draws another size or mode."""
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
    return preview_all(ctx, [planned])[0]


def preview_all(ctx: Context, plans: Sequence[Plan]) -> list[Preview]:
    """What releases of one account meet in turn, by the ledger's own admission."""
    asked = [
        Asked(planned.privacy_event(), planned.release_id, planned.settings_digest)
        for planned in plans
    ]
    return ctx.ledger.accounts.preview_all(ctx.account, asked)


def plan_pipeline(ctx: Context, names: Sequence[str]) -> list[tuple[Plan, Preview]]:
    """Plans of several releases, and what each would meet, charged in this order. Writes nothing.

    Args:
        ctx: Config and ledger.
        names: Their methods.
    """
    plans = []
    for name in names:
        with under_way(ctx.on_progress, f"plan {name}: noise and cost"):
            plans.append(plan(ctx, name))
    return list(zip(plans, preview_all(ctx, plans), strict=True))


def refuse_pipeline(ctx: Context, method: str, *, scheduled: bool = False) -> None:
    """Refuse a release of a pipeline that its account cannot pay whole, before any of it is paid.

    Nothing is said of a method that ``pipeline`` does not name, or names alone.

    Args:
        ctx: Config and ledger.
        method: Of the release that is planned.
        scheduled: Whether only the methods that Airflow runs by themselves count.

    Raises:
        BudgetExceeded: Names the first release that does not fit.
    """
    names = [
        name
        for name in ctx.config.pipeline
        if name in METHODS
        and (not scheduled or ((one := ctx.config.schedule.get(name)) and (one.cron or one.asset)))
    ]
    if method not in names or len(names) == 1:
        return
    for planned, account in plan_pipeline(ctx, names):
        # One that was paid before under another id says so itself, where it is reserved.
        if account.fits or account.earlier is not None:
            continue
        raise BudgetExceeded(
            f"pipeline={names}: account {planned.account} cannot pay for all of it; "
            f"{planned.method} (epsilon={planned.epsilon:.4g}, delta={planned.delta:g}) is the "
            "first that does not fit. Nothing was spent.",
            hint="Name fewer methods in pipeline, or lower privacy.epsilon.",
        )


def of_other_accounts(ctx: Context) -> str:
    """What is to be said of a new account in a ledger that has others; internal, empty for nothing.

    The names of other accounts are no part of a plan, which is published.
    """
    name = ctx.config.account.name
    others = [account.spec.name for account in ctx.ledger.accounts.all()]
    if not others or name in others:
        return ""
    listed = ", ".join(others[:_OTHERS]) + (", ..." if len(others) > _OTHERS else "")
    return (
        f"account {name} is new, and this ledger has {listed}. If one of these is about the same "
        "people, take its account and dataset.name: what two accounts give out adds up, and no "
        "cap says so. The same file under another account is refused before anything is spent."
    )


_OTHERS = 5
"""Other accounts that are named."""


def lasts_until(crons: Sequence[str], copies: int, now: datetime) -> datetime | None:
    """When schedules have made so many releases; None where one is no cron expression.

    Args:
        crons: Of Airflow: five fields, or a name such as @daily; at least one.
        copies: How many more releases fit.
        now: From when on (UTC).
    """
    try:
        from croniter import croniter  # comes with Airflow, which has the schedules
    except ImportError:
        return None
    try:
        runs = heapq.merge(*(croniter(cron, now).all_next(datetime) for cron in crons))
        first: datetime = next(runs)
        last, counted = first, 1
        while counted < min(copies, 1000):  # beyond that at the same pace
            last, counted = next(runs), counted + 1
        return last + (last - first) / max(1, counted - 1) * (copies - counted)
    except (ValueError, KeyError, OverflowError, StopIteration):
        return None


def report(planned: Plan, account: Preview) -> dict[str, Any]:
    """The plan and its account as one JSON-able answer."""
    return planned.model_dump(mode="json") | {"account": report_account(planned.account, account)}


def report_all(plans: Sequence[Plan], accounts: Sequence[Preview]) -> dict[str, Any]:
    """Releases in the order in which they would be charged, and what is left of their account."""
    refused = [planned.method for planned, one in zip(plans, accounts, strict=True) if not one.fits]
    together = {
        "name": plans[0].account,
        **accounts[0].balance.figures(),
        "asked": sum(one.loss for one in accounts if one.charges),
        "share_after": accounts[-1].share_after,
        "fits": not refused,
        "first_refused": refused[0] if refused else None,
    }
    releases = [report(planned, one) for planned, one in zip(plans, accounts, strict=True)]
    return {"releases": releases, "together": _finite(together)}


def report_account(name: str, account: Preview) -> dict[str, Any]:
    """An account and what is asked of it. Named as in certificates and `ledger show --json`.

    ``budget``, ``spent``, ``left`` and ``asked`` are losses at the account's order; they add up.
    Epsilons, which do not, have it in their name.
    """
    balance = account.balance
    words = {
        "name": name,
        **balance.figures(),
        "asked": account.loss,
        "fits": account.fits,
        "takes": account.takes,
        "share_after": account.share_after,
        "room_epsilon": account.room,
        "copies": account.copies,
        "state": account.entry.state.value if account.entry else None,
        "earlier": account.earlier.release_id if account.earlier else None,
    }
    return _finite(words)


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with None for the numbers that JSON does not have."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
