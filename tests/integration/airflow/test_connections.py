"""Credentials of a store from an Airflow connection: they open it, and are told nobody."""

from __future__ import annotations

import io
import json
import logging
import os
import traceback
from datetime import UTC, datetime
from pydoc import locate
from types import SimpleNamespace

import boto3
import pytest
from sqlalchemy import make_url

from privsyn.config import ServicesConfig, load_config
from privsyn.data.object_store import open_store
from privsyn.errors import ConfigError
from privsyn.models.settings import ModelsConfig
from privsyn.stages.base import open_context
from tests.integration.e2e.small_project import build_project
from tests.integration.vault.s3_server import BUCKET, s3_server

pytestmark = pytest.mark.airflow
SECRET = "not/to+be=told"
BARE = {"services": ServicesConfig(), "models": ModelsConfig()}
EXTRA = {"connect_timeout": 10, "cursor": "dictcursor"}
"""Extras of a database's connection: a number, and what no database takes."""
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


def run(tmp_path, stage, **connections):
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
                "services": {"connections": connections or {"stores": "store"}},
                "models": {"server": {"url": "http://localhost/v1", "model": "m"}},
            }
        )
    )

    class Staged(StageOperator):
        stage = "staged"

        def open(self, context):
            return SimpleNamespace(config=load_config(params))

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
    from privsyn.airflow.connections import store_credentials

    connection(monkeypatch, said)
    found = store_credentials("store")
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
    from privsyn.airflow.connections import store_credentials

    if said is not None:
        connection(monkeypatch, said)
    with pytest.raises(ConfigError, match=message) as raised:
        store_credentials("store")
    shown = "".join(traceback.format_exception(raised.value)) + raised.value.hint
    assert "services.connections.stores=store" in shown
    assert SECRET not in shown


def test_keys_of_the_vault_and_of_a_model_server_come_and_go(tmp_path, monkeypatch):
    connection(monkeypatch, {"conn_type": "privsyn", "password": SECRET})
    names, both = ("PRIVSYN_VAULT_KEY", "OPENAI_API_KEY"), ("vault_key", "model_server")
    monkeypatch.setenv(names[0], "of the machine")
    seen = run(
        tmp_path, lambda: [os.environ[name] for name in names], **dict.fromkeys(both, "store")
    )
    assert seen == [SECRET, SECRET]
    assert [os.environ.get(name) for name in names] == ["of the machine", None]
    connection(monkeypatch, {"conn_type": "privsyn"})
    with pytest.raises(SystemExit):
        run(tmp_path, lambda: None, vault_key="store")


def test_a_ledger_comes_from_a_connection_and_reaches_the_child(
    tmp_path, monkeypatch, postgres_url
):
    from privsyn.airflow.generate import PreflightOperator

    project = build_project(tmp_path / "project", services={"connections": {"ledger": "store"}})
    url = make_url(postgres_url)
    said = {"login": url.username, "password": url.password, "host": url.host, "port": url.port}
    said |= {"schema": url.database, "extra": dict(url.query) | EXTRA}
    operator = PreflightOperator(task_id="preflight", params_path=str(project.params), overrides={})
    monkeypatch.setattr("privsyn.airflow.base._origin", lambda context: {})
    run = {"dag_run": SimpleNamespace(run_after=datetime(2026, 1, 1, tzinfo=UTC))}
    connection(monkeypatch, said | {"conn_type": "http"})
    with pytest.raises(ConfigError, match="a connection of type http is no ledger"):
        operator.open(run)
    connection(monkeypatch, said | {"conn_type": "postgres"})
    ctx = operator.open(run)
    assert ctx.ledger.accounts.all() == []
    handed = []
    monkeypatch.setattr(operator, "run_child", lambda variables, *words: handed.append(variables))
    operator.apart(ctx, run, "stage", "preflight")
    (setting,) = json.loads(handed[0]["PRIVSYN_OVERRIDES"])
    assert setting == f"services.ledger={json.dumps(ctx.config.services.ledger)}"
    with pytest.raises(ConfigError, match=r"services.connections.ledger names the ledger for"):
        open_context(project.params).ledger  # noqa: B018


def test_airflow_lists_the_provider_with_its_type_of_connection():
    from airflow.providers_manager import _create_provider_info_schema_validator as validator

    from privsyn.airflow.connections import provider_info

    validator().validate(provider_info())
    (shown,) = provider_info()["connection-types"]
    hook = locate(shown["hook-class-name"])
    assert hook.conn_type == shown["connection-type"]
    assert hook.get_ui_field_behaviour()["relabeling"] == {"password": "Key"}


def test_the_database_of_a_query_is_a_connection_of_airflow(monkeypatch, caplog):
    """From a secrets backend or Airflow's database, for the time of the task alone."""
    from airflow.sdk import BaseHook, Connection

    from privsyn.airflow.connections import connection_environment
    from privsyn.data.readers.tables import _url_of
    from privsyn.data.settings import Query

    login = {"login": "reader", "password": SECRET, "host": "db", "port": 5432, "schema": "clinic"}
    login["extra"] = json.dumps(EXTRA)
    known = {"clinic_db": Connection(conn_id="clinic_db", conn_type="postgres", **login)}
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(lambda _, name: known[name]))

    def block(name):
        dataset = SimpleNamespace(query=Query(connection=name, sql="select 1"))
        return connection_environment(SimpleNamespace(**BARE, dataset=dataset))

    with block("clinic_db"):
        shown = "postgres://reader:not%2Fto%2Bbe%3Dtold@db:5432/clinic?connect_timeout=10"
        assert _url_of("clinic_db") == shown
    assert "AIRFLOW_CONN_CLINIC_DB" not in os.environ
    monkeypatch.setenv("OTHER", f"postgresql://h/{SECRET}")
    for name in ("OTHER", "postgresql://reader@db/clinic"):  # as it is
        with block(name):
            assert _url_of(name) in (f"postgresql://h/{SECRET}", name)
    told = r"dataset\.query\.connection=nowhere: Airflow has no such connection \(KeyError\)"
    with pytest.raises(ConfigError, match=told), block("nowhere"):
        pass
    assert SECRET not in caplog.text
