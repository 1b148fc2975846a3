"""Releases of a query on PostgreSQL and of a lake table: read once, of one snapshot."""

from __future__ import annotations

import json
import signal
import subprocess

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, write_deltalake

from privsyn.data.readers.formats import read_records
from privsyn.errors import ConfigError, DataError, PrivsynError, StorageError
from privsyn.ledger.database import _parse
from privsyn.stages.base import open_plan
from privsyn.stages.certify import certify
from privsyn.stages.check import count
from privsyn.stages.draw import generate
from privsyn.stages.partition import READ, partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from tests import preloaded
from tests.integration.e2e.small_project import CANARY, environment, finish, reserve_release, rows

SQL = "select * from notes"
SECRET = "hunter2-kestrel"


@pytest.fixture
def clinic(postgres_url, monkeypatch):
    """A schema with the records and what no query may use; its URL is in CLINIC_DB."""
    url = _parse(postgres_url)
    engine = sa.create_engine(url)
    schema = url.query["options"].partition("=")[2]
    statements = (
        'create table notes (unit text, label text, "text" text)',
        "create table hidden (a int)",
        "create sequence calls",
        "create view counted as select *, nextval('calls') from notes",
        f"create role {schema} login",
        f"grant usage on schema {schema} to {schema}",
        f"grant select on notes to {schema}",
    )
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    write(engine, [row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
    shown = url.set(drivername="postgresql", password=SECRET).render_as_string(hide_password=False)
    monkeypatch.setenv("CLINIC_DB", shown)
    reader = url.set(drivername="postgresql", username=schema).render_as_string()
    monkeypatch.setenv("AIRFLOW_CONN_READER", reader.replace("postgresql:", "postgres:"))
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql(f"drop owned by {schema}")
        connection.exec_driver_sql(f"drop role {schema}")
    engine.dispose()


def write(engine, records):
    with engine.begin() as connection:
        connection.exec_driver_sql("truncate notes")
        filled = sa.text('insert into notes (unit, label, "text") values (:unit, :label, :text)')
        connection.execute(filled, records)


@pytest.fixture
def project(make_project, clinic):
    source = {"path": None, "query": {"connection": "CLINIC_DB", "sql": SQL}}
    made = make_project(dataset=source)
    made.data.unlink()
    return made


def test_a_query_is_charged_once_for_its_content(project, clinic, fake, caplog):
    """Order is no content; other rows under a version are refused, the same under another too."""
    ctx = project.context()
    planned = reserve_release(ctx)
    folder = finish(ctx, planned, fake)
    assert settle(ctx, planned) == "COMMITTED"
    (counts,) = count(ctx).values()
    assert (counts["rows"], counts["units"]) == (48, 20)
    turned = ("dataset.query.sql='select * from notes order by text desc'", "privacy.draw=1")
    assert reserve_release(project.context(*turned)).id != planned.id
    with pytest.raises(DataError, match="same content as version v1"):
        reserve_release(project.context("dataset.version=v2"))
    write(clinic, rows(50, 20))
    with pytest.raises(DataError, match=r"version=v1: .*made from under this"):
        reserve_release(project.context())
    with pytest.MonkeyPatch.context() as away:
        away.delenv("CLINIC_DB")
        assert reserve_release(project.context()).id == planned.id  # it is finished
    left = [file for file in folder.rglob("*") if file.is_file()]
    said = b"".join(file.read_bytes() for file in left) + json.dumps(planned.model_dump()).encode()
    said += (project.root / ".privsyn" / "ledger.db").read_bytes() + caplog.text.encode()
    for word in (CANARY, SECRET, "CLINIC_DB", "from notes"):
        assert word.encode() not in said


KILLED = """
import os, signal
from pathlib import Path
from privsyn.data import partition as module
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import Project
ctx = Project(Path.cwd()).context(*{overrides})
planned = plan(ctx, "invisible_ink", open_account=True)
reserve(ctx, planned)
{where} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
partition(ctx, planned)
"""


def kill(project, where, *overrides):
    """Partition in a process of its own, until it comes to a function."""
    script = KILLED.format(where=where, overrides=overrides)
    done = subprocess.run(
        [preloaded.python(), "-c", script], cwd=project.root, env=environment(project), check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_a_killed_partition_goes_on_from_what_it_read(project, clinic, fake):
    kill(project, "module._write_shards")
    write(clinic, rows(90, 30))
    ctx = project.context()
    (entry,) = ctx.ledger.releases.all()
    assert entry.state == "BEGUN"
    planned = plan(ctx, "invisible_ink", open_account=True)
    assert planned.id == entry.release_id
    scratch = ctx.workspace.scratch(planned.id)
    assert (scratch / READ).stat().st_mode & 0o777 == 0o600
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard, fake)
    files = (scratch / "buckets").glob("shard-*")
    kept = [line for file in files for line in file.read_text().splitlines()]
    assert kept
    assert all(CANARY in line for line in kept)  # none of the 90 new rows
    assert not (scratch / READ).exists()
    certify(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"


def test_one_killed_before_it_began_leaves_nothing_and_asks_again(project, clinic):
    kill(project, "partition.__wrapped__.__globals__['_refuse_private_text']")
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
    write(clinic, rows(90, 30))
    with pytest.raises(DataError, match="changed since release"):
        partition(ctx, planned)
    assert [*ctx.workspace.scratch(planned.id).rglob("*")] == []
    assert settle(ctx, planned) == "VOID"
    assert partition(ctx, reserve_release(ctx)) == 2


def test_a_table_is_released_by_its_own_version(make_project, fake):
    """A commit after the plan is no part of the release; a version more is a charge more."""
    project = make_project(dataset={"path": "lake", "version": "{table}"})
    write_deltalake(project.root / "lake", pa.Table.from_pylist(rows(48, 20)))
    ctx = project.context()
    planned = reserve_release(ctx)
    assert (planned.dataset.version, open_plan(ctx, planned).source.snapshot) == ("0", "0")
    DeltaTable(project.root / "lake").delete("unit = 'u3'")
    finish(project.context(), planned, fake)
    later = project.context("privacy.epsilon=2")
    assert reserve_release(later).dataset.version == "1"
    with pytest.raises(DataError, match=r"version=0: .*not the one"):
        reserve_release(project.context("dataset.version='0'", "privacy.draw=1"))
    pinned = ("dataset.snapshot='0'", "privacy.draw=1")
    (then,), (now,) = (count(project.context(*one)).values() for one in (pinned, ()))
    assert (then["units"], now["units"]) == (20, 19)
    assert reserve_release(project.context(*pinned)).dataset.version == "0"
    DeltaTable(project.root / "lake").optimize.compact()
    write_deltalake(project.root / "lake", pa.Table.from_pylist(rows(48, 20)), mode="overwrite")
    with pytest.raises(DataError, match="same content as version 0"):
        reserve_release(project.context("privacy.epsilon=1"))


BAD = {
    "select label, text from notes": "column 'unit' .* is not in the query on CLINIC_DB",
    "select * from hidden where a::text = 'x'": r"may not read all of it \(SQLSTATE 42501\)",
    "select * from counted": r"something in it writes, .*\(SQLSTATE 25006\)",
    "select * from nowhere": "not there .SQLSTATE 42P01",
    "select *, nothing from notes": "SQLSTATE 42703",
    "truncate notes": "not one SELECT",
    "select text::int as unit, label, text from notes": "a value of a record makes it fail",
    "select * from notes where false": "holds no row",
    "select 1::float as unit, '' as label, '' as text": "of type double: floats",
    "select 1::money as unit, '' as label, '' as text": "of type money, not ids",
}


@pytest.mark.parametrize("sql", BAD)
def test_a_bad_query_is_one_line_and_nothing_is_spent(project, clinic, caplog, sql):
    overrides = [f"dataset.query.sql={json.dumps(sql)}"]
    if "hidden" in sql:
        overrides.append("dataset.query.connection=reader")
    ctx = project.context(*overrides)
    planned = plan(ctx, "invisible_ink", open_account=True)
    with pytest.raises(DataError, match=BAD[sql]) as told:
        reserve(ctx, planned)
    assert ctx.ledger.releases.find(planned.id) is None
    assert CANARY not in f"{told.value}{caplog.text}"
    assert SECRET not in f"{told.value}"
    with clinic.begin() as connection:
        assert connection.exec_driver_sql("select count(*) from notes").scalar() == 48


@pytest.mark.parametrize(
    ("connection", "match"),
    [
        ("nowhere", "no connection.*AIRFLOW_CONN_NOWHERE"),
        ("HOME", "HOME holds no URL"),
        ("mysql://reader@host/db", "mysql:// is no database"),
        (f"postgresql://u:{SECRET}@h/db", "connection holds a password"),
        (f"postgresql://h/db?password={SECRET}", "connection holds a password"),
        (f"host=h password={SECRET}", "connection must be a name, or a URL without a password"),
        ({"password": SECRET}, "connection must be a name"),
        ("sqlite:///notes.db", "cannot be reached"),
        ("postgresql://postgres@127.0.0.1:1/test", "cannot be reached"),
    ],
)
def test_a_connection_that_cannot_be_used(project, connection, match):
    with pytest.raises((ConfigError, StorageError), match=match) as told:
        count(project.context(f"dataset.query.connection={json.dumps(connection)}"))
    assert SECRET not in f"{told.value}"


def test_a_server_that_goes_away_in_mid_read_cuts_nothing_off(project, clinic):
    sql = "select n::text as unit, 'Billing' as label, repeat('x', 1000) as text from t"
    with clinic.begin() as connection:
        connection.exec_driver_sql("create table t as select generate_series(1, 100000) n")
    ctx = project.context(f"dataset.query.sql={json.dumps(sql)}")
    records = read_records(ctx.dataset)
    next(records)
    with clinic.begin() as connection:
        gone = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%%as q%%'"
        connection.exec_driver_sql(f"{gone} and pid <> pg_backend_pid()")
    with pytest.raises(PrivsynError, match="fails: ") as told:
        list(records)
    assert told.value.retryable
