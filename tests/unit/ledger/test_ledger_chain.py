"""Tampering: whoever edits the database by hand is found out."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.dp.events import ZCDP, DiscreteGaussian, Disjoint, Pure, dump
from privsyn.errors import BudgetExceeded, VerificationError
from privsyn.ledger import chain, schema
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import AccountSpec, Split
from tests.unit.ledger.ledger_cases import PURE, RENYI, Clock, begin, reserve

A, B = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "ledger.db"
    clock = Clock()
    fill(Ledger(f"sqlite:///{path}", clock=clock), clock)
    return path


@pytest.fixture
def full(filled, tmp_path):
    return Ledger(f"sqlite:///{shutil.copy(filled, tmp_path)}")


def fill(ledger: Ledger, clock: Clock) -> Ledger:
    """A ledger with every state in it: 13 rows of history."""
    ledger.accounts.open(dataclasses.replace(RENYI, period_days=30, period_epsilon=2.5))
    ledger.accounts.open(AccountSpec("labs", "labs", "sample", "replace_null", 1.0, 1e-6))
    for name in ("done", "gone", "void", "begun", "new"):
        clock.pass_(minutes=1)
        reserve(ledger, name, Disjoint((ZCDP(0.01), ZCDP(0.002)), cells=8))
    for name in ("done", "gone", "begun"):
        ledger.releases.begin(name, f"/scratch/{name}", "n")
    ledger.releases.commit("done", A, B)
    ledger.releases.lose("gone", "why")
    ledger.releases.void("void", "why")
    return ledger


def tamper(ledger: Ledger, *statements: str) -> None:
    with ledger.database.write() as connection:
        for statement in statements:
            assert connection.exec_driver_sql(statement).rowcount > 0, statement


def test_an_untouched_ledger_verifies(ledger, clock):
    full = fill(ledger, clock)
    report = full.verify()
    rows = full.history()
    assert (report.rows, report.accounts, report.entries) == (13, 2, 5)
    assert report.head == rows[-1].hash
    assert rows[0].previous == "0" * 64
    assert [row.previous for row in rows[1:]] == [row.hash for row in rows[:-1]]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE ledger_history SET at = '2026-02-01T00:00:00.000000Z' WHERE seq = 5", "row 5"),
        ("UPDATE ledger_history SET account = 'labs' WHERE seq = 4", "row 4"),
        ("UPDATE ledger_history SET release_id = 'other' WHERE seq = 4", "row 4"),
        ("UPDATE ledger_history SET change = 'VOID' WHERE seq = 8", "row 8"),
        ("UPDATE ledger_history SET hash = 'x' WHERE seq = 6", "row 6"),
        ("UPDATE ledger_history SET previous = 'x' WHERE seq = 6", "row 6"),
        ("UPDATE ledger_history SET body = 'x' WHERE seq = 6", "row 6"),
        ("UPDATE ledger_history SET body = '[]' WHERE seq = 6", "row 6"),
        ("DELETE FROM ledger_history WHERE seq = 1", "row 1"),
        ("DELETE FROM ledger_history WHERE seq = 7", "row 7"),
        ("DELETE FROM ledger_history WHERE seq = 13", "ends at row 12"),
        ("DELETE FROM ledger_history", "ends at row 0"),
        ("UPDATE ledger_head SET seq = 12", "its head says 12"),
        ("DELETE FROM ledger_head", "its head says nothing"),
        ("UPDATE ledger_entry SET loss = 1e-9 WHERE release_id = 'done'", "release done .* loss"),
        ("UPDATE ledger_entry SET state = 'VOID' WHERE release_id = 'gone'", "release gone"),
        ("UPDATE ledger_entry SET account = 'labs' WHERE release_id = 'new'", "release new"),
        ("UPDATE ledger_entry SET event = '{}' WHERE release_id = 'new'", "release new"),
        ("UPDATE ledger_entry SET changed_at = '2026' WHERE release_id = 'done'", "release done"),
        ("UPDATE ledger_entry SET reserved_by = '{}' WHERE release_id = 'new'", "reserved_by"),
        (
            "UPDATE ledger_entry SET artifact_sha256 = 'x' WHERE release_id = 'done'",
            "release done was edited, artifact",
        ),
        ("UPDATE ledger_entry SET nonce = 'm' WHERE release_id = 'begun'", "release begun"),
        ("DELETE FROM ledger_entry WHERE release_id = 'done'", "release done is missing"),
        ("UPDATE ledger_entry SET release_id = 'x' WHERE release_id = 'done'", "release (done|x)"),
        ("UPDATE ledger_account SET budget = 99 WHERE name = 'clinic'", "account clinic .*budget"),
        ("UPDATE ledger_account SET epsilon = 3.0000001 WHERE name = 'clinic'", "account clinic"),
        ("UPDATE ledger_account SET period_days = 1 WHERE name = 'clinic'", "account clinic"),
        ("UPDATE ledger_account SET rooms = '{}' WHERE name = 'clinic'", "clinic .*rooms"),
        ("UPDATE ledger_account SET split = '{}' WHERE name = 'clinic'", "clinic .*split"),
        ("DELETE FROM ledger_account WHERE name = 'labs'", "account labs is missing"),
        (
            "UPDATE ledger_account SET partition_key = 'abcd' WHERE name = 'clinic'",
            "account clinic was edited, key$",
        ),
        ("UPDATE ledger_account SET partition_key = 'x' WHERE name = 'clinic'", "edited, key$"),
        (
            "UPDATE ledger_account SET unit_column = 'message_id' WHERE name = 'clinic'",
            "account clinic was edited, unit_column: 'message_id', was 'patient_id'",
        ),
    ],
)
def test_an_edit_is_found_and_nothing_is_spent(full, statement, named):
    tamper(full, statement)
    with pytest.raises(VerificationError) as found:
        full.verify()
    assert re.search(named, found.value.message.rstrip(".")), found.value.message
    with pytest.raises(VerificationError):
        full.check()
    if named.startswith("account labs"):  # another account goes on
        return
    before = dump_of(full)
    for call in (
        lambda: reserve(full, "another", ZCDP(0.001)),
        lambda: reserve(full, "new", Disjoint((ZCDP(0.01), ZCDP(0.002)), cells=8)),
        lambda: full.releases.begin("new", "/scratch/new", "n"),
        lambda: full.releases.begin("begun", "/scratch/begun", "n"),
    ):
        with pytest.raises(VerificationError, match="Restore the ledger from a backup"):
            call()
    assert dump_of(full) == before


def test_an_edited_account_does_not_stop_the_others(full):
    tamper(full, "UPDATE ledger_entry SET loss = 0 WHERE release_id = 'done'")
    reserve(full, "x", ZCDP(1e-6), account="labs")
    with pytest.raises(VerificationError, match="release done was edited, loss"):
        full.verify()


def dump_of(ledger: Ledger) -> list[tuple[object, ...]]:
    """All rows but refusals, which are added."""
    with ledger.database.read() as connection:
        return [
            tuple(row)
            for table in (schema.history, schema.head, schema.entries, schema.accounts)
            for row in connection.execute(sa.select(table).order_by(*table.primary_key))
        ]


def test_rows_that_change_places_are_found(ledger, clock):
    full = fill(ledger, clock)
    tamper(
        full,
        "UPDATE ledger_history SET seq = 99 WHERE seq = 4",
        "UPDATE ledger_history SET seq = 4 WHERE seq = 5",
        "UPDATE ledger_history SET seq = 5 WHERE seq = 99",
    )
    with pytest.raises(VerificationError, match="row 4"):
        full.verify()


def test_a_cut_off_end_is_found_even_if_the_head_is_set_back(full):
    last = full.history()[-2]
    tamper(
        full,
        "DELETE FROM ledger_history WHERE seq = 13",
        f"UPDATE ledger_head SET seq = 12, hash = '{last.hash}'",  # noqa: S608
    )
    with pytest.raises(VerificationError, match=r"release void was edited, (state|reason|changed)"):
        full.verify()


def rewrite(ledger: Ledger, change: Callable[[dict[str, object]], None], seq: int) -> None:
    """Edit a row and forge everything that follows from it: what only the costs can betray."""
    rows = ledger.history()
    with ledger.database.write() as connection:
        connection.execute(sa.delete(schema.history))
        connection.execute(sa.delete(schema.entries))
        key = connection.execute(sa.select(schema.accounts)).mappings().all()
        connection.execute(sa.delete(schema.accounts))
        connection.execute(sa.update(schema.head).values(seq=0, hash=chain.GENESIS))
        for row in rows:
            body = dict(row.body)
            if row.seq == seq:
                change(body)
            forge(connection, row, body, key)


def forge(connection: Connection, row: chain.Change, body: dict[str, object], keys: list) -> None:
    from privsyn.ledger.entries import moment

    made = chain.append(connection, moment(row.at), row.account, row.release_id, row.change, body)
    if row.change == chain.OPENED:
        held = next(key for key in keys if key["name"] == row.account)
        values = chain.project(made) | {"partition_key": held["partition_key"]}
        connection.execute(sa.insert(schema.accounts).values(values))


def test_what_was_reserved_by_a_fast_clock_still_fits_the_period_where_it_begins(lite, clock):
    """Two releases of the whole period cap; the second was reserved by a clock a month ahead."""
    lite.accounts.open(dataclasses.replace(PURE, period_days=30, period_epsilon=1.0))
    begin(lite, "one")
    begun = lite.history("one")[-1]
    lite.releases.commit("one", "a" * 64, "b" * 64)
    clock.pass_(days=31)
    reserve(lite, "two")
    lite.verify()
    clock.pass_(days=-31)
    with pytest.raises(BudgetExceeded, match="no room to begin release two"):
        lite.releases.begin("two", "/scratch/two", "n")
    with lite.database.write() as connection:
        chain.append(connection, clock(), "clinic", "two", begun.change, dict(begun.body))
    with pytest.raises(VerificationError, match="release two does not fit account"):
        lite.verify()


@pytest.mark.parametrize(
    ("at", "wrote", "named"),
    [
        ("2026-01-30T12:00:00.000000Z", None, "row 3: its time is before that of row 2"),
        ("2026-01-31T12:00:00.000000Z", "2026-02-09T12:00:00.000000Z", "was not behind"),
        ("2026-02-01T12:00:00.000000Z", "2026-01-30T12:00:00.000000Z", "was not behind"),
        ("2026-01-31T12:00:00.000000Z", "2026-01-30T12:00:00.000000Z", None),
    ],
)
def test_times_that_decrease_are_found(lite, at, wrote, named):
    lite.accounts.open(PURE)
    reserve(lite, "one")
    reserve(lite, "two")
    row = lite.history()[-1]
    body = {**row.body} | ({} if wrote is None else {"clock": wrote})
    text = chain.canonical(body)
    made = chain.digest(3, at, row.account, row.release_id, row.change, text, row.previous)
    with lite.database.write() as connection:
        history, entries = schema.history, schema.entries
        edited = {"at": at, "body": text, "hash": made}
        connection.execute(sa.update(history).where(history.c.seq == 3).values(edited))
        connection.execute(sa.update(schema.head).values(hash=made))
        times = {"reserved_at": at, "changed_at": at}
        connection.execute(sa.update(entries).where(entries.c.number == 2).values(times))
    if named is None:
        lite.verify()
        return
    with pytest.raises(VerificationError, match=named):
        lite.verify()


def test_the_forger_of_the_tests_leaves_a_valid_ledger_alone(ledger, clock):
    full = fill(ledger, clock)
    rewrite(full, lambda body: None, seq=3)
    assert full.verify().rows == 13


@pytest.mark.parametrize(
    ("seq", "change", "named"),
    [
        (3, {"loss": 1e-9}, "row 3: release done is charged 1e-09, its event costs"),
        (3, {"event": dump(ZCDP(0.02))}, "row 3: release done is charged"),
        (
            3,
            {"event": dump(ZCDP(5.0)), "loss": 50.0},
            "release done does not fit account.epsilon",
        ),
        (
            3,
            {"event": dump(ZCDP(0.14)), "loss": 1.3},
            "row 3: release done does not fit account.period",
        ),
        (5, {"event": {"kind": "magic", "version": 1}}, "row 5 cannot be read"),
        (1, {"budget": 99.0}, "row 1: budget=99.0 is more than epsilon=3.0 allows"),
        (1, {"renyi_order": 2.0}, "row 1: budget"),
        (1, {"renyi_order": None}, "row 1 cannot be read"),
        (2, {"dataset": "portal"}, None),
        (10, {"state": "VOID"}, None),
    ],
)
def test_a_whole_forged_chain_still_has_to_add_up(full, seq, change, named):
    if seq == 2:  # the database refuses a second account on a lineage by itself
        with pytest.raises(Exception, match=r"(?i)unique"):
            rewrite(full, lambda body: body.update(change), seq)
        full.verify()
        return
    rewrite(full, lambda body: body.update(change), seq)
    if named is None:
        full.verify()
        return
    with pytest.raises(VerificationError, match=named):
        full.verify()


@pytest.mark.parametrize(
    ("seq", "change", "named"),
    [
        (1, {"gaussian_budget": 99.0}, "row 1: budget=99.0 is more than epsilon=3.0 allows"),
        (2, {"mu_squared": 1e-9}, "row 2: release r is charged a squared mu of 1e-09"),
    ],
)
def test_a_forged_filter_of_gaussian_noise_is_found(lite, seq, change, named):
    lite.accounts.open(
        dataclasses.replace(RENYI, split=Split(), period_days=30, period_epsilon=2.5)
    )
    reserve(lite, "r", DiscreteGaussian(20.0))
    rewrite(lite, lambda body: None, seq)
    lite.verify()
    rewrite(lite, lambda body: body.update(change), seq)
    with pytest.raises(VerificationError, match=named):
        lite.verify()


@pytest.mark.parametrize("state", ["RESERVED", "BEGUN", "COMMITTED", "LOST", "VOID"])
def test_a_release_forged_beside_what_is_charged_is_found(lite, clock, state):
    lite.accounts.open(PURE)
    reserve(lite, "one", Pure(2.0))
    if state in ("BEGUN", "COMMITTED", "LOST"):
        lite.releases.begin("one", "/scratch/one", "n")
    if state == "COMMITTED":
        lite.releases.commit("one", A, B)
    if state == "LOST":
        lite.releases.lose("one", "why")
    if state == "VOID":
        lite.releases.void("one", "why")
    reserved = lite.history("one")[0]
    with lite.database.write() as connection:
        chain.append(connection, clock(), "clinic", "two", reserved.change, dict(reserved.body))
    if state == "VOID":
        lite.verify()
        return
    with pytest.raises(VerificationError, match="release two does not fit account"):
        lite.verify()


@pytest.mark.parametrize("release", ["gone", "begun", "unknown"])
def test_forged_offspring_is_found(full, release):
    body = {"artifact_sha256": "a" * 64, "certificate_sha256": "b" * 64}
    with full.database.write() as connection:
        row = chain.append(connection, Clock()(), "clinic", release, chain.DERIVED, body)
    with pytest.raises(VerificationError, match=f"row {row.seq}: release {release} has offspring"):
        full.verify()


def test_bodies_have_one_spelling():
    assert chain.canonical({"b": 1.0, "a": "é"}) == '{"a":"\\u00e9","b":1.0}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        chain.canonical({"a": float("nan")})
    assert json.loads(chain.canonical({"x": 0.1 + 0.2}))["x"] == 0.1 + 0.2
