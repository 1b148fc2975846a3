"""The journal in the ledger's database: the same promises as the file's, for one writer of many."""

from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa

from privsyn.errors import (
    BudgetError,
    ConfigError,
    LeaseHeld,
    LedgerUnavailable,
    ReleaseLost,
    VerificationError,
)
from privsyn.ledger import schema
from privsyn.ledger.draws import VaultRow
from privsyn.ledger.ledger import Ledger
from privsyn.vault import VARIABLE, LedgerJournal, Vault, entries, public_file
from tests.unit.ledger.ledger_cases import PURE, Clock, reserve

PART = "shard-0"
HEADER = {"release": "r"}
SECRET = "vermilion-ocelot-90210"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(VARIABLE, "A" * 43 + "=")


def begin(ledger, folder):
    ledger.accounts.open(PURE)
    name = reserve(ledger, "r1").release_id
    vault = Vault(f"file://{folder / 'vault'}", None)
    place = vault.pin(ledger.draws, name, 1)
    ledger.releases.begin(name, vault.place(name, place.nonce), place.nonce)
    LedgerJournal.create(ledger.draws, place, PART, HEADER)
    return place


def find(ledger, place, folder):
    return Vault(f"file://{folder / 'vault'}", None).find(ledger.draws, place.release_id)


def opened(ledger, place, lease):
    return LedgerJournal.open(ledger.draws, place, lease, HEADER)


@contextmanager
def drawing(ledger, place):
    """Lease and journal of the part, while a block lasts."""
    with ledger.leases.acquire(place.release_id, PART) as lease:
        with opened(ledger, place, lease) as journal:
            yield lease, journal


def never():
    raise AssertionError("drawn again")


def rows_in(ledger):
    with ledger.database.read() as connection:
        found = connection.execute(sa.select(schema.draws)).mappings().all()
        return [bytes(row["body"]) for row in found]


def test_draws_are_replayed_by_whoever_comes_next(ledger, tmp_path):
    place = begin(ledger, tmp_path)
    with drawing(ledger, place) as (lease, journal):
        assert not journal.has_drawn
        drawn = journal.draw_all([("a", lambda: 5), ("b", lambda: [1.5, SECRET])])
        assert drawn == [5, [1.5, SECRET]]
        array = journal.draw_array("c", lambda: np.arange(-3, 4), 7)
        assert journal.public_file("p", lambda: b"public") == b"public"
        assert journal.draw_file("f", lambda: b"file") == b"file"
        lease.count(lambda: journal.durable)
        assert len(journal) == journal.durable == 5
    again = find(ledger, place, tmp_path)
    assert entries(ledger.draws, again, PART) == ledger.leases.parts(place.release_id)[PART] == 5
    assert public_file(ledger.draws, again, PART, "p") == b"public"
    assert public_file(ledger.draws, again, PART, "q") is None
    with drawing(ledger, again) as (_, journal):
        assert journal.has_drawn
        assert journal.draw_all([("b", never), ("a", never)]) == [[1.5, SECRET], 5]
        assert (journal.draw_array("c", never, 7) == array).all()
        assert journal.draw_file("f", never) == b"file"
        assert journal.public_file("p", never) == b"public"
        journal.drop_file("f")
        journal.drop_file("f")
        with pytest.raises(ReleaseLost, match="gone from the vault"):
            journal.draw_file("f", never)
        assert journal.draw_all([("d", lambda: 6)]) == [6]
    assert not any(SECRET.encode() in body for body in rows_in(ledger))


def test_rows_are_as_long_as_their_keys_make_them(ledger, tmp_path):
    place = begin(ledger, tmp_path)
    with drawing(ledger, place) as (_, journal):
        for number, value in enumerate((0, -(2**63), 1.7976931348623157e308, 7)):
            journal.draw_all([(f"k{number}", lambda value=value: value)])
        for number, size in enumerate((3, 3)):
            journal.draw_array(f"a{number}", lambda n=number, s=size: np.full(s, 9**n), size)
    lengths = [len(body) for body in rows_in(ledger)[1:]]
    assert len(set(lengths[:4])) == len(set(lengths[4:])) == 1


def test_of_two_that_believe_they_own_a_part_one_writes(ledger, clock, tmp_path):
    """A process that stood still for longer than its lease lives, on a clock that is wrong."""
    place = begin(ledger, tmp_path)
    name = place.release_id
    paused = ledger.leases.acquire(name, PART, ttl=3600)
    with opened(ledger, place, paused) as first:
        first.draw_all([("a", lambda: 1)])
        clock.now += timedelta(hours=2)
        other = ledger.leases.acquire(name, PART, ttl=3600)
        with opened(ledger, place, other) as second:
            with pytest.raises(LeaseHeld, match="overtaken"):
                first.draw_all([("b", lambda: 2), ("c", lambda: 3)])
            with pytest.raises(LeaseHeld):
                first.draw_all([("d", lambda: 4)])
            assert second.draw_all([("a", never), ("b", lambda: 20)]) == [1, 20]
            with pytest.raises(LeaseHeld):
                first.draw_file("f", lambda: b"mine")
            assert second.draw_file("f", lambda: b"theirs") == b"theirs"
            assert second.draw_file("f", never) == b"theirs"
        with pytest.raises(LeaseHeld):
            opened(ledger, place, paused)
    assert entries(ledger.draws, place, PART) == 3
    with ledger.database.read() as connection:
        tokens = connection.execute(sa.select(schema.draws.c.token)).scalars().all()
    assert tokens == [0, 1, 2, 2]


