"""The noise of keyphrase seeding and its price: the choice of terms, and the estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.data.records import Cell
from privsyn.dp import calibration
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Composed, Disjoint, Event
from privsyn.dp.mechanisms import DiscreteGaussian, Laplace, root_up
from privsyn.errors import ConfigError
from privsyn.methods.base import ADVICE, Mechanism, PricingFacts
from privsyn.methods.keyphrase_seeding.dp_kde import Structure, deviation, mechanism, structures
from privsyn.methods.keyphrase_seeding.settings import (
    KeyphraseSeedingSettings,
)

LATTICE = 1 << 20
"""Lattice steps per count under Gaussian noise [K2]. Under Laplace noise one count is one step.

So fine a lattice makes the discrete Gaussian as good as the continuous one."""

_ROOM = 1 + 1e-12
"""Factor on every scale that is solved for, so that rounding errors stay within the target."""


@dataclass(frozen=True, kw_only=True)
class KeyphraseSeedingMechanism(Mechanism):
    """The choice of terms, paid once, and the estimates of every label.

    Attributes:
        choice: Noise on the histogram of terms, in ``steps`` of a count.
        estimate: Noise on the sums of one estimate, and its price.
        noise_multiplier: That noise over its sensitivity.
        structures: k, the estimates of a label.
        labels: Number of labels. A unit's parts in all labels together are within one sensitivity.
        score_deviation: Standard deviation of the noise on a score.
        delta: The target's delta, at which ``derived`` gives the cost of each part.
    """

    choice: Laplace | DiscreteGaussian
    estimate: Laplace | DiscreteGaussian
    noise_multiplier: float
    structures: int
    labels: int
    score_deviation: float
    delta: float

    @property
    def steps(self) -> int:
        """Lattice steps of a count of terms."""
        return 1 if isinstance(self.choice, Laplace) else LATTICE

    @property
    def choice_scale(self) -> float:
        """Scale (Laplace) or standard deviation (Gaussian) of the noise on a count of terms."""
        noise = self.choice
        return (noise.scale if isinstance(noise, Laplace) else noise.sigma) / self.steps

    def reached_by_noise(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability that noise alone reaches each noisy count (in steps); 1 up to zero.

        The input is noisy counts, so this is post-processing: it changes nothing in the price.
        """
        from scipy.special import ndtr  # late: planning does without scipy

        at = np.maximum(counts, 0) / self.steps / self.choice_scale
        if isinstance(self.choice, Laplace):
            # P(X >= x) of the discrete Laplace is exp(-x / b) / (1 + exp(-1 / b)).
            tail = np.exp(-at) / (1 + math.exp(-1 / self.choice_scale))
        else:
            tail = ndtr(-at)
        return np.where(counts > 0, tail, 1.0)

    @property
    def estimates(self) -> Event:
        """The k estimates of every label [K3]."""
        # The price of one label: what a unit moves in all labels is within one sensitivity.
        return Disjoint((Composed((self.estimate.event,) * self.structures),), self.labels)

    @property
    def event(self) -> Event:
        """The choice of terms, then the estimates."""
        return Composed((self.choice.event, self.estimates))

    @property
    def derived(self) -> Mapping[str, float]:
        """Scales and costs of both parts."""
        return {
            "epsilon_vocabulary": guarantee(self.choice.event, self.delta).epsilon,
            "vocabulary_scale": self.choice_scale,
            "epsilon_kde": guarantee(self.estimates, self.delta).epsilon,
            "structures": self.structures,
            "noise_multiplier": self.noise_multiplier,
            "score_deviation": self.score_deviation,
        }


def calibrate(
    settings: KeyphraseSeedingSettings, target: Guarantee, facts: PricingFacts
) -> KeyphraseSeedingMechanism:
    """The mechanism with the least noise for which choice and estimates are within the target.

    Raises:
        ConfigError: No noise reaches the target.
    """

    def event(multiplier: float) -> Event:
        return rebuild(settings, target, facts, {"noise_multiplier": multiplier}).whole

    try:
        least = _ROOM * calibration.calibrate(event, target, 1e-4, 1e9, increasing=False)
    except ValueError:
        raise ConfigError(
            f"methods.keyphrase_seeding: no noise reaches privacy.epsilon={target.epsilon:g} at "
            f"delta={target.delta:g}.",
            hint="Raise privacy.epsilon.",
        ) from None
    return rebuild(settings, target, facts, {"noise_multiplier": least})


def rebuild(
    settings: KeyphraseSeedingSettings,
    target: Guarantee,
    facts: PricingFacts,
    derived: Mapping[str, float],
) -> KeyphraseSeedingMechanism:
    """The mechanism by what is solved for: the only place that sets noise and price.

    A document counts once for each of at most S terms, and has at most M = S sequences.
    """
    multiplier = derived["noise_multiplier"]
    # Most sequences by which neighboring datasets differ: M m, doubled under replace_one [K4].
    sequences = facts.changed_records * settings.phrases_per_document
    labels, k = len(Cell.grid(facts.labels, 1)), len(structures_of(settings))
    rows = labels * settings.sequences_per_label
    fewer = max(1, math.ceil(math.log2(settings.sequence_length)))  # estimates, if logarithmic
    return KeyphraseSeedingMechanism(
        facts=facts,
        warnings=ADVICE.says("keyphrase_seeding", cfg=settings, estimates=k, fewer=fewer),
        rows=(rows, rows),
        choice=_choice(settings, facts, multiplier, k),
        estimate=mechanism(settings.noise, settings.features, sequences, multiplier),
        noise_multiplier=multiplier,
        structures=k,
        labels=labels,
        score_deviation=deviation(settings.noise, settings.features, sequences, multiplier),
        delta=target.delta,
    )


def _choice(
    settings: KeyphraseSeedingSettings, facts: PricingFacts, multiplier: float, k: int
) -> Laplace | DiscreteGaussian:
    """Noise on the histogram of terms, of which a record moves S by one each [K2].

    L1 sensitivity S m, doubled where a unit is replaced. L2 sensitivity sqrt(S) m, because all m
    records of a unit may hold the same terms. A replaced unit takes counts from S terms and adds to
    S others: sqrt(2 S) m.
    """
    share, most = settings.vocabulary_share, settings.phrases_per_document
    if settings.noise == "laplace":
        # The choice costs 1 / b_c of pure loss and k estimates cost k / b.
        terms = most * facts.changed_records
        return Laplace(terms, terms * multiplier * (1 - share) / share / k)
    # In whole numbers up to the root, which is rounded up: a sensitivity must never be too small.
    l2 = root_up(most * facts.adjacency.moves * (facts.unit.max_records * LATTICE) ** 2)
    # The choice costs 1 / (2 z_c^2) zCDP and k estimates cost k / (2 z^2). So the choice has the
    # share s of the whole where z_c = z sqrt((1 - s) / (s k)).
    return DiscreteGaussian(l2, l2 * multiplier * math.sqrt((1 - share) / share / k))


def structures_of(settings: KeyphraseSeedingSettings) -> list[Structure]:
    """The structures to estimate, in the order of their numbers."""
    return structures(
        settings.ensemble, settings.sequence_length, settings.features, settings.bandwidth
    )
