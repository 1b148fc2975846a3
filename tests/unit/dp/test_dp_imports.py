"""The core imports numpy, scipy and opendp only, and most prices are computed without scipy."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import privsyn.dp
from privsyn.dp.accountant import guarantee
from privsyn.dp.conversions import FEW, gaussian_deltas
from privsyn.dp.events import BoundedRange, Disjoint, Gaussian, RandomAllocation
from privsyn.dp.risk import risk

ALLOWED = {"numpy", "scipy", "opendp", "privsyn"}


def test_core_imports_nothing_else() -> None:
    for path in Path(privsyn.dp.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path.name
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, (path.name, name)
                assert top != "privsyn" or name.startswith("privsyn.dp"), (path.name, name)
                assert top not in {"random", "time", "datetime", "os", "logging"}, (path.name, name)


def test_gaussian_noise_and_random_places_are_priced_without_scipy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes .3 CPU seconds to import, a quarter of a plan."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)  # an import of it fails
    places = RandomAllocation(Disjoint((BoundedRange(0.40017, 48),), 3), 20)
    for event in (Gaussian(2.0017), places):
        assert 0 < guarantee(event, 1e-6).epsilon < math.inf
        assert 0 < risk(event).advantage < 1
    # Many values are SciPy's.
    with pytest.raises(ImportError):
        gaussian_deltas(0.5, np.linspace(0, 1, FEW + 1))
