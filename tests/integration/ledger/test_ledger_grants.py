"""PostgreSQL: the app's role does its work, and cannot rewrite what happened."""

from __future__ import annotations

import dataclasses
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from privsyn.dp.adjacency import Guarantee
from privsyn.dp.events import Pure
from privsyn.errors import (
    ApprovalNeeded,
    BudgetExceeded,
    ConfigError,
    DataError,
    LedgerUnavailable,
    VerificationError,
)
from privsyn.ledger import chain, schema
from privsyn.ledger.database import _parse
from privsyn.ledger.decisions import What
from privsyn.ledger.entries import DatasetSource, State
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.postgres_roles import PRIVILEGES, grants
from privsyn.ledger.settings import ApprovalConfig
from privsyn.ledger.spec import Terms
from tests.unit.ledger.ledger_cases import PURE, finish, reserve

SPEC = dataclasses.replace(PURE, epsilon=30.0)
PAGE = (Path(__file__).parents[3] / "docs/governance.md").read_text()


class Roles(NamedTuple):
    owner: str
    app: str
    officer: str
    """Of the role that approves, where one is set apart."""


def as_role(url, role):
    return _parse(url).set(username=role).render_as_string(False)


@pytest.fixture
def roles(postgres_url):
    """A ledger of the owner, and a role of the app that the shipped SQL was run for."""
    app, officer = (f'{name} "{secrets.token_hex(4)}"' for name in ("app", "officer"))
    Ledger(postgres_url).migrate()
    quoted = [role.replace('"', '""') for role in (app, officer)]
    for role in quoted:
        run(postgres_url, f'CREATE ROLE "{role}" LOGIN')
    for _ in range(2):  # may be run again
        run(postgres_url, grants(app, schema_of(postgres_url)))
    try:
        yield Roles(postgres_url, as_role(postgres_url, app), as_role(postgres_url, officer))
    finally:
        for role in quoted:
            run(postgres_url, f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def schema_of(url):
    return url.partition("search_path%3D")[2] or url.rpartition("=")[2]


def connected(url, **more):
    to = _parse(url)
    names = {"host": to.host, "port": to.port, "user": to.username, "password": to.password}
    return psycopg.connect(dbname=to.database, options=to.query["options"], **names, **more)


def run(url, statement):
    with connected(url, autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture
def ledger(roles):
    ledger = Ledger(roles.app)
    ledger.accounts.open(SPEC)
    finish(ledger, "r1")
    reserve(ledger, "r2")
    return ledger


def test_every_table_has_its_privileges():
    assert set(PRIVILEGES) == set(schema.metadata.tables.values())


def test_the_app_does_all_its_work(ledger):
    cost = Guarantee(1.0, 1e-6)
    ledger.releases.void("r2", "not wanted")
    for content in ("one", "two"):  # noted anew: the first run never began
        source = DatasetSource("v2", content)
        ledger.releases.reserve(
            "clinic", "r2", Pure(1.0), method="toy", guarantee=cost, source=source
        )
        ledger.releases.void("r2", "not wanted")
    reserve(ledger, "r2")
    ledger.releases.begin("r2", "/s", "n")
    with ledger.leases.acquire("r2", "shard-0") as lease:
        ledger.leases.renew(lease)
    ledger.leases.acquire("r2", "shard-0")
    ledger.releases.lose("r2", "given up")
    ledger.releases.derive("r1", "c" * 64, "d" * 64)
    ledger.releases.note_validation("r1", "r1", "b" * 64, {"validation.json": "e" * 64})
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r3", Pure(100.0))
    audit = ledger.verify()
    assert audit.entries == 2
    assert ledger.releases.get("r2").state is State.LOST
    assert [refusal.error for refusal in ledger.releases.refusals()] == ["BudgetExceeded"]


def asks(above):
    return Terms(approval=ApprovalConfig(spend_above=above))


def test_the_app_tightens_terms_and_decides_and_the_owner_alone_loosens(roles, ledger):
    ledger.accounts.open(dataclasses.replace(SPEC, terms=asks(0.5)))
    with pytest.raises(ApprovalNeeded):
        reserve(ledger, "r3")
    digest = ledger.approvals.find_request("r3").body["digest"]
    ledger.approvals.decide("r3", What.SPEND, digest, approved=True, approver="officer")
    reserve(ledger, "r3")
    with pytest.raises(LedgerUnavailable, match="only the owner of the ledger loosens"):
        ledger.accounts.loosen("clinic", Terms(), "in a hurry")
    assert ledger.accounts.terms("clinic") == asks(0.5)
    Ledger(roles.owner).accounts.loosen("clinic", Terms(), "a mistake, says the officer")
    assert ledger.verify().entries == 3


def test_who_spends_does_not_approve_and_who_approves_does_so_by_name(roles, ledger):
    app, officer = (str(_parse(url).username) for url in (roles.app, roles.officer))
    run(roles.owner, grants(app, schema_of(roles.owner), officer))
    ledger.accounts.open(dataclasses.replace(SPEC, terms=asks(0.5)))
    with pytest.raises(ApprovalNeeded):
        reserve(ledger, "r3")
    digest = ledger.approvals.find_request("r3").body["digest"]
    before, desk = ledger.verify(), Ledger(roles.officer)
    wrong = ((ledger, "officer"), (ledger, app), (ledger, officer), (desk, app), (desk, "boss"))
    for one, approver in wrong:
        for approved in (True, False):
            with pytest.raises(LedgerUnavailable, match=r"may not add|names the role"):
                one.approvals.decide("r3", What.SPEND, digest, approved=approved, approver=approver)
    # as SQL, with the hash that the row has
    decision = {"what": "spend", "digest": digest, "name": "r3", "comment": ""}
    for url, change, approver, why in (
        (roles.app, "APPROVED", officer, "may not add APPROVED"),
        (roles.officer, "APPROVED", "boss", "names the role that writes"),
        (roles.officer, "REQUESTED", officer, "may not add REQUESTED"),
        (roles.officer, "VOID", officer, "may not add VOID"),
    ):
        with pytest.raises(psycopg.errors.RaiseException, match=why):
            add(url, ledger, change, decision | {"approver": approver}, release_id="r3")
    for attack in ("UPDATE ledger_entry SET state = state", "SELECT * FROM ledger_draw"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(roles.officer, attack)
    assert ledger.verify() == before
    desk.approvals.decide("r3", What.SPEND, digest, approved=True, approver=officer)
    reserve(ledger, "r3")
    with pytest.raises(LedgerUnavailable, match="may not add REQUESTED"):
        reserve(desk, "r4")
    assert ledger.verify().entries == 3


BY = "json_build_object('by', json_build_object('db_user', session_user))::text"
APPENDED = (
    "INSERT INTO ledger_history SELECT e.seq + 1, 'x', 'clinic', NULL, 'NOTE', {by}, e.hash, 'y'"
    " FROM ledger_head e; UPDATE ledger_head SET seq = seq + 1, hash = 'y'"
)
"""A row of a kind that no state forbids: it says who wrote it, or somebody else did."""
_ATTACKS = [
    "UPDATE ledger_history SET body = '{}' WHERE seq = 2",
    "DELETE FROM ledger_history WHERE seq = 5",
    "TRUNCATE ledger_history",
    "INSERT INTO ledger_history SELECT 99, at, account, release_id, change, body, previous, hash"
    " FROM ledger_history WHERE seq = 1",
    "INSERT INTO ledger_history SELECT e.seq + 1, 'x', 'clinic', 'r1', 'VOID', MINE, e.hash, 'y'"
    " FROM ledger_head e",
    "INSERT INTO ledger_history SELECT e.seq + 1, 'x', 'clinic', NULL, 'NOTE', MINE, e.hash, 'y'"
    " FROM ledger_head e",  # and no head that says so
    "UPDATE ledger_head SET seq = 4, hash = (SELECT hash FROM ledger_history WHERE seq = 4)",
    "UPDATE ledger_head SET seq = seq + 1",
    "DELETE FROM ledger_head",
    "TRUNCATE ledger_head",
    "INSERT INTO ledger_history SELECT e.seq + 1, 'x', 'clinic', 'r1', 'VOID', MINE, e.hash, 'y'"
    " FROM ledger_head e; UPDATE ledger_head SET seq = seq + 1, hash = 'y'",  # gives r1 back
    APPENDED.format(by='\'{"by": {"db_user": "officer"}}\''),
    APPENDED.format(by='\'{"by": {"user": "officer"}}\''),
    "UPDATE ledger_account SET epsilon = 1000",
    "UPDATE ledger_account SET partition_key = 'aa'",
    "UPDATE ledger_account SET unit_column = 'visit_id'",
    "UPDATE ledger_account SET terms = NULL",
    "DELETE FROM ledger_account",
    "UPDATE ledger_entry SET state = 'VOID' WHERE release_id = 'r1'",
    "UPDATE ledger_entry SET loss = 0 WHERE release_id = 'r1'",
    "UPDATE ledger_entry SET epsilon = 0, event = '{}' WHERE release_id = 'r1'",
    "UPDATE ledger_entry SET account = 'other' WHERE release_id = 'r1'",
    "DELETE FROM ledger_entry WHERE release_id = 'r1'",
    "INSERT INTO ledger_entry SELECT 'r9', 99, account, method, state, event, loss, epsilon,"
    " delta, reserved_at, changed_at FROM ledger_entry WHERE release_id = 'r1'",
    "UPDATE ledger_lease SET steps = 0",
    "UPDATE ledger_lease SET token = 0",
    "DELETE FROM ledger_lease",
    "UPDATE ledger_refusal SET message = ''",
    "DELETE FROM ledger_refusal",
    "DELETE FROM ledger_source",
    "UPDATE ledger_source SET fingerprint = ''",
    "UPDATE ledger_secret SET value = ''",
    "DELETE FROM ledger_migration",
    "DROP TABLE ledger_history",
    "DROP TRIGGER privsyn_history_stays ON ledger_history",
    "ALTER TABLE ledger_history DISABLE TRIGGER ALL",
    "CREATE TABLE more (x int)",
    "SET session_replication_role = replica",
]
ATTACKS = [attack.replace("MINE", BY) for attack in _ATTACKS]


def filled(ledger):
    cost = Guarantee(1.0, 1e-6)
    source = DatasetSource("v1", "content")
    ledger.releases.reserve("clinic", "r4", Pure(1.0), method="toy", guarantee=cost, source=source)
    ledger.releases.begin("r4", "/s", "n")
    lease = ledger.leases.acquire("r4", "shard-0")
    lease.count(lambda: 3)
    ledger.leases.renew(lease)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r3", Pure(100.0))


def test_the_app_cannot_rewrite_what_happened(roles, ledger):
    filled(ledger)
    before = ledger.verify()
    got_through = []
    for attack in ATTACKS:
        try:
            run(roles.app, attack)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.RaiseException):
            continue
        got_through.append(attack)
    assert got_through == []
    assert ledger.verify() == before


def test_a_row_names_the_role_that_writes_it(roles, ledger):
    role = _parse(roles.app).username
    assert ledger.releases.get("r1").reserved_by == {"db_user": role}
    with pytest.raises(BudgetExceeded):
        reserve(Ledger(roles.app, requester={"user": "bob", "db_user": "bob"}), "r3", Pure(100.0))
    assert ledger.releases.refusals()[0].refused_by == {"user": "bob", "db_user": role}
    with pytest.raises(psycopg.errors.RaiseException, match="does not name the role"):
        run(roles.app, APPENDED.format(by="'{}'"))
    # a false row may still be written, in one's own name
    add(roles.app, ledger, "REQUESTED", {"digest": "f" * 64})
    assert ledger.verify().rows == 6


LONG = {
    "digest": 'é\u2028😀\x7f\t"\\/',
    "x": [5e-324, 1e23, 0.1 + 0.2, 1e16, -0.0, 2**70],
    "": None,
}


def add(url, ledger, change, body, **other):
    """Write a row and move the head as SQL of a role's, with the hash that the row has."""
    last, by = ledger.history()[-1], {"db_user": _parse(url).username}
    text = body if isinstance(body, str) else chain.canonical({**body, "by": by})
    row = {"seq": last.seq + 1, "at": last.at, "account": "clinic", "release_id": None}
    row |= {"change": change, "body": text, "previous": last.hash} | other
    if "hash" not in row:
        row["hash"] = chain.digest(**row)
    with connected(url) as connection:
        names = ", ".join(f"%({name})s" for name in row)
        connection.execute(f"INSERT INTO ledger_history ({', '.join(row)}) VALUES ({names})", row)  # noqa: S608
        connection.execute("UPDATE ledger_head SET seq = %(seq)s, hash = %(hash)s", row)


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("REQUESTED", {"hash": "ab" * 32}, "does not have the hash"),
    ("REQUESTED", {"previous": "ab" * 32}, "does not follow the end"),
    ("REQUESTED", {"seq": 7}, "does not follow the end"),
    ("REQUESTED", {"at": "2100-02-30T00:00:00.000000Z"}, "out of range"),
    ("REQUESTED", {"at": "2100-02-03T24:00:00.000000Z"}, "as privsyn writes"),
    ("REQUESTED", {"at": "3"}, "as privsyn writes"),
    ("REQUESTED", {"account": 'a"'}, "as privsyn writes"),
    ("REQUESTED", {"release_id": "é"}, "as privsyn writes"),
    ("UPGRADED", {}, "does not go from <NULL> to UPGRADED"),
    ("NOTE", {}, "does not go from"),
    ("VOID", {"release_id": "r1"}, "does not go from COMMITTED to VOID"),
    ("DERIVED", {"release_id": "r2"}, "does not go from RESERVED to DERIVED"),
)
"""A change, what its row says instead, and why it is refused."""


def test_a_row_that_would_break_the_chain_is_refused(roles, ledger):
    for change, other, why in WRONG:
        with pytest.raises((psycopg.errors.RaiseException, psycopg.errors.DataError), match=why):
            add(roles.app, ledger, change, {"digest": "f" * 64}, **other)
    assert ledger.verify().rows == 5


def test_the_trigger_computes_the_hash_that_privsyn_computes(roles, ledger):
    for body in (LONG, LONG | {"long": "ü" * 1_000_000}):
        with pytest.raises(psycopg.errors.RaiseException, match="does not have the hash"):
            add(roles.app, ledger, "REQUESTED", body, release_id="r.9:_-", hash="ab" * 32)
        add(roles.app, ledger, "REQUESTED", body, release_id="r.9:_-")
        assert ledger.history()[-1].body["x"] == body["x"]
    assert ledger.verify().rows == 7


def test_a_body_with_another_spelling_breaks_nothing(roles, ledger):
    by = chain.canonical({"db_user": _parse(roles.app).username})
    with pytest.raises(psycopg.errors.RaiseException, match="as privsyn writes"):
        add(roles.app, ledger, "REQUESTED", f'{{"digest":"é","by":{by}}}')
    add(roles.app, ledger, "REQUESTED", f'{{"x": 1.00, "x": 1e0, "digest":"d", "by": {by}}}')
    assert ledger.verify().rows == 6


def repair(first):
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert sql.count(":= 6;") == 1
    return sql.replace(":= 6;", f":= {first};")


def test_the_owner_takes_a_false_end_out_and_no_spend_with_it(roles, ledger):
    ledger.accounts.open(dataclasses.replace(SPEC, terms=asks(9.0)))
    before = ledger.verify()
    add(roles.app, ledger, "APPROVED", {"digest": "f" * 64}, release_id="r1")  # nobody asked for it
    add(roles.app, ledger, "REQUESTED", {"digest": "f" * 64})
    with pytest.raises(VerificationError, match="row 7"):
        reserve(ledger, "r3")
    for first in range(1, 7):  # the account, releases, its terms
        with pytest.raises(psycopg.errors.RaiseException, match="rests on these rows"):
            run(roles.owner, repair(first))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(roles.app, repair(7))
    run(roles.owner, repair(7))
    assert ledger.verify() == before
    test_nor_does_the_owner_by_mistake(roles, ledger)  # the triggers are there again


def test_nor_does_the_owner_by_mistake(roles, ledger):
    filled(ledger)
    owners = [
        attack
        for attack in ATTACKS
        if attack.startswith(("UPDATE", "DELETE", "INSERT", "TRUNCATE"))
        and not any(table in attack for table in ("_secret", "_migration"))
    ]
    for attack in owners:
        with pytest.raises(psycopg.errors.RaiseException, match="privsyn: "):
            run(roles.owner, attack)
    ledger.verify()


def test_a_role_that_may_not_migrate_says_so(roles):
    run(roles.owner, "DELETE FROM ledger_migration")
    with pytest.raises(LedgerUnavailable, match="permission denied"):
        Ledger(roles.app).accounts.open(SPEC)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ConfigError, match="not a name"):
        grants(name)
    with pytest.raises(ConfigError, match="--approvers=app is --role, which spends"):
        grants("app", approvers="app")


def test_a_file_that_changed_is_refused_as_ever(ledger):
    filled(ledger)
    cost, source = Guarantee(1.0, 1e-6), DatasetSource("v1", "another content")
    with pytest.raises(DataError):
        ledger.releases.reserve(
            "clinic", "r5", Pure(1.0), method="toy", guarantee=cost, source=source
        )


def test_the_page_names_what_the_app_may_do_with_every_table():
    rows = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| `ledger_")]
    words = {"SELECT": "read", "INSERT": "add", "UPDATE": "change", "DELETE": "delete"}
    told = {name.strip(" `"): may.strip() for names, may in rows for name in names.split(",")}
    assert told.pop("ledger_head") == "read, move on"
    assert told == {
        table.name: ", ".join(words[word] for word in re.findall("[A-Z]+", privileges))
        for table, privileges in PRIVILEGES.items()
        if table is not schema.head
    }
