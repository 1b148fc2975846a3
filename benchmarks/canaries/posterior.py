"""How much the answers of a mechanism speak for each canary having been in.

Noisy vectors: the posterior under normal noise, all canaries at once (least squares). Drawn tokens:
the exact posterior of who was in, over all subsets of the canaries of a bucket.

The attacker does not take the noise to be as loud as it was priced: a build may draw less of it. He
weighs every loudness of ``QUIETER`` by how well it explains all answers, whoever was in. That is a
function of the answers alone, so guesses made by it are guesses as ``evaluation.audit`` wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from canaries.attack import Answer

QUIETER = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)
"""By what the noise may be too quiet."""

_SUBSETS, _CELLS = 10, 2**19
"""Canaries whose subsets are gone through: so many, more where subsets times tokens are not more
than these."""


def scores(found: Iterable[tuple[Answer, Any, Any]], units: int) -> NDArray[np.float64]:
    """How much the answers speak for each canary having been in.

    Args:
        found: Of ``attack.contributions``.
        units: Canaries.
    """
    vectors, tokens, any_vector = _Vectors(units), _Tokens(units), False
    for answer, alone, own in found:
        if answer.draw == "noisy_max":
            tokens.add(answer, alone, own)
        else:
            any_vector = True
            vectors.add(answer, alone, own)
    return vectors.means() if any_vector else tokens.ratios()


class _Vectors:
    """Noisy vectors, and the normal posterior of who was in: coins of mean 1/2, variance 1/4."""

    def __init__(self, units: int) -> None:
        self._square = np.zeros((units, units))
        self._beside, self._length, self._numbers = np.zeros(units), 0.0, 0

    def add(self, answer: Answer, alone: Any, own: Any) -> None:
        """One vector."""
        design = own / answer.scale
        left = (answer.given - alone) / answer.scale - design.sum(axis=0) / 2
        self._square += design @ design.T
        self._beside += design @ left
        self._length += float(left @ left)
        self._numbers += left.size

    def means(self) -> NDArray[np.float64]:
        """What each canary's coin is expected to be, less 1/2."""
        units = len(self._beside)
        explained, means = [], []
        for quieter in QUIETER:
            precise = quieter**2
            normal = 4 * np.eye(units) + precise * self._square
            mean = np.linalg.solve(normal, precise * self._beside)
            means.append(mean)
            apart = precise * (self._length - self._beside @ mean)
            grown = np.linalg.slogdet(normal / 4)[1]
            explained.append(self._numbers * np.log(quieter) - (grown + apart) / 2)
        return np.asarray(_shares(explained) @ np.array(means))


def _shares(logs: Sequence[float]) -> NDArray[np.float64]:
    """Numbers that are proportional to exp of these and add up to 1."""
    return np.asarray(np.exp(np.array(logs) - logsumexp(logs)))


class _Tokens:
    """Drawn tokens, and the posterior of who was in."""

    def __init__(self, units: int) -> None:
        self._room = np.arange(units)  # canaries of one bucket have one number
        self._heard: list[tuple[int, NDArray[np.float64], NDArray[np.int64], Any]] = []

    def add(self, answer: Answer, alone: Any, own: Any) -> None:
        """One token."""
        (moved,) = np.nonzero(own.any(axis=1))
        if not len(moved):
            return
        rooms = self._room[moved]
        self._room[np.isin(self._room, rooms)] = rooms.min()
        self._heard.append((answer.given, alone / answer.scale, moved, own[moved] / answer.scale))

    def ratios(self) -> NDArray[np.float64]:
        """Log-odds of each canary to have been in, by all tokens; 0 where none tells."""
        units = len(self._room)
        explained = np.zeros(len(QUIETER))
        inside, outside = np.zeros((2, len(QUIETER), units))
        for room in np.unique([self._room[moved[0]] for _, _, moved, _ in self._heard]):
            (members,) = np.nonzero(self._room == room)
            heard = [one for one in self._heard if self._room[one[2][0]] == room]
            most = max(_SUBSETS, int(np.log2(_CELLS / len(heard[0][1]))))
            for part in np.array_split(members, -(-len(members) // most)):
                likelihood = self._likelihood(part, heard)  # shape (loudness, subsets)
                whole = logsumexp(likelihood, axis=1)
                explained += whole - len(part) * np.log(2)
                holds = (np.arange(2 ** len(part))[:, None] >> np.arange(len(part))) & 1 == 1
                for place, unit in enumerate(part):
                    inside[:, unit] = logsumexp(likelihood[:, holds[:, place]], axis=1) - whole
                    outside[:, unit] = logsumexp(likelihood[:, ~holds[:, place]], axis=1) - whole
        weight = (explained - logsumexp(explained))[:, None]
        return np.asarray(logsumexp(inside + weight, axis=0) - logsumexp(outside + weight, axis=0))

    @staticmethod
    def _likelihood(part: NDArray[np.int64], heard: Sequence[Any]) -> NDArray[np.float64]:
        """Log-probability of the tokens, by loudness and subset of these canaries.

        Of the canaries of the bucket that are not among these it is as if half of each were in.
        """
        subsets = (np.arange(2 ** len(part))[:, None] >> np.arange(len(part))) & 1
        likelihood = np.zeros((len(QUIETER), len(subsets)))
        for given, alone, moved, own in heard:
            among = np.isin(moved, part)
            base = alone + own[~among].sum(axis=0) / 2
            places = np.searchsorted(part, moved[among])
            asked = base + subsets[:, places] @ own[among]
            asked -= asked.max(axis=1, keepdims=True)
            for row, quieter in enumerate(QUIETER):
                likelihood[row] += quieter * asked[:, given] - np.log(
                    np.exp(quieter * asked).sum(axis=1)
                )
        return likelihood
