"""Draws are written before they are used and never made twice, killed or not."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from privsyn.data.journal import Journal
from privsyn.errors import LeaseHeld, ReleaseLost, StorageError, VerificationError

HEADER = {"release": "r1", "part": "shard-0"}


def never():
    raise AssertionError("drawn a second time")


def opened(path):
    """The journal as a run has it: made by the stage before, then opened."""
    Journal.create(path, HEADER)
    return Journal.open(path, HEADER)


def test_a_missing_journal_is_lost_and_never_begun_anew(tmp_path):
    with opened(tmp_path / "j") as journal:
        journal.draw_all([("t0", lambda: 1)])
    (tmp_path / "j").unlink()
    for _ in range(2):
        with pytest.raises(ReleaseLost):
            Journal.open(tmp_path / "j", HEADER)
    with pytest.raises(ReleaseLost, match="is gone; its draws cannot be replayed"):
        Journal.open(tmp_path / "never made", HEADER)
    with pytest.raises(ReleaseLost):
        Journal.open(tmp_path / "no folder" / "j", HEADER)


def test_making_a_journal_leaves_one_that_is_there_alone(tmp_path):
    path = tmp_path / "j"
    with opened(path) as journal:
        journal.draw_all([("t0", lambda: 5)])
        Journal.create(path, HEADER)  # held or not
        journal.draw_all([("t1", lambda: 6)])
    before = path.read_bytes()
    Journal.create(path, dict(reversed(HEADER.items())))
    with pytest.raises(VerificationError, match="part differ"):
        Journal.create(path, HEADER | {"part": "shard-1"})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["j"]
    with opened(path) as journal:
        assert journal.draw_all([("t0", never), ("t1", never)]) == [5, 6]


def test_a_new_journal_is_private_and_there_whole_or_not_at_all(tmp_path, full_disk):
    path = tmp_path / "j"
    with pytest.raises(StorageError), full_disk(10):
        Journal.create(path, HEADER)
    assert list(tmp_path.iterdir()) == []
    Journal.create(path, HEADER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Journal.open(path, HEADER) as journal:
        assert not journal.has_drawn


def test_draws_are_made_in_order_once_and_replayed(tmp_path):
    path, made = tmp_path / "j", []

    def draw(n):
        made.append(n)
        return n * n

    with opened(path) as journal:
        assert not journal.has_drawn
        assert len(journal) == 0
        assert journal.draw_all([(f"t{n}", lambda n=n: draw(n)) for n in (3, 1, 2)]) == [9, 1, 4]
        assert made == [3, 1, 2]
        assert journal.has_drawn
        mixed = [("t2", never), ("t9", lambda: draw(9)), ("t3", never)]
        assert journal.draw_all(mixed) == [4, 81, 9]
    with opened(path) as journal:
        assert journal.has_drawn
        assert len(journal) == 4
        assert journal.has("t9")
        assert not journal.has("t4")
        assert journal.draw_all([(f"t{n}", never) for n in (9, 1)]) == [81, 1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_value_is_the_same_fresh_and_replayed(tmp_path):
    value = {"é\n": (1, 2.5e-300, -0.0, None, True, 2**70)}
    with opened(tmp_path / "j") as journal:
        (fresh,) = journal.draw_all([("x", lambda: value)])
    with opened(tmp_path / "j") as journal:
        (again,) = journal.draw_all([("x", never)])
    assert repr(fresh) == repr(again) == repr(json.loads(json.dumps(value)))


def test_a_second_holder_is_refused_until_the_first_closes(tmp_path):
    with opened(tmp_path / "j"):
        with pytest.raises(LeaseHeld) as caught:
            opened(tmp_path / "j")
        assert caught.value.retryable
    opened(tmp_path / "j").close()


def test_another_header_is_refused_by_the_names_of_its_fields(tmp_path):
    opened(tmp_path / "j").close()
    with pytest.raises(VerificationError, match="part, plan differ"):
        Journal.open(tmp_path / "j", {"release": "r1", "part": "shard-1", "plan": 1})
    Journal.open(tmp_path / "j", dict(reversed(HEADER.items()))).close()


def filled(path):
    with opened(path) as journal:
        journal.draw_all([(f"t{n}", lambda n=n: n) for n in range(4)])
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_dropped_and_drawn_again(tmp_path, cut):
    path = tmp_path / "j"
    lines = filled(path)
    path.write_bytes(b"".join(lines)[:-cut])
    with opened(path) as journal:
        assert len(journal) == 3
        assert journal.draw_all([("t2", never), ("t3", lambda: 77)]) == [2, 77]
    with opened(path) as journal:
        assert journal.draw_all([("t3", never)]) == [77]


def test_a_torn_header_is_damage_since_none_is_ever_written_in_part(tmp_path):
    path = tmp_path / "j"
    lines = filled(path)
    for n in range(len(lines[0])):
        path.write_bytes(lines[0][:n])
        for use in (Journal.create, Journal.open):
            with pytest.raises(VerificationError, match="damaged at line 1"):
                use(path, HEADER)
        assert path.stat().st_size == n


@pytest.mark.parametrize("number", range(5))
def test_every_flipped_bit_of_a_whole_line_is_found(tmp_path, number):
    path = tmp_path / "j"
    lines = filled(path)
    for place in range(len(lines[number]) - 1):
        damaged = bytearray(lines[number])
        damaged[place] ^= 1
        path.write_bytes(b"".join([*lines[:number], bytes(damaged), *lines[number + 1 :]]))
        with pytest.raises(VerificationError, match="damaged"):
            Journal.open(path, HEADER)


@pytest.mark.parametrize("order", [(0, 2, 3, 4), (0, 1, 3, 2, 4), (0, 1, 1, 2, 3, 4), (1, 2)])
def test_a_missing_moved_or_repeated_line_is_found(tmp_path, order):
    path = tmp_path / "j"
    lines = filled(path)
    path.write_bytes(b"".join(lines[n] for n in order))
    with pytest.raises(VerificationError):
        opened(path)


def test_a_draw_that_raises_ends_the_drawing(tmp_path):
    with opened(tmp_path / "j") as journal:
        with pytest.raises(ZeroDivisionError):
            journal.draw_all([("a", lambda: 1), ("b", lambda: 1 // 0)])
        assert journal.has_drawn
        with pytest.raises(ReleaseLost):
            journal.draw_all([("b", lambda: 2)])
        assert journal.draw_all([("a", never)]) == [1]


@pytest.mark.parametrize("value", [float("nan"), object(), b"x"])
def test_a_draw_json_cannot_hold_counts_as_drawn(tmp_path, value):
    with opened(tmp_path / "j") as journal:
        with pytest.raises((ValueError, TypeError)):
            journal.draw_all([("a", lambda: value)])
        assert journal.has_drawn
        assert not journal.has("a")


def test_a_key_twice_is_refused_before_anything_is_drawn(tmp_path):
    with opened(tmp_path / "j") as journal:
        with pytest.raises(ValueError, match="twice"):
            journal.draw_all([("a", never), ("a", never)])
        assert not journal.has_drawn


def until_full(path, value, limit, full_disk):
    """Draws made, and draws on file, of a journal that may grow to so many bytes."""
    made = []
    with opened(path) as journal:
        items = [(f"t{n}", lambda n=n: made.append(n) or value) for n in range(99)]
        with pytest.raises(StorageError, match="cannot write"), full_disk(limit):
            journal.draw_all(items)
        with pytest.raises(StorageError):
            journal.draw_all(items)
        assert journal.has_drawn is bool(made)
    with opened(path) as journal:
        on_file = len(journal)
        assert journal.draw_all([(f"t{n}", never) for n in range(on_file)]) == [value] * on_file
        assert journal.draw_all([("more", lambda: 1)]) == [1]
    path.unlink()
    return len(made), on_file


def test_a_full_disk_is_noticed_before_the_draw(tmp_path, full_disk):
    for limit in range(200, 400, 7):
        made, on_file = until_full(tmp_path / "j", 50_000, limit, full_disk)
        assert made == on_file < 99


def test_what_a_full_disk_does_does_not_depend_on_the_draws(tmp_path, full_disk):
    for limit in range(200, 300, 7):
        values = (7, -(2**63), 10**18)
        assert len({until_full(tmp_path / "j", value, limit, full_disk) for value in values}) == 1


def test_lines_are_as_long_as_their_keys_make_them(tmp_path):
    values = [0, -1, 2**63, -1.7976931348623157e308, True, None, "x" * 30]
    with opened(tmp_path / "j") as journal:
        journal.draw_all([(f"t{n}", lambda v=v: v) for n, v in enumerate(values)])
    lines = (tmp_path / "j").read_bytes().splitlines()[1:]
    assert len({len(line) for line in lines}) == 1
    assert [json.loads(line[9:])["v"] for line in lines] == values


def test_a_value_with_a_longer_line_is_kept_or_lost_alone(tmp_path, full_disk):
    for limit in range(200, 400, 7):
        made, on_file = until_full(tmp_path / "j", "x" * 60, limit, full_disk)
        assert on_file <= made <= on_file + 1


def test_places_that_cannot_hold_a_journal(tmp_path):
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    for place in ("none/j", "link", "dangling", "folder"):
        with pytest.raises(StorageError):
            Journal.create(tmp_path / place, HEADER)
    for place in ("link", "dangling", "folder"):
        with pytest.raises(StorageError):
            Journal.open(tmp_path / place, HEADER)


def test_an_array_is_drawn_once_on_a_line_of_public_length(tmp_path):
    lengths = []
    for number, values in enumerate(([0, 0, 0], [-(2**63), 2**63 - 1, 7])):
        path = tmp_path / str(number)
        with opened(path) as journal:
            drawn = journal.draw_array("votes", lambda values=values: np.array(values), 3)
        with opened(path) as journal:
            again = journal.draw_array("votes", never, 3)
        assert drawn.tolist() == again.tolist() == values
        assert drawn.dtype == again.dtype == np.int64
        lengths.append(path.stat().st_size)
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("wrong", [np.zeros(2, np.int64), np.zeros(3), np.zeros((3, 1), np.int64)])
def test_an_array_of_another_shape_counts_as_drawn(tmp_path, wrong):
    with opened(tmp_path / "j") as journal:
        with pytest.raises(ValueError, match="int64"):
            journal.draw_array("votes", lambda: wrong, 3)
        assert journal.has_drawn
        with pytest.raises(ReleaseLost):
            journal.draw_array("votes", lambda: np.zeros(3, np.int64), 3)


def test_what_is_kept_is_made_once_and_read_back(tmp_path):
    for attempt in range(2):
        made = []

        def make(made=made):
            made.append(b"population")
            return made[-1]

        with opened(tmp_path / "j") as journal:
            assert journal.public_file("round/0", make) == b"population"
            assert journal.public_file("round/0", make) == b"population"
            assert journal.has_drawn == bool(attempt)  # what is public counts as no draw
            assert journal.draw_all([("round/0", lambda: 7)]) == [7]  # another name space
            assert journal.has_drawn
    assert made == []
    [file] = (tmp_path / "j.kept").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_bytes(b"another")])
def test_what_was_kept_and_is_gone_or_changed_is_lost(tmp_path, change):
    with opened(tmp_path / "j") as journal:
        journal.public_file("round/0", lambda: b"population")
        change(next((tmp_path / "j.kept").iterdir()))
        with pytest.raises(ReleaseLost, match="gone, dropped or changed"):
            journal.public_file("round/0", lambda: b"population")


def test_a_drawn_file_is_drawn_once_and_read_back(tmp_path):
    path = tmp_path / "j"
    with opened(path) as journal:
        assert journal.public_file("step/1", lambda: b"public") == b"public"
        assert not journal.has_drawn
        assert journal.draw_file("step/1", lambda: b"weights") == b"weights"  # another name space
        assert journal.has_drawn
        assert journal.draw_file("step/1", never) == b"weights"
    with opened(path) as journal:
        assert journal.has_drawn
        assert journal.has("step/1")
        assert journal.draw_file("step/1", never) == b"weights"
        assert journal.public_file("step/1", never) == b"public"
    files = list((tmp_path / "j.kept").iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    assert b"weights" not in path.read_bytes()


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_bytes(b"another")])
def test_a_drawn_file_that_is_gone_or_changed_is_never_drawn_again(tmp_path, change):
    with opened(tmp_path / "j") as journal:
        journal.draw_file("step/1", lambda: b"weights")
        change(next((tmp_path / "j.kept").iterdir()))
    with opened(tmp_path / "j") as journal:
        with pytest.raises(ReleaseLost, match="gone, dropped or changed"):
            journal.draw_file("step/1", never)
        assert journal.draw_all([("other", lambda: 1)]) == [1]


def test_a_dropped_file_frees_its_room_and_stays_drawn(tmp_path):
    path = tmp_path / "j"
    with opened(path) as journal:
        journal.draw_file("step/1", lambda: b"early")
        journal.draw_file("step/2", lambda: b"late")
        journal.drop_file("step/1")
        with pytest.raises(ValueError, match="step/3: no such draw"):
            journal.drop_file("step/3")
    assert [file.read_bytes() for file in (tmp_path / "j.kept").iterdir()] == [b"late"]
    with opened(path) as journal:
        journal.drop_file("step/1")
        assert journal.has("step/1")
        with pytest.raises(ReleaseLost, match="dropped"):
            journal.draw_file("step/1", never)
        assert journal.draw_file("step/2", never) == b"late"


def test_a_drawn_file_that_raises_ends_the_drawing(tmp_path):
    with opened(tmp_path / "j") as journal:
        with pytest.raises(ZeroDivisionError):
            journal.draw_file("step/1", lambda: b"x" * (1 // 0))
        assert journal.has_drawn
        with pytest.raises(ReleaseLost):
            journal.draw_file("step/1", never)
    with opened(tmp_path / "j") as journal:
        assert not journal.has("step/1")


def test_a_full_disk_under_a_drawn_file_leaves_it_to_be_drawn_again(tmp_path, full_disk):
    with opened(tmp_path / "j") as journal:
        with pytest.raises(StorageError, match="cannot write"), full_disk(5000):
            journal.draw_file("step/1", lambda: b"x" * 6000)
        assert journal.has_drawn
    assert list((tmp_path / "j.kept").iterdir()) == []
    with opened(tmp_path / "j") as journal:
        assert journal.draw_file("step/1", lambda: b"y" * 6000) == b"y" * 6000


def test_what_a_killed_process_wrote_is_durable_before_it_is_replayed(tmp_path, monkeypatch):
    path, synced, real = tmp_path / "j", [], os.fsync
    with opened(path) as journal:
        journal.draw_all([("a", lambda: 1)])
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd)))
    with Journal.open(path, HEADER):
        assert path.stat().st_ino in synced
