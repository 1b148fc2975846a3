"""Rooms: what an account is opened for, so that one filter holds it with all of delta.

Let U(g; S, N, K) be delta at epsilon g of Gaussian noise of mu^2 = S, composed with N steps on a
Poisson sample of the units and K randomized responses. Fix S, N and K before anything is seen, such
that U(epsilon; S, N, K) <= delta. Then releases chosen adaptively are together (epsilon, delta)-DP
while their squared mu add up to at most S, their steps to N and their responses to K: the proof of
the Gaussian filter holds word for word. Proof: [B21] in bounds.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from privsyn.dp.accountant import Guarantee, epsilon_at
from privsyn.dp.calibration import CALIBRATION_MARGIN, calibrate
from privsyn.dp.conversions import LATTICE_SLACK
from privsyn.dp.event_tree import in_sequence
from privsyn.dp.events import Composed, Event, Gaussian, Pure, SampledGaussian
from privsyn.dp.filters import gaussian_budget


@dataclass(frozen=True)
class Need:
    """What an event takes of rooms.

    Attributes:
        steps: Steps on a sample.
        responses: Randomized responses.
        rest: What it does besides, which Gaussian noise has to cover; None if nothing.
    """

    steps: int
    responses: int
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
    """

    rate: float = 0.0
    noise_multiplier: float = 1.0
    steps: int = 0
    loss: float = 0.0
    responses: int = 0

    def __bool__(self) -> bool:
        return bool(self.steps or self.responses)

    def __str__(self) -> str:
        rooms = [
            f"{self.steps} steps at sampling_rate={self.rate:g} and noise_multiplier="
            f"{self.noise_multiplier:g}"
        ] * bool(self.steps)
        rooms += [f"{self.responses} responses of epsilon={self.loss:g}"] * bool(self.responses)
        return ", ".join(rooms) or "null"

    def need(self, event: Event) -> Need:
        """What an event takes: a function of the event alone, however full the rooms are.

        What costs less than about half of what the room was made for stays outside it.
        """
        steps, responses, rest = 0, 0, list[Event]()
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
                case _:
                    rest.append(part)
        if not (steps or responses):
            return Need(0, 0, event)
        return Need(steps, responses, Composed(tuple(rest)) if rest else None)

    def epsilon(self, delta: float, mu_squared: float, steps: int, responses: int) -> float:
        """Epsilon at ``delta`` of releases of so much squared mu, steps and responses together.

        What the noise's lattice or table owes is added for every step, as if each were a release.
        """
        parts: list[Event] = [Pure(self.loss)] * responses
        if steps:
            parts.append(SampledGaussian(self.rate, self.noise_multiplier, steps))
        if mu_squared:
            parts.append(Gaussian(mu_squared**-0.5))
        owed = steps * LATTICE_SLACK
        return epsilon_at(Composed(tuple(parts)), delta * (1 - owed)) + owed if parts else 0.0

    def budget(self, epsilon: float, delta: float) -> float:
        """The largest squared mu beside the rooms, all of them in use; rounded down.

        Raises:
            ValueError: The rooms leave nothing of (``epsilon``, ``delta``).
        """
        most = gaussian_budget(epsilon, delta)
        if not self:
            return most

        def price(event: Event, _: float) -> float:
            (noise,) = (part for part in in_sequence(event) if isinstance(part, Gaussian))
            return self.epsilon(delta, noise.noise_multiplier**-2, self.steps, self.responses)

        # A hair of squared mu is taken off for the roundings of its way through the multiplier.
        squared = calibrate(
            lambda squared: Gaussian(squared**-0.5),
            Guarantee(epsilon, delta),
            1e-3 * most,
            most,
            True,
            price=price,
            tolerance=1e-4,
        )
        return squared * (1 - CALIBRATION_MARGIN)


NO_ROOMS = Rooms()
"""Of an account that declares nothing."""
