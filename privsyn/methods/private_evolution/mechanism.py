"""Noise and cost of private evolution: histograms of votes, a table of tokens, mean vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from privsyn.dp import calibration
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Composed, Event
from privsyn.dp.histograms import LATTICE, sensitivity
from privsyn.dp.mechanisms import DiscreteGaussian, root_up
from privsyn.errors import ConfigError
from privsyn.methods.base import ADVICE, Mechanism, PricingFacts, SizedFor
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.methods.shared import label_choice

LOUD = 2.0
"""Noise over votes per candidate from which noise decides more than records. In the measured runs
those above it had no significant gain, and those below it had."""


@dataclass(frozen=True, kw_only=True)
class PrivateEvolutionMechanism(Mechanism):
    """All histograms of a run, each with the same noise, and what is drawn before them.

    Attributes:
        histogram: Adds noise to one histogram of votes and prices it.
        words: Adds noise to the table of tokens and prices it; None without one [E11].
        means: Adds noise to the sums of vectors by label and prices it; None without [E14].
        noise_multiplier: Sigma over the sensitivity.
        threshold: H, in votes. Bins below it have no offspring.
        histograms: Number of histograms.
    """

    histogram: DiscreteGaussian
    words: DiscreteGaussian | None
    means: DiscreteGaussian | None
    noise_multiplier: float
    threshold: float
    histograms: int

    @property
    def event(self) -> Event:
        """The composition of all histograms, the table of tokens and the sums of vectors."""
        return _compose(self.histogram, (self.words, self.means), self.histograms)

    @property
    def noise_votes(self) -> float:
        """Standard deviation of the noise on a bin, in votes."""
        return self.histogram.sigma / LATTICE

    @property
    def derived(self) -> Mapping[str, float]:
        """The noise, in multiples of the sensitivity and in votes, and the threshold."""
        tables = {"noise_words": self.words, "noise_means": self.means}
        return {
            "noise_multiplier": self.noise_multiplier,
            "noise_votes": self.noise_votes,
            "threshold": self.threshold,
            "histograms": self.histograms,
        } | {name: table.sigma / LATTICE for name, table in tables.items() if table is not None}


def calibrate(
    settings: PrivateEvolutionConfig, target: Guarantee, facts: PricingFacts
) -> PrivateEvolutionMechanism:
    """The mechanism with the least noise within the target, unless the config sets sigma.

    Raises:
        ConfigError: ``label_split`` does not match the labels, or no noise reaches the target.
    """
    sigma = settings.noise_multiplier
    if sigma is None:

        def event(sigma: float) -> Event:
            tables = _table(settings, sigma, facts), _sums(settings, sigma, facts)
            return facts.whole(_compose(_histogram(sigma, facts), tables, settings.rounds))

        try:
            sigma = calibration.calibrate(event, target, 1e-3, 1e6, increasing=False)
        except ValueError:
            raise ConfigError(
                f"methods.private_evolution: no noise reaches privacy.epsilon={target.epsilon:g} "
                f"at delta={target.delta:g} with rounds={settings.rounds}.",
                hint="Lower rounds, or raise privacy.epsilon.",
            ) from None
    return rebuild(settings, target, facts, {"noise_multiplier": sigma})


def rebuild(
    settings: PrivateEvolutionConfig,
    target: Guarantee,
    facts: PricingFacts,
    derived: Mapping[str, float],
) -> PrivateEvolutionMechanism:
    """The mechanism by what is solved for: the only place that sets noise and price."""
    sigma = derived["noise_multiplier"]
    histogram = _histogram(sigma, facts)
    noise_votes = histogram.sigma / LATTICE
    labels: list[str | None] = [*facts.labels] or [None]
    rows, sizes = sum(sizes_of(settings, labels)), voted_sizes(settings, labels)
    voted = sum(sizes)
    return PrivateEvolutionMechanism(
        facts=facts,
        warnings=ADVICE.says(
            "private_evolution", cfg=settings, voted=voted, rows=rows, noise=noise_votes
        ),
        rows=(rows, rows),
        sized_for=replace(
            _sized_for(settings, voted * settings.expansion, noise_votes),
            shares=tuple(size / voted for size in sizes),
        ),
        histogram=histogram,
        words=_table(settings, sigma, facts),
        means=_sums(settings, sigma, facts),
        noise_multiplier=sigma,
        # Two standard deviations: of candidates without votes one in 44 gets past it by noise
        # alone.
        threshold=2 * noise_votes if settings.threshold is None else settings.threshold,
        histograms=settings.rounds,
    )


def _histogram(sigma: float, facts: PricingFacts) -> DiscreteGaussian:
    """Noise of one histogram.

    What a unit adds has no negative number and is clipped to an L2 norm of sqrt(m) votes. Replacing
    a unit changes the histogram by u - v, and |u - v|^2 <= |u|^2 + |v|^2 = 2m, since the product of
    u and v is not negative [E15].
    """
    # Labels share this one sensitivity: a unit's votes over all labels are clipped together.
    l2 = sensitivity(facts.adjacency.moves, facts.unit.max_records)
    return DiscreteGaussian(l2, sigma * l2)


def _table(
    settings: PrivateEvolutionConfig, sigma: float, facts: PricingFacts
) -> DiscreteGaussian | None:
    """Noise of the table of tokens; None without one.

    A record's row has an L2 norm of at most one, and no negative number, and the sum of a unit's
    rows is clipped to sqrt(m): the sensitivity of a histogram of votes [E11] [E15].
    """
    share = settings.table_share
    return _histogram(_multiplier(settings, sigma, share), facts) if share else None


def _sums(
    settings: PrivateEvolutionConfig, sigma: float, facts: PricingFacts
) -> DiscreteGaussian | None:
    """Noise of the sums of vectors by label; None without them.

    What a unit adds to the sums of all labels is clipped to an L2 norm of sqrt(m). A unit that
    replaces another may move them by twice that, since vectors may be opposite [E14].
    """
    if len(facts.labels) < 2 or not settings.mean_share:  # one label needs no telling apart
        return None
    l2 = facts.adjacency.moves * root_up(facts.unit.max_records * LATTICE**2)
    return DiscreteGaussian(l2, _multiplier(settings, sigma, settings.mean_share) * l2)


def _multiplier(settings: PrivateEvolutionConfig, sigma: float, share: float) -> float:
    """Noise multiplier of a draw with a share of the whole cost, where a histogram has ``sigma``.

    A draw of multiplier z_i costs 1 / (2 z_i^2) zCDP, and H histograms cost H / (2 z^2). They have
    the share 1 - s of the whole, s being all other shares, so z_i = z sqrt((1 - s) / (s_i H)).
    """
    votes = 1 - settings.table_share - settings.mean_share
    return sigma * math.sqrt(votes / (share * settings.rounds))


def _compose(
    histogram: DiscreteGaussian, tables: Sequence[DiscreteGaussian | None], count: int
) -> Event:
    """The event of a run."""
    # Every round is one histogram on the same records: all are charged [E2].
    votes = replace(histogram.event, count=count)
    before = tuple(table.event for table in tables if table is not None)
    return Composed((*before, votes)) if before else votes


def sizes_of(cfg: PrivateEvolutionConfig, labels: Sequence[str | None]) -> list[int]:
    """Records to release per label: public [E8]."""
    where = "methods.private_evolution"
    return label_choice.sizes(where, labels, cfg.population, cfg.label_split)


def voted_sizes(cfg: PrivateEvolutionConfig, labels: Sequence[str | None]) -> list[int]:
    """Records per label that votes choose. The others are post-processing [E16]."""
    sizes, most = sizes_of(cfg, labels), cfg.most_voted
    return sizes if most is None else [min(size, most) for size in sizes]


def _sized_for(cfg: PrivateEvolutionConfig, candidates: int, noise_votes: float) -> SizedFor:
    """Number of records that gives every candidate one vote, or its noise over LOUD if more."""
    size = "voted" if (cfg.most_voted or cfg.population) < cfg.population else "population"
    sizes = f"{size}={getattr(cfg, size)} with expansion={cfg.expansion}"
    # With little noise one vote per candidate is enough for a ranking.
    if noise_votes <= LOUD:
        return SizedFor(
            records=candidates,
            settings=sizes,
            otherwise="votes spread over more candidates than there are records are lost in "
            f"noise. Lower expansion, or {size}.",
        )
    return SizedFor(
        records=math.ceil(candidates * noise_votes / LOUD),
        settings=f"{sizes} and noise of {noise_votes:.3g} votes on each of {candidates} candidates",
        otherwise="with fewer records the noise decides, and the release may be no better than the "
        "public model alone. Write fewer texts (lower population), lower expansion, or take one "
        "label for several; a larger privacy.epsilon comes last.",
    )
