"""Queries of databases, and tables of Delta and Iceberg, as batches of Arrow.

A query is read in one transaction of one snapshot, which may only read where the database has such;
a table at one of its versions, with its deletes applied.

Privacy. A driver's message may quote a value, such as one that could not be cast, or a password. So
none is shown: codes and classes decide what is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from privsyn.address import Address, Origin, Source, Stream
from privsyn.data.object_store import plain_http
from privsyn.data.readers.streams import there
from privsyn.data.settings import Query
from privsyn.errors import (
    EXTRAS,
    ConfigError,
    DataError,
    MissingExtra,
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
        return str(opened.current_snapshot().snapshot_id)
    except Exception as error:
        raise refusal(table, error) from None


@contextmanager
def open_stream(source: Any, most: int | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Schema and batches of a query or a table, in constant memory.

    Args:
        source: The query or table.
        most: Rows that are asked for; None: all.

    Raises:
        ConfigError: There is no such connection, or a driver is not installed.
        DataError: It cannot be read.
        StorageError: It cannot be reached.
    """
    with ExitStack() as stack:
        try:
            if isinstance(source, LakeTable):
                reader = _scan_table(source, most)
            else:
                reader = _run_query(source, most, stack)
        except Exception as error:
            raise refusal(source, error) from None
        yield reader.schema, iter(reader)


def _open_table(table: LakeTable) -> Any:
    _require(table.library)
    place, snapshot = f"{table.place}", table.snapshot
    if table.library == "deltalake":
        from deltalake import DeltaTable

        options = {key: str(value).lower() for key, value in plain_http().items()}
        version = None if snapshot is None else int(snapshot)
        return DeltaTable(place, version=version, storage_options=options)
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    if isinstance(table.place, Address) and table.place.parts[0] == "iceberg:":
        return load_catalog(table.place.parts[1]).load_table(table.place.key)
    known = {name: os.environ.get(variable) for variable, name in _PYICEBERG.items()}
    return StaticTable.from_metadata(place, {name: at for name, at in known.items() if at})


_PYICEBERG = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
}
"""Variables that other readers of stores look for -> what pyiceberg calls it outside a catalog."""


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
    scheme = url.partition("://")[0].lower().replace("postgresql", "postgres")
    driver = f"adbc_driver_{_DRIVERS.get(scheme.partition('+')[0], scheme)}"
    if driver not in EXTRAS:
        raise ConfigError(
            f"dataset.query.connection: {scheme}:// is no database that privsyn reads.",
            hint="Read are postgresql://, sqlite://, snowflake://, bigquery:// and grpc+tls://.",
        )
    _require(driver)
    connect = import_module(f"{driver}.dbapi").connect
    session = connect(**_options(scheme, url), autocommit=scheme not in _SNAPSHOTS)
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


_DRIVERS = {"postgres": "postgresql", "grpc": "flightsql"}
"""Scheme of a database's URL -> its driver, where that is called otherwise."""
_SNAPSHOTS = {
    "postgres": "set transaction isolation level repeatable read, read only",
    "sqlite": "pragma query_only = on",
}
"""What makes a transaction one that only reads. Elsewhere a role that may only read has to."""


def _require(module: str) -> None:
    if not is_installed(module):
        raise MissingExtra(module)


def _options(scheme: str, url: str) -> dict[str, Any]:
    """What a driver is opened with."""
    parts, rest = urlsplit(url), url.partition("://")[2]
    if scheme == "sqlite":
        # Airflow writes a connection's file in the place of a host.
        return {"uri": f"file:{parts.netloc or parts.path[1:]}?mode=ro"}
    if scheme == "bigquery":
        place = {"project_id": parts.netloc, "dataset_id": parts.path.strip("/")}
        return {"db_kwargs": {f"adbc.bigquery.sql.{key}": at for key, at in place.items() if at}}
    if not scheme.startswith("grpc"):
        return {"uri": rest if scheme == "snowflake" else url}
    login = {"username": parts.username, "password": parts.password}
    login = {key: unquote(value) for key, value in login.items() if value}
    return {"uri": f"{scheme}://{rest.rpartition('@')[2]}", "db_kwargs": login}


