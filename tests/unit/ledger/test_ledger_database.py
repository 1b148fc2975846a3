import dataclasses
import os
import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from privsyn.dp.events import Pure
from privsyn.errors import AccountMismatch, BudgetError, ConfigError, LedgerUnavailable
from privsyn.ledger import database, schema
from privsyn.ledger.ledger import Ledger
from tests.unit.ledger.ledger_cases import PURE, Clock, begin, reserve


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_is_its_owners_alone_from_the_start(tmp_path):
    path = tmp_path / "state" / "ledger.db"
    before = os.umask(0)
    try:
        ledger = Ledger(f"sqlite:///{path}")
        ledger.accounts.open(PURE)
        with ledger.database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE grows (x)")
            journal = path.with_name("ledger.db-journal")
            assert mode(journal) == 0o600  # holds the same secrets while a write lasts
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    os.chmod(tmp_path, 0o750)  # noqa: S103
    Ledger(f"sqlite:///{tmp_path}/ledger.db").accounts.open(PURE)
    assert mode(tmp_path) == 0o750


def test_odd_paths_work(tmp_path, monkeypatch):
    odd = tmp_path / "a b?c#d%e"
    odd.mkdir()
    monkeypatch.chdir(odd)
    ledger = Ledger("sqlite:///ledger.db")
    monkeypatch.chdir("/")  # a relative path means where it was given
    ledger.accounts.open(PURE)
    assert (odd / "ledger.db").stat().st_size > 0


def test_writes_survive_a_power_cut(ledger):
    ledger.accounts.open(PURE)
    with ledger.database.write() as connection:
        if connection.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        else:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "15s"


def test_a_locked_ledger_is_waited_for_and_then_refused(url):
    Ledger(url).accounts.open(PURE)
    impatient = Ledger(url, timeout=0.2)
    with Ledger(url).database.write():
        with pytest.raises(LedgerUnavailable, match=r"is locked: .* more than 0\.2 s") as refused:
            reserve(impatient, "r")
        assert impatient.accounts.balance("clinic").spent == 0  # reading goes on
    assert refused.value.retryable
    reserve(impatient, "r")


def test_a_full_disk_is_told_with_what_helps(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.accounts.open(PURE)
    no_page_more = "PRAGMA max_page_count=1"
    sa.event.listen(ledger.database._engine, "connect", lambda made, _: made.execute(no_page_more))

    def fill():
        for number in range(99):
            reserve(ledger, f"r{number}", Pure(1e-4))

    with pytest.raises(LedgerUnavailable, match=r"disk is full\. Free some space"):
        fill()
    assert ledger.verify().entries < 99  # whole, and nothing half-written


def test_an_unreachable_server_is_told_without_secrets():
    url = "postgresql://zoe:hunter2@127.0.0.1:1/ledger?application_name=hunter3"
    ledger = Ledger(url)
    for call in (lambda: ledger.accounts.open(PURE), lambda: ledger.releases.all(), ledger.verify):
        with pytest.raises(LedgerUnavailable) as refused:
            call()
        text = str(refused.value)
        assert "ledger postgresql://127.0.0.1:1/ledger cannot be used" in text
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__  # nor does a traceback show what is behind it
        assert not any(secret in text + repr(ledger) for secret in ("hunter", "zoe"))
        assert "\n" not in text


def test_a_database_without_an_encoding_is_used(postgres_url, monkeypatch):
    """As one made under the C locale: the driver hands its texts out as bytes, unless told."""
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    ledger = Ledger(postgres_url, clock=Clock())
    ledger.accounts.open(PURE)
    ledger.verify()
    assert ledger.accounts.balance(PURE.name).spent == 0


def test_the_password_is_cut_from_what_the_driver_says(postgres_url):
    url = sa.make_url(postgres_url).set(username="nobody-here", password="nobody-here")
    ledger = Ledger(url.render_as_string(hide_password=False))
    with pytest.raises(LedgerUnavailable) as refused:
        ledger.releases.all()
    assert "nobody-here" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("ledger.db", "not a database URL"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://ann:hunter2@host/db", "'mysql'; known: sqlite, postgresql"),
        ("postgresql+psycopg2://ann:hunter2@host/db", "driver .* is missing"),
    ],
)
def test_bad_urls_are_config_errors(url, named):
    with pytest.raises(ConfigError, match=named) as refused:
        Ledger(url)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.db"
    path.write_text("not a database, whatever its name " * 99)
    ledger = Ledger(f"sqlite:///{path}")
    for call in (ledger.releases.all, lambda: ledger.accounts.open(PURE)):
        with pytest.raises(LedgerUnavailable, match="file is not a database"):
            call()
    folder = Ledger(f"sqlite:///{tmp_path}")
    with pytest.raises(LedgerUnavailable, match="cannot be used"):
        folder.releases.all()
    below = Ledger(f"sqlite:///{path}/ledger.db")
    with pytest.raises(LedgerUnavailable, match="cannot be created"):
        below.accounts.open(PURE)


