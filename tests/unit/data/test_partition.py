"""The files of a partition: complete, private, bounded, and the same again."""

import hashlib
import json
import stat
from collections import Counter
from contextlib import nullcontext
from itertools import chain

import pytest

from privsyn.data import partition as module
from privsyn.data.partition import load_shard, partition, read_holdout
from privsyn.data.records import Bucket, Cell, Private
from privsyn.data.settings import DatasetConfig
from privsyn.errors import DataError, StorageError, VerificationError

KEY = bytes(range(32))
LABELS = ("a", "b")
CELLS = [Cell(i, LABELS[i % 2], i // 2) for i in range(10)]


def config(path, **settings):
    chosen = {"unit": "user", "label": "label", "labels": LABELS, "max_records_per_unit": 3}
    return DatasetConfig(name="d", path=path, **{**chosen, **settings})


def row(user, n):
    return {"user": user, "label": LABELS[(user + n) % 2], "text": f"{user}:{n}"}


def write_rows(path, rows):
    with path.open("a") as stream:
        stream.writelines(json.dumps(one) + "\n" for one in rows)
    return path


def write(path, n_users=40, n_records=5):
    rows = (row(user, n) for n in range(n_records) for user in range(n_users))
    return config(write_rows(path, rows))


def buckets(out, n_shards, cells=CELLS):
    found: dict[int, list[str]] = {}
    for shard in range(n_shards):
        for bucket in load_shard(out, shard, cells, n_shards):
            assert bucket.cell.index % n_shards == shard
            assert bucket.cell.index not in found
            found[bucket.cell.index] = bucket.contents.reveal()
    assert sorted(found) == sorted(cell.index for cell in cells)
    return found


def test_every_unit_is_in_one_cell_of_each_of_its_labels_with_at_most_m_records(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    partition(cfg, KEY, CELLS, tmp_path / "out", 3, seed="s")
    cells_of = {}
    for index, texts in buckets(tmp_path / "out", 3).items():
        for text in texts:
            user, n = text.split(":")
            assert CELLS[index].label == LABELS[(int(user) + int(n)) % 2]
            cells_of.setdefault(user, Counter())[index] += 1
    assert len(cells_of) == 40
    for cells in cells_of.values():
        assert sum(cells.values()) == 3
        labels = [CELLS[index].label for index in cells]
        assert len(labels) == len(set(labels))


def by_unit(out):
    """Unit hash and text of every row of each cell, in order, of a partition of one shard."""
    return {
        bucket.cell.index: list(zip(bucket.units.reveal(), bucket.contents.reveal(), strict=True))
        for bucket in load_shard(out, 0, CELLS, 1)
    }


def test_a_unit_has_the_same_hash_beside_each_of_its_texts_and_no_other_has_it(tmp_path):
    partition(write(tmp_path / "a.jsonl"), KEY, CELLS, tmp_path / "out", 1, seed="s")
    hashes = {}
    labels = {}
    for index, rows in by_unit(tmp_path / "out").items():
        for unit, text in rows:
            hashes.setdefault(text.split(":")[0], set()).add(unit)
            labels.setdefault(text.split(":")[0], set()).add(CELLS[index].label)
    assert any(len(seen) == 2 for seen in labels.values())
    assert {len(seen) for seen in hashes.values()} == {1}
    assert len(set.union(*hashes.values())) == len(hashes) == 40


def test_another_unit_changes_no_row_of_those_that_were_there(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    partition(cfg, KEY, CELLS, tmp_path / "1", 1, seed="s")
    write_rows(cfg.path, (row(99, n) for n in range(5)))
    partition(cfg, KEY, CELLS, tmp_path / "2", 1, seed="s")
    before, after = by_unit(tmp_path / "1"), by_unit(tmp_path / "2")
    added = [row for rows in after.values() for row in rows if row[1].startswith("99:")]
    assert len(added) == 3
    assert len({unit for unit, _ in added}) == 1
    assert {
        index: [row for row in rows if row not in added] for index, rows in after.items()
    } == before


def test_without_units_named_each_text_of_a_bucket_is_its_own():
    one, two = (Bucket(cell, Private(["x", "x"])) for cell in CELLS[:2])
    assert len({*one.units.reveal(), *two.units.reveal()}) == 4
    assert Bucket(CELLS[0], Private([])).units.reveal() == []
    with pytest.raises(ValueError, match="one unit per text"):
        Bucket(CELLS[0], Private(["x", "y"]), Private(["u"]))
    assert "'" not in repr(one).replace(repr(CELLS[0]), "")


def test_the_key_decides_cells_kept_records_and_their_order(tmp_path):
    """Nobody without it can tell who is held out, beside whom, or with which of their records."""
    cfg = write(tmp_path / "a.jsonl", n_users=30, n_records=12)
    one, other = KEY, bytes(range(1, 33))
    kept, order, cell = {}, {}, {}
    for key in (one, other):
        out = tmp_path / key.hex()
        partition(cfg, key, CELLS[:2], out, 1, seed="s")
        texts = buckets(out, 1, CELLS[:2])
        kept[key] = set(chain(*texts.values()))
        order[key] = {index: [t for t in own if t in kept[one]] for index, own in texts.items()}
        wide = tmp_path / f"{key.hex()}-wide"
        partition(cfg, key, CELLS, wide, 1, seed="s")
        found = buckets(wide, 1)
        cell[key] = {
            (text.partition(":")[0], CELLS[index].label): index
            for index, own in found.items()
            for text in own
        }
    assert len(kept[one]) == len(kept[other]) == 30 * 3
    assert kept[one] != kept[other]  # the order of keyed hashes, not of contents
    both = kept[one] & kept[other]
    for index in order[one]:
        first, second = ([t for t in order[key][index] if t in both] for key in (one, other))
        assert len(first) > 5
        assert first != second
    shared = cell[one].keys() & cell[other].keys()
    assert any(cell[one][who] != cell[other][who] for who in shared)


def test_the_layout_does_not_depend_on_shards_order_of_rows_or_order_of_cells(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    partition(cfg, KEY, CELLS, tmp_path / "1", 1, seed="s")
    wanted = buckets(tmp_path / "1", 1)
    lines = cfg.path.read_text().splitlines(keepends=True)
    cfg.path.write_text("".join(reversed(lines)))
    shuffled = list(reversed(CELLS))
    partition(cfg, KEY, shuffled, tmp_path / "2", 7, seed="s")
    assert buckets(tmp_path / "2", 7, shuffled) == wanted
    partition(cfg, bytes(32), CELLS, tmp_path / "3", 1, seed="s")
    assert buckets(tmp_path / "3", 1) != wanted


def test_without_labels_or_units(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "".join(f"t{n}\n" for n in range(300)))
    cells = [Cell(i, None, i) for i in range(3)]
    partition(DatasetConfig(name="d", path=path), KEY, cells, tmp_path / "out", 2, seed="s")
    found = buckets(tmp_path / "out", 2, cells)
    assert sorted(chain(*found.values())) == sorted(f"t{n}" for n in range(300))
    assert all(60 < len(texts) < 140 for texts in found.values())
    assert all(texts != sorted(texts) for texts in found.values())  # not the order of the file


def test_texts_come_back_as_they_were(tmp_path):
    texts = ["two\nlines", "\u2028\x85\x00", 'q"\\', "naïve \U0001f600", "x" * 1_000_000]
    path = write_rows(tmp_path / "a.jsonl", ({"text": text} for text in texts))
    cells = [Cell(0, None, 0)]
    partition(DatasetConfig(name="d", path=path), KEY, cells, tmp_path / "out", 1, seed="s")
    assert sorted(buckets(tmp_path / "out", 1, cells)[0]) == sorted(texts)


GOLDEN = {
    (0.0, 2, 3, "user"): "7e6ed8aa191f2f0532b82a5f139e75e9",
    (0.25, 3, 1, "user"): "90dd65767aa6ac61001fc3001682d408",
    (0.1, 1, 7, None): "900414fe7cfc5ffe39bf3847108f1dd8",
}


@pytest.mark.parametrize(("holdout", "most", "shards", "unit"), GOLDEN)
@pytest.mark.parametrize(("together", "merged"), [(1 << 26, 500), (100_000, 2), (10_000, 500)])
def test_the_bytes_of_a_partition_stay_what_they_were_in_any_memory(
    tmp_path, monkeypatch, holdout, most, shards, unit, together, merged
):
    """A release is resumed by another version of this package, and on another machine."""
    monkeypatch.setattr("privsyn.data.partition._SORTED_TOGETHER", together)
    monkeypatch.setattr("privsyn.data.partition._MERGED_TOGETHER", merged)
    monkeypatch.setattr("privsyn.data.partition._WRITTEN_TOGETHER", together)
    labels = ("a", "b", "sch\u00f6n")
    rows = (
        {"user": 7 if n % 10 == 0 else n % 1100, "label": labels[n % 3],
         "text": f'{n} "\u20ac\U0001f600\n\x7f\u2028'}
        for n in range(3000)
    )  # fmt: skip
    path = write_rows(tmp_path / "a.jsonl", rows)
    cfg = config(path, unit=unit, labels=labels, max_records_per_unit=most, holdout=holdout)
    partition(cfg, KEY, Cell.grid(labels, 5), tmp_path / "out", shards, seed="s")
    content = b"".join(file.read_bytes() for file in sorted((tmp_path / "out").iterdir()))
    assert hashlib.sha256(content).hexdigest()[:32] == GOLDEN[holdout, most, shards, unit]


def test_held_out_units_are_in_no_bucket_and_all_others_are(tmp_path):
    cfg = write(tmp_path / "a.jsonl", n_users=200).model_copy(
        update={"holdout": 0.25, "max_records_per_unit": 5}
    )
    partition(cfg, KEY, CELLS, tmp_path / "out", 2, seed="s")
    used = {t.split(":")[0] for texts in buckets(tmp_path / "out", 2).values() for t in texts}
    held = [private.reveal() for private in read_holdout(cfg, KEY)]
    held_units = {record.unit for record in held}
    assert used | held_units == {str(user) for user in range(200)}
    assert not used & held_units
    assert 30 < len(held_units) < 70
    assert len(held) == 5 * len(held_units)
    assert {record.unit for record in held} != {
        private.reveal().unit for private in read_holdout(cfg, bytes(32))
    }


def test_the_holdout_adds_the_test_file_and_may_be_empty(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    assert list(read_holdout(cfg, KEY)) == []
    test = write(tmp_path / "test.jsonl", n_users=3, n_records=1).path
    both = cfg.model_copy(update={"test_path": test})
    assert len(list(read_holdout(both, KEY))) == 3
    both = both.model_copy(update={"test_path": tmp_path / "missing.jsonl"})
    with pytest.raises(DataError, match="missing"):
        list(read_holdout(both, KEY))


# -- the folder --------------------------------------------------------------------------------


def test_only_the_owner_can_read_and_no_unit_is_written(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    out = tmp_path / "deep" / "out"
    partition(cfg, KEY, CELLS, out, 3, seed="s")
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    shards = [f"shard-0000{n}.jsonl" for n in range(3)]
    assert sorted(p.name for p in out.iterdir()) == ["complete.json", *shards]
    assert {stat.S_IMODE(p.stat().st_mode) for p in out.iterdir()} == {0o600}
    row = json.loads((out / "shard-00000.jsonl").read_text().splitlines()[0])
    assert set(row) == {"cell", "order", "unit", "text"}
    assert row["unit"] != row["text"].split(":")[0]
    assert len(row["unit"]) == 32
    assert KEY.hex() not in (out / "complete.json").read_text()


def test_a_finished_partition_is_kept_even_if_the_file_changes_or_goes(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    partition(cfg, KEY, CELLS, tmp_path / "out", 3, seed="s")
    wanted = buckets(tmp_path / "out", 3)
    cfg.path.unlink()
    partition(cfg, KEY, CELLS, tmp_path / "out", 3, seed="s")
    assert buckets(tmp_path / "out", 3) == wanted


@pytest.mark.parametrize(
    ("named", "key", "n_cells", "n_shards", "settings"),
    [
        ("shards", KEY, 10, 4, {}),
        ("cells", KEY, 8, 3, {}),
        ("key", bytes(32), 10, 3, {}),
        ("max_records_per_unit", KEY, 10, 3, {"max_records_per_unit": 4}),
        ("holdout", KEY, 10, 3, {"holdout": 0.5}),
        ("text", KEY, 10, 3, {"text": "user"}),
        ("unit", KEY, 10, 3, {"unit": "text"}),
        ("unit", KEY, 10, 3, {"unit": None, "max_records_per_unit": 3}),
        ("of label[.]", KEY, 10, 3, {"label": "user"}),
        ("of labels[.]", KEY, 10, 3, {"labels": ("a", "b", "c")}),
    ],
)
def test_a_finished_partition_is_not_remade_with_other_settings(
    tmp_path, named, key, n_cells, n_shards, settings
):
    cfg = write(tmp_path / "a.jsonl")
    partition(cfg, KEY, CELLS, tmp_path / "out", 3, seed="s")
    wanted = buckets(tmp_path / "out", 3)
    other = cfg.model_copy(update=settings)
    with pytest.raises(VerificationError, match=named):
        partition(other, key, CELLS[:n_cells], tmp_path / "out", n_shards, seed="s")
    assert buckets(tmp_path / "out", 3) == wanted
    same = {"path": tmp_path / "elsewhere.jsonl", "labels": ("b", "a")}
    partition(cfg.model_copy(update=same), KEY, CELLS, tmp_path / "out", 3, seed="s")
    if named in ("shards", "cells"):
        with pytest.raises(VerificationError, match=named):
            load_shard(tmp_path / "out", 0, CELLS[:n_cells], n_shards)


def test_a_partition_that_is_not_finished_is_not_loaded(tmp_path):
    with pytest.raises(DataError, match="not finished"):
        load_shard(tmp_path / "none", 0, CELLS, 3)
    partition(write(tmp_path / "a.jsonl"), KEY, CELLS, tmp_path / "out", 3, seed="s")
    (tmp_path / "out" / "shard-00001.jsonl").unlink()
    with pytest.raises(VerificationError, match=r"shard-00001\.jsonl is gone"):
        load_shard(tmp_path / "out", 1, CELLS, 3)
    (tmp_path / "out" / "complete.json").unlink()
    with pytest.raises(DataError, match="not finished"):
        load_shard(tmp_path / "out", 0, CELLS, 3)


def test_a_partition_of_an_older_format_is_refused(tmp_path):
    cfg, out = write(tmp_path / "a.jsonl"), tmp_path / "out"
    partition(cfg, KEY, CELLS, out, 3, seed="s")
    marker = json.loads((out / "complete.json").read_text())
    (out / "complete.json").write_text(json.dumps(marker | {"format": 1}))
    with pytest.raises(VerificationError, match="another value of format"):
        load_shard(out, 0, CELLS, 3)
    with pytest.raises(VerificationError, match="another value of format"):
        partition(cfg, KEY, CELLS, out, 3, seed="s")


@pytest.mark.parametrize(
    "damage",
    [b"{", b"\xff", b'{"cell": 1, "order": "0", "unit": "0", "text": "x"}\n', b"[]\n",
     b'{"cell": 0}'],
)  # fmt: skip
def test_a_damaged_shard_is_refused_without_showing_it(tmp_path, damage):
    partition(write(tmp_path / "a.jsonl"), KEY, CELLS, tmp_path / "out", 3, seed="s")
    with (tmp_path / "out" / "shard-00000.jsonl").open("ab") as stream:
        stream.write(damage)
    with pytest.raises(VerificationError, match="damaged") as caught:
        load_shard(tmp_path / "out", 0, CELLS, 3)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    (tmp_path / "out" / "complete.json").write_bytes(damage)
    with pytest.raises(VerificationError):
        load_shard(tmp_path / "out", 0, CELLS, 3)


def test_a_failure_leaves_nothing_of_its_own_and_nothing_else_touched(tmp_path, full_disk):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "journal-0").touch()
    out = scratch / "out"
    with pytest.raises(DataError, match="does not exist"):
        partition(config(tmp_path / "none.jsonl"), KEY, CELLS, out, 3, seed="s")
    cfg = write(tmp_path / "a.jsonl", n_users=2000)
    with pytest.raises(StorageError, match="cannot write"), full_disk(5000):
        partition(cfg, KEY, CELLS, out, 3, seed="s")
    with pytest.raises(StorageError, match="cannot write"), full_disk(60_000):
        partition(cfg, KEY, CELLS, out, 3, seed="s")
    assert [p.name for p in scratch.iterdir()] == ["journal-0"]
    out.mkdir()  # an empty folder is no partition
    partition(cfg, KEY, CELLS, out, 3, seed="s")
    assert sorted(p.name for p in scratch.iterdir()) == ["journal-0", "out"]


def test_a_folder_in_use_for_something_else_is_refused_and_left(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(VerificationError, match=r"complete\.json is gone"):
        partition(cfg, KEY, CELLS, tmp_path / "out", 3, seed="s")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        partition(cfg, KEY, CELLS, tmp_path / "file", 3, seed="s")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.jsonl", "file", "mine", "out"]


@pytest.mark.parametrize("lost", ["shard-00001.jsonl", "complete.json"])
def test_a_partition_that_lost_a_file_is_never_made_again(tmp_path, lost):
    cfg, out = write(tmp_path / "a.jsonl"), tmp_path / "out"
    partition(cfg, KEY, CELLS, out, 3, seed="s")
    kept = (out / lost).read_bytes()
    (out / lost).unlink()
    left = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    with pytest.raises(VerificationError, match=f"{lost} is gone"):
        partition(cfg, KEY, CELLS, out, 3, seed="s", before_finish=never)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == left
    (out / lost).write_bytes(kept)
    partition(cfg, KEY, CELLS, out, 3, seed="s", before_finish=never)


def never():
    raise AssertionError("not to be called")


def test_what_must_come_before_the_finish_does(tmp_path):
    cfg, out, seen = write(tmp_path / "a.jsonl"), tmp_path / "out", []

    def before_finish():
        (draft,) = tmp_path.glob(".out.*")
        seen.append(sorted(path.name for path in draft.iterdir()))
        assert stat.S_IMODE(draft.stat().st_mode) == 0o700
        with pytest.raises(DataError, match="not finished"):
            load_shard(out, 0, CELLS, 2)

    with pytest.raises(AssertionError, match="not to be called"):
        partition(cfg, KEY, CELLS, out, 2, seed="s", before_finish=never)
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]
    for _ in range(2):
        partition(cfg, KEY, CELLS, out, 2, seed="s", before_finish=before_finish)
    assert seen == [["shard-00000.jsonl", "shard-00001.jsonl"]]


@pytest.mark.parametrize("paused_in", ["_lines", "_write_shards", "_move", "before_finish"])
@pytest.mark.parametrize("fails", [False, True])
def test_an_attempt_paused_past_its_lease_touches_nothing_of_the_one_that_finished(
    tmp_path, monkeypatch, paused_in, fails
):
    """The paused one sees another input, so that whose files stay can be told."""
    cfg, out = write(tmp_path / "a.jsonl"), tmp_path / "out"
    stale = cfg.model_copy(update={"path": write(tmp_path / "b.jsonl", n_users=7).path})
    partition(cfg, KEY, CELLS, tmp_path / "wanted", 3, seed="s")
    calls = []

    def other():
        monkeypatch.undo()
        partition(cfg, KEY, CELLS, out, 3, seed="s", before_finish=lambda: calls.append("other"))
        if fails:
            raise StorageError("the paused one fails after the other finished")

    def before_finish():
        calls.append("paused")
        if paused_in == "before_finish":
            other()

    if paused_in != "before_finish":
        step = getattr(module, paused_in)

        def paused(*arguments):
            other()
            return step(*arguments)

        monkeypatch.setattr(module, paused_in, paused)
    with pytest.raises(StorageError, match="paused") if fails else nullcontext():
        partition(stale, KEY, CELLS, out, 3, seed="s", before_finish=before_finish)
    assert buckets(out, 3) == buckets(tmp_path / "wanted", 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl", "out", "wanted"]
    early = paused_in in ("_lines", "_write_shards")
    assert calls == (["other"] if early else ["paused", "other"])


def test_an_attempt_with_other_settings_does_not_pass_for_the_one_that_finished(
    tmp_path, monkeypatch
):
    cfg, out, move = write(tmp_path / "a.jsonl"), tmp_path / "out", module._move

    def overtaken(*arguments):
        monkeypatch.undo()
        partition(cfg, KEY, CELLS, out, 3, seed="s")
        move(*arguments)

    monkeypatch.setattr(module, "_move", overtaken)
    with pytest.raises(VerificationError, match="another value of shards"):
        partition(cfg, KEY, CELLS, out, 4, seed="s")
    assert [p.name for p in tmp_path.glob("*out*")] == ["out"]


def test_arguments_that_make_no_partition(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="key"):
        partition(cfg, b"short", CELLS, tmp_path / "out", 1, seed="s")
    with pytest.raises(ValueError, match="numbered"):
        partition(cfg, KEY, [Cell(0, "a", 1)], tmp_path / "out", 1, seed="s")
    with pytest.raises(ValueError, match="index"):
        partition(cfg, KEY, [Cell(0, "a", 0), Cell(0, "b", 0)], tmp_path / "out", 1, seed="s")
    with pytest.raises(ValueError, match="shards"):
        partition(cfg, KEY, CELLS, tmp_path / "out", 0, seed="s")
    with pytest.raises(ValueError, match="needs the seed"):
        partition(cfg, KEY, CELLS, tmp_path / "out", 1, seed="")
    with pytest.raises(ValueError, match="shard"):
        load_shard(tmp_path / "out", 3, CELLS, 3)
    assert not (tmp_path / "out").exists()


def test_a_unit_with_very_many_records_is_bounded_on_the_way(tmp_path, monkeypatch):
    cfg = write(tmp_path / "a.jsonl", n_users=2, n_records=500)
    partition(cfg, KEY, CELLS, tmp_path / "1", 1, seed="s")
    monkeypatch.setattr("privsyn.data.partition._SORTED_TOGETHER", 1000)
    partition(cfg, KEY, CELLS, tmp_path / "2", 1, seed="s")
    assert buckets(tmp_path / "1", 1) == buckets(tmp_path / "2", 1)


def test_labels_without_a_cell_are_left_out(tmp_path):
    cfg = write(tmp_path / "a.jsonl")
    cells = [Cell(4, "a", 0)]
    partition(cfg, KEY, cells, tmp_path / "out", 1, seed="s")
    (bucket,) = load_shard(tmp_path / "out", 0, cells, 1)
    assert 0 < len(bucket.contents.reveal()) <= 40 * 3


def test_more_shards_than_cells_empty_buckets_and_repeated_records(tmp_path):
    """Repeated records of a unit count like any other: of five three are used."""
    path = write_rows(tmp_path / "a.jsonl", [{"user": 1, "label": "a", "text": "x"}] * 5)
    partition(config(path), KEY, CELLS, tmp_path / "out", 20, seed="s")
    found = buckets(tmp_path / "out", 20)
    assert sorted(found.values()) == [[]] * 9 + [["x"] * 3]
    assert load_shard(tmp_path / "out", 15, CELLS, 20) == []
