"""duration: how long a release takes here, by a trial of its models on public inputs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

from privsyn.errors import ConfigError
from privsyn.methods.base import Backends, PromptsModel, TriesWork, Work
from privsyn.methods.shared.baseline import WritesFresh
from privsyn.models.language.text_variation import TextVariation
from privsyn.models.trial import SENTENCE
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, OpenPlan, open_plan
from privsyn.stages.draw import load_answerer, load_planned_models


def minutes(ctx: Context, plan: Plan) -> dict[str, float]:
    """Minutes of each kind of work in drawing a release. Reads no record; writes nothing.

    Evaluation is left out, and one process draws it all.

    Raises:
        ModelError: A model does not load, or is not the planned one.
        ConfigError: No public size, images, or texts that no model writes.
    """
    size = ctx.config.account.public_size
    if size is None:
        raise ConfigError(
            "account.public_size is not set, and reading the records takes time, too. Set about "
            "how many protected units there are, then ask again."
        )
    release = open_plan(ctx, plan)
    units = size * (1 - plan.dataset.holdout)
    models = load_planned_models(release)
    # Each is done before the next is made: a trainer makes room for its model's texts.
    kinds = chain(_works(release, models, units), _answers(release, models, units))
    return {work.things: work.count * _seconds(work) / 60 for work in kinds}


def _answers(release: OpenPlan, models: Backends, units: float) -> Iterator[Work]:
    """The questions about each record's text."""
    if answerer := load_answerer(release, models):
        questions = [one for one in release.plan.dataset.columns.values() if one.ask is not None]

        def answer(number: int) -> None:
            for place in range(number):
                answerer.answer(questions[place % len(questions)], 8 * SENTENCE)

        yield Work("answers", units * len(questions), answer, most=8)


def _works(release: OpenPlan, models: Backends, units: float) -> Iterator[Work]:
    """What takes the time of a release of so many units, by what its method does."""
    method, settings, plan = release.method, release.settings, release.plan
    labels: list[Any] = list(plan.dataset.labels) or [None]
    fresh = method.fresh(settings) if isinstance(method, WritesFresh) else None
    prompt = method.prompt(settings)
    if isinstance(method, TriesWork):
        yield from method.trial(settings, plan.dataset.labels, models)
    elif fresh is not None and isinstance(method, PromptsModel):
        made, count = list[str](), method.requests(settings, labels)

        def write(number: int) -> None:
            made[:] = TextVariation(fresh, models.text).random(number, labels[0])

        yield Work("texts", count, write)
        yield Work("vectors", count + units, lambda n: models.embedder.embed((made * n)[:n]))
    elif prompt is not None:
        template, reference, most = prompt

        def draw(rows: int) -> None:
            texts = models.language.private_rows(
                template, labels[:1] * rows, [8 * SENTENCE] * rows, reference, most, declared=labels
            )
            for token in range(most):
                if token:
                    texts.append([models.language.eos] * rows)
                texts.logits(slice(0, 1))

        rows = max(settings.batch_size * len(method.cells(settings, labels)), units)
        yield Work("rows of tokens", rows * getattr(settings, "max_texts", 1), draw)
    else:
        raise ConfigError(
            f"methods.{plan.method} has no trial: no language model writes its texts."
        )


def _seconds(work: Work) -> float:
    """Seconds for one, where half as many are done together as in a release."""
    work.do(1)  # what a first pass prepares takes no time later
    began, number = time.monotonic(), work.most // 2
    work.do(number)
    return (time.monotonic() - began) / number
