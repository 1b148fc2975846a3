from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from privsyn.ledger.database import _parse
from privsyn.ledger.store import Ledger, open_ledger
from tests.ledger.ledger_cases import Clock

POSTGRES = "PRIVSYN_TEST_POSTGRES_URL"


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'state' / 'ledger.db'}"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A schema of its own in the test server's database, dropped afterwards."""
    base = os.environ.get(POSTGRES)
    if not base:
        pytest.skip(f"{POSTGRES} is not set")
    url = _parse(base)
    schema = f"ledger_{secrets.token_hex(6)}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    try:
        own = url.update_query_dict({"options": f"-csearch_path={schema}"})
        yield own.render_as_string(hide_password=False)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(url: str, clock: Clock) -> Ledger:
    return open_ledger(url, clock=clock)


@pytest.fixture
def lite(tmp_path: Path, clock: Clock) -> Ledger:
    """On SQLite, where the database makes no difference."""
    return open_ledger(sqlite_url(tmp_path), clock=clock)