def test_who_takes_a_part_over_waits_for_a_row_that_is_being_written(url, ledger, clock, tmp_path):
    name = begin(ledger, tmp_path).release_id
    rows = ledger.draws.open(ledger.leases.acquire(name, PART))
    clock.now += timedelta(hours=1)
    impatient = Ledger(url, timeout=0.2, clock=clock)

    def meanwhile():
        with pytest.raises(LedgerUnavailable, match="is locked"):
            impatient.leases.acquire(name, PART)
        yield b"row"

    rows.append(1, meanwhile())
    rows.close()
    assert impatient.leases.acquire(name, PART).token == 2


@pytest.mark.parametrize("end", ["lose", "commit"])
def test_with_a_release_its_key_and_draws_end(ledger, tmp_path, end):
    place = begin(ledger, tmp_path)
    name = place.release_id
    with drawing(ledger, place) as (_, journal):
        journal.draw_all([("a", lambda: 1)])
        if end == "lose":
            ledger.releases.lose(name, "why")
            with pytest.raises(ReleaseLost):
                journal.draw_all([("b", lambda: 2)])
        else:
            ledger.releases.commit(name, "0" * 64, "1" * 64)
            with pytest.raises(Exception, match="COMMITTED"):
                journal.draw_all([("b", lambda: 2)])
        assert find(ledger, place, tmp_path) is None
        assert rows_in(ledger) == []
    ledger.verify()


def test_a_reservation_that_is_given_back_leaves_no_key(ledger, tmp_path):
    ledger.accounts.open(PURE)
    name = reserve(ledger, "r1").release_id
    vault = Vault(f"file://{tmp_path / 'vault'}", None)
    first = vault.pin(ledger.draws, name, 2)
    assert vault.pin(ledger.draws, name, 5).shards == 2  # of two that start at once one wins
    assert vault.pin(ledger.draws, name, 5).nonce == first.nonce
    ledger.releases.void(name, "why")
    assert vault.find(ledger.draws, name) is None


def test_a_release_that_began_elsewhere_is_pinned_to_no_vault(ledger):
    ledger.accounts.open(PURE)
    name = reserve(ledger, "r1").release_id
    ledger.releases.begin(name, "/scratch", "n")
    with pytest.raises(BudgetError, match="BEGUN, not RESERVED"):
        ledger.draws.pin(name, VaultRow("key", b"wrapped", "nonce", 1))
    assert ledger.draws.find_pin(name) is None


def test_another_key_is_refused_before_anything_is_drawn(ledger, tmp_path, monkeypatch):
    place = begin(ledger, tmp_path)
    monkeypatch.setenv(VARIABLE, "B" * 43 + "=")
    with pytest.raises(ConfigError, match=f"{VARIABLE} holds key .*, but release .* nothing was"):
        find(ledger, place, tmp_path)


def test_entries_that_were_changed_moved_or_lost_are_found(ledger, tmp_path):
    place = begin(ledger, tmp_path)
    name = place.release_id
    with drawing(ledger, place) as (_, journal):
        for key in "abc":
            journal.draw_all([(key, lambda: 1)])
    table = schema.draws
    bodies = rows_in(ledger)

    def put(number, body):
        with ledger.database.write() as connection:
            where = (table.c.part == PART, table.c.number == number)
            connection.execute(sa.update(table).where(*where).values(body=body))

    def refused():
        with ledger.leases.acquire(name, PART) as lease:
            try:
                opened(ledger, place, lease).close()
            except VerificationError:
                return True
        return False

    assert not refused()
    put(1, bodies[2])
    put(2, bodies[1])
    assert refused()
    put(1, bodies[1][:-1] + bytes([bodies[1][-1] ^ 1]))
    put(2, bodies[2])
    assert refused()
    put(1, bodies[1])
    assert not refused()
    with ledger.database.write() as connection:
        connection.execute(sa.delete(table).where(table.c.number == 1))
    assert refused()


def test_a_draw_that_raised_is_not_followed_by_another(ledger, tmp_path):
    place = begin(ledger, tmp_path)
    with drawing(ledger, place) as (_, journal):
        with pytest.raises(ZeroDivisionError):
            journal.draw_all([("a", lambda: 1), ("b", lambda: 1 // 0)])
        with pytest.raises(ReleaseLost, match="a draw raised before it was written"):
            journal.draw_all([("c", lambda: 1)])
        assert not journal.has("a")  # drawn in the same step, and not on file
        with pytest.raises(ReleaseLost):
            journal.draw_all([("a", lambda: 1)])
    assert entries(ledger.draws, place, PART) == 0


# PostgreSQL


def test_a_connection_that_is_cut_in_mid_draw_costs_that_draw_at_most(postgres_url, tmp_path):
    ledger = Ledger(postgres_url, clock=Clock())
    place = begin(ledger, tmp_path)
    lease = ledger.leases.acquire(place.release_id, PART, ttl=3600)

    def cut():
        """As a restart of the server does, between the draw and its commit."""
        mine = journal._rows._connection._connection.connection.dbapi_connection.info.backend_pid
        with ledger.database.write() as connection:
            connection.execute(sa.select(sa.func.pg_terminate_backend(mine))).one()
        return 2

    with opened(ledger, place, lease) as journal:
        assert journal.draw_all([("a", lambda: 1)]) == [1]
        with pytest.raises(LedgerUnavailable) as refused:
            journal.draw_all([("b", cut)])
        assert refused.value.retryable
        with pytest.raises(LedgerUnavailable):  # whether it was committed is not known here
            journal.draw_all([("c", never)])
    with opened(ledger, place, lease) as journal:
        assert journal.draw_all([("a", never), ("b", lambda: 20)]) == [1, 20]
