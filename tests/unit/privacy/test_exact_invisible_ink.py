"""The exact privacy of InvisibleInk on a tiny vocabulary."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from privsyn.data.records import Bucket, Cell, Private
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.methods.base import PricingFacts
from privsyn.methods.invisible_ink.method import InvisibleInk
from privsyn.methods.invisible_ink.settings import InvisibleInkSettings
from privsyn.methods.shared.prompts import Prompt
from tests.fakes import FakeLogitModel, drawing
from tests.noise import NullJournal
from tests.unit.privacy.exact import PUBLIC, PULLS, distribution, excess

TARGET = Guarantee(4.0, 1e-5)
RECORD = PrivacyUnit()
VOCABULARY = ("<end>", "a", "b")


def script(label, reference, tokens):
    drift = 0.1 * len(tokens)
    pull = PULLS[reference] if reference else (0.0, 0.0, 0.0)
    return [p + d + drift * (i == 1) for i, (p, d) in enumerate(zip(PUBLIC, pull, strict=True))]


def config(**settings):
    defaults = {
        "batch_size": 2, "max_tokens": 2, "temperature": 1.0, "top_k": 3, "guidance": 1.0,
        "texts_per_label": 1, "whole_sentences": False,
        "prompt": Prompt(private="{reference}", public=""),
    }  # fmt: skip
    return InvisibleInkSettings(**(defaults | settings))


def planned(cfg, adjacency, unit=RECORD, target=TARGET):
    return InvisibleInk().calibrate(cfg, target, PricingFacts(adjacency, unit, ()))


def law(cells, cfg, plan, model):
    buckets = [
        Bucket(Cell(i, None, i), Private(list(references))) for i, references in enumerate(cells)
    ]

    def output(walk):
        draw = drawing({"language": model}, walk, NullJournal())
        return tuple(sample.content for sample in InvisibleInk().run(cfg, plan, buckets, draw))

    return distribution(output)


def worst(pairs, cfg, adjacency, unit=RECORD, model=None):
    """Largest excess over pairs of neighbors."""
    model = model or FakeLogitModel(VOCABULARY, script=script)
    plan = planned(cfg, adjacency, unit)
    rho = plan.derived["rho_per_token"] * cfg.max_tokens
    of = cache(lambda cells: law(cells, cfg, plan, model))
    return max(excess(of(one), of(other), rho) for one, other in pairs)


def one_more(most):
    """Buckets of every size up to ``most``, and the same with one reference more."""
    for size in range(most):
        for extra in PULLS:
            for base in ("up", "down", "mild"):
                yield ((base,) * size,), ((base,) * size + (extra,),)


def test_one_record_added_removed_or_nulled_stays_within_rho():
    """Bucket sizes 0 to 2B, every kind of reference."""
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_NULL):
        assert worst(one_more(4), config(), adjacency) <= 1 + 1e-9


def test_the_bound_is_nearly_reached():
    """A looser mechanism would pass any check: the worst pair must come close to the claim."""
    cfg = config(max_tokens=1)
    assert worst(one_more(4), cfg, Adjacency.ADD_REMOVE) > 0.7


def test_one_record_replaced_stays_within_rho_even_when_its_label_moves():
    same_cell = [(((a,),), ((b,),)) for a, b in product(PULLS, PULLS)]
    label_moves = [((("up",), ()), ((), (b,))) for b in PULLS]
    cfg = config(max_tokens=1)
    assert worst(same_cell, cfg, Adjacency.REPLACE_ONE) <= 1 + 1e-9
    assert worst(label_moves, cfg, Adjacency.REPLACE_ONE) <= 1 + 1e-9


@pytest.mark.parametrize("spread", [(3,), (2, 1), (1, 1, 1)])
def test_a_unit_with_three_records_over_cells_stays_within_rho(spread):
    cfg = config(max_tokens=1)
    unit = PrivacyUnit("user", max_records=3)
    for base in ("mild", "down"):
        without = tuple((base,) for _ in spread)
        for pull in PULLS:
            with_unit = tuple((base, *(pull,) * count) for count in spread)
            assert worst([(without, with_unit)], cfg, Adjacency.ADD_REMOVE, unit) <= 1 + 1e-9


def test_three_records_multiply_rho_by_nine_at_equal_noise():
    one, three = (planned(config(), Adjacency.ADD_REMOVE, PrivacyUnit("u", n)) for n in (1, 3))
    # The target fixes rho, so the clip bound falls by 3 where the noise stays.
    assert three.derived["clip_bound"] * 3 == pytest.approx(one.derived["clip_bound"], rel=1e-6)
    replaced = planned(config(), Adjacency.REPLACE_ONE)
    assert replaced.derived["clip_bound"] * 2 == pytest.approx(one.derived["clip_bound"], rel=1e-6)


def test_guidance_leaves_the_bound_as_it_is():
    assert worst(one_more(3), config(guidance=4.0), Adjacency.ADD_REMOVE) <= 1 + 1e-9


MASKS = (float(np.finfo(np.float32).min), -1e12, -1e9, -40_000.0, float("-inf"), float("nan"))


@pytest.mark.parametrize("batch_size", [7, 8])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_masked_tokens_stay_masked_whatever_number_stands_for_that(mask, batch_size):
    """Models mask with finfo.min or -1e12: B times that wraps, and one vote turns the sign."""

    def masked(label, reference, tokens):
        low = {"inf": float("-inf"), "up": 0.0, "nan": float("nan")}.get(reference or "", mask)
        pull = PULLS[reference] if reference == "mild" else (0.0, 0.0, 0.0)
        return [pull[0] + 1.0, pull[1], low, low]

    model = FakeLogitModel(("<end>", "a", "x", "y"), script=masked)
    cfg = config(max_tokens=1, top_k=4, batch_size=batch_size)
    pairs = [((base,), ((*base, extra),)) for base in ((), ("mild",)) for extra in PULLS]
    assert worst(pairs, cfg, Adjacency.ADD_REMOVE, model=model) <= 1 + 1e-9
    plan = planned(cfg, Adjacency.ADD_REMOVE)
    for references in ((), ("inf",), ("up",) * 9, ("nan",)):
        drawn = law((references,), cfg, plan, model)
        assert set(drawn) <= {("",), ("a",)}


def test_a_clip_bound_of_a_boundless_budget_is_held_to_what_fits():
    cfg = config(batch_size=1_000_000, temperature=100.0, max_tokens=1)
    plan = planned(cfg, Adjacency.ADD_REMOVE, target=Guarantee(500, 1e-5))
    assert plan.derived["clip_bound"] == 2**15
