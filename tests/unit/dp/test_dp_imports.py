"""Most prices are computed without scipy."""

import math
import sys

import numpy as np
import pytest

from privsyn.dp.accountant import guarantee
from privsyn.dp.conversions import FEW, gaussian_deltas
from privsyn.dp.events import BoundedRange, Disjoint, Gaussian, RandomAllocation
from privsyn.dp.risk import risk


def test_gaussian_noise_and_random_places_are_priced_without_scipy(monkeypatch):
    """It takes .3 CPU seconds to import, a quarter of a plan."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)  # an import of it fails
    places = RandomAllocation(Disjoint((BoundedRange(0.40017, 48),), 3), 20)
    for event in (Gaussian(2.0017), places):
        assert 0 < guarantee(event, 1e-6).epsilon < math.inf
        assert 0 < risk(event).advantage < 1
    # Many values are SciPy's.
    with pytest.raises(ImportError):
        gaussian_deltas(0.5, np.linspace(0, 1, FEW + 1))
