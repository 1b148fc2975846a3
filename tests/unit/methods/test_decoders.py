"""What holds of both methods that decode from logits: replay, and one bucket at a time."""

from collections import defaultdict

import pytest

from privsyn.data.records import Bucket, Private
from tests.fakes import FakeLogitModel
from tests.noise import Constant, NeverDraws, NoNoise, SeededNoise
from tests.unit.methods import test_invisible_ink, test_private_prediction

pytestmark = pytest.mark.parametrize(
    "decoder", [test_invisible_ink, test_private_prediction], ids=["invisible", "prediction"]
)


def test_a_finished_journal_replays_without_a_draw_or_a_model_call(tmp_path, decoder):
    class Unread(FakeLogitModel):
        def private_rows(self, *args, **kwargs):
            raise AssertionError("read the references again")

    cfg = decoder.config()
    first = decoder.run(tmp_path, cfg, decoder.buckets(cfg), SeededNoise(1))
    again = decoder.run(tmp_path, cfg, decoder.buckets(cfg), NeverDraws(), model=Unread())
    assert again == first != []


def test_labels_without_records_are_declared_too(tmp_path, decoder):
    """The width of all rows follows from them: which labels have records must not decide it."""
    declared = []

    class Watched(FakeLogitModel):
        def private_rows(self, *args, **known):
            declared.append(known["declared"])
            return super().private_rows(*args, **known)

    cfg = decoder.config()
    data = [
        bucket if bucket.cell.label == "x" else Bucket(bucket.cell, Private([]))
        for bucket in decoder.buckets(cfg)
    ]
    decoder.run(tmp_path, cfg, data, SeededNoise(1), model=Watched())
    assert declared
    assert all(labels == {"x", "y"} for labels in declared)


MINE = "my bill"
CROWDS = {
    "one more": lambda own, is_mine: own + [MINE] * is_mine,
    "forty more": lambda own, is_mine: own + [MINE] * 40 * is_mine,
    "none": lambda own, is_mine: [],
    "one in each": lambda own, is_mine: [MINE],
    "many in each": lambda own, is_mine: [MINE] * 70,
}
"""What every bucket holds instead of its own, by whether it is that of one person."""


@pytest.mark.parametrize("crowd", CROWDS)
def test_progress_does_not_tell_how_many_records_a_bucket_holds(tmp_path, decoder, crowd):
    """Counts of progress reach logs: which texts are decoded together is public."""
    only, place, passes = {"svt_threshold": None}, 2, (64,)
    if decoder is test_invisible_ink:
        only, place, passes = {"batch_size": 1}, 5, (1, 8)
    cfg = decoder.config(**only)
    data = decoder.buckets(cfg)
    crowded = [
        Bucket(one.cell, Private(CROWDS[crowd](one.contents.reveal(), one.cell.index == place)))
        for one in data
    ]

    def heard(own, rows, name):
        told, noise = [], Constant(choice=1)
        tell = lambda *counts: told.append(counts)  # noqa: E731
        decoder.run(
            tmp_path, cfg, own, noise, name=name, rows_per_pass=rows, progress=tell, reading=tell
        )
        return told

    for rows in passes:
        told = heard(data, rows, f"as it is, {rows}")
        assert told == heard(crowded, rows, f"{crowd}, {rows}")
        assert len([counts for counts in told if len(counts) == 2]) > 2


@pytest.mark.parametrize("change", ["nulled", "doubled", "added", "a hundred times longer"])
def test_one_changed_record_changes_one_bucket_at_most(tmp_path, decoder, change):
    cfg = decoder.config(guidance=3.0) if decoder is test_invisible_ink else decoder.config()
    before = decoder.buckets(cfg)
    place = 5 if decoder is test_invisible_ink else 2
    texts = list(before[place].contents.reveal())
    changed = {
        "nulled": texts[1:],
        "doubled": [texts[0], *texts],
        "added": [*texts, "please please help"],
        "a hundred times longer": [" ".join([texts[0]] * 100), *texts[1:]],
    }[change]
    after = [*before[:place], Bucket(before[place].cell, Private(changed)), *before[place + 1 :]]

    def by_cell(data, name):
        found = defaultdict(list)
        for sample in decoder.run(tmp_path, cfg, data, NoNoise(), name=name):
            found[sample.cell.index].append(sample)
        return found

    one, two = by_cell(before, "one"), by_cell(after, "two")
    assert {cell for cell in range(len(before)) if one[cell] != two[cell]} <= {place}
