"""What a project's folder is said to hold."""

import json

from privsyn.release.workspace import Workspace


def test_what_a_killed_run_was_building_is_no_release(tmp_path):
    for name in ("releases/a-1", "releases/.a-2.new", "quarantine/b-1", "quarantine/.b-2.new"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "certificate.json").write_text(json.dumps({"plan": {"account": "letters"}}))
    (tmp_path / "releases" / "c-1.dvc").write_text("meta: {account: letters}")

    workspace = Workspace(tmp_path)
    assert workspace.here() == ["a-1", "b-1"]
    assert workspace.release_ids() == workspace.known_releases("letters") == ["a-1", "b-1", "c-1"]


def test_the_pointer_of_a_release_that_is_here_is_not_read(tmp_path):
    folder = tmp_path / "releases" / "a-1"
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps({"plan": {"account": "letters"}}))
    folder.with_name("a-1.dvc").write_text("meta: {account: other}")
    assert Workspace(tmp_path).known_releases("letters") == ["a-1"]
