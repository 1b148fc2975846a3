"""Finished releases in a store: one machine makes them, others check, measure and read them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from privsyn import layout
from privsyn.api.project import Project as ApiProject
from privsyn.data.artifacts import sha256_file
from privsyn.errors import (
    AccountMismatch,
    DataError,
    StorageError,
    ValidationFailed,
    VerificationError,
)
from privsyn.methods.base import Backends
from privsyn.release import certificate
from privsyn.release.plan import Plan
from privsyn.release.release_store import ReleaseStore
from privsyn.stages.certify import certify
from privsyn.stages.folder import find
from privsyn.stages.plan import plan
from privsyn.stages.publish import restore
from privsyn.stages.validate import validate
from tests.integration.e2e.small_project import (
    Project,
    build_project,
    finish,
    reseal,
    reserve_release,
    stand_in,
    times,
)


@dataclass
class Homes:
    """Machines with folders of their own, one ledger and one store."""

    base: Path
    made: Project
    planned: Plan

    @property
    def store(self):
        return self.base / "store"

    def home(self, name):
        """A machine that has params.yaml and nothing else."""
        (self.base / name).mkdir(exist_ok=True)
        shutil.copy(self.made.params, self.base / name)
        return Project(self.base / name)

    def object(self, sha256):
        (found,) = self.store.rglob(f"files/{sha256}")
        return found


def services(base):
    return {"ledger": f"sqlite:///{base / 'ledger.db'}", "releases": f"file://{base / 'store'}"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    base = tmp_path_factory.mktemp("homes")
    first = build_project(base / "first", services=services(base), evaluate={"by": "nothing"})
    ctx = first.context()
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends({"language": stand_in()}))
    return Homes(base, first, planned)


@pytest.fixture
def homes(drawn, tmp_path):
    """That release, its ledger and its store, for one test to change."""
    base = tmp_path / "homes"
    shutil.copytree(drawn.base, base)
    first = Project(base / "first")
    params = yaml.safe_load(first.params.read_text())
    first.params.write_text(yaml.safe_dump(params | {"services": services(base)}))
    return Homes(base, first, drawn.planned)


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_stages_go_on_where_the_folder_never_was(homes):
    second, third = homes.home("second"), homes.home("third")
    there = validate(second.context(), homes.planned)
    assert there == second.root / "releases" / homes.planned.id

    # The machine that certified holds an older folder: it is made to be what is stored.
    own = homes.made.root / "releases" / homes.planned.id
    assert not (own / layout.REPORT_PAGE).exists()
    assert find(homes.made.context(), homes.planned) == own
    assert digests(own) == digests(there)

    assert restore(third.context(), homes.planned.id).parent.parent == third.root
    fetched = third.root / "releases" / homes.planned.id
    assert digests(fetched) == digests(there)
    assert times(fetched, own) == times(there)
    assert len(times(there)) == 1
    assert third.root.joinpath("releases", homes.planned.id, layout.ARTIFACT).stat().st_mode & 0o444


def test_only_what_passed_is_among_the_releases(homes):
    """A bucket's policy may open releases/ to many: a failed one never lies there."""
    store, name = ReleaseStore(f"file://{homes.store}"), homes.planned.id
    assert (homes.store / "quarantine" / name / "manifest.json").is_file()
    assert not (homes.store / "releases" / name).exists()

    second = homes.home("second").context()
    validate(second, homes.planned)
    assert (homes.store / "releases" / name / "manifest.json").is_file()
    assert not (homes.store / "quarantine" / name).exists()

    strict = homes.home("third").context("validation.max_chars=1", "validation.min_share=1")
    with pytest.raises(ValidationFailed):
        validate(strict, homes.planned)
    assert not (homes.store / "releases" / name).exists()
    assert store.manifest(name).lies == "quarantine"

    # Where it had passed it is in quarantine now, for its owner alone.
    lies = find(second, homes.planned)
    assert lies == homes.base / "second" / "quarantine" / name
    assert lies.stat().st_mode & 0o077 == 0
    assert not (homes.base / "second" / "releases" / name).exists()


def test_what_an_audit_has_not_let_through_is_stored_in_quarantine(homes):
    """Certified again once the project began to block, by a machine that has not audited it."""
    name = homes.planned.id
    validate(homes.home("second").context(), homes.planned)
    assert (homes.store / "releases" / name / "manifest.json").is_file()
    blocks = homes.home("second").context("evaluate.by=models", "evaluate.audit=block")
    certify(blocks, homes.planned)
    assert (homes.store / "quarantine" / name / "manifest.json").is_file()
    assert not (homes.store / "releases" / name).exists()


def test_a_release_without_its_manifest_is_not_there(homes):
    (manifest,) = homes.store.rglob("manifest.json")
    manifest.unlink()
    assert ReleaseStore(f"file://{homes.store}").manifest(homes.planned.id) is None
    # The ledger knows its certificate, so the copy from before the commit is taken.
    second = homes.home("second").context()
    assert find(second, homes.planned).name == homes.planned.id
    certify(second, homes.planned)  # goes on after a death right after the commit
    manifest.unlink()
    for draft in homes.store.rglob("draft-*.json"):
        draft.unlink()
    with pytest.raises(DataError, match="its folder is not here"):
        find(homes.home("third").context(), homes.planned)


