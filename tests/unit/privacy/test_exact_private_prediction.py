"""The exact privacy of private prediction on a tiny vocabulary."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest

from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.clipping import LATTICE
from privsyn.methods.base import PricingFacts
from privsyn.methods.private_prediction import method as private_prediction
from privsyn.methods.private_prediction.method import PrivatePrediction
from privsyn.methods.private_prediction.settings import PrivatePredictionSettings
from privsyn.methods.shared.prompts import Prompt
from privsyn.models.settings import PerformanceConfig
from tests.fakes import FakeLogitModel, drawing
from tests.noise import NullJournal, SeededNoise
from tests.unit.privacy.exact import PUBLIC, PULLS, Walk, distribution, excess

TARGET = Guarantee(50.0, 1e-5)
RECORD = PrivacyUnit()
WIDTH = 8
"""Thresholds lie within so many scales: less than 4e-4 of the mass is beyond."""


def script(label, reference, tokens):
    pull = PULLS[reference] if reference else (0.0, 0.0, 0.0)
    return [p + d for p, d in zip(PUBLIC, pull, strict=True)]


class Watched(NullJournal):
    """Sees what a run gives away: all drawn tokens, also those of a text that is not finished."""

    def __init__(self):
        self.tokens: list[tuple[str, int]] = []

    def draw_all(self, items):
        values = super().draw_all(items)
        named = [(key, value) for (key, _), value in zip(items, values, strict=True)]
        self.tokens += [pair for pair in named if "threshold" not in pair[0]]
        return values


class SparseWalk(Walk):
    """A walk that also takes thresholds from a grid and answers comparisons either way.

    Thresholds stand on multiples of one sensitivity, so the noise on them keeps its guarantee;
    given a threshold, the probability that a noisy query reaches it is exact.
    """

    def __init__(self, path, scale):
        super().__init__(path)
        self._scale, self._threshold = scale, 0
        steps = np.arange(-WIDTH, WIDTH + 1)
        self._offsets = np.rint(steps * scale).astype(np.int64)
        mass = np.exp(-np.abs(steps))
        self._mass = mass / mass.sum()

    def laplace(self, values, scale):
        step = len(self.widths)
        choice = self._path[step] if step < len(self._path) else 0
        if scale == self._scale:
            self._threshold = int(values[0] + self._offsets[choice])
            self.log_probability += math.log(self._mass[choice])
            self.widths.append(len(self._offsets))
            return np.array([self._threshold])
        gap = (self._threshold - int(values[0])) / scale
        reaches = 0.5 * math.exp(-gap) if gap > 0 else 1 - 0.5 * math.exp(gap)
        self.log_probability += math.log(max(reaches if choice else 1 - reaches, 1e-300))
        self.widths.append(2)
        return np.array([self._threshold if choice else self._threshold - 1])


def config(**settings):
    defaults = {
        "batch_size": 2, "buckets_per_label": 1, "clip_bound": 1.0, "temperature": 1.0,
        "private_tokens": 1, "svt_threshold": 0.5, "max_tokens": 2, "max_texts": 1,
        "svt_noise": 0.5,  # one sensitivity at s = 2
        "whole_sentences": False, "prompt": Prompt(private="{reference}", public=""),
    }  # fmt: skip
    return PrivatePredictionSettings(**(defaults | settings))


def worst(pairs, cfg, adjacency, unit=RECORD):
    method = PrivatePrediction()
    plan = method.calibrate(cfg, TARGET, PricingFacts(adjacency, unit, ()))
    rho = plan.derived["private_tokens"] * (
        plan.derived["rho_per_token"] + plan.derived["rho_per_comparison"]
    )
    above = plan.above
    model = FakeLogitModel(("<end>", "a", "b"), script=script)

    @cache
    def law(cells):
        buckets = [
            Bucket(Cell(i, None, i), Private(list(references)))
            for i, references in enumerate(cells)
        ]

        def output(walk):
            seen = Watched()
            list(method.run(cfg, plan, buckets, drawing({"language": model}, walk, seen)))
            return tuple(seen.tokens)

        if above is None:
            return distribution(output)
        return distribution(output, lambda path: SparseWalk(path, float(above.scale)))

    return max(excess(law(one), law(other), rho) for one, other in pairs)


def one_more(sizes, extras=tuple(PULLS)):
    for size in sizes:
        for extra in extras:
            for base in ("up", "mild"):
                yield ((base,) * size,), ((base,) * size + (extra,),)


def test_without_comparisons_one_record_stays_within_rho():
    """Bucket sizes 0 to 2s and one more, every kind of reference."""
    cfg = config(svt_threshold=None, private_tokens=3, max_tokens=3)
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_NULL):
        assert worst(one_more(range(5)), cfg, adjacency) <= 1 + 1e-9


def test_without_comparisons_the_bound_is_nearly_reached():
    cfg = config(svt_threshold=None, max_tokens=1)
    assert worst(one_more(range(5)), cfg, Adjacency.ADD_REMOVE) > 0.15


def test_with_comparisons_one_record_stays_within_rho():
    pairs = [((("up",) * n,), (("up",) * n + (extra,),)) for n in (0, 3) for extra in PULLS]
    assert worst(pairs, config(), Adjacency.ADD_REMOVE) <= 1 + 1e-3
    large = config(batch_size=50, temperature=50.0, svt_noise=0.2, svt_threshold=1.0, max_tokens=1)
    pairs = [((("mild",) * 3,), (("mild",) * 3 + (extra,),)) for extra in ("up", "down")]
    assert worst(pairs, large, Adjacency.ADD_REMOVE) <= 1 + 1e-3


def test_two_private_tokens_are_two_rounds():
    cfg = config(private_tokens=2, max_tokens=2)
    assert worst([((("up",),), (("up", "down"),))], cfg, Adjacency.ADD_REMOVE) <= 1 + 1e-3


def test_one_record_replaced_stays_within_rho_even_when_its_label_moves():
    cfg = config(svt_threshold=None, private_tokens=2)
    same_cell = [(((a,),), ((b,),)) for a, b in product(PULLS, PULLS)]
    label_moves = [((("up",), ()), ((), (b,))) for b in PULLS]
    assert worst(same_cell, cfg, Adjacency.REPLACE_ONE) <= 1 + 1e-9
    assert worst(label_moves, cfg, Adjacency.REPLACE_ONE) <= 1 + 1e-9
    # Thresholds stand on multiples of the sensitivity, which is twice as large here.
    pairs = [((("up",),), (("down",),)), ((("mild",),), (("up",),))]
    assert worst(pairs, config(), Adjacency.REPLACE_ONE) <= 1 + 1e-3


@pytest.mark.parametrize("spread", [(3,), (2, 1), (1, 1, 1)])
def test_a_unit_with_three_records_over_cells_stays_within_rho(spread):
    cfg = config(svt_threshold=None)
    empty = tuple(() for _ in spread)
    unit = PrivacyUnit("user", 3)
    for kind in ("up", "down", "inf"):
        full = tuple((kind,) * count for count in spread)
        assert worst([(empty, full)], cfg, Adjacency.ADD_REMOVE, unit) <= 1 + 1e-9


def test_no_number_of_references_makes_the_sum_wrap():
    """At the largest clip bound 2^20 references reach 2^64 lattice steps: one more moves by c."""
    cfg = config(clip_bound=1e6, svt_threshold=None)

    class Session:
        """As many equal rows as there are references."""

        def __init__(self, rows):
            self._rows = np.broadcast_to(np.array([-3e6, 3e6], np.float32), (rows, 2))

        def logits(self, rows=slice(None), columns=None):
            return self._rows[rows]

    class Model:
        eos, ends = 0, (0,)

        def public_rows(self, template, labels, max_tokens):
            return Session(1)

        def private_rows(self, template, labels, references, *lengths, declared):
            return Session(len(references))

    def scores(references):
        bucket = Bucket(Cell(0, None, 0), Private(["x"] * references))
        prompt = PrivatePrediction().prompt(cfg)
        batch = private_prediction._Batch(cfg, prompt, Model(), bucket, 4096, [None], {None})
        return batch.predict(0, []).scores

    for references in (2**17, 2**19 + 50_000, 2**20):
        before, after = scores(references).tolist(), scores(references + 1).tolist()
        moved = [abs(one - other) for one, other in zip(before, after, strict=True)]
        assert max(moved) <= 10**6 * LATTICE
        assert before[0] < 0 < before[1]


def test_a_public_token_is_never_one_that_is_masked():
    masked = float(np.finfo(np.float32).min)
    model = FakeLogitModel(
        ("<end>", "a", "b", "c"), script=lambda *row: (float("nan"), masked, -50.0, -1e12)
    )
    cfg = config(svt_threshold=2.0, max_tokens=1)
    bucket = Bucket(Cell(0, None, 0), Private([]))
    batch = private_prediction._Batch(
        cfg,
        PrivatePrediction().prompt(cfg),
        model,
        bucket,
        PerformanceConfig().rows_per_pass,
        [None],
        {None},
    )
    mechanism = PrivatePrediction().calibrate(
        cfg, TARGET, PricingFacts(Adjacency.ADD_REMOVE, RECORD)
    )
    drawn = private_prediction._draw(
        cfg, mechanism, 2**40, 2, batch, 0, [], SeededNoise(1)
    )  # a threshold out of reach: public
    assert drawn == ~2


class Audit(SeededNoise):
    """Counts what a run asks for, bucket by bucket, against what was charged: r rounds, r draws.

    Exact divergences do not tell one round more from one less: a round that is charged 2 eps^2
    rarely loses as much. What must hold is the count.
    """

    def __init__(self, scale, r):
        super().__init__(3)
        self._scale, self._r = scale, r
        self.rounds = self.above = 0
        self._open = False
        self._threshold = 0

    def laplace(self, values, scale):
        drawn = super().laplace(values, scale)
        if scale == self._scale:
            assert not self._open, "a threshold was drawn anew within its round"
            self.rounds, self._open, self._threshold = self.rounds + 1, True, int(drawn[0])
        else:
            assert self._open, "a comparison without a threshold of its own"
            self._open = bool(drawn[0] < self._threshold)
            self.above += not self._open
        assert self.rounds <= self._r, "more rounds than were charged"
        return drawn


def audited(cfg):
    method = PrivatePrediction()
    plan = method.calibrate(cfg, TARGET, PricingFacts(Adjacency.ADD_REMOVE, RECORD, ()))
    audit = Audit(float(plan.above.scale), int(plan.derived["private_tokens"]))
    model = FakeLogitModel(("<end>", "a", "b"), script=script)
    bucket = Bucket(Cell(0, None, 0), Private(["mild", "up"]))
    samples = method.run(cfg, plan, [bucket], drawing({"language": model}, audit, NullJournal()))
    list(samples)
    return audit


LONG = {"private_tokens": 6, "max_texts": 50, "max_tokens": 4, "svt_threshold": 0.6}


def test_a_run_asks_for_the_rounds_it_was_charged():
    audit = audited(config(**LONG))
    assert audit.rounds == audit.above == 6
