"""Rooms: what an account is opened for, so that one filter holds it with all of delta.

Let U(g; S, N, K, R) be delta at epsilon g of Gaussian noise of mu^2 = S, composed with N steps on a
Poisson sample of the units, K randomized responses and R random allocations. Fix S, N, K and R
before anything is seen, such that U(epsilon; S, N, K, R) <= delta. Then releases chosen adaptively
are together (epsilon, delta)-DP while their squared mu add up to at most S, their steps to N, their
responses to K and their allocations to R: the proof of the Gaussian filter holds word for word.
Proof: [B21] in bounds.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privsyn.dp.event_tree import in_sequence, without_secret
from privsyn.dp.events import Composed, Event, Pure, RandomAllocation, SampledGaussian
from privsyn.dp.filters import gaussian_mu_squared

Used = tuple[int, int, int]
"""Steps, responses and allocations that something takes of rooms."""


@dataclass(frozen=True)
class Need:
    """What an event takes of rooms.

    Attributes:
        used: Steps on a sample, randomized responses, random allocations.
        rest: What it does besides, which Gaussian noise has to cover; None if nothing.
    """

    used: Used
    rest: Event | None


@dataclass(frozen=True)
class Rooms:
    """Rooms beside Gaussian noise. A room of none holds nothing.

    Attributes:
        rate: Largest probability of a unit to enter a step.
        noise_multiplier: Least standard deviation of a step, over the clip norm of one unit.
        steps: Number of steps, of all trainings together.
        loss: Largest pure loss of a response (nats).
        responses: Number of responses.
        mu: Largest mu of a place of an allocation.
        places: Least number of places of an allocation.
        allocations: Number of allocations.
    """

    rate: float = 0.0
    noise_multiplier: float = 1.0
    steps: int = 0
    loss: float = 0.0
    responses: int = 0
    mu: float = 0.0
    places: int = 2
    allocations: int = 0

    @property
    def wholes(self) -> Used:
        """How much the rooms hold."""
        return self.steps, self.responses, self.allocations

    def __bool__(self) -> bool:
        return any(self.wholes)

    def __str__(self) -> str:
        rooms = [
            f"{self.steps} steps at sampling_rate={self.rate:g} and noise_multiplier="
            f"{self.noise_multiplier:g}"
        ] * bool(self.steps)
        rooms += [f"{self.responses} responses of epsilon={self.loss:g}"] * bool(self.responses)
        rooms += [
            f"{self.allocations} releases of {self.places} buckets at mu={self.mu:.4g}"
        ] * bool(self.allocations)
        return ", ".join(rooms) or "null"

    def need(self, event: Event) -> Need:
        """What an event takes: a function of the event alone, however full the rooms are.

        What costs less than about half of what the room was made for stays outside it.
        """
        steps, responses, allocations, rest = 0, 0, 0, list[Event]()
        for part in in_sequence(event):
            match part:
                case SampledGaussian(rate, noise, count) if (
                    self.steps
                    and self.rate / 2 <= rate <= self.rate
                    and self.noise_multiplier <= noise <= 2 * self.noise_multiplier
                ):
                    steps += count
                case Pure(loss) if self.responses and self.loss / 2 <= loss <= self.loss:
                    responses += 1
                case RandomAllocation(inner, places) if (
                    self.allocations
                    and not allocations
                    and self.places <= places <= 2 * self.places
                    and self.mu / 2 <= math.sqrt(gaussian_mu_squared(inner)) <= self.mu
                ):
                    allocations += 1
                case _:
                    rest.append(part)
        if allocations:  # privacy: another allocation of the release may be the same draw [B22]
            rest = [without_secret(part) for part in rest]
        used = steps, responses, allocations
        if not any(used):
            return Need(used, event)
        return Need(used, Composed(tuple(rest)) if rest else None)


NO_ROOMS = Rooms()
"""Of an account that declares nothing."""
