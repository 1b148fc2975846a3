"""PostgreSQL: what keeps the role that privsyn runs as from rewriting the ledger's history.

The tables belong to another role, which creates them (``privsyn ledger migrate``). The
role of the app may add to the chain and move a release along its states; triggers refuse the rest,
to the owner too until a trigger is dropped. They compare a row with the chain, and so let nothing
in that ``verify`` would find. What they do not do: recompute costs, which ``reserve`` and
``verify`` do, and keep the app from reading the partition keys, which it partitions with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from privsyn.errors import ConfigError
from privsyn.ledger import sa, schema
from privsyn.ledger.chain import BEFORE, DECISIONS, NOTES, OPENED, REQUESTED, TERMS
from privsyn.ledger.entries import NAME, State

LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL; longer ones it cuts."""

FIXED = ("number", "account", "method", "event", "loss", "epsilon", "delta")
"""Columns of an entry that only a reservation sets: its cost, and who pays."""

PRIVILEGES: Mapping[sa.Table, str] = {
    schema.migrations: "SELECT",
    schema.head: "SELECT, UPDATE (seq, hash)",
    schema.history: "SELECT, INSERT",
    schema.accounts: "SELECT, INSERT, UPDATE (terms)",
    schema.entries: "SELECT, INSERT, UPDATE",
    schema.leases: "SELECT, INSERT, UPDATE",
    schema.refusals: "SELECT, INSERT",
    schema.sources: "SELECT, INSERT, DELETE",
    schema.secrets: "SELECT",
    schema.vault: "SELECT, INSERT, DELETE",
    schema.draws: "SELECT, INSERT, DELETE",
}
"""What the app's role may do with each table."""


DECIDES: Mapping[sa.Table, str] = {
    table: rights if table in (schema.head, schema.history) else "SELECT"
    for table, rights in PRIVILEGES.items()
    if table not in (schema.vault, schema.draws)
}
"""What the role of those who approve may do: it adds to the history, and spends nothing."""


def grants(role: str, schema: str = "public", approvers: str | None = None) -> str:
    """SQL for the owner of the ledger's tables to run, once and after every migration.

    Args:
        role: The role of ``services.ledger``.
        schema: Where the tables are.
        approvers: The role that alone approves and rejects, in its own name, and that of a person
            or of a group. None: ``role`` does so, in anybody's name.

    Raises:
        ConfigError: Not a name PostgreSQL has, or one name for both.
    """
    if approvers == role:
        raise ConfigError(
            f"--approvers={role} is --role, which spends.", hint="Name a role of other people."
        )
    roles = {_quoted("--role", role): PRIVILEGES}
    if approvers is not None:
        roles[_quoted("--approvers", approvers)] = DECIDES
    # No escapes: it is SQL, and whose names are quoted by its own rules.
    pages = Environment(  # noqa: S701
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("grants.sql.jinja").render(
        roles=roles,
        schema=_quoted("--schema", schema),
        approved_apart=approvers is not None,
        decisions=DECISIONS,
        moves={**BEFORE, **dict.fromkeys(NOTES, (State.COMMITTED,))},
        others=(OPENED, TERMS, REQUESTED, *DECISIONS),
        states=list(State),
        fixed=FIXED,
        name=NAME.pattern,
    )


def _quoted(option: str, name: str) -> str:
    if not name or "\0" in name or len(name.encode()) > LONGEST_NAME:
        raise ConfigError(f"{option}={name!r} is not a name that PostgreSQL has.")
    return '"' + name.replace('"', '""') + '"'