def _url_of(name: str) -> str:
    """The URL that a connection names. It may hold a password: no message shows it.

    Raises:
        ConfigError: There is none.
    """
    if "://" in name:
        return name
    in_airflow = f"{IN_AIRFLOW}{name.upper()}"
    url = os.environ.get(name) or os.environ.get(in_airflow)
    if url is None or "://" not in url:
        raise ConfigError(
            f"dataset.query.connection={name} "
            f"{'is no connection that is known here' if url is None else 'holds no URL'}.",
            hint=f"Set the environment variable {name} or {in_airflow} to the database's URL, as "
            "in postgresql://reader:password@host/clinic. Tasks know Airflow's connections, too.",
        )
    return url


IN_AIRFLOW = "AIRFLOW_CONN_"
"""Prefix of the variables in which Airflow looks for connections."""


def refusal(source: Origin, error: Exception) -> PrivsynError | MemoryError:
    """Our error for one of a driver or a library that opens or reads a source."""
    if isinstance(error, PrivsynError | MemoryError):
        return error
    if isinstance(source, LakeTable):
        at = "" if source.snapshot is None else f" at dataset.snapshot={source.snapshot}"
        kind = StorageError if isinstance(source.place, Address) else DataError
        if isinstance(error, ModuleNotFoundError):  # what only some stores need, such as adlfs
            return ConfigError(f"{source} cannot be read.", hint=f"Run: pip install {error.name}")
        if "equality deletes" in f"{error}":
            return DataError(
                f"{source} has equality deletes{at}, which {source.library} does not apply.",
                hint="Have its writer compact it (Spark: rewrite_data_files), or name a snapshot "
                "without them.",
            )
        hint = (
            "Files of an old snapshot go with a vacuum, and a table may ask of its reader what "
            "this one cannot do. Nothing was left out in silence."
        )
        if f"{source}".startswith("iceberg:"):
            hint = (
                "Name the catalog in .pyiceberg.yaml, or by PYICEBERG_CATALOG__NAME__URI, and "
                "check that it has the table."
            )
        elif kind is StorageError:
            hint = (
                "Check region, endpoint and credentials in the environment (AWS_REGION, ...); or "
                f"name the table in a catalog. {hint}"
            )
        return kind(
            f"{source} cannot be read{at} ({type(error).__name__} of {source.library}).", hint=hint
        )
    if not isinstance(source, Query):
        return DataError(f"{source} is damaged.", hint="Export the file again.")
    code = getattr(error, "sqlstate", None) or ""
    start = next(start for start in _REASONS if code.startswith(start))
    what = f"SQLSTATE {code}" if code else type(error).__name__
    # What no row names may pass: no connection, or a server that goes down.
    kind = DataError if start else StorageError
    return kind(f"{source} fails: {_REASONS[start][0]} ({what}).", hint=_REASONS[start][1])


_ELSE = "Try connection and query in the database's own shell."
_REASONS = {
    "42501": ("its user may not read all of it", "Grant SELECT on what the query names."),
    "25006": ("something in it writes, such as a function of a view", "Query what only reads."),
    "42P01": ("a table or view is not there", "Write its name with its schema."),
    "42": ("it is not one SELECT that the database understands", _ELSE),
    "22": ("a value of a record makes it fail, as in a cast", "Turn such values into null."),
    "40": ("the table changed while it was read", "Run again."),
    "57014": ("the database gave it up, by a time limit or by hand", "Run again."),
    "": ("the database cannot be reached, or does not take user or query", _ELSE),
}
"""Beginning of an SQLSTATE -> what it says, and the next step."""
