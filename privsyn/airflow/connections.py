"""Credentials out of Airflow connections, for the time of one task.

They go into the environment of the task's own process, where the libraries and the task's children
look for them: into no argument, file, log or XCom. The ledger's become a setting of the process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from privsyn import __version__
from privsyn.config import Config
from privsyn.errors import ConfigError
from privsyn.models.settings import SERVER_KEY

if TYPE_CHECKING:
    from privsyn.stages.base import Context

_CREDENTIALS: dict[str, dict[str, str | None]] = {
    "aws": {
        "AWS_ACCESS_KEY_ID": "login",
        "AWS_SECRET_ACCESS_KEY": "password",
        "AWS_SESSION_TOKEN": "aws_session_token",
        "AWS_REGION": "region_name",
        "AWS_ENDPOINT_URL": "endpoint_url",
    },
    "google_cloud_platform": {
        "GOOGLE_SERVICE_ACCOUNT_KEY": "keyfile_dict",
        "GOOGLE_SERVICE_ACCOUNT": None,
        "GOOGLE_APPLICATION_CREDENTIALS": "key_path",
    },
    "wasb": {
        "AZURE_STORAGE_ACCOUNT_NAME": "login",
        "AZURE_STORAGE_ACCOUNT_KEY": "password",
        "AZURE_STORAGE_SAS_TOKEN": "sas_token",
    },
}
"""Kind of connection -> variable -> what it holds: login, password or an extra. None: one of the
machine's that must not be used beside them."""
_NO_CREDENTIAL = {"google_cloud_platform": {"project"}}
"""Extras that a connection may have, too."""


TYPE = "privsyn"
"""Type of a connection whose password is a key: the vault's, or the model server's."""


class KeyHook(BaseHook):  # type: ignore[misc]
    """What Airflow's form of a connection shows for a key."""

    conn_name_attr, default_conn_name = "privsyn_conn_id", "privsyn_default"
    conn_type, hook_name = TYPE, "privsyn: key of the vault or of a model server"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """See BaseHook."""
        hidden = ["host", "schema", "port", "login", "extra"]
        return {"hidden_fields": hidden, "relabeling": {"password": "Key"}}


def provider_info() -> dict[str, Any]:
    """What Airflow shows of privsyn under Admin > Providers; an entry point."""
    return {
        "package-name": "privsyn",
        "name": "privsyn",
        "description": "Differentially private synthetic data, around one budget ledger.",
        "versions": [__version__],
        "connection-types": [
            {"connection-type": TYPE, "hook-class-name": f"{__name__}.{KeyHook.__name__}"}
        ],
    }


def open_project(params: Path, settings: list[str], **more: Any) -> Context:
    """The context of a project, whose ledger a connection may name; see stages.base.open_context.

    Raises:
        ConfigError: params.yaml does not load, or the connection is not one to PostgreSQL.
    """
    from privsyn.stages.base import open_context

    ctx = open_context(params, settings, **more)
    name = ctx.config.services.connections.get("ledger")
    return ctx if name is None else open_context(params, [*settings, _ledger(name)], **more)


def _ledger(name: str) -> str:
    from sqlalchemy import URL

    connection, where = _connection(name, "services.connections.ledger")
    if connection.conn_type != "postgres":
        raise ConfigError(
            f"{where}: a connection of type {connection.conn_type} is no ledger.",
            hint="Use one of type postgres.",
        )
    url = URL.create(
        "postgresql+psycopg",
        connection.login,
        connection.password,
        connection.host,
        connection.port,
        connection.schema,
        _options(connection, where),
    )
    return f"services.ledger={json.dumps(url.render_as_string(hide_password=False))}"