def test_nothing_is_committed_that_only_one_disk_holds(tmp_path, fake, make_project):
    """A store that takes nothing: the release is neither committed nor lost."""
    (tmp_path / "store").write_text("a file where the store should be")
    project = make_project(services={"releases": f"file://{tmp_path / 'store'}"})
    ctx = project.context()

    def release():
        planned = reserve_release(ctx)
        return planned, finish(ctx, planned, fake)

    with pytest.raises(StorageError):
        release()
    (tmp_path / "store").unlink()
    planned, folder = release()
    assert ctx.ledger.releases.get(planned.id).state == "COMMITTED"
    assert (folder / layout.CERTIFICATE).is_file()


@pytest.mark.parametrize("change", ["bytes", "cut", "manifest", "certificate"])
def test_a_changed_object_reaches_no_folder(homes, change):
    validate(homes.home("second").context(), homes.planned)
    (manifest,) = homes.store.rglob("manifest.json")
    said = json.loads(manifest.read_bytes())
    records = homes.object(said["files"][layout.ARTIFACT])
    if change == "bytes":
        records.write_bytes(records.read_bytes().replace(b"e", b"a", 1))
    elif change == "cut":
        records.write_bytes(records.read_bytes()[:-10])
    elif change == "manifest":
        other = records.read_bytes().replace(b"e", b"a", 1)
        draft = records.with_name("draft")
        draft.write_bytes(other)
        said["files"][layout.ARTIFACT] = sha256_file(draft)
        draft.replace(records.with_name(said["files"][layout.ARTIFACT]))
        manifest.write_text(json.dumps(said))
    else:  # whole and sealed anew, so that it agrees with itself: only the ledger knows better
        sealed = json.loads(homes.object(said["certificate"]).read_bytes())
        sealed["account"]["name"] = "another"
        sealed["seal"] = certificate.seal_of(sealed)
        raw = certificate.canonical(sealed)
        said["certificate"] = said["files"][layout.CERTIFICATE] = certificate.digest(sealed)
        records.with_name(said["certificate"]).write_bytes(raw)
        manifest.write_text(json.dumps(said))
    third = homes.home("third")
    with pytest.raises(VerificationError):
        find(third.context(), homes.planned)
    assert digests(third.root).keys() == {"params.yaml"}


@pytest.mark.parametrize(
    "name", ["../../outside.json", "/etc/hosts", "notes.txt", "images/../../x", "model/.hidden"]
)
def test_a_manifest_names_files_of_a_release_alone(homes, name):
    (manifest,) = homes.store.rglob("manifest.json")
    said = json.loads(manifest.read_bytes())
    said["files"][name] = said["files"][layout.ARTIFACT]
    manifest.write_text(json.dumps(said))
    with pytest.raises(VerificationError, match="none that privsyn wrote"):
        find(homes.home("second").context(), homes.planned)


def test_reports_that_the_ledger_does_not_know_are_not_signed_or_kept(homes):
    """Who writes to the store could put a page of their own beside sound records."""
    validate(homes.home("second").context(), homes.planned)
    (manifest,) = homes.store.rglob("manifest.json")
    said = json.loads(manifest.read_bytes())
    page = homes.object(said["files"][layout.REPORT_PAGE]).with_name("draft")
    page.write_text("<p>all is well</p>")
    said["files"][layout.REPORT_PAGE] = sha256_file(page)
    page.replace(page.with_name(said["files"][layout.REPORT_PAGE]))
    manifest.write_text(json.dumps(said))
    third = homes.home("third").context()
    folder = find(third, homes.planned)
    assert not (folder / layout.REPORT_PAGE).exists()
    assert layout.suite_passed(folder) is None
    assert "all is well" not in (validate(third, homes.planned) / layout.REPORT_PAGE).read_text()


def test_of_two_that_certify_at_once_the_ledgers_is_kept(homes):
    folder = homes.made.root / "releases" / homes.planned.id
    late = homes.home("late")
    copy = late.root / "releases" / homes.planned.id
    shutil.copytree(folder, copy)
    raw, sealed = certificate.read(copy)
    sealed["software"] |= {"git": "another"}
    reseal(copy, sealed)
    ctx = late.context()
    ctx.workspace.store.put_draft(copy)
    _, other = certificate.read(copy)
    with pytest.raises(VerificationError, match="another artifact or certificate"):
        ctx.ledger.releases.commit(
            homes.planned.id, other["artifact"]["sha256"], certificate.digest(other)
        )
    kept = find(homes.home("third").context(), homes.planned)
    assert (kept / layout.CERTIFICATE).read_bytes() == raw


def test_a_fresh_ledger_beside_stored_releases_is_refused(homes):
    """What is stored was paid for: an account that starts from nothing would forget it."""
    second = homes.home("second")
    fresh = second.context(f"services.ledger=sqlite:///{homes.base / 'fresh.db'}")
    with pytest.raises(AccountMismatch, match="does not know release"):
        plan(fresh, "invisible_ink", open_account=True)


def test_files_of_no_release_stay_where_they_are(homes):
    folder = homes.made.root / "releases" / homes.planned.id
    (folder / "notes.txt").write_text("of the owner")
    (folder / ".half.tmp").write_text("half a file")
    store = ReleaseStore(f"file://{homes.store}")
    store.put(folder, "releases", passed=False)
    assert store.manifest(homes.planned.id).files.keys() == {layout.ARTIFACT, layout.CERTIFICATE}


def test_python_lists_and_opens_what_another_machine_made(homes):
    validate(homes.home("second").context(), homes.planned)
    project = ApiProject(homes.home("fourth").root)
    assert [release.name for release in project.releases()] == [homes.planned.id]
