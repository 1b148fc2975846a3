"""Noise and cost of private prediction: rounds of comparisons and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from privsyn.data.records import Cell
from privsyn.dp.accountant import epsilon_at, rho, roughly
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import calibrate as calibrate_noise
from privsyn.dp.calibration import calibrate_composed, calibrate_rho
from privsyn.dp.clipping import LATTICE, grid_bound
from privsyn.dp.events import Event, Rounds
from privsyn.dp.mechanisms import AboveThreshold, ExponentialMechanism
from privsyn.errors import ConfigError
from privsyn.methods.base import ADVICE, Mechanism, PricingFacts
from privsyn.methods.private_prediction.settings import (
    PrivatePredictionConfig,
    PrivatePredictionSettings,
)


@dataclass(frozen=True, kw_only=True)
class PrivatePredictionMechanism(Mechanism):
    """Private tokens of one bucket: rounds of an optional comparison and a draw.

    Scores and distances are sums over the bucket, so the divisor s is part of the scales [P2].

    Attributes:
        token: Draws a token from the summed clipped logits.
        temperature: tau of these draws.
        solved: Whether tau was solved for.
        above: Compares private with public predictions; None if every token is private.
        private_tokens: r per bucket, charged whether used or not.
        buckets: Buckets per label.
        texts_at_worst: Whole texts for which the private tokens of all buckets suffice.
    """

    token: ExponentialMechanism
    temperature: float
    solved: bool
    above: AboveThreshold | None
    private_tokens: int
    buckets: int
    texts_at_worst: int

    @property
    def event(self) -> Event:
        """Every bucket runs r rounds; a unit is in at most one bucket of each label."""
        return self.of_tokens(self.private_tokens)

    @property
    def derived(self) -> Mapping[str, float]:
        """r, tau if it was solved for, and the costs of a draw and a comparison as zCDP."""
        return {
            "private_tokens": self.private_tokens,
            **({"temperature": self.temperature} if self.solved else {}),
            "rho_per_token": rho(self.token.event) or 0.0,
            "rho_per_comparison": (rho(self.above.event) or 0.0) if self.above else 0.0,
            "texts_at_worst": self.texts_at_worst,
        }

    def of_tokens(self, r: int) -> Event:
        """The event of a release with r private tokens per bucket."""
        return self.facts.in_buckets(self.rounds(r), self.buckets)

    def rounds(self, r: int) -> Event:
        """The event of r private tokens: for each, comparisons if any, then a draw."""
        above = (self.above.event,) if self.above else ()
        return Rounds((*above, self.token.event), r)


def calibrate(
    settings: PrivatePredictionSettings, target: Guarantee, facts: PricingFacts
) -> PrivatePredictionMechanism:
    """The mechanism with tau and r solved for, unless the config sets them.

    It has as many private tokens as the target pays for and texts can use, at the lowest
    temperature of a range for which the target pays for all tokens.

    Raises:
        ConfigError: The target does not pay for one token; says which setting costs most.
    """
    tau, r = settings.temperature, settings.private_tokens
    make = partial(_mechanism, settings, facts)
    if tau is None and (tau := _lowest(make, target, r or _most(settings))):
        r = r or _most(settings)
    if r is None:
        one = make(1, tau or _HIGH)
        r = min(_affordable(settings, one, target), _most(settings))
    if tau is None:  # by what whole tokens leave
        # One token more is too many at _HIGH, and tokens cost about as the inverse square of tau.
        low = max(_LOW, _HIGH * (1 - 1 / (r + 1)))
        tau = _lowest(make, target, r, low) or _HIGH
    mechanism = make(r, tau)
    return replace(
        mechanism,
        warnings=(*mechanism.warnings, *_needless(settings, mechanism, target)),
        refusal=_refusal(settings, mechanism),
    )


def _refusal(settings: PrivatePredictionSettings, mechanism: PrivatePredictionMechanism) -> str:
    """Why no text may come out, where the number of private tokens was solved for."""
    if settings.private_tokens or mechanism.texts_at_worst:
        return ""
    r = mechanism.private_tokens
    return " ".join(ADVICE.says("no_whole_text", cfg=settings, r=r, levers=_levers(settings)))


def rebuild(
    settings: PrivatePredictionSettings,
    target: Guarantee,
    facts: PricingFacts,
    derived: Mapping[str, float],
) -> PrivatePredictionMechanism:
    """The mechanism with a solved number of private tokens and temperature."""
    tau = derived["temperature"] if settings.temperature is None else settings.temperature
    return _mechanism(settings, facts, int(derived["private_tokens"]), tau)


def _mechanism(
    settings: PrivatePredictionSettings, facts: PricingFacts, r: int, tau: float
) -> PrivatePredictionMechanism:
    """Build the mechanism: the only place that defines noise and cost."""
    # privacy: the divisor is the public batch size, not the number of records in the bucket [P2].
    steps = settings.batch_size * LATTICE
    # A clipped sum moves by the rounded bound for every record that may change [P2].
    reach = grid_bound(settings.clip_bound) * facts.changed_records
    svt = settings.svt_threshold is not None
    buckets = len(Cell.grid(facts.labels, settings.buckets_per_label))
    # A text may use max_tokens private tokens: fewer are public only where comparisons say so.
    worst = min(r // settings.max_tokens, settings.max_texts)
    return PrivatePredictionMechanism(
        facts=facts,
        warnings=ADVICE.says(
            "private_prediction", cfg=settings, r=r, worst=worst, levers=_levers(settings)
        ),
        rows=(0, buckets * settings.max_texts),
        divisor=settings.batch_size,
        token=ExponentialMechanism(reach, tau * steps),
        temperature=tau,
        solved=settings.temperature is None,
        # A record's distribution sums to at most LATTICE steps: the most it moves a distance [P4].
        above=AboveThreshold(LATTICE * facts.changed_records, settings.svt_noise * steps)
        if svt
        else None,
        private_tokens=r,
        buckets=settings.buckets_per_label,
        texts_at_worst=worst * buckets,
    )


Make = Callable[[int, float], PrivatePredictionMechanism]
"""The mechanism of r private tokens at a temperature."""
_LOW, _HIGH = 0.4, 0.7
"""Temperatures that are tried if the config does not set tau. Below, texts of a bucket are alike
and loop; above, small models write nonsense."""


def _lowest(make: Make, target: Guarantee, r: int, low: float = _LOW) -> float | None:
    """The lowest temperature at which the target pays for r tokens; None: not even the highest."""

    def event(tau: float) -> Event:
        return make(r, tau).whole

    safe = _HIGH
    if roughly(event(safe), target.delta) > _ROUGH * target.epsilon:
        return None
    # Coarse grids first: they are quick.
    for price, tolerance in ((roughly, 1e-3), (epsilon_at, 5e-7)):
        if fits := price(event(safe), target.delta) <= target.epsilon:
            safe = calibrate_noise(
                event, target, low, safe, False, price=price, tolerance=tolerance
            )
    return safe if fits else None


_ROUGH = 1.2
"""More than what is rough overstates epsilon by."""


def _most(settings: PrivatePredictionSettings) -> int:
    """Most tokens of a bucket's texts."""
    return settings.max_texts * settings.max_tokens


