"""PostgreSQL: what keeps the role that privsyn runs as from rewriting the ledger's history.

The tables belong to another role, which creates and migrates them (``privsyn ledger migrate``). The
role of the app may add to the chain and move a release along its states; triggers refuse the rest,
to the owner too until a trigger is dropped. They compare a row with the chain, and so let nothing
in that ``verify`` would find. What they do not do: recompute costs, which ``reserve`` and
``verify`` do, and keep the app from reading the partition keys, which it partitions with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from privsyn.errors import ConfigError
from privsyn.ledger import schema
from privsyn.ledger.chain import BEFORE, DECISIONS, NOTES, OPENED, RENAMED, REQUESTED, TERMS
from privsyn.ledger.entries import NAME, State

LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL; longer ones it cuts."""

FIXED = ("number", "account", "method", "event", "loss", "period_loss", "epsilon", "delta")
"""Columns of an entry that only a reservation sets: its cost, and who pays."""

PRIVILEGES: Mapping[sa.Table, str] = {
    schema.migrations: "SELECT",
    schema.head: "SELECT, UPDATE (seq, hash)",
    schema.history: "SELECT, INSERT",
    schema.accounts: "SELECT, INSERT, UPDATE (unit_column, terms)",
    schema.entries: "SELECT, INSERT, UPDATE",
    schema.leases: "SELECT, INSERT, UPDATE",
    schema.refusals: "SELECT, INSERT",
    schema.sources: "SELECT, INSERT, DELETE",
    schema.secrets: "SELECT",
    schema.vault: "SELECT, INSERT, DELETE",
    schema.draws: "SELECT, INSERT, DELETE",
}
"""What the app's role may do with each table."""


def grants(role: str, schema: str = "public") -> str:
    """SQL for the owner of the ledger's tables to run, once and after every migration.

    Args:
        role: The role of ``services.ledger``.
        schema: Where the tables are.

    Raises:
        ConfigError: Not a name PostgreSQL has.
    """
    to, within = _quoted("--role", role), _quoted("--schema", schema)
    lines = [
        "BEGIN;",
        "SET LOCAL client_min_messages = warning;",
        f"REVOKE CREATE ON SCHEMA {within} FROM PUBLIC, {to};",
        f"GRANT USAGE ON SCHEMA {within} TO {to};",
    ]
    for table, privileges in PRIVILEGES.items():
        lines += [
            f"REVOKE ALL ON {within}.{table.name} FROM PUBLIC, {to};",
            f"GRANT {privileges} ON {within}.{table.name} TO {to};",
        ]
    for name, (table, when, body) in _TRIGGERS.items():
        filled = body.format(schema=within, **_WORDS)
        # Deferred to the commit: the head moves after the row is in.
        deferred = when.startswith("AFTER")
        each = "STATEMENT" if "TRUNCATE" in when else "ROW"
        lines += [
            f"CREATE OR REPLACE FUNCTION {within}.{name}() RETURNS trigger LANGUAGE plpgsql"
            f" SET search_path = pg_catalog AS $privsyn$ BEGIN\n{filled}\nEND $privsyn$;",
            f"DROP TRIGGER IF EXISTS {name} ON {within}.{table.name};",
            f"CREATE {'CONSTRAINT ' if deferred else ''}TRIGGER {name} {when}"
            f" ON {within}.{table.name}{' DEFERRABLE INITIALLY DEFERRED' if deferred else ''}"
            f" FOR EACH {each} EXECUTE FUNCTION {within}.{name}();",
        ]
    return "\n".join([*lines, "COMMIT;", ""])


def _quoted(option: str, name: str) -> str:
    if not name or "\0" in name or len(name.encode()) > LONGEST_NAME:
        raise ConfigError(f"{option}={name!r} is not a name that PostgreSQL has.")
    return '"' + name.replace('"', '""') + '"'


def _moves() -> str:
    """The states a release may be in before each change, as SQL over ``before`` and NEW."""
    cases = []
    for change, earlier in {**BEFORE, **dict.fromkeys(NOTES, (State.COMMITTED,))}.items():
        known = ", ".join(f"'{state}'" for state in earlier if state is not None)
        unknown = " OR before IS NULL" if None in earlier else ""
        cases.append(f"WHEN '{change}' THEN before IN ({known}){unknown}")
    others = ", ".join(f"'{change}'" for change in (OPENED, RENAMED, TERMS, REQUESTED, *DECISIONS))
    return f"CASE NEW.change {' '.join(cases)} ELSE NEW.change IN ({others}) END"


