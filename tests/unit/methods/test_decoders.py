"""What holds of both methods that decode from logits: replay, and one bucket at a time."""

from collections import defaultdict

import pytest

from privsyn.data.records import Bucket, Private
from tests.fakes import FakeLogitModel
from tests.noise import NeverDraws, NoNoise, SeededNoise
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
