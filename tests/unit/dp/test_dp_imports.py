"""The core imports numpy, scipy and opendp only, and planning starts neither scipy nor opendp."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import privsyn.dp

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


def test_pricing_a_zcdp_release_loads_neither_scipy_nor_opendp() -> None:
    code = (
        "import sys\n"
        "import privsyn.dp.mechanisms, privsyn.dp.clipping\n"
        "from privsyn.dp.accountant import Guarantee, guarantee\n"
        "from privsyn.dp.calibration import calibrate_rho\n"
        "from privsyn.dp.filters import filter_order\n"
        "from privsyn.dp.events import ZCDP\n"
        "guarantee(ZCDP(calibrate_rho(Guarantee(1.0, 1e-6))), 1e-6); filter_order(1.0, 1e-6)\n"
        "print(*[name for name in ('scipy', 'opendp', 'torch') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_draw_loads_no_table_and_no_learning_library() -> None:
    """opendp.prelude would: seconds of every process that draws."""
    code = (
        "import sys, numpy as np\n"
        "from privsyn.dp.noise import OpenDPNoise\n"
        "zeros, noise = np.zeros(3, np.int64), OpenDPNoise()\n"
        "noise.noisy_max(zeros, 1.0, 1); noise.laplace(zeros, 1.0); noise.gaussian(zeros, 1.0)\n"
        "print(*[name for name in ('sklearn', 'pandas', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