_WORDS: Mapping[str, Any] = {
    "name": NAME.pattern,
    "states": ", ".join(f"'{state}'" for state in State),
    "moves": _moves(),
    "fixed": " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in FIXED),
}

_NEVER = "RAISE EXCEPTION 'privsyn: rows of % are never changed', TG_TABLE_NAME;"

_ENDED = """IF TG_OP = 'UPDATE' OR EXISTS (SELECT FROM {schema}.ledger_entry
  WHERE release_id = OLD.release_id AND state IN ('RESERVED', 'BEGUN')) THEN {never}
END IF;
RETURN OLD;""".replace("{never}", _NEVER)

_TRIGGERS: Mapping[str, tuple[sa.Table, str, str]] = {
    "privsyn_history_stays": (
        schema.history,
        "BEFORE UPDATE OR DELETE",
        _NEVER,
    ),
    "privsyn_history_is_kept": (schema.history, "BEFORE TRUNCATE", _NEVER),
    "privsyn_history_follows": (
        schema.history,
        "BEFORE INSERT",
        """DECLARE last record; before text; BEGIN
SELECT seq, hash INTO last FROM {schema}.ledger_head WHERE id = 1 FOR UPDATE;
IF last IS NULL OR NEW.seq <> last.seq + 1 OR NEW.previous <> last.hash THEN
  RAISE EXCEPTION 'privsyn: row % does not follow the end of the history', NEW.seq;
END IF;
IF NEW.at < (SELECT at FROM {schema}.ledger_history WHERE seq = last.seq) THEN
  RAISE EXCEPTION 'privsyn: row % has a time before that of the last row', NEW.seq;
END IF;
IF NEW.change = 'RESERVED' AND (NEW.body::jsonb ->> 'number')::bigint IS DISTINCT FROM
  (SELECT coalesce(max(number), 0) + 1 FROM {schema}.ledger_entry) THEN
  RAISE EXCEPTION 'privsyn: row % does not have the number of the next reservation', NEW.seq;
END IF;
IF NEW.body::jsonb -> 'by' ->> 'db_user' IS DISTINCT FROM session_user::text THEN
  RAISE EXCEPTION 'privsyn: row % does not name the role that writes it', NEW.seq;
END IF;
SELECT state INTO before FROM {schema}.ledger_entry WHERE release_id = NEW.release_id;
IF NEW.change = 'TERMS' AND jsonb_exists(NEW.body::jsonb, 'reason') AND NOT pg_has_role(
  current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
  RAISE EXCEPTION 'privsyn: only the owner of the ledger loosens the terms of an account';
END IF;
IF NOT coalesce({moves}, false) THEN
  RAISE EXCEPTION 'privsyn: a release does not go from % to %', before, NEW.change;
END IF;
IF NEW.at !~ '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}(:[0-9]{{2}}){{2}}[.][0-9]{{6}}Z$' OR
  NEW.at <> to_char(NEW.at::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') OR
  NEW.account !~ '^{name}$' OR NEW.release_id !~ '^{name}$' OR NEW.body !~ '^[ -~]+$' THEN
  RAISE EXCEPTION 'privsyn: row % is not written as privsyn writes', NEW.seq;
END IF;
IF NEW.hash <> encode(sha256(convert_to(NEW.previous || chr(10) || '{{"account":"' || NEW.account
  || '","at":"' || NEW.at || '","body":' || NEW.body || ',"change":"' || NEW.change
  || '","release_id":' || coalesce('"' || NEW.release_id || '"', 'null')
  || ',"seq":' || NEW.seq || '}}', 'UTF8')), 'hex') THEN
  RAISE EXCEPTION 'privsyn: row % does not have the hash of what it says', NEW.seq;
END IF;
RETURN NEW; END;""",
    ),
    "privsyn_history_is_the_head": (
        schema.history,
        "AFTER INSERT",
        """IF (SELECT seq FROM {schema}.ledger_head WHERE id = 1) IS DISTINCT FROM
  (SELECT max(seq) FROM {schema}.ledger_history) THEN
  RAISE EXCEPTION 'privsyn: the head does not name the end of the history';
END IF;
RETURN NULL;""",
    ),
    "privsyn_head_moves_on": (
        schema.head,
        "BEFORE INSERT OR UPDATE OR DELETE",
        """IF TG_OP <> 'UPDATE' THEN {never} END IF;
IF NEW.id <> OLD.id OR NEW.seq <> OLD.seq + 1 OR NOT EXISTS (
  SELECT FROM {schema}.ledger_history
  WHERE seq = NEW.seq AND hash = NEW.hash AND previous = OLD.hash) THEN
  RAISE EXCEPTION 'privsyn: the head moves to the next row of the history and nowhere else';
END IF;
RETURN NEW;""".replace("{never}", _NEVER),
    ),
    "privsyn_head_is_kept": (schema.head, "BEFORE TRUNCATE", _NEVER),
    "privsyn_account_stays": (
        schema.accounts,
        "BEFORE UPDATE OR DELETE",
        """IF TG_OP = 'DELETE' OR to_jsonb(NEW) - 'unit_column' - 'terms' <>
  to_jsonb(OLD) - 'unit_column' - 'terms' OR NOT EXISTS (
  SELECT FROM {schema}.ledger_history h, {schema}.ledger_head e WHERE
    h.seq = e.seq AND h.account = NEW.name AND CASE h.change
      WHEN 'RENAMED' THEN NEW.terms IS NOT DISTINCT FROM OLD.terms
      WHEN 'TERMS' THEN NEW.unit_column IS NOT DISTINCT FROM OLD.unit_column
        AND NEW.terms::jsonb = h.body::jsonb -> 'terms'
      ELSE false END) THEN {never}
END IF;
RETURN NEW;""".replace("{never}", _NEVER),
    ),
    "privsyn_entry_is_the_chain": (
        schema.entries,
        "BEFORE INSERT OR UPDATE OR DELETE",
        """DECLARE last record; BEGIN
IF TG_OP = 'DELETE' THEN {never} END IF;
SELECT at, change, account, body::jsonb ->> 'number' AS number INTO last
  FROM {schema}.ledger_history
  WHERE release_id = NEW.release_id AND change IN ({states}) ORDER BY seq DESC LIMIT 1;
IF last IS NULL OR NEW.state <> last.change OR NEW.changed_at <> last.at OR
  NEW.account <> last.account THEN
  RAISE EXCEPTION 'privsyn: release % is not what the history says', NEW.release_id;
END IF;
IF last.change = 'RESERVED' AND NEW.number <> last.number::bigint OR TG_OP = 'UPDATE' AND (
  NEW.release_id <> OLD.release_id OR last.change <> 'RESERVED' AND ({fixed})) THEN
  RAISE EXCEPTION 'privsyn: the cost of release % is fixed', NEW.release_id;
END IF;
RETURN NEW; END;""".replace("{never}", _NEVER),
    ),
    "privsyn_lease_grows": (
        schema.leases,
        "BEFORE UPDATE OR DELETE",
        """IF TG_OP = 'DELETE' THEN {never} END IF;
IF NEW.token < OLD.token OR NEW.steps < OLD.steps OR
  (NEW.release_id, NEW.part) <> (OLD.release_id, OLD.part) THEN
  RAISE EXCEPTION 'privsyn: draws and tokens of a part only ever grow';
END IF;
RETURN NEW;""".replace("{never}", _NEVER),
    ),
    "privsyn_refusal_stays": (schema.refusals, "BEFORE UPDATE OR DELETE", _NEVER),
    "privsyn_source_stays": (
        schema.sources,
        "BEFORE UPDATE OR DELETE",
        """IF TG_OP = 'UPDATE' OR NOT EXISTS (SELECT FROM {schema}.ledger_entry
  WHERE release_id = OLD.release_id AND state = 'RESERVED') THEN {never}
END IF;
RETURN OLD;""".replace("{never}", _NEVER),
    ),
    "privsyn_vault_ends": (schema.vault, "BEFORE UPDATE OR DELETE", _ENDED),
    "privsyn_draw_ends": (schema.draws, "BEFORE UPDATE OR DELETE", _ENDED),
}
