"""Files that are there whole or not at all."""

import hashlib
import json
import stat

import pytest

from privsyn.data.artifacts import (
    atomic_file,
    private_folder,
    sha256_file,
    wipe,
    write_json_atomic,
    write_jsonl_atomic,
)
from privsyn.errors import StorageError


def test_jsonl_rows_digest_and_reference(tmp_path):
    path = tmp_path / "new" / "synthetic.jsonl"
    rows = [{"id": "r-000000", "text": "naïve\n\x00"}, {"id": "r-000001", "text": "", "label": "a"}]
    ref = write_jsonl_atomic(path, rows)
    data = path.read_bytes()
    assert (ref.path, ref.rows, ref.media_type) == (path, 2, "application/jsonl")
    assert ref.sha256 == hashlib.sha256(data).hexdigest() == sha256_file(path)
    assert [json.loads(line) for line in data.split(b"\n")[:-1]] == rows
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_row_stays_one_line_and_valid_utf8_whatever_its_text(tmp_path):
    text = "a\u2028b\u2029c\x85d\x1ce\rf\ud800"
    path = tmp_path / "a.jsonl"
    write_jsonl_atomic(path, [{"text": text}])
    (line,) = path.read_bytes().decode("utf-8").splitlines()
    assert json.loads(line) == {"text": text}


def test_no_rows_make_an_empty_file(tmp_path):
    assert write_jsonl_atomic(tmp_path / "a.jsonl", []).rows == 0
    assert (tmp_path / "a.jsonl").read_bytes() == b""


def test_equal_json_values_have_equal_bytes(tmp_path):
    one = write_json_atomic(tmp_path / "1.json", {"b": 1, "a": {"y": "é", "x": None}})
    two = write_json_atomic(tmp_path / "2.json", {"a": {"x": None, "y": "é"}, "b": 1})
    assert one.sha256 == two.sha256
    assert one.path.read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_hold_is_refused_and_leaves_nothing(tmp_path, value):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json_atomic(tmp_path / "a.json", {"x": value})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_jsonl_atomic(tmp_path / "a.jsonl", [{"x": 1}, {"x": value}])
    assert list(tmp_path.iterdir()) == []


def test_a_failing_source_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.jsonl"
    write_jsonl_atomic(path, [{"x": 1}])

    def rows():
        yield {"x": 2}
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_jsonl_atomic(path, rows())
    assert path.read_bytes() == b'{"x": 1}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, full_disk):
    path = tmp_path / "a.jsonl"
    write_jsonl_atomic(path, [{"x": "old"}])
    with pytest.raises(StorageError, match="cannot write") as caught, full_disk(10_000):
        write_jsonl_atomic(path, ({"x": "new" * 100} for _ in range(1000)))
    assert caught.value.retryable
    assert path.read_bytes() == b'{"x": "old"}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_storage_errors(tmp_path):
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(StorageError):
        write_json_atomic(blocker / "a.json", {})
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        write_json_atomic(tmp_path / "folder", {})
    with pytest.raises(StorageError):
        private_folder(blocker)
    with pytest.raises(StorageError):
        sha256_file(tmp_path / "none")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("x")
    target = tmp_path / "file" / "below" / "new" / "a.jsonl"
    with pytest.raises(StorageError, match="cannot write") as caught, atomic_file(target):
        pass
    assert str(target) in str(caught.value)


def test_private_folder_is_for_its_owner_only(tmp_path):
    path = tmp_path / "a" / "b"
    private_folder(path)
    path.chmod(0o755)
    private_folder(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    with atomic_file(path / "x") as stream:
        stream.write(b"1")
    assert stat.S_IMODE((path / "x").stat().st_mode) == 0o600


def test_wipe_removes_a_tree_a_file_a_link_or_nothing(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "x").touch()
    link = tmp_path / "link"
    link.symlink_to(kept)
    tree = tmp_path / "tree" / "deep"
    tree.mkdir(parents=True)
    (tree / "x").touch()
    for path in (link, tmp_path / "tree", tmp_path / "missing"):
        wipe(path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert (kept / "x").exists()
