"""A release as an input of somebody else's MLflow run."""

import shutil
from pathlib import Path

import mlflow
import pytest

from privsyn.errors import ConfigError, VerificationError
from privsyn.release import certificate
from privsyn.track import log_release

(RELEASE,) = (Path(__file__).parents[2] / "golden" / "releases").glob("invisible_ink-*")


@pytest.fixture
def store(tmp_path):
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'theirs.db'}")
    yield mlflow.MlflowClient()
    mlflow.set_tracking_uri(before)


def test_a_consumers_run_names_the_release_its_cost_and_its_certificate(store):
    with mlflow.start_run() as run:
        assert log_release(RELEASE) == RELEASE.name
    logged = store.get_run(run.info.run_id)
    (given,) = logged.inputs.dataset_inputs
    _, sealed = certificate.read(RELEASE)
    assert given.dataset.name == RELEASE.name
    assert sealed["artifact"]["sha256"].startswith(given.dataset.digest)
    assert {tag.key: tag.value for tag in given.tags} == {"mlflow.data.context": "training"}
    tags = logged.data.tags
    assert float(tags["privsyn.epsilon"]) == sealed["plan"]["epsilon"]
    assert float(tags["privsyn.delta"]) == sealed["plan"]["delta"]
    assert tags["privsyn.certificate_sha256"] == certificate.digest(sealed)
    assert tags["privsyn.class"] == "dp-release"


def test_what_was_changed_is_logged_by_no_one(store, tmp_path):
    folder = tmp_path / RELEASE.name
    shutil.copytree(RELEASE, folder)
    with (folder / "synthetic.jsonl").open("a") as stream:
        stream.write('{"id": "more", "text": "not certified"}\n')
    with mlflow.start_run() as run, pytest.raises(VerificationError):
        log_release(folder)
    assert not store.get_run(run.info.run_id).inputs.dataset_inputs
    with mlflow.start_run(), pytest.raises(VerificationError, match="holds no certificate"):
        log_release(tmp_path)


def test_without_a_run_it_says_so_and_a_run_may_be_named(store):
    with pytest.raises(ConfigError, match="no MLflow run is active"):
        log_release(RELEASE)
    run = store.create_run("0").info.run_id
    log_release(RELEASE, run_id=run, context="validation")
    (given,) = store.get_run(run).inputs.dataset_inputs
    assert given.tags[0].value == "validation"
