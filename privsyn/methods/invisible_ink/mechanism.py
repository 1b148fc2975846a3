"""Noise and cost of InvisibleInk: one exponential mechanism per token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from privsyn.dp.accountant import rho
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import calibrate_range
from privsyn.dp.clipping import DEEPEST, LATTICE, grid_bound
from privsyn.dp.events import BoundedRange, Event
from privsyn.dp.mechanisms import ExponentialMechanism
from privsyn.errors import ConfigError
from privsyn.methods.base import ADVICE, Mechanism, PricingFacts
from privsyn.methods.invisible_ink.settings import InvisibleInkSettings


@dataclass(frozen=True, kw_only=True)
class InvisibleInkMechanism(Mechanism):
    """One bucket's text: T draws of the exponential mechanism, in each bucket of every label.

    Attributes:
        token: Draws a token, and prices it.
        clip_bound: C, in logits: most that a reference changes the summed score of each token.
        tokens: T, the most tokens of a text.
        buckets: Buckets per label.
    """

    token: ExponentialMechanism
    clip_bound: float
    tokens: int
    buckets: int

    @property
    def event(self) -> Event:
        """T adaptive draws in every bucket; a unit is in at most one bucket of each label."""
        return self.facts.in_buckets(replace(self.token.event, count=self.tokens), self.buckets)

    @property
    def derived(self) -> Mapping[str, float]:
        """The clip bound, and the cost of a token as zCDP."""
        return {"clip_bound": self.clip_bound, "rho_per_token": rho(self.token.event) or 0.0}


def calibrate(
    settings: InvisibleInkSettings, target: Guarantee, facts: PricingFacts
) -> InvisibleInkMechanism:
    """Clip bound and event for a target guarantee: C = B tau eta / 2 / D(1).

    eta is the largest range for which a release of T adaptive draws stays within the target.

    Raises:
        ConfigError: The target is so small that the clip bound is below one step of the lattice.
    """
    tokens = settings.max_tokens

    def event(eta: float) -> Event:
        return facts.whole(facts.in_buckets(BoundedRange(eta, tokens), settings.texts_per_label))

    eta = calibrate_range(event, target, tokens)
    # A range is 2 * sensitivity / scale, and the sensitivity is C for every record that may change.
    scale = settings.batch_size * settings.temperature
    return rebuild(settings, target, facts, {"clip_bound": scale * eta / 2 / facts.changed_records})


def rebuild(
    settings: InvisibleInkSettings,
    target: Guarantee,
    facts: PricingFacts,
    derived: Mapping[str, float],
) -> InvisibleInkMechanism:
    """The mechanism by what is solved for: the only place that sets noise and price."""
    clip_bound = derived["clip_bound"]
    bound = grid_bound(min(clip_bound, DEEPEST))  # rounded down: toward privacy
    # A bound of zero steps would release nothing of the records at full price.
    if bound < 1:
        raise ConfigError(
            f"privacy.epsilon buys a clip bound of {clip_bound:.3g}, below the grid of "
            f"{1 / LATTICE:.3g}.",
            hint="Raise privacy.epsilon or batch_size, or lower max_tokens.",
        )
    scale = settings.temperature * settings.batch_size * LATTICE
    # Scores are sums over a bucket. The mean's divisor B is in the scale, so no size is read.
    token = ExponentialMechanism(bound * facts.changed_records, scale)
    return InvisibleInkMechanism(
        facts=facts,
        warnings=ADVICE.says("invisible_ink", cfg=settings),
        divisor=settings.batch_size,
        token=token,
        # The rounded bound, so that rows are clipped to exactly what is charged.
        clip_bound=token.sensitivity / facts.changed_records / LATTICE,
        tokens=settings.max_tokens,
        buckets=settings.texts_per_label,
    )
