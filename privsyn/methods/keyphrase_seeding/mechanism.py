"""What keyphrase seeding draws with and what that costs: terms, and the estimates of a label."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from privsyn.data.records import Cell
from privsyn.dp import calibration
from privsyn.dp.accountant import Guarantee, guarantee
from privsyn.dp.events import Composed, Disjoint, Event
from privsyn.dp.mechanisms import DiscreteGaussian, Laplace
from privsyn.errors import ConfigError
from privsyn.methods.base import Mechanism, ReleaseFacts
from privsyn.methods.keyphrase_seeding.dp_kde import Structure, deviation, mechanism, structures
from privsyn.methods.keyphrase_seeding.settings import (
    SECTION,
    KeyphraseSeedingConfig,
    KeyphraseSeedingSettings,
)

_ROOM = 1 + 1e-12
"""Scales are this much larger than a target asks, so that roundings stay within it."""


@dataclass(frozen=True, kw_only=True)
class KeyphraseSeedingMechanism(Mechanism):
    """The choice of terms, paid once, and the estimates of every label.

    Attributes:
        choice: Noise on the histogram of terms.
        estimate: Noise on the sums of one estimate, and its price.
        noise_multiplier: That noise over its sensitivity.
        structures: k, the estimates of a label.
        labels: How many labels there are: they are disjoint in units.
        score_deviation: Standard deviation of the noise on a score.
        delta: Of the target, at which ``derived`` says what the estimates cost alone.
    """

    choice: Laplace
    estimate: Laplace | DiscreteGaussian
    noise_multiplier: float
    structures: int
    labels: int
    score_deviation: float
    delta: float

    @property
    def estimates(self) -> Event:
        """The k estimates of every label [K3]."""
        return Disjoint((Composed((self.estimate.event,) * self.structures),), self.labels)

    @property
    def event(self) -> Event:
        """The choice of terms, then the estimates."""
        return Composed((self.choice.event, self.estimates))

    @property
    def derived(self) -> Mapping[str, float]:
        """Scales and costs of both parts."""
        return {
            "epsilon_vocabulary": self.choice.event.epsilon,
            "vocabulary_scale": self.choice.scale,
            "epsilon_kde": guarantee(self.estimates, self.delta).epsilon,
            "structures": self.structures,
            "noise_multiplier": self.noise_multiplier,
            "score_deviation": self.score_deviation,
        }


def calibrate(
    settings: KeyphraseSeedingSettings, target: Guarantee, facts: ReleaseFacts
) -> KeyphraseSeedingMechanism:
    """What the choice of terms costs is a setting; the noise of the estimates is solved for.

    It is the least whose event, *with* the choice, stays within the target; or, with
    ``epsilon_kde``, the least whose event alone is within (epsilon_kde, 0) under Laplace and
    within (epsilon_kde, delta) under Gaussian noise.

    Raises:
        ConfigError: The choice of terms leaves nothing for the estimates.
    """

    def made(multiplier: float) -> KeyphraseSeedingMechanism:
        return _mechanism(settings, target, facts, multiplier)

    def whole(multiplier: float) -> Event:
        return made(multiplier).event

    def estimates(multiplier: float) -> Event:
        return made(multiplier).estimates

    choice = made(1.0).choice
    if settings.epsilon_kde is None:
        return made(_least_noise(whole, target, choice, target))
    delta = 0.0 if settings.noise == "laplace" else target.delta
    goal = Guarantee(settings.epsilon_kde, delta)
    return made(_least_noise(estimates, goal, choice, target))


def rebuild(
    settings: KeyphraseSeedingSettings,
    target: Guarantee,
    facts: ReleaseFacts,
    derived: Mapping[str, float],
) -> KeyphraseSeedingMechanism:
    """The mechanism of a noise multiplier that was solved for."""
    return _mechanism(settings, target, facts, derived["noise_multiplier"])


def _mechanism(
    settings: KeyphraseSeedingSettings,
    target: Guarantee,
    facts: ReleaseFacts,
    multiplier: float,
) -> KeyphraseSeedingMechanism:
    """The one place where noise and cost come from.

    A document counts once for each of at most S terms, and has at most M sequences.
    """
    share = settings.epsilon_vocabulary or settings.vocabulary_share * target.epsilon
    terms = settings.terms_per_document * facts.moved
    sequences = facts.moved * settings.phrases_per_document
    labels, k = len(Cell.grid(facts.labels, 1)), len(structures_of(settings))
    rows = labels * settings.sequences_per_label
    return KeyphraseSeedingMechanism(
        facts=facts,
        warnings=_advice(settings, k),
        rows=(rows, rows),
        choice=Laplace(terms, terms / share * _ROOM),
        estimate=mechanism(settings.noise, settings.features, sequences, multiplier),
        noise_multiplier=multiplier,
        structures=k,
        labels=labels,
        score_deviation=deviation(settings.noise, settings.features, sequences, multiplier),
        delta=target.delta,
    )


def structures_of(settings: KeyphraseSeedingSettings) -> list[Structure]:
    """The structures that the settings ask to estimate, in the order they are numbered."""
    return structures(
        settings.ensemble, settings.sequence_length, settings.features, settings.bandwidth
    )


def _least_noise(
    event_of: Callable[[float], Event], goal: Guarantee, choice: Laplace, target: Guarantee
) -> float:
    """The least noise multiplier whose event is within the goal."""
    try:
        return _ROOM * calibration.calibrate(event_of, goal, 1e-4, 1e9, increasing=False)
    except ValueError:
        raise ConfigError(
            f"{SECTION}: the choice of terms costs epsilon={choice.event.epsilon:.4g}, which "
            f"leaves nothing of privacy.epsilon={target.epsilon:g} for the estimates.",
            hint="Lower epsilon_vocabulary or vocabulary_share, or raise privacy.epsilon.",
        ) from None


def _advice(cfg: KeyphraseSeedingConfig, k: int) -> tuple[str, ...]:
    advice: list[str] = []
    if cfg.document is not None:
        advice.append(
            f"{SECTION}.document is now dataset.document, which feeds the prompts of all methods: "
            "move it there."
        )
    if cfg.ensemble == "linear" and k > 4:
        fewer = max(1, math.ceil(math.log2(cfg.sequence_length)))
        advice.append(
            f"{SECTION}.ensemble=linear shares the budget among {k} estimates; logarithmic needs "
            f"{fewer}."
        )
    return tuple(advice)
