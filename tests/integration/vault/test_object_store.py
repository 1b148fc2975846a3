"""Objects in folders and buckets: whole or not at all, through faults that pass."""

from __future__ import annotations

import io
import json
import os
import secrets

import pytest

from privsyn.data import object_store
from privsyn.data.object_store import NoSuchObject, open_store
from privsyn.errors import ConfigError, StorageError
from tests.integration.vault.s3_server import BUCKET, free_port, proxied, reached_at


@pytest.fixture
def faulty(s3_url, monkeypatch):
    with proxied(s3_url) as (url, faults):
        for name, value in reached_at(url, "not-to-be-told").items():
            monkeypatch.setenv(name, value)
        yield faults


@pytest.fixture(params=["file", "s3", "gs"])
def store(request, tmp_path, monkeypatch):
    if request.param == "file":
        return open_store(f"file://{tmp_path / 'store'}", "services.vault")
    request.getfixturevalue("faulty")
    none = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    key = {"gcs_base_url": os.environ["AWS_ENDPOINT_URL"], "disable_oauth": True, **none}
    (tmp_path / "key.json").write_text(json.dumps(key))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "key.json"))
    return open_store(f"{request.param}://{BUCKET}/{secrets.token_hex(4)}", "services.vault")


def content(store, name):
    target = io.BytesIO()
    store.get(name, target)
    return target.getvalue()


def test_objects_come_back_are_listed_replaced_and_deleted(store):
    big = secrets.token_bytes(20 << 20)  # several parts
    store.put("r1/a/x", io.BytesIO(b"one"))
    store.put("r1/big", io.BytesIO(big))
    store.put("r10/y", io.BytesIO(b""))
    store.put("r1/a/x", io.BytesIO(b"two"))
    assert content(store, "r1/a/x") == b"two"
    assert content(store, "r1/big") == big
    assert content(store, "r10/y") == b""
    assert store.folders() == ["r1", "r10"]
    assert store.names() == ["r1/a/x", "r1/big", "r10/y"]
    store.remove("r1/big")
    store.remove("r1/big")
    store.delete("r1")  # and not r10
    store.delete("r1")
    assert store.names() == ["r10/y"]
    assert store.exists("r10/y")
    assert not store.exists("r1/a/x")
    for refused in ("", ".", "./"):
        with pytest.raises(ValueError, match="delete a whole store"):
            store.delete(refused)
    for name in ("../x", "/etc/x", "a\nb"):
        with pytest.raises(ValueError, match="not a name of an object"):
            store.put(name, io.BytesIO(b""))


def test_an_object_that_is_not_there_is_said(store, monkeypatch):
    monkeypatch.setattr(object_store, "STALE_SECONDS", (0.0,))
    with pytest.raises(NoSuchObject, match="has no r1/x"):
        content(store, "r1/x")


def test_a_folder_s_objects_are_private_and_whole(tmp_path, full_disk):
    store = open_store(f"file://{tmp_path / 'store'}", "services.vault")
    store.put("r1/x", io.BytesIO(b"old"))
    for path in (tmp_path / "store").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    with full_disk(1000), pytest.raises(StorageError):
        store.put("r1/x", io.BytesIO(bytes(5000)))
    assert content(store, "r1/x") == b"old"
    assert store.names() == ["r1/x"]


def test_errors_a_cut_upload_and_stale_reads_pass(faulty):
    store = open_store(f"s3://{BUCKET}/faults", "services.vault")
    faulty.fail = 2
    store.put("r1/x", io.BytesIO(b"one"))
    faulty.cut = 1
    store.put("r1/y", io.BytesIO(bytes(1 << 20)))
    faulty.stale, faulty.slow = 2, 0.2
    assert content(store, "r1/x") == b"one"
    assert content(store, "r1/y") == bytes(1 << 20)
    assert faulty.fail == faulty.cut == faulty.stale == 0


def test_a_store_that_stays_down_is_tried_again_by_the_next_run(faulty, monkeypatch):
    monkeypatch.setattr(object_store, "RETRIES", {"max_retries": 1})
    monkeypatch.setattr(object_store, "AGAIN_SECONDS", ())
    store = open_store(f"s3://{BUCKET}/down", "services.vault")
    faulty.fail = 100
    wanted = r"cannot write r1/x in s3://.*: 500 Internal Server Error\. Check that the store is up"
    with pytest.raises(StorageError, match=wanted) as refused:
        store.put("r1/x", io.BytesIO(b"one"))
    assert refused.value.retryable
    assert "not-to-be-told" not in str(refused.value)
    faulty.fail, faulty.busy = 0, 1
    with pytest.raises(StorageError, match=r"cannot list r1 in s3://.*: 503 Service Unavailable\."):
        store.names("r1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    gone = open_store(f"s3://{BUCKET}/down", "services.vault")
    with pytest.raises(StorageError, match=r"cannot read r1/x in s3://.*: connection refused\."):
        gone.exists("r1/x")


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/x", "s3://bucket/x?key=secret", "https://host/x", "bucket",
        "file://host/x", "file:///", "s3:///x", "file:///x#secret",
    ],
)  # fmt: skip
def test_a_url_with_credentials_or_without_a_place_is_refused(url):
    with pytest.raises(ConfigError, match=r"services\.vault") as refused:
        open_store(url, "services.vault")
    assert "secret" not in str(refused.value)


def test_a_setting_with_credentials_is_refused_and_not_quoted():
    from privsyn.config import ServicesConfig

    with pytest.raises(ConfigError, match="user, a password") as refused:
        ServicesConfig(vault="s3://key:secret@bucket")
    assert "secret" not in str(refused.value)
