"""Credentials of object stores out of an Airflow connection, for the time of one task.

They are put into the environment of the task's own process, where the stores' library and the
task's children look for them: into no argument, file, log or XCom.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from privsyn.errors import ConfigError

_AWS = "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_ENDPOINT_URL"
_GOOGLE = "GOOGLE_SERVICE_ACCOUNT_KEY GOOGLE_SERVICE_ACCOUNT GOOGLE_APPLICATION_CREDENTIALS"
_AZURE = "AZURE_STORAGE_ACCOUNT_NAME AZURE_STORAGE_ACCOUNT_KEY AZURE_STORAGE_SAS_TOKEN"


def _aws(connection: Any, extra: Mapping[str, Any]) -> tuple[str | None, ...]:
    return (
        connection.login,
        connection.password,
        extra.get("aws_session_token"),
        extra.get("region_name"),
        extra.get("endpoint_url"),
    )


def _google(connection: Any, extra: Mapping[str, Any]) -> tuple[str | None, ...]:
    key = extra.get("keyfile_dict")
    return json.dumps(key) if isinstance(key, Mapping) else key, None, extra.get("key_path")


def _azure(connection: Any, extra: Mapping[str, Any]) -> tuple[str | None, ...]:
    return connection.login, connection.password, extra.get("sas_token")


_KINDS: dict[str, tuple[str, Callable[[Any, Mapping[str, Any]], tuple[str | None, ...]], set[str]]]
_KINDS = {
    "aws": (_AWS, _aws, {"aws_session_token", "region_name", "endpoint_url"}),
    "google_cloud_platform": (_GOOGLE, _google, {"keyfile_dict", "key_path", "project"}),
    "wasb": (_AZURE, _azure, {"sas_token"}),
}
"""Kind of connection -> the variables it sets, their values, and the extras it may have."""


@contextmanager
def connected(connection_id: str | None) -> Iterator[None]:
    """Set a connection's credentials in the environment for a block, and restore it afterwards.

    Args:
        connection_id: ``services.connection``; None changes nothing.

    Raises:
        ConfigError: There is no such connection, or it is of a kind or has an extra that is not
            understood. Nothing it holds is quoted.
    """
    if connection_id is None:
        yield
        return
    values = credentials(connection_id)
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def credentials(connection_id: str) -> dict[str, str | None]:
    """Variable -> value of a connection; None where one of the machine's must not be used."""
    connection, where = _connection(connection_id), f"services.connection={connection_id}"
    if connection.conn_type not in _KINDS:
        raise ConfigError(
            f"{where}: a connection of kind {connection.conn_type} has no credentials of a store.",
            hint=f"Use one of kind {', '.join(_KINDS)}.",
        )
    names, read, known = _KINDS[connection.conn_type]
    try:
        extra = connection.extra_dejson
    except ValueError:
        extra = None
    if not isinstance(extra, Mapping):
        raise ConfigError(f"{where}: its extra is no JSON object.", hint="Mend it in Airflow.")
    # Refused and not ignored: an extra such as a role to assume changes whose rights are used.
    unknown = sorted(set(extra) - known)
    if unknown:
        raise ConfigError(
            f"{where}: of a connection of kind {connection.conn_type} privsyn takes the extras "
            f"{', '.join(sorted(known))} alone, and it has others: {', '.join(unknown)}.",
            hint="Remove them; roles of the machine are taken from the environment, without a "
            "connection.",
        )
    values = dict(zip(names.split(), read(connection, extra), strict=True))
    if not any(values.values()):
        raise ConfigError(f"{where} holds no credentials.", hint="Mend it in Airflow.")
    return values


def _connection(connection_id: str) -> Any:
    from airflow.sdk import BaseHook

    try:
        return BaseHook.get_connection(connection_id)
    except Exception as error:  # of several kinds, by where Airflow looks for it
        # The raise is outside of the block: Airflow's own message may quote a secrets backend's
        # address.
        kind = type(error).__name__
    raise ConfigError(
        f"services.connection={connection_id}: Airflow gives no such connection ({kind}).",
        hint="Make it in Airflow's UI, in its secrets backend, or as AIRFLOW_CONN_... of the "
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
