"""Shards of a release by 1 and 2 workers, each pinned to a core.

    PYTHONPATH=. python benchmarks/workers.py [--texts 16] [--tokens 48]

Each worker is what a Celery worker runs: `privsyn stage generate` of one shard after the other, in
a project folder of its own, with the vault in a folder and the journal in the ledger's database
(PRIVSYN_TEST_POSTGRES_URL). Both pay for starting a process a shard, as tasks do.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from privsyn.stages.base import open_context
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import METHODS, build_project, rows

SHARDS = 4


def main() -> None:
    """Print seconds and tokens/s of either, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=16, help="of each label")
    parser.add_argument("--tokens", type=int, default=48, help="of each text")
    arguments = parser.parse_args()
    os.environ["PRIVSYN_VAULT_KEY"] = base64.b64encode(secrets.token_bytes(32)).decode()
    cores = sorted(os.sched_getaffinity(0))[:2]
    seconds = {count: _drawn_by(cores[:count], arguments) for count in (1, 2)}
    tokens = 2 * arguments.texts * arguments.tokens
    for count, took in seconds.items():
        print(f"{count} worker(s): {took:.1f} s, {tokens / took:.1f} tokens/s")
    load = os.getloadavg()[0]
    print(f"ratio {seconds[1] / seconds[2]:.2f}; load of the machine {load:.1f}")


def _drawn_by(cores: list[int], arguments: argparse.Namespace) -> float:
    """Seconds that one worker a core takes for a fresh release."""
    server = sa.make_url(os.environ["PRIVSYN_TEST_POSTGRES_URL"])
    name = f"workers_{secrets.token_hex(4)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f'create database "{name}"')
    try:
        with tempfile.TemporaryDirectory() as folder:
            ledger = server.set(database=name).render_as_string(hide_password=False)
            return _timed(Path(folder), ledger, cores, arguments)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f'drop database "{name}" with (force)')


def _timed(base: Path, ledger: str, cores: list[int], arguments: argparse.Namespace) -> float:
    first = build_project(
        base / "worker-0",
        services={"ledger": ledger, "vault": f"file://{base / 'vault'}"},
        methods={
            "invisible_ink": METHODS["invisible_ink"]
            | {"max_tokens": arguments.tokens, "texts_per_label": arguments.texts}
        },
        performance={"shards": SHARDS},
    )
    first.write(rows(400, 200))
    ctx = open_context(first.params)
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    partition(ctx, planned)
    homes = [first.root]
    for number in range(1, len(cores)):
        home = base / f"worker-{number}"
        home.mkdir()
        shutil.copy(first.params, home)
        homes.append(home)
    for home in homes:
        (home / "plan.json").write_text(json.dumps(planned.model_dump(mode="json")))
    began = time.monotonic()
    workers = [
        subprocess.Popen(["bash", "-c", _shards(core, number, len(cores))], cwd=home)
        for number, (core, home) in enumerate(zip(cores, homes, strict=True))
    ]
    for worker in workers:
        if worker.wait():
            raise RuntimeError("a worker failed; its words are above")
    return time.monotonic() - began


def _shards(core: int, first: int, step: int) -> str:
    """Commands of a worker: its shards, one after the other, on one core."""
    return " && ".join(
        f"OMP_NUM_THREADS=1 taskset -c {core} {sys.executable} -m privsyn stage generate "
        f"--plan plan.json --shard {shard} > /dev/null"
        for shard in range(first, SHARDS, step)
    )


if __name__ == "__main__":
    main()