@contextmanager
def connection_environment(config: Config) -> Iterator[None]:
    """Set the credentials of ``services.connections`` and of a query in the environment.

    What was there before comes back afterwards.

    Raises:
        ConfigError: There is no such connection, or it is of a kind or has an extra that is not
            understood. Nothing it holds is quoted.
    """
    from privsyn.vault import VARIABLE  # heavy, and no matter of parsing

    values: dict[str, str | None] = {}
    server = config.models.server
    keys = {"vault_key": VARIABLE, "model_server": server and SERVER_KEY}
    for use, name in config.services.connections.items():
        if use == "stores":
            values |= store_credentials(name)
        elif variable := keys.get(use):
            connection, where = _connection(name, f"services.connections.{use}")
            if not connection.password:
                raise ConfigError(f"{where} has no password.", hint="Put the key there.")
            values[variable] = connection.password
    if config.dataset.query is not None:
        values |= _database(config.dataset.query.connection)
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def store_credentials(name: str) -> dict[str, str | None]:
    """Variable -> value of a connection; None where one of the machine's must not be used."""
    connection, where = _connection(name, "services.connections.stores")
    kind = connection.conn_type
    if kind not in _CREDENTIALS:
        raise ConfigError(
            f"{where}: a connection of type {kind} has no store credentials.",
            hint=f"Use a connection of type {', '.join(_CREDENTIALS)}.",
        )
    extra = _extra(connection, where)
    sources = _CREDENTIALS[kind]
    known = set(filter(None, sources.values())) - {"login", "password"}
    known |= _NO_CREDENTIAL.get(kind, set())
    # Refused and not ignored: an extra such as a role to assume changes whose rights are used.
    unknown = sorted(set(extra) - known)
    if unknown:
        raise ConfigError(
            f"{where}: privsyn reads only the extras {', '.join(sorted(known))} of a connection "
            f"of type {kind}, and this one also has {', '.join(unknown)}.",
            hint="Remove them. To use a role of the machine, set no connection.",
        )
    fields: dict[Any, Any] = {**extra, "login": connection.login, "password": connection.password}
    values = {name: fields.get(source) for name, source in sources.items()}
    if not any(values.values()):
        raise ConfigError(f"{where} has no credentials.", hint="Fix the connection in Airflow.")
    return {
        name: json.dumps(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
    }


def _database(name: str) -> dict[str, str | None]:
    """The variable that the reader of a query looks for; none where the name is a URL or is set."""
    from privsyn.data.readers.tables import IN_AIRFLOW

    if "://" in name or name in os.environ:
        return {}
    connection, where = _connection(name, "dataset.query.connection")
    # A number would make a URI that Airflow alone can read.
    connection.extra = json.dumps(_options(connection, where))
    return {f"{IN_AIRFLOW}{name.upper()}": connection.get_uri()}


_OF_HOOKS = {"aws_conn_id", "cursor", "iam", "sqlalchemy_query", "sqlalchemy_scheme"}
"""Extras that Airflow's own hooks keep from the database, which would refuse them."""


def _options(connection: Any, where: str) -> dict[str, str]:
    """The extras of a database's connection, as a URL takes them."""
    extra = _extra(connection, where)
    return {key: str(value) for key, value in extra.items() if key not in _OF_HOOKS}


def _extra(connection: Any, where: str) -> Mapping[str, Any]:
    try:
        extra = connection.extra_dejson
    except ValueError:
        extra = None
    if not isinstance(extra, Mapping):
        raise ConfigError(
            f"{where}: its extra field is not a JSON object.", hint="Fix the connection in Airflow."
        )
    return extra


def _connection(name: str, setting: str) -> tuple[Any, str]:
    """A connection, and what messages call it."""
    where = f"{setting}={name}"
    try:
        return BaseHook.get_connection(name), where
    except Exception as error:  # of several kinds, by where Airflow looks for it
        # The raise is outside of the block: Airflow's own message may quote a secrets backend's
        # address.
        kind = type(error).__name__
    raise ConfigError(
        f"{where}: Airflow has no such connection ({kind}).",
        hint="Create it in Airflow's UI, in its secrets backend, or as AIRFLOW_CONN_... in the "
        "workers' environment.",
    )


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            # A variable of the machine would be used beside the connection's and mix two
            # identities.
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
