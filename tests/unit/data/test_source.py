"""Fingerprints of the private file: equal for equal content, whatever it is called."""

import gzip
import shutil
from pathlib import Path

import pytest

from privsyn.data.readers import streams
from privsyn.data.readers.streams import fingerprint
from privsyn.errors import DataError

KEY = bytes(range(32))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "private.jsonl"
    path.write_text('{"text": "Ann has flu"}\n' * 50)
    return path


def test_a_copy_a_rename_and_packing_change_nothing(file, tmp_path):
    first = fingerprint(file, KEY)
    copy = shutil.copy(file, tmp_path / "other.jsonl")
    packed = tmp_path / "private.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert fingerprint(copy, KEY) == fingerprint(packed, KEY) == first
    assert len(first) == 40


@pytest.mark.parametrize("place", [0, 600, -2])
def test_a_changed_byte_and_another_key_change_it(file, place):
    first = fingerprint(file, KEY)
    assert fingerprint(file, KEY[::-1]) != first
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert fingerprint(file, KEY) != first


def test_a_folder_counts_with_the_names_in_it(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        (tmp_path / "one" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "one" / name).write_bytes(name.encode())
    first = fingerprint(tmp_path / "one", KEY)
    other = Path(shutil.copytree(tmp_path / "one", tmp_path / "two"))
    assert fingerprint(other, KEY) == first
    (other / "a" / "1.png").rename(other / "b" / "3.png")
    assert fingerprint(other, KEY) != first


def test_parts_are_read_by_name_in_whatever_order_the_disk_gives_them(tmp_path, monkeypatch):
    """Without a unit column the number of a row is its unit, on every machine."""
    names = ["b.jsonl", "a/2.jsonl", "a/10.jsonl", "c.jsonl"]
    for order in (names, names[::-1]):
        monkeypatch.setattr(
            streams, "_files", lambda path, order=order: [path / name for name in order]
        )
        found = [str(part) for part in streams.parts(tmp_path)]
        assert found == [f"{tmp_path}/{name}" for name in sorted(names)]


def test_what_cannot_be_read_is_told_without_content(file, tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        fingerprint(tmp_path / "nowhere", KEY)
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(file.read_bytes())[:-9])
    with pytest.raises(DataError, match="damaged") as refused:
        fingerprint(cut, KEY)
    assert "Ann" not in str(refused.value)
    with pytest.raises(ValueError, match="16 to 64"):
        fingerprint(file, b"short")