def _needless(
    settings: PrivatePredictionSettings, mechanism: PrivatePredictionMechanism, target: Guarantee
) -> tuple[str, ...]:
    """Advice if the target pays for every token without comparisons: then they only cost more."""
    each = rho(mechanism.token.event) or 0.0
    all_private = mechanism.facts.whole(Rounds((mechanism.token.event,), _most(settings)))
    if mechanism.above is None or (rho(all_private) or math.inf) > calibrate_rho(target):
        return ()
    times = (rho(mechanism.rounds(1)) or 0.0) / each - 1
    return ADVICE.says("all_private", most=_most(settings), times=times)


def _affordable(
    settings: PrivatePredictionSettings,
    one: PrivatePredictionMechanism,
    target: Guarantee,
) -> int:
    """Most private tokens per bucket that the target pays for."""

    def event(r: float) -> Event:
        return one.facts.whole(one.of_tokens(max(int(r), 1)))

    def fits(r: int) -> bool:
        return epsilon_at(event(r), target.delta) <= target.epsilon

    each = rho(one.rounds(1)) or 0.0
    if not fits(1):
        comparison = (rho(one.above.event) or 0.0) if one.above else 0.0
        raise ConfigError(
            f"methods.private_prediction: privacy.epsilon={target.epsilon:g} does not pay for one "
            f"private token: its draw costs rho={each - comparison:.3g} "
            f"(clip_bound={settings.clip_bound:g}, batch_size={settings.batch_size}, "
            f"temperature={one.temperature:g}), its comparison rho={comparison:.3g}.",
            hint=f"Raise {_levers(settings)}, temperature or privacy.epsilon.",
        )
    enough = max(int(calibrate_rho(target) / each), 1)  # by zCDP
    # About a third of a token is precise enough: only whole tokens count.
    enough = int(calibrate_composed(event, target, enough, tolerance=0.3 / enough))
    for _ in range(16):  # the search ends within about one token
        if not fits(enough + 1):
            break
        enough += 1
    return enough


def _levers(settings: PrivatePredictionConfig) -> str:
    """Settings that make a token cheaper."""
    return "batch_size" if settings.svt_threshold is None else "svt_noise or batch_size"
