"""Rank 0 of three processes: says that they are up, and waits to be killed."""

from __future__ import annotations

import time

from privsyn.models.settings import PerformanceConfig
from privsyn.models.training.processes import start_group

if __name__ == "__main__":
    with start_group(PerformanceConfig(device="cpu", threads=1, processes=3)):
        print("up", flush=True)
        time.sleep(300)
