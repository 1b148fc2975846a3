import pytest

from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import Clock


def sqlite_url(folder):
    return f"sqlite:///{folder / 'state' / 'ledger.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(url, clock):
    return Ledger(url, clock=clock)


@pytest.fixture
def lite(tmp_path, clock):
    return Ledger(sqlite_url(tmp_path), clock=clock)
