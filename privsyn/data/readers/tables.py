"""Queries of databases, and tables of Delta and Iceberg, as batches of Arrow.

A query is read in one transaction of one snapshot, which may only read where the database has such;
a table at one of its versions, with its deletes applied.

Privacy. A driver's message may quote a value, such as one that could not be cast, or a password. So
none is shown: codes and classes decide what is said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from privsyn.address import Address, Source, Stream
from privsyn.data.readers.streams import there
from privsyn.data.settings import Query
from privsyn.errors import (
    ConfigError,
    DataError,
    MissingExtra,
    NoRows,
    PrivsynError,
    StorageError,
    is_installed,
)


@dataclass(frozen=True)
class LakeTable(Stream):
    """A table that a log or a catalog keeps.

    Attributes:
        place: Its folder or address; of Iceberg also a metadata file, or a name in a catalog.
        library: The package that reads it.
        snapshot: Which of its states; None: the newest.
    """

    place: Source
    library: str
    snapshot: str | None = None

    def __str__(self) -> str:
        return f"{self.place}"


def table_at(path: Source, snapshot: str | None = None) -> LakeTable | None:
    """The table at a path or address; None where files lie there.

    A folder of Iceberg without a hint at its newest metadata is none: a commit that failed may have
    left newer metadata than the table's.
    """
    if (isinstance(path, Address) and path.parts[0] == "iceberg:") or (
        path.name.endswith(".metadata.json") or there(path / "metadata" / "version-hint.text")
    ):
        return LakeTable(path, "pyiceberg", snapshot)
    return LakeTable(path, "deltalake", snapshot) if there(path / "_delta_log") else None


def newest(path: Source) -> str:
    """Version or snapshot id of the newest state of a table: public, like any version.

    Raises:
        ConfigError: There is no table, or what reads it is not installed.
        DataError: It cannot be read, or was never written to.
    """
    table = table_at(path)
    if table is None:
        raise ConfigError(
            f"dataset.version={{table}}, and {path} is no table of Delta or Iceberg.",
            hint="Name a version, such as v1, or set dataset.path to the table.",
        )
    try:
        opened = _open_table(table)
        if table.library == "deltalake":
            return str(opened.version())
        current = opened.current_snapshot()
    except Exception as error:
        raise _refusal(table, error) from None
    if current is None:
        raise NoRows(f"{table} holds no row.", hint="It was never written to.")
    return str(current.snapshot_id)


@contextmanager
def open_stream(source: Stream, most: int | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Schema and batches of a query or a table, in constant memory.

    Args:
        source: The query or table.
        most: Rows that are asked for; None: all.

    Raises:
        ConfigError: There is no such connection, or a driver is not installed.
        DataError: It cannot be read. Raised while reading, too.
        StorageError: It cannot be reached.
    """
    with ExitStack() as stack:
        try:
            if isinstance(source, Query):
                reader = _run_query(source, most, stack)
            else:
                assert isinstance(source, LakeTable)  # noqa: S101  there is no third
                reader = _scan_table(source, most)
        except Exception as error:
            raise _refusal(source, error) from None
        yield reader.schema, _batches(source, iter(reader))


