"""Tests of benchmarks/canaries, which scripts import by the folder that they lie in."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[4] / "benchmarks"))
