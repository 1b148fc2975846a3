"""What private evolution draws with and what that costs: histograms of votes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from privsyn.dp import calibration
from privsyn.dp.accountant import Guarantee
from privsyn.dp.events import Event
from privsyn.dp.mechanisms import DiscreteGaussian, root_up
from privsyn.errors import ConfigError
from privsyn.methods.base import Mechanism, PricingFacts, SizedFor
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.methods.shared import label_choice

LATTICE = 1 << 20
"""Grid steps of one vote: noise on whole votes would cost more than its continuous curve says."""
LOUD = 2.0
"""Noise over votes a candidate, from which on noise has more say than the records. Of the runs on
file those above it gained nothing that their interval shows, and those below it did."""


@dataclass(frozen=True, kw_only=True)
class PrivateEvolutionMechanism(Mechanism):
    """All histograms of a run, each with the same noise.

    Attributes:
        histogram: Adds noise to one histogram of votes, and prices it.
        noise_multiplier: Its sigma over its sensitivity.
        threshold: H, in votes: bins below it have no offspring.
        histograms: How many there are.
    """

    histogram: DiscreteGaussian
    noise_multiplier: float
    threshold: float
    histograms: int

    @property
    def event(self) -> Event:
        """The composition of all histograms."""
        return replace(self.histogram.event, count=self.histograms)

    @property
    def noise_votes(self) -> float:
        """Standard deviation of the noise on a bin, in votes."""
        return self.histogram.sigma / LATTICE

    @property
    def derived(self) -> Mapping[str, float]:
        """The noise, in multiples of the sensitivity and in votes, and the threshold."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "noise_votes": self.noise_votes,
            "threshold": self.threshold,
            "histograms": self.histograms,
        }


def calibrate(
    settings: PrivateEvolutionConfig, target: Guarantee, facts: PricingFacts
) -> PrivateEvolutionMechanism:
    """The noise that the target asks for, where the config leaves sigma open.

    Raises:
        ConfigError: ``label_split`` does not name the labels, or no noise reaches the target.
    """
    sigma = settings.noise_multiplier
    if sigma is None:

        def event(sigma: float) -> Event:
            return replace(_histogram(sigma, facts).event, count=settings.histograms)

        try:
            sigma = calibration.calibrate(event, target, 1e-3, 1e6, increasing=False)
        except ValueError:
            raise ConfigError(
                f"methods.private_evolution: rounds={settings.rounds} cannot be had for "
                f"privacy.epsilon={target.epsilon:g} at delta={target.delta:g}.",
                hint="Lower rounds, or raise privacy.epsilon.",
            ) from None
    return _mechanism(settings, facts, sigma)


def rebuild(
    settings: PrivateEvolutionConfig,
    target: Guarantee,
    facts: PricingFacts,
    derived: Mapping[str, float],
) -> PrivateEvolutionMechanism:
    """The mechanism of a noise multiplier that was solved for."""
    return _mechanism(settings, facts, derived["noise_multiplier"])


def _mechanism(
    settings: PrivateEvolutionConfig, facts: PricingFacts, sigma: float
) -> PrivateEvolutionMechanism:
    """The one place where noise and cost come from."""
    histogram = _histogram(sigma, facts)
    noise_votes = histogram.sigma / LATTICE
    sizes = sizes_of(settings, list(facts.labels) or [None])
    rows = sum(sizes)
    return PrivateEvolutionMechanism(
        facts=facts,
        warnings=_advice(settings, noise_votes),
        rows=(rows, rows),
        sized_for=replace(
            _sized_for(settings, rows * settings.expansion, noise_votes),
            shares=tuple(size / rows for size in sizes),
        ),
        histogram=histogram,
        noise_multiplier=sigma,
        threshold=2 * noise_votes if settings.threshold is None else settings.threshold,
        histograms=settings.histograms,
    )


def _histogram(sigma: float, facts: PricingFacts) -> DiscreteGaussian:
    """Noise of one histogram.

    A record is one vote in one bin. Of a unit's m votes all may fall into one bin; a replaced unit
    takes m from one and puts m into another, of the same label or of two [E3].
    """
    l2 = root_up(facts.adjacency.moves * (facts.unit.max_records * LATTICE) ** 2)
    return DiscreteGaussian(l2, sigma * l2)


def sizes_of(cfg: PrivateEvolutionConfig, labels: Sequence[str | None]) -> list[int]:
    """Candidates of every label."""
    where = "methods.private_evolution"
    paid = cfg.noisy_label_split
    return label_choice.sizes(where, labels, cfg.population, cfg.label_split, paid=paid)


def _sized_for(cfg: PrivateEvolutionConfig, candidates: int, noise_votes: float) -> SizedFor:
    """Records that give a candidate one vote on average, and more than its noise over LOUD."""
    sizes = f"population={cfg.population} with expansion={cfg.expansion}"
    if noise_votes <= LOUD:
        return SizedFor(
            records=candidates,
            settings=sizes,
            otherwise="votes spread over more candidates than there are records are lost in "
            "noise. Lower expansion, or population.",
        )
    return SizedFor(
        records=math.ceil(candidates * noise_votes / LOUD),
        settings=f"{sizes} and noise of {noise_votes:.3g} votes on each of {candidates} candidates",
        otherwise="with fewer it is the noise that chooses among them, and the release may be no "
        "better than the public model alone. Raise privacy.epsilon, or lower expansion or "
        "population.",
    )


def _advice(cfg: PrivateEvolutionConfig, noise_votes: float) -> tuple[str, ...]:
    where = "methods.private_evolution"
    if cfg.threshold is not None and cfg.threshold < noise_votes:
        return (
            f"{where}.threshold={cfg.threshold:g} is below the noise of {noise_votes:.3g} votes on "
            "a bin: many candidates that nobody voted for will have offspring.",
        )
    return ()