def _batches(source: Stream, batches: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:
            raise _refusal(source, error) from None
        if batch is None:
            return
        yield batch


def _open_table(table: LakeTable) -> Any:
    if not is_installed(table.library):
        raise MissingExtra(table.library)
    place, snapshot = f"{table.place}", table.snapshot
    if table.library == "deltalake":
        from deltalake import DeltaTable

        return DeltaTable(place, version=None if snapshot is None else int(snapshot))
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    if isinstance(table.place, Address) and table.place.parts[0] == "iceberg:":
        return load_catalog(table.place.parts[1]).load_table(table.place.key)
    return StaticTable.from_metadata(place)


def _scan_table(table: LakeTable, most: int | None) -> Any:
    import pyarrow as pa

    opened, snapshot = _open_table(table), table.snapshot
    if table.library == "deltalake":
        from deltalake import QueryBuilder

        # Not to_pyarrow_dataset, which knows no deletion vectors.
        limit = "" if most is None else f" limit {most}"
        rows = QueryBuilder().register("t", opened).execute(f"select * from t{limit}")  # noqa: S608
        return pa.RecordBatchReader.from_stream(rows)
    number = None if snapshot is None else int(snapshot)
    return opened.scan(snapshot_id=number, limit=most).to_arrow_batch_reader()


def _run_query(query: Query, most: int | None, stack: ExitStack) -> Any:
    url = _url_of(query.connection)
    scheme = url.partition("://")[0].lower()
    driver = _DRIVERS.get(scheme)
    if driver is None:
        raise ConfigError(
            f"dataset.query.connection: {scheme}:// is no database that privsyn reads.",
            hint=f"Its URL begins with one of {', '.join(f'{known}://' for known in _DRIVERS)}.",
        )
    if not is_installed(driver):
        raise MissingExtra(driver)
    session = import_module(f"{driver}.dbapi").connect(
        **_options(scheme, url), autocommit=scheme not in _SNAPSHOTS
    )
    cursor = stack.enter_context(closing(stack.enter_context(closing(session)).cursor()))
    # As part of another one a query can only be one SELECT.
    inner = f"(\n{query.sql.strip().rstrip(';')}\n) as q"
    if opening := _SNAPSHOTS.get(scheme):
        cursor.execute(opening)
    columns = "*"
    if scheme == "sqlite":
        # Any of its columns holds values of any type, and the first would decide about the others.
        cursor.execute(f"select * from {inner} limit 0")  # noqa: S608
        names = [f'"{name[0].replace(chr(34), chr(34) * 2)}"' for name in cursor.description]
        columns = ", ".join(f"coalesce(cast(q.{name} as text), '') as {name}" for name in names)
    limit = "" if most is None else f" limit {most}"
    cursor.execute(f"select {columns} from {inner}{limit}")  # noqa: S608
    # Not fetch_record_batch, whose errors in mid-read have lost their SQLSTATE.
    return cursor._results.reader


_POSTGRES = "set transaction isolation level repeatable read, read only"
_SNAPSHOTS = {"postgresql": _POSTGRES, "postgres": _POSTGRES, "sqlite": "pragma query_only = on"}
"""What makes a transaction one that only reads. Elsewhere a role that may only read has to."""
_DRIVERS = {
    **dict.fromkeys(("postgresql", "postgres"), "adbc_driver_postgresql"),
    "sqlite": "adbc_driver_sqlite",
    "snowflake": "adbc_driver_snowflake",
    "bigquery": "adbc_driver_bigquery",
    **dict.fromkeys(("grpc", "grpc+tls", "grpc+tcp"), "adbc_driver_flightsql"),
}
"""Scheme of a database's URL -> its driver."""


def _options(scheme: str, url: str) -> dict[str, Any]:
    """What a driver is opened with."""
    parts = urlsplit(url)
    if scheme == "sqlite":
        if not url.startswith("sqlite:////"):
            raise ConfigError(
                "dataset.query.connection: the file of sqlite:// has no absolute path.",
                hint="Write four slashes: sqlite:////secure/notes.db",
            )
        return {"uri": f"file:{quote(unquote(parts.path[1:]))}?mode=ro"}
    if scheme == "snowflake":
        return {"uri": url.partition("://")[2]}
    if scheme == "bigquery":
        place = {"project_id": parts.netloc, "dataset_id": parts.path.strip("/")}
        return {"db_kwargs": {f"adbc.bigquery.sql.{key}": at for key, at in place.items() if at}}
    if not scheme.startswith("grpc"):
        return {"uri": url}
    login = {"username": parts.username, "password": parts.password}
    login = {key: unquote(value) for key, value in login.items() if value}
    return {"uri": f"{scheme}://{parts.netloc.rpartition('@')[2]}", "db_kwargs": login}


def _url_of(name: str) -> str:
    """The URL that a connection names. It may hold a password: no message shows it.

    Raises:
        ConfigError: There is none.
    """
    if "://" in name:
        return name
    variables = (name, f"{IN_AIRFLOW}{name.upper()}")
    variable = next((one for one in variables if os.environ.get(one)), None)
    if variable is None:
        raise ConfigError(
            f"dataset.query.connection={name}: there is no such connection.",
            hint=f"Set the environment variable {name} or {variables[1]} to the database's URL. In "
            "a task a connection of Airflow does, too.",
        )
    value = os.environ[variable].strip()
    try:
        url = _from_airflow(json.loads(value)) if value.startswith("{") else value
    except (ValueError, AttributeError, TypeError):
        url = ""
    if "://" not in url:
        raise ConfigError(
            f"dataset.query.connection={name}: {variable} holds no URL of a database.",
            hint="Write it as in postgresql://reader:password@host:5432/clinic.",
        )
    return url


IN_AIRFLOW = "AIRFLOW_CONN_"
"""Prefix of the variables in which Airflow looks for connections."""


def _from_airflow(fields: Mapping[str, Any]) -> str:
    """The URL of a connection that Airflow writes as JSON; its extras are the URL's parameters."""
    extra = fields.get("extra") or {}
    extra = json.loads(extra) if isinstance(extra, str) else extra
    who = ":".join(
        quote(str(fields[key]), safe="") for key in ("login", "password") if fields.get(key)
    )
    port = f":{fields['port']}" if fields.get("port") else ""
    place = (
        f"{who}@{fields.get('host') or ''}{port}" if who else f"{fields.get('host') or ''}{port}"
    )
    further = f"?{urlencode(extra)}" if extra else ""
    return f"{fields['conn_type']}://{place}/{fields.get('schema') or ''}{further}"


def _refusal(source: Stream, error: Exception) -> PrivsynError | MemoryError:
    """Our error for one of a driver or a library."""
    if isinstance(error, PrivsynError | MemoryError):
        return error
    if isinstance(source, LakeTable):
        at = "" if source.snapshot is None else f" at dataset.snapshot={source.snapshot}"
        kind = StorageError if isinstance(source.place, Address) else DataError
        return kind(
            f"{source} cannot be read{at} ({type(error).__name__} of {source.library}).",
            hint="Files of an old snapshot go with a vacuum, and a table may ask of its reader "
            "what this one cannot do. Nothing was left out in silence.",
        )
    code = f"{getattr(error, 'sqlstate', None) or ''}"
    away = not code or code.startswith(_AWAY)
    reason, hint = next(row for start, row in _REASONS.items() if code.startswith(start))
    where = f" (SQLSTATE {code})" if code.strip() else f" ({type(error).__name__})"
    return (StorageError if away else DataError)(f"{source} fails: {reason}{where}.", hint=hint)


_AWAY = ("08", "53", "57P", "58")
"""What passes: no connection, no room, a server that is going down."""
_ELSE = (
    "the database cannot be reached, does not let its user in, or does not take the query",
    "Try connection and query in the database's own shell.",
)
_REASONS = {
    "42501": ("its user may not read all of it", "Grant that user SELECT on what the query names."),
    "25006": (
        "something in it writes, such as a function that a view calls, and it may only read",
        "Write the query without it.",
    ),
    "42P01": ("it names a table or view that is not there", "Write its name with its schema."),
    "42703": ("it names a column that is not there", "Look for the name in its table."),
    "42": ("it is not one SELECT that the database understands", _ELSE[1]),
    "22": (
        "a value of a record makes it fail, as in a cast",
        "Let the query turn such values into null, or leave the column as it is.",
    ),
    "28": ("the database does not let this user in", "Check user and password of the connection."),
    "3D": ("there is no such database", "Check the connection."),
    "40": ("the table changed while it was read", "Run again."),
    "57014": ("the database gave it up, by its time limit or by hand", "Run again."),
    "": _ELSE,
}
"""Beginning of an SQLSTATE -> what it says, and the next step."""
