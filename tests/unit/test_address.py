"""Addresses of stores with a password or a signature in them: refused, and quoted nowhere."""

import traceback
from pathlib import Path

import pytest
import yaml

from privsyn.config import parse_config
from privsyn.errors import ConfigError

PARAMS = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
SECRET = "hunter2secret"
FORMS = (
    "s3://user:{}@bucket/x",
    "S3://user:{}@bucket/x",
    "s3:/user:{}@bucket/x",
    "s3://bucket/x?sig={}",
    "az://container/x?sv=2024-11-04&se=2027-01-01&sig={}",
    "gs://bucket/x?X-Goog-Signature={}",
    "s3://bucket/x#{}",
    "s3://user:{}/x",
    "s3://bucket%40/{}@x",
    "s3://user:{}@",
    "s3://[{}@bucket/x",
    "s3a://user:{}@bucket/x",
    "abfss://container@account.dfs.core.windows.net/x?sig={}",
    "https://account.blob.core.windows.net/c/x?sig={}",
    "https://user:{}@host/x",
    "file://user:{}@host/x",
)


def refused(*overrides):
    with pytest.raises(ConfigError) as raised:
        parse_config(PARAMS, overrides)
    shown = "".join(traceback.format_exception(raised.value)) + raised.value.hint
    assert SECRET not in shown


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "setting", ["dataset.path", "dataset.test_path", "services.vault", "services.releases"]
)
def test_a_secret_in_an_address_is_refused_and_not_quoted(setting, form):
    refused(f"{setting}={form.format(SECRET)}")


@pytest.mark.parametrize(
    "override",
    [
        "services.ledger:postgresql://user:{}@host/db",
        "services.ledger=[postgresql://user:{}@host/db",
        "services.ledgr=postgresql://user:{}@host/db",
        "services.ledger={{a: {}}}",
        "services.connections.stores=s3://user:{}@bucket",
        "services={}",
        "s3://user:{}@bucket=1",
    ],
)
def test_an_override_that_is_wrong_is_not_quoted_where_it_may_hold_a_password(override):
    refused(override.format(SECRET))


def test_the_settings_are_taken_without_one():
    said = {
        "dataset.path": "s3://bucket/x.jsonl",
        "services.vault": "s3://bucket/vault",
        "services.releases": "file:///mnt/a@b/releases",
        "services.connections.stores": "privsyn_s3",
    }
    config = parse_config(PARAMS, [f"{name}={value}" for name, value in said.items()])
    assert str(config.dataset.path) == said["dataset.path"]
    assert config.services.connections == {"stores": "privsyn_s3"}
