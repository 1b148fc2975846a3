"""Credentials of a store from an Airflow connection: they open it, and are told nobody."""

from __future__ import annotations

import io
import json
import logging
import os
import traceback

import boto3
import pytest

from privsyn.config import load_config
from privsyn.data.object_store import open_store
from privsyn.errors import ConfigError
from tests.integration.vault.s3_server import BUCKET, s3_server

pytestmark = pytest.mark.airflow
SECRET = "not/to+be=told"
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in (*NAMES, "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def store():
    """Address of a server that asks for a key, and the one that it takes."""
    with s3_server(asks_after=4) as url:
        own = {"aws_access_key_id": "anyone", "aws_secret_access_key": "anything"}
        iam = boto3.client("iam", endpoint_url=url, region_name="us-east-1", **own)
        iam.create_user(UserName="worker")
        allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_user_policy(UserName="worker", PolicyName="all", PolicyDocument=policy)
        key = iam.create_access_key(UserName="worker")["AccessKey"]
        yield url, key["AccessKeyId"], key["SecretAccessKey"]


def connection(monkeypatch, said):
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(said))


def run(tmp_path, stage, **services):
    """An operator on a project with a connection; what it returns or raises."""
    from privsyn.airflow.base import StageOperator

    params = tmp_path / "params.yaml"
    params.write_text(
        json.dumps(
            {
                "dataset": {"name": "d", "path": "private.jsonl", "labels": ["a"], "label": "x"},
                "account": {"name": "a", "adjacency": "replace_null", "epsilon": 1, "delta": 1e-6},
                "privacy": {"epsilon": 1, "delta": 1e-6},
                "methods": {"invisible_ink": {}},
                "services": {"connection": "store"} | services,
            }
        )
    )

    class Staged(StageOperator):
        stage = "staged"

        def open(self, context):
            self._connection = load_config(params).services.connection

        def run_stage(self, ctx, context):
            return stage(), "done"

    return Staged(task_id="staged").execute({})


def there_and_back() -> str:
    store = open_store(f"s3://{BUCKET}/things", "services.vault")
    store.put("a", io.BytesIO(b"content"))
    target = io.BytesIO()
    store.get("a", target)
    return target.getvalue().decode()


def test_a_connection_opens_a_store_that_asks_for_its_key(store, tmp_path, monkeypatch, caplog):
    from privsyn.airflow.failures import StageFailed

    url, key, secret = store
    extra = {"endpoint_url": url, "region_name": "us-east-1"}
    said = {"conn_type": "aws", "login": key, "password": secret, "extra": extra}
    connection(monkeypatch, said)
    with caplog.at_level(logging.DEBUG):
        assert run(tmp_path, there_and_back) == "content"
        assert not [name for name in NAMES if name in os.environ], "gone with the task"
        connection(monkeypatch, said | {"password": SECRET})
        with pytest.raises(StageFailed) as failed:
            run(tmp_path, there_and_back)
    shown = "".join(traceback.format_exception(failed.value)) + failed.value.text + caplog.text
    assert "StorageError" in failed.value.text
    assert secret not in shown
    assert SECRET not in shown


def test_a_child_has_them_in_its_environment_and_no_argument(tmp_path, monkeypatch, caplog):
    from privsyn.airflow.generate import GenerateShardOperator

    connection(monkeypatch, {"conn_type": "aws", "login": "k", "password": SECRET})
    child = GenerateShardOperator(task_id="generate", shard=0)
    code = (
        "import os, sys; from pathlib import Path; secret = os.environ['AWS_SECRET_ACCESS_KEY'];"
        "print(len(secret), secret in Path('/proc/self/cmdline').read_text(), sys.argv)"
    )
    monkeypatch.setattr("privsyn.airflow.generate.COMMAND_LINE", code)
    monkeypatch.setattr("privsyn.airflow.generate.params_file", lambda: "params.yaml")
    with caplog.at_level(logging.INFO):
        run(tmp_path, lambda: child.run_child({}))
    assert f"{len(SECRET)} False ['-c', '--params', 'params.yaml']" in caplog.messages
    assert SECRET not in caplog.text


