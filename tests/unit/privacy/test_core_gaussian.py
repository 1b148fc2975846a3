"""Discrete Gaussian noise: exact delta on the lattice against the epsilon that is claimed.

A sum of T discrete Gaussians of large sigma is a discrete Gaussian of T sigma^2 up to e^(-sigma^2),
and the total privacy loss is a function of that sum, so T-fold delta is one sum over integers.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from privsyn.dp.accountant import guarantee
from privsyn.dp.conversions import gaussian_delta, gaussian_epsilon
from privsyn.dp.mechanisms import FINE_SIGMA, DiscreteGaussian

DELTA = 1e-5


def lattice_delta(shift, sigma, epsilon):
    """Exact delta at epsilon of noise ~ exp(-x^2 / 2 sigma^2) on the integers, moved by shift."""
    # The loss at x is (2 x shift + shift^2) / 2 sigma^2: outcomes above `first` exceed epsilon.
    first = math.floor((2 * sigma**2 * epsilon - shift**2) / (2 * shift))
    far = int(14 * sigma) + 1
    x = np.arange(max(first, -far), far, dtype=np.float64)
    here, there = np.exp(-(x**2) / (2 * sigma**2)), np.exp(-((x + shift) ** 2) / (2 * sigma**2))
    around = np.arange(-far, far + 1, dtype=np.float64)
    total = float(np.exp(-(around**2) / (2 * sigma**2)).sum())
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum()) / total


def claimed(mechanism, rounds=1):
    return guarantee(replace(mechanism.event, count=rounds), DELTA).epsilon


@pytest.mark.parametrize("multiplier", [0.5, 0.7, 1.0, 2 * math.sqrt(2), 10 * math.sqrt(2)])
@pytest.mark.parametrize("rounds", [1, 2, 5, 20])
def test_the_claim_holds_on_the_coarsest_lattice_with_the_gaussian_curve(multiplier, rounds):
    shift = math.floor(FINE_SIGMA / multiplier)
    epsilon = claimed(DiscreteGaussian(float(shift), FINE_SIGMA), rounds)
    found = lattice_delta(rounds * shift, math.sqrt(rounds) * FINE_SIGMA, epsilon)
    assert 0.99999 * DELTA <= found <= DELTA


def test_the_gaussian_curve_does_not_hold_on_the_unit_lattice():
    broken = gaussian_epsilon(1.0, DELTA)
    assert lattice_delta(1, 1.0, broken) == pytest.approx(1.65e-5, rel=0.01)
    assert lattice_delta(1, 1.0, claimed(DiscreteGaussian(1.0, 1.0))) <= DELTA


@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.0, 5.0, 40.0])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_coarse_lattices_keep_their_zcdp_claim(sigma, shift):
    epsilon = claimed(DiscreteGaussian(float(shift), sigma))
    assert lattice_delta(shift, sigma, epsilon) <= DELTA


def test_the_margin_covers_the_lattice_at_every_threshold():
    """Relative excess of delta is about (x / sigma)^2 / 8: at FINE_SIGMA far below 1e-6."""
    for sigma in (64.0, 256.0, 1024.0):
        for epsilon in np.linspace(1.0, 6.0, 40):
            # In the worst case the threshold falls halfway between two lattice points.
            exact, smooth = lattice_delta(int(sigma), sigma, epsilon), gaussian_delta(1.0, epsilon)
            x = epsilon - 0.5
            assert abs(exact / smooth - 1) <= 1.5 * ((x + 1) / sigma) ** 2 / 8 + 1e-9
    assert (40 / FINE_SIGMA) ** 2 / 8 < 1e-7
