"""Votes of private evolution against the least they could cost: the one matrix product in BLAS.

    python benchmarks/pe_votes.py

CPU seconds of this process, on one thread and on all, best of several runs, interleaved. The floor
is NumPy's float32 product of the same matrices, with nothing looked up in it. ``votes`` is what the
method calls: rounding, FAISS, counting.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from privsyn.methods.private_evolution.votes import Voters

SHAPES = ((10_000, 1_000, 384), (50_000, 2_000, 384))


def cpu_seconds(parts: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Least CPU time of each part, all its threads together."""
    best = dict.fromkeys(parts, float("inf"))
    for _ in range(runs):
        for name, part in parts.items():
            time.sleep(0.2)  # BLAS threads of the part before spin for a while
            start = time.process_time()
            part()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    """Print one line per shape and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(0)
    print(
        f"{'records':>8} {'candidates':>10} {'width':>5} {'threads':>7} {'floor':>8} {'votes':>8}"
    )
    for records, candidates, width in SHAPES:
        private, public = (
            (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
            for rows in (rng.normal(size=(n, width)) for n in (records, candidates))
        )
        voters, out = Voters(private), np.empty((records, candidates), np.float32)
        for threads in (1, faiss.omp_get_max_threads()):
            with threadpool_limits(threads):
                faiss.omp_set_num_threads(threads)
                found = cpu_seconds(
                    {
                        "floor": lambda: np.matmul(private, public.T, out=out),  # noqa: B023
                        "votes": lambda: voters.nearest(public),  # noqa: B023
                    },
                    runs,
                )
            print(
                f"{records:8} {candidates:10} {width:5} {threads:7} {found['floor']:7.3f}s "
                f"{found['votes']:7.3f}s  {found['votes'] / found['floor']:.2f}x"
            )


if __name__ == "__main__":
    main()