def test_what_the_machine_had_is_set_aside_and_comes_back(tmp_path, monkeypatch):
    connection(monkeypatch, {"conn_type": "aws", "login": "k", "password": SECRET})
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the machine")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the machine, too")
    seen = run(tmp_path, lambda: {name: os.environ.get(name) for name in NAMES})
    assert seen == {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": None,
        "AWS_ENDPOINT_URL": None,
    }
    assert os.environ["AWS_SESSION_TOKEN"] == "of the machine"
    assert os.environ["AWS_ACCESS_KEY_ID"] == "of the machine, too"
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {
                "conn_type": "google_cloud_platform",
                "extra": {"keyfile_dict": json.dumps({"private_key": SECRET}), "project": "p"},
            },
            {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({"private_key": SECRET})},
        ),
        (
            {"conn_type": "google_cloud_platform", "extra": {"key_path": "/etc/key.json"}},
            {"GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json"},
        ),
        (
            {"conn_type": "wasb", "login": "account", "password": SECRET},
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": SECRET},
        ),
        (
            {"conn_type": "wasb", "login": "account", "extra": {"sas_token": "sv=1&sig=x"}},
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=x"},
        ),
    ],
)
def test_other_clouds(monkeypatch, said, expected):
    from privsyn.airflow.base import credentials

    connection(monkeypatch, said)
    found = credentials("store")
    assert {name: value for name, value in found.items() if value} == expected


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (None, "no such connection"),
        ({"conn_type": "http", "password": SECRET}, "of type http has no store credentials"),
        (
            {"conn_type": "aws", "password": SECRET, "extra": {"role_arn": f"arn:{SECRET}"}},
            "also has role_arn",
        ),
        ({"conn_type": "aws"}, "has no credentials"),
    ],
)
def test_what_is_no_such_connection_is_refused_by_name(monkeypatch, said, message):
    from privsyn.airflow.base import credentials

    if said is not None:
        connection(monkeypatch, said)
    with pytest.raises(ConfigError, match=message) as raised:
        credentials("store")
    shown = "".join(traceback.format_exception(raised.value)) + raised.value.hint
    assert "services.connection=store" in shown
    assert SECRET not in shown


def test_the_database_of_a_query_is_a_connection_of_airflow(tmp_path, monkeypatch, caplog):
    """From a secrets backend or Airflow's database, for the time of the task alone."""
    from airflow.sdk import BaseHook, Connection

    from privsyn.airflow.base import connection_environment
    from privsyn.data.readers.tables import _url_of
    from privsyn.data.settings import Query

    login = {"login": "reader", "password": SECRET, "host": "db", "port": 5432, "schema": "clinic"}
    known = {"clinic_db": Connection(conn_id="clinic_db", conn_type="postgres", **login)}
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(lambda _, name: known[name]))
    query = Query(connection="clinic_db", sql="select 1")
    with connection_environment(None, query):
        assert _url_of("clinic_db") == "postgres://reader:not%2Fto%2Bbe%3Dtold@db:5432/clinic"
    assert "AIRFLOW_CONN_CLINIC_DB" not in os.environ
    monkeypatch.setenv("OTHER", f"postgresql://h/{SECRET}")
    for name in ("OTHER", "postgresql://reader@db/clinic"):  # as it is
        with connection_environment(None, Query(connection=name, sql="select 1")):
            assert _url_of(name) in (f"postgresql://h/{SECRET}", name)
    missing = Query(connection="nowhere", sql="select 1")
    told = r"dataset\.query\.connection=nowhere: Airflow has no such connection \(KeyError\)"
    with pytest.raises(ConfigError, match=told), connection_environment(None, missing):
        pass
    assert SECRET not in caplog.text