def test_a_ledger_deleted_meanwhile_is_never_made_anew(tmp_path):
    path = tmp_path / "ledger.db"
    maker = Ledger(f"sqlite:///{path}")
    maker.accounts.open(PURE)
    begin(maker, "r")
    lease = maker.leases.acquire("r", "shard-0")
    reader = Ledger(f"sqlite:///{path}")
    assert len(reader.releases.all()) == 1
    backup = path.read_bytes()
    path.unlink()
    for ledger in (maker, reader):
        for call in (
            ledger.releases.all,
            ledger.verify,
            partial(ledger.accounts.preview, PURE, Pure(1.0)),
            partial(ledger.accounts.open, PURE),
            partial(reserve, ledger, "s"),
            partial(ledger.leases.renew, lease),
        ):
            with pytest.raises(LedgerUnavailable, match=rf"{path} is gone.*from its backup"):
                call()
    assert not path.exists()
    path.write_bytes(backup)
    for ledger in (maker, reader):
        assert ledger.accounts.balance("clinic").spent == 1
        ledger.leases.renew(lease)


def test_only_opening_an_account_creates_a_ledger(tmp_path):
    path = tmp_path / "state" / "ledger.db"
    ledger = Ledger(f"sqlite:///{path}")
    for call in (
        lambda: reserve(ledger, "r"),
        lambda: ledger.releases.begin("r", "/s", "n"),
        lambda: ledger.leases.acquire("r", "shard-0"),
        lambda: ledger.releases.lose("r", "why"),
    ):
        with pytest.raises(LedgerUnavailable, match=rf"{path} does not exist"):
            call()
    assert not path.parent.exists()


def test_a_ledger_that_forgot_a_release_is_refused(url, tmp_path):
    ledger = Ledger(url)
    for known in (["r1"], {"r2", "r1"}):  # their folders are there, the ledger is not
        with pytest.raises(AccountMismatch, match=r"does not know release r1\b.*its backup"):
            ledger.accounts.open(PURE, known_releases=known)
    assert ledger.accounts.all() == []
    assert not (tmp_path / "state").exists()

    account = ledger.accounts.open(PURE)
    reserve(ledger, "r1")
    assert ledger.accounts.open(PURE, known_releases=["r1"]) == account
    with pytest.raises(AccountMismatch, match=r"release r2 and 1 more"):  # an older copy
        ledger.accounts.open(PURE, known_releases=["r3", "r1", "r2"])
    labs = dataclasses.replace(PURE, name="labs", dataset="labs")
    with pytest.raises(AccountMismatch, match="release r1"):  # another account has it
        ledger.accounts.open(labs, known_releases=["r1"])
    assert ledger.accounts.find("labs") is None
    with pytest.raises(AccountMismatch, match=r"account\.epsilon"):
        ledger.accounts.open(dataclasses.replace(PURE, epsilon=9.0), known_releases=["r1"])


@pytest.mark.parametrize("number", [99, 1])
def test_a_ledger_of_another_build_is_refused(url, number):
    Ledger(url).accounts.open(PURE)
    with Ledger(url).database.write() as connection:
        connection.execute(sa.update(schema.migrations).values(version=number))
    ledger = Ledger(url)
    for call in (ledger.releases.all, lambda: ledger.accounts.open(PURE)):
        with pytest.raises(BudgetError, match=rf"schema version {number};.* use that one"):
            call()


def test_a_clock_ahead_of_the_databases_writes_nothing(postgres_url, monkeypatch):
    """It would let releases leave a period's window early."""
    ledger = Ledger(postgres_url)
    ledger.accounts.open(PURE)
    reserve(ledger, "r")
    for minutes, fine in ((-600, True), (4, True), (6, False)):
        now = datetime.now(UTC) + timedelta(minutes=minutes)
        monkeypatch.setattr(database, "utc_now", lambda now=now: now)
        rows = len(ledger.history())
        if fine:
            reserve(ledger, f"r{minutes}", Pure(0.5))
        else:
            with pytest.raises(LedgerUnavailable, match=r"is 6 min ahead .* 5 min are allowed"):
                reserve(ledger, f"r{minutes}", Pure(0.5))
            with pytest.raises(LedgerUnavailable):
                ledger.releases.begin("r", "/s", "n")
        assert len(ledger.history()) == rows + fine


def test_a_short_lock_is_waited_out(url):
    import threading

    ledger = Ledger(url)
    ledger.accounts.open(PURE)
    held, go = threading.Event(), threading.Event()

    def hold():
        with Ledger(url).database.write():
            held.set()
            go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    threading.Timer(0.2, go.set).start()
    reserve(ledger, "r")
    thread.join()


def test_an_exclusive_lock_keeps_readers_out_no_longer_than_allowed(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.db"
    Ledger(url).accounts.open(PURE)
    holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerUnavailable, match="is locked"):
        Ledger(url, timeout=0.2).accounts.balance("clinic")
    holder.close()
