"""Finished releases, their plans and who shows them, on an S3 server: what is there and no more."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from privsyn import layout
from privsyn.data import object_store
from privsyn.data.artifacts import sha256_file
from privsyn.data.object_store import BucketStore, open_store
from privsyn.errors import StorageError, ValidationFailed, VerificationError
from privsyn.methods.base import Backends
from privsyn.release.plan import Plan
from privsyn.release.release_store import ReleaseStore
from privsyn.release.workspace import Workspace
from privsyn.stages.reserve import reserve
from privsyn.stages.validate import validate
from tests.integration.e2e.small_project import (
    Project,
    build_project,
    finish,
    reserve_release,
    stand_in,
)
from tests.integration.vault.s3_server import BUCKET, reached_at

OTHER = "invisible_ink-0123456789abcdef"


@pytest.fixture
def s3(s3_url, monkeypatch):
    for name, value in reached_at(s3_url, "secret").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "STALE_SECONDS", (0.0,))
    return f"s3://{BUCKET}/{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    project = build_project(tmp_path_factory.mktemp("drawn") / "first", evaluate={"by": "nothing"})
    ctx = project.context()
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends({"language": stand_in()}))
    return project, planned


@dataclass
class Stored:
    """A machine with that release and a bucket of its own."""

    project: Project
    planned: Plan
    url: str

    @property
    def name(self):
        return self.planned.id

    @property
    def bucket(self):
        store = open_store(self.url, "services.releases")
        assert isinstance(store, BucketStore)
        return store

    @property
    def store(self):
        return ReleaseStore(self.url)

    def objects(self, place):
        return self.bucket.names(f"{place}/{self.name}")

    def expected(self, folder, place="releases"):
        files = {sha256_file(path) for path in folder.rglob("*") if path.is_file()}
        names = [*(f"files/{sha}" for sha in files), "manifest.json"]
        return sorted(f"{place}/{self.name}/{name}" for name in names)

    def put(self, name):
        with Path(__file__).open("rb") as stream:
            self.bucket.put(name, stream)


@pytest.fixture
def stored(drawn, s3, tmp_path):
    project, planned = drawn
    shutil.copytree(project.root, tmp_path / "first")
    first = Project(tmp_path / "first")
    params = yaml.safe_load(first.params.read_text())
    first.params.write_text(yaml.safe_dump(params | {"services": {"releases": s3}}))
    return Stored(first, planned, s3)


def other_report(folder):
    page = folder / layout.REPORT_PAGE
    page.write_text(page.read_text() + f"<!-- {secrets.token_hex(4)} -->")


def test_what_a_report_replaced_is_gone_and_nothing_else(stored):
    folder = validate(stored.project.context(), stored.planned)
    first = stored.objects("releases")
    assert first == stored.expected(folder)
    assert stored.objects("quarantine") == []

    ours = [f"releases/{stored.name}/notes.txt", f"releases/{stored.name}0/files/{'0' * 64}"]
    others = [*ours, f"releases/{OTHER}/files/{'0' * 64}", f"quarantine/{OTHER}/manifest.json"]
    for name in others:
        stored.put(name)
    # Another suite: other reports, under the same names.
    validate(stored.project.context("validation.max_chars=3999"), stored.planned)
    assert not set(first) <= set(stored.bucket.names("releases"))
    assert stored.objects("releases") == sorted([*stored.expected(folder), ours[0]])
    assert set(others) <= set(stored.bucket.names())


def test_a_failed_release_leaves_the_public_place_and_comes_back(stored):
    folder = validate(stored.project.context(), stored.planned)
    strict = stored.project.context("validation.max_chars=1", "validation.min_share=1")
    with pytest.raises(ValidationFailed):
        validate(strict, stored.planned)
    assert stored.objects("releases") == []
    lies = stored.project.root / "quarantine" / stored.name
    assert stored.objects("quarantine") == stored.expected(lies, "quarantine")
    validate(stored.project.context(), stored.planned)
    assert stored.objects("releases") == stored.expected(folder)
    assert stored.objects("quarantine") == []


@pytest.mark.parametrize("dies_at", ["put", "remove", "delete"])
def test_a_death_on_the_way_leaves_a_whole_release_and_the_next_run_tidies_up(
    stored, monkeypatch, tmp_path, dies_at
):
    folder = validate(stored.project.context(), stored.planned)
    before = (folder / layout.REPORT_PAGE).read_text()
    other_report(folder)
    after = (folder / layout.REPORT_PAGE).read_text()

    class Died(BaseException):
        pass

    def die(store, name, *_):
        if dies_at != "put" or name.endswith("manifest.json"):
            raise Died
        put(store, name, *_)

    put = BucketStore.put
    with monkeypatch.context() as patch:
        patch.setattr(BucketStore, dies_at, die)
        with pytest.raises(Died):
            stored.store.put(folder, "releases", passed=True)
    there = stored.store.fetch(stored.name, tmp_path / "reader")
    assert there is not None
    shown = (there / layout.REPORT_PAGE).read_text()
    assert shown == (before if dies_at == "put" else after)

    stored.store.put(folder, "releases", passed=True)
    assert stored.objects("releases") == stored.expected(folder)
    assert (stored.store.fetch(stored.name, tmp_path / "reader") or there).exists()


def test_a_file_that_another_machine_tidied_away_is_stored_again(stored):
    folder = validate(stored.project.context(), stored.planned)
    gone = stored.expected(folder)[0]
    stored.bucket.remove(gone)
    stored.store.put(folder, "releases", passed=True)
    assert stored.objects("releases") == stored.expected(folder)


def test_who_comes_second_is_not_tidied_away(stored, monkeypatch):
    """A machine whose manifest was replaced before it tidied up deletes nothing."""
    folder = validate(stored.project.context(), stored.planned)
    other_report(folder)
    names, late = BucketStore.names, []

    def overtaken(store, of=""):
        if not late:
            late.append(folder)
            other_report(folder)
            stored.store.put(folder, "releases", passed=True)
        return names(store, of)

    first = (folder / layout.REPORT_PAGE).read_bytes()
    monkeypatch.setattr(BucketStore, "names", overtaken)
    stored.store.put(folder, "releases", passed=True)
    assert (folder / layout.REPORT_PAGE).read_bytes() != first
    assert stored.objects("releases") == stored.expected(folder)


def test_a_reader_goes_on_with_what_replaced_the_release_it_was_reading(
    stored, monkeypatch, tmp_path
):
    folder = validate(stored.project.context(), stored.planned)
    get, changed = BucketStore.get, []

    def changing(store, name, target):
        if "/files/" in name and not changed:
            changed.append(name)
            other_report(folder)
            stored.store.put(folder, "releases", passed=True)
        get(store, name, target)

    monkeypatch.setattr(BucketStore, "get", changing)
    there = stored.store.fetch(stored.name, tmp_path / "reader")
    assert there is not None
    assert (there / layout.REPORT_PAGE).read_bytes() == (folder / layout.REPORT_PAGE).read_bytes()


def test_a_file_that_stays_away_is_an_error_and_no_folder(stored, tmp_path):
    folder = validate(stored.project.context(), stored.planned)
    stored.bucket.remove(f"releases/{stored.name}/files/{sha256_file(folder / layout.ARTIFACT)}")
    with pytest.raises(StorageError, match="has no"):
        stored.store.fetch(stored.name, tmp_path / "reader")
    assert not (tmp_path / "reader" / "releases" / stored.name).exists()


@pytest.mark.parametrize("change", ["not json", "another's", "another target"])
def test_a_plan_that_was_changed_is_refused(stored, tmp_path, change):
    reserve(stored.project.context(), stored.planned)
    said = stored.planned.model_dump(mode="json")
    if change == "another's":
        said["release_id"] = OTHER
    elif change == "another target":
        said["target_epsilon"] *= 2
    file = tmp_path / "plan.json"
    file.write_text("{" if change == "not json" else json.dumps(said))
    with file.open("rb") as stream:
        stored.bucket.put(f"plans/{stored.name}.json", stream)
    with pytest.raises(VerificationError, match="none that privsyn wrote"):
        stored.store.plan(stored.name)


@pytest.mark.airflow
def test_an_api_server_shows_what_a_dag_of_another_machine_made(stored, tmp_path):
    from privsyn.airflow.pages import report_page
    from privsyn.airflow.project import Project

    ctx = stored.project.context()
    server = Workspace(tmp_path / "server", stored.store)

    def page(dag_id):
        return report_page(Project(stored.project.params), server, dag_id, stored.name)

    assert page("privsyn_invisible_ink") is None
    validate(ctx, stored.planned)
    shown = page("privsyn_invisible_ink")
    assert shown is not None
    assert shown.is_file()
    assert page("mine") is None


def test_a_stage_takes_a_release_by_name(stored):
    validate(stored.project.context(), stored.planned)
    reserve(stored.project.context(), stored.planned)
    shutil.rmtree(stored.project.root / "plans", ignore_errors=True)
    done = stored.project.cli("stage", "validate", "--plan", stored.name)
    assert "valid:" in done.stdout
    refused = stored.project.cli("stage", "validate", "--plan", OTHER, check=False)
    assert "does not exist" in refused.stderr
