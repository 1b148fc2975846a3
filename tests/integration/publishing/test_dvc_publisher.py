"""Publishing and restoring releases with DVC itself, and with its own command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest
import yaml

from privsyn.data.artifacts import atomic_file
from privsyn.errors import ConfigError, DataError, PublishError, VerificationError
from privsyn.publishing import PROJECT_FILES, DvcPublisher, folder_md5
from tests import preloaded
from tests.integration.publishing.dvc_project import METHOD, REPOSITORY, read

STAGES = tuple(f"{name}@{METHOD}" for name in ("plan", "generate", "validate", "evaluate"))


@pytest.fixture(scope="module")
def bare(new_project):
    return new_project(git=False, shipped=False)


@pytest.fixture(scope="module")
def repository(new_project):
    return new_project(git=True)


def remote_files(project):
    return [
        path for path in (project.root / ".privsyn" / "dvc-remote").rglob("*") if path.is_file()
    ]


@pytest.fixture(scope="module")
def two_versions(bare):
    publisher = DvcPublisher(bare.root)
    published = []
    for release_id, text in (("ink-1", "first"), ("ink-2", "second")):
        folder = bare.release(release_id, text)
        published.append((folder, read(folder), publisher.publish(folder, method=METHOD).md5))
    return published


def test_every_published_version_comes_back(bare, two_versions):
    publisher = DvcPublisher(bare.root)
    (one, files_of_one, md5_of_one), (two, files_of_two, _) = two_versions
    for path in (bare.root / ".dvc" / "cache", one, two):
        shutil.rmtree(path)
    bare.dvc("pull", "releases/ink-1.dvc")
    assert read(one) == files_of_one
    assert folder_md5(one) == md5_of_one
    assert not two.exists()
    assert publisher.restore("ink-2") == two
    assert read(two) == files_of_two


def test_a_remote_that_returns_other_bytes_is_noticed(bare, two_versions):
    folder = two_versions[1][0]
    shutil.rmtree(bare.root / ".dvc" / "cache")
    shutil.rmtree(folder)
    (victim,) = (path for path in remote_files(bare) if b'"second"' in path.read_bytes())
    content = victim.read_bytes()
    victim.chmod(0o600)
    victim.write_bytes(b"something else")
    with pytest.raises((PublishError, VerificationError)):
        DvcPublisher(bare.root).restore("ink-2")
    assert not (folder / "synthetic.jsonl").exists()
    victim.write_bytes(content)


def test_after_a_publish_dvc_has_nothing_to_do(repository):
    release = repository.release("ink-1")
    repository.current(release)
    revision = DvcPublisher(repository.root).publish(release, method=METHOD)
    assert revision.stages == STAGES
    assert "up to date" in repository.dvc("status")
    assert "up to date" in repository.dvc("repro")
    assert repository.calls() == []
    assert repository.git("status", "--porcelain").split() == ["??", "dvc.lock", "??", "releases/"]


def test_a_late_publish_leaves_the_newer_release_alone(repository):
    publisher = DvcPublisher(repository.root)
    old, new = repository.release("ink-old"), repository.release("ink-new", "newer")
    repository.current(new)
    # Committing the stages now would push the newer release, which may fail its validation.
    assert publisher.publish(old, method=METHOD).stages == ()
    assert not any(b"newer" in path.read_bytes() for path in remote_files(repository))
    assert publisher.publish(new, method=METHOD).stages == STAGES


def test_dvc_yaml_names_no_private_file_and_publishes_no_internal_number():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    for name, stage in stages.items():
        spec = stage["do"]
        paths = [*spec.get("deps", ()), *spec.get("outs", ()), *spec.get("metrics", ())]
        names = [next(iter(path)) if isinstance(path, dict) else path for path in paths]
        assert all(name.startswith(("plans/", "synthetic/", "reports/")) for name in names)
        assert spec["cmd"].startswith(f"privsyn stage {name} ")
    assert not {"outs", "metrics", "plots"} & set(stages["evaluate"]["do"])


def test_shipped_settings_are_those_of_a_project_that_brings_none():
    for name, content in PROJECT_FILES.items():
        assert (REPOSITORY / name).read_text() == content


PUBLISH = """
import sys
from pathlib import Path
from privsyn.publishing import DvcPublisher
print(DvcPublisher(Path(sys.argv[1])).publish(Path(sys.argv[1], "releases", sys.argv[2])).md5)
"""


def test_a_dvc_project_that_was_killed_half_made_is_made_whole(tmp_path, monkeypatch):
    written = []

    @contextmanager
    def killed(path, *, mode):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(path)
        with atomic_file(path, mode=mode) as stream:
            yield stream

    command = DvcPublisher(tmp_path)
    monkeypatch.setattr("privsyn.publishing.atomic_file", killed)
    with pytest.raises(KeyboardInterrupt):
        command.prepare()
    monkeypatch.setattr("privsyn.publishing.atomic_file", atomic_file)
    command.prepare()
    for name, content in PROJECT_FILES.items():
        assert (tmp_path / name).read_text() == content


def test_publishes_of_several_processes_queue_up(bare):
    folders = [bare.release(f"ink-par-{number}", str(number)) for number in range(2)]
    started = [
        subprocess.Popen(
            [preloaded.python(), "-c", PUBLISH, str(bare.root), folder.name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for folder in folders
    ]
    for process, folder in zip(started, folders, strict=True):
        stdout, stderr = process.communicate(timeout=600)
        assert process.returncode == 0, stderr
        assert stdout.strip() == folder_md5(folder)
        assert (bare.root / "releases" / f"{folder.name}.dvc").is_file()


def test_a_killed_publish_is_repeated(bare):
    folder = bare.release("ink-killed")
    pointer = bare.root / "releases" / "ink-killed.dvc"
    process = subprocess.Popen(
        [preloaded.python(), "-c", PUBLISH, str(bare.root), folder.name], start_new_session=True
    )
    while not pointer.exists() and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    revision = DvcPublisher(bare.root).publish(folder)
    assert revision.md5 == folder_md5(folder)
    assert yaml.safe_load(pointer.read_text())["outs"][0]["md5"] == revision.md5


@pytest.mark.parametrize("torn", ["", "outs:\n- md5: 12ab"])
def test_a_torn_pointer_of_a_killed_publish_is_written_anew(bare, torn):
    folder = bare.release("ink-torn")
    pointer = bare.root / "releases" / "ink-torn.dvc"
    pointer.write_text(torn)
    assert DvcPublisher(bare.root).publish(folder).md5 == folder_md5(folder)
    assert yaml.safe_load(pointer.read_text())["outs"][0]["path"] == "ink-torn"


def test_a_torn_file_of_dvcs_own_locks_stops_nothing(bare):
    """As a kill or a full disk leaves it."""
    folder = bare.release("ink-locks")
    DvcPublisher(bare.root).publish(folder)
    (bare.root / ".dvc" / "tmp" / "rwlock").write_text('{"read": {')
    assert DvcPublisher(bare.root).publish(folder).md5 == folder_md5(folder)


def test_a_published_artifact_is_final_and_its_reports_may_be_renewed(bare):
    publisher = DvcPublisher(bare.root)
    folder = bare.release("ink-final")
    first = publisher.publish(folder)
    (folder / "validation.json").write_text('{"success": true, "suite": "newer"}\n')
    assert publisher.publish(folder).md5 != first.md5
    pointer = (bare.root / first.pointer).read_bytes()
    (folder / "synthetic.jsonl").write_text('{"text": "redrawn"}\n')
    with pytest.raises(VerificationError, match=r"synthetic.jsonl differs from the published file"):
        publisher.publish(folder)
    with pytest.raises(VerificationError, match="differs from what was published"):
        publisher.restore("ink-final")
    assert (bare.root / first.pointer).read_bytes() == pointer


def test_an_internal_file_is_never_published(bare, tmp_path):
    folder = bare.release("ink-internal")
    (tmp_path / "private.json").write_text("{}")
    (folder / "quality.json").unlink()
    (folder / "quality.json").symlink_to(tmp_path / "private.json")  # out of the release
    with pytest.raises(DataError, match=r"'quality\.json'"):
        DvcPublisher(bare.root).publish(folder)
    (folder / "quality.json").unlink()
    (folder / "evaluation.json").write_text('{"accuracy": 0.8}')
    with pytest.raises(DataError, match=r"'evaluation.json', which is not a file of a release"):
        DvcPublisher(bare.root).publish(folder)
    assert not (bare.root / "releases" / "ink-internal.dvc").exists()


def test_a_folder_without_certificate_or_of_another_place_is_refused(bare, tmp_path):
    publisher = DvcPublisher(bare.root)
    folder = bare.release("ink-half")
    (folder / "certificate.json").unlink()
    with pytest.raises(DataError, match=r"lacks certificate.json"):
        publisher.publish(folder)
    with pytest.raises(DataError, match="does not exist"):
        publisher.publish(bare.root / "releases" / "ink-none")
    with pytest.raises(DataError, match="is not a folder in releases/"):
        publisher.publish(tmp_path)


def test_stages_are_committed_only_where_their_files_exist(new_project):
    project = new_project(git=False)
    release, publisher = project.release("ink-1"), DvcPublisher(project.root)
    publisher.prepare()
    project.current(release)

    def stages(method=METHOD):
        return publisher.current_stages(method, release)

    assert stages() == list(STAGES)
    assert stages("unnamed") == []
    shutil.rmtree(project.root / "reports")
    assert f"validate@{METHOD}" not in stages()
    project.current(project.release("ink-2"))
    assert stages() == []
    project.current(release)
    (project.root / "synthetic" / METHOD / "synthetic.jsonl").write_text("other")
    assert stages() == []
    project.current(release)
    params = project.root / "params.yaml"
    params.write_text(params.read_text().replace("models: {}\n", ""))
    with pytest.raises(ConfigError, match=r"'models' are missing.*may be empty"):
        publisher.publish(release, method=METHOD)
    (project.root / "dvc.yaml").unlink()
    assert stages() == []
