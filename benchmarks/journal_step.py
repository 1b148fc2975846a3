"""What a step of the journal costs: a file of this machine, and rows of a ledger's database.

    python benchmarks/journal_step.py [--steps 300] [--postgres postgresql://user@host/name]

A step is one call of ``draw_all``, on disk before it returns; ``draws`` are the texts that are
drawn together in it. A ledger is made in a schema of its own, which is dropped at the end.
"""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from privsyn.data.journal import Draws, Journal
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Pure
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import AccountSpec
from privsyn.vault import VARIABLE, LedgerJournal, Vault

PART = "shard-0"


@contextmanager
def in_a_file(folder: Path) -> Iterator[Draws]:
    """A journal as releases without a vault have it."""
    Journal.create(folder / "journal", {})
    with Journal.open(folder / "journal", {}) as journal:
        yield journal


@contextmanager
def in_a_ledger(url: str, folder: Path) -> Iterator[Draws]:
    """A journal as releases in a vault have it."""
    os.environ[VARIABLE] = base64.b64encode(secrets.token_bytes(32)).decode()
    ledger = Ledger(url)
    ledger.accounts.open(AccountSpec("a", "d", "person", "add_remove", 3.0, 0.0, unit_column="u"))
    ledger.releases.reserve("a", "r", Pure(1.0), method="m", guarantee=Guarantee(1.0, 0.0))
    vault = Vault(f"file://{folder / 'vault'}", None)
    place = vault.pin(ledger.draws, "r", 1)
    ledger.releases.begin("r", vault.place("r", place.nonce), place.nonce)
    LedgerJournal.create(ledger.draws, place, PART, {})
    with (
        ledger.leases.acquire("r", PART) as lease,
        LedgerJournal.open(ledger.draws, place, lease, {}) as journal,
    ):
        yield journal


@contextmanager
def a_schema(url: str) -> Iterator[str]:
    """The URL of a schema of its own."""
    base = sa.make_url(url).set(drivername="postgresql+psycopg")
    name = f"journal_step_{secrets.token_hex(4)}"
    engine = sa.create_engine(base, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
    try:
        own = base.update_query_dict({"options": f"-csearch_path={name}"})
        yield own.render_as_string(hide_password=False)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA {name} CASCADE")


def measured(where: str, journal: Draws, steps: int) -> None:
    """Print what a step takes, in milliseconds, by number of draws: wall clock and own CPU."""
    for draws in (1, 16):
        times = []
        cpu = time.process_time()
        for step in range(steps):
            items = [(f"{draws}/{step}/{n}", lambda: 12_345) for n in range(draws)]
            began = time.perf_counter()
            journal.draw_all(items)
            times.append(1000 * (time.perf_counter() - began))
        cpu = 1000 * (time.process_time() - cpu) / steps
        early, middle, late = np.percentile(times, (5, 50, 95))
        print(
            f"{where:<12} {draws:>3} draws a step: 5% {early:.2f}, median {middle:.2f}, "
            f"95% {late:.2f}, CPU {cpu:.2f}"
        )


def main() -> None:
    """Measure all places that are at hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--postgres")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        with in_a_file(folder) as journal:
            measured("file", journal, asked.steps)
        (folder / "lite").mkdir()
        with in_a_ledger(f"sqlite:///{folder / 'ledger.db'}", folder / "lite") as journal:
            measured("SQLite", journal, asked.steps)
        if asked.postgres:
            with a_schema(asked.postgres) as url, in_a_ledger(url, folder) as journal:
                measured("PostgreSQL", journal, asked.steps)


if __name__ == "__main__":
    main()
