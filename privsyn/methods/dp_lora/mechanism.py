"""The noise of DP-LoRA and its price: training steps on sampled units, with noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from privsyn.dp import accountant, calibration
from privsyn.dp.adjacency import Adjacency, Guarantee
from privsyn.dp.events import Event
from privsyn.dp.mechanisms import SampledGaussian
from privsyn.errors import ConfigError
from privsyn.methods.base import ADVICE, Mechanism, PricingFacts, SizedFor
from privsyn.methods.dp_lora.settings import DPLoraConfig, DPLoraSettings
from privsyn.methods.shared import label_choice

_TOLERANCE = 5e-7
"""Relative error of the solved noise."""


@dataclass(frozen=True, kw_only=True)
class DPLoraMechanism(Mechanism):
    """All steps of training.

    Attributes:
        steps: Samples units and adds noise at every step, and prices them together.
        delta: The target's delta, at which ``derived`` gives the cost of the release.
    """

    steps: SampledGaussian
    delta: float

    @property
    def event(self) -> Event:
        """T steps."""
        return self.steps.event

    @property
    def derived(self) -> Mapping[str, float]:
        """The noise, and epsilon by the Renyi curve and (where finite) the loss distribution."""
        tight = accountant.loss_distribution_epsilon(self.event, self.delta)
        return {
            "noise_multiplier": self.steps.noise_multiplier,
            "epsilon_rdp": accountant.renyi_epsilon(self.event, self.delta),
            **({"epsilon_pld": tight} if math.isfinite(tight) else {}),
        }


def calibrate(settings: DPLoraSettings, target: Guarantee, facts: PricingFacts) -> DPLoraMechanism:
    """The mechanism with the config's noise or, if that is null, the least that the target allows.

    Raises:
        ConfigError: Adjacency replace_one, a split that does not fit the labels, or a target
            that so many steps cannot reach.
    """
    sigma = settings.noise_multiplier
    if sigma is None:
        # This refuses what cannot be priced.
        one = rebuild(settings, target, facts, {"noise_multiplier": 1.0})
        sigma = _least_noise(one.steps, target, facts)
    return rebuild(settings, target, facts, {"noise_multiplier": sigma})


def rebuild(
    settings: DPLoraSettings, target: Guarantee, facts: PricingFacts, derived: Mapping[str, float]
) -> DPLoraMechanism:
    """The mechanism by what is solved for: the only place that sets noise and price."""
    sigma = derived["noise_multiplier"]
    if facts.adjacency is Adjacency.REPLACE_ONE:  # [L1]
        raise ConfigError(
            "account.adjacency=replace_one: Poisson sampling is not private in this sense at "
            "the price charged here.",
            hint="Use an account with add_remove or replace_null, or another method.",
        )
    rows = sum(sizes_of(settings, list(facts.labels) or [None]))
    return DPLoraMechanism(
        facts=facts,
        warnings=ADVICE.says("dp_lora", cfg=settings, sigma=sigma),
        rows=(rows, rows),
        sized_for=SizedFor(
            records=facts.unit.max_records * settings.expected_batch / settings.sampling_rate,
            settings=f"expected_batch={settings.expected_batch:g} at "
            f"sampling_rate={settings.sampling_rate:g}",
            otherwise="a step's sample holds fewer than expected_batch, and its noise stays. Raise "
            "sampling_rate, or lower expected_batch.",
        ),
        steps=SampledGaussian(settings.sampling_rate, sigma, settings.steps, "auto"),
        delta=target.delta,
    )


@lru_cache(maxsize=64)
def _least_noise(one: SampledGaussian, target: Guarantee, facts: PricingFacts) -> float:
    """The least sigma within the target, up to _TOLERANCE."""

    def event(sigma: float) -> Event:
        # The sampler does not change the price.
        return facts.whole(replace(one, noise_multiplier=sigma, sampler="opendp").event)

    def price(one: Event, delta: float) -> float:
        exact = accountant.loss_distribution_epsilon(one, delta)  # mostly the least bound
        return exact if exact <= target.epsilon else accountant.epsilon_at(one, delta)

    solve = partial(calibration.calibrate, event, target, increasing=False)
    try:
        # The Renyi curve first: it is quick and at most a few percent too high, so the slow loss
        # distribution searches a short range.
        safe = solve(0.0625, 1e4, price=accountant.renyi_epsilon, tolerance=1e-2)
        return solve(max(0.0625, 0.7 * safe), safe, price=price, tolerance=_TOLERANCE)
    except ValueError:
        raise ConfigError(
            f"methods.dp_lora: steps={one.steps} at sampling_rate={one.rate:g} cannot be had for "
            f"privacy.epsilon={target.epsilon:g} at delta={target.delta:g}, whatever the noise.",
            hint="Lower steps or sampling_rate, or raise privacy.epsilon.",
        ) from None


def sizes_of(cfg: DPLoraConfig, labels: Sequence[str | None]) -> list[int]:
    """Number of texts of every label: public [L6]."""
    return label_choice.sizes("methods.dp_lora", labels, cfg.texts_per_label, cfg.label_split)
