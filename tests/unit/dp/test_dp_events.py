"""Events: what they refuse, and that a stored event comes back as itself."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.dp.events import (
    MAX_DEPTH,
    ZCDP,
    Composed,
    DiscreteGaussian,
    Disjoint,
    Gaussian,
    Pure,
    SampledGaussian,
    dump,
    from_json,
    leaves,
    load,
    to_json,
)

costs = st.floats(0, 1e6)
noises = st.floats(1e-6, 1e9)
counts = st.integers(1, 10**9)
additive = st.one_of(
    st.builds(Pure, costs),
    st.builds(ZCDP, costs, counts),
    st.builds(Gaussian, noises, counts),
    st.builds(DiscreteGaussian, noises, counts),
)


def nest(children):
    parts = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(Composed, parts), st.builds(Disjoint, parts, st.integers(3, 99)))


additive_events = st.recursive(additive, nest, max_leaves=6)
any_events = st.one_of(
    additive_events,
    st.builds(SampledGaussian, st.floats(0, 1), noises, counts),
    st.builds(lambda a, b: Composed((a, b)), additive_events, additive_events),
)


@given(any_events)
@settings(deadline=None)
def test_an_event_survives_its_json_text(event):
    stored = json.loads(json.dumps(dump(event), allow_nan=False))
    assert load(stored) == event
    assert dump(load(stored)) == stored


def test_json_form_is_fixed():
    event = Composed((ZCDP(0.5, 3), Disjoint((Pure(1), Gaussian(2)), cells=8)))
    assert dump(event) == {
        "version": 1,
        "kind": "sequence",
        "events": [
            {"kind": "zcdp", "rho": 0.5, "count": 3},
            {
                "kind": "disjoint",
                "events": [
                    {"kind": "pure", "epsilon": 1.0},
                    {"kind": "gaussian", "noise_multiplier": 2.0, "count": 1},
                ],
                "cells": 8,
            },
        ],
    }
    assert to_json(DiscreteGaussian(1.5, 2)) == {
        "kind": "discrete_gaussian",
        "noise_multiplier": 1.5,
        "count": 2,
    }
    assert to_json(SampledGaussian(0.25, 1, 7)) == {
        "kind": "sampled_gaussian",
        "rate": 0.25,
        "noise_multiplier": 1.0,
        "steps": 7,
    }


def test_equal_numbers_are_equal_text():
    assert json.dumps(dump(ZCDP(1))) == json.dumps(dump(ZCDP(1.0)))
    assert math.copysign(1, Pure(-0.0).epsilon) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e-300, True, "1", None, 10**400])
def test_losses_must_be_finite_and_not_negative(bad):
    with pytest.raises(ValueError, match="epsilon="):
        Pure(bad)
    with pytest.raises(ValueError, match="rho="):
        ZCDP(bad)


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("kind", [Gaussian, DiscreteGaussian, lambda s: SampledGaussian(0.1, s, 1)])
def test_noise_must_be_positive(kind, bad):
    with pytest.raises(ValueError, match="noise_multiplier="):
        kind(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "1"])
def test_counts_are_whole_and_positive(bad):
    for make in (
        lambda n: ZCDP(0.1, n),
        lambda n: Gaussian(1, n),
        lambda n: DiscreteGaussian(1, n),
        lambda n: SampledGaussian(0.1, 1, n),
        lambda n: Disjoint((Pure(1),), n),
    ):
        with pytest.raises(ValueError, match="whole number"):
            make(bad)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_rate_is_a_probability(bad):
    with pytest.raises(ValueError, match="rate="):
        SampledGaussian(bad, 1, 1)


def test_a_sampled_gaussian_is_refused_inside_disjoint_parts_at_any_depth():
    hidden = Composed((Pure(1), Composed((SampledGaussian(0.1, 1, 1),))))
    with pytest.raises(ValueError, match="sampled Gaussian"):
        Disjoint((ZCDP(1), hidden), cells=4)


def test_composites_hold_a_tuple_of_events():
    for bad in ((), [Pure(1)], None):
        with pytest.raises(ValueError, match="tuple of at least one event"):
            Composed(bad)
    with pytest.raises(TypeError, match="str is not an event"):
        Composed(("pure",))
    with pytest.raises(ValueError, match="less than the 2 events"):
        Disjoint((Pure(1), Pure(2)), cells=1)


def test_leaves_are_the_events_without_children():
    event = Composed((Pure(1), Disjoint((ZCDP(2), Composed((Gaussian(3),))), 2)))
    assert list(leaves(event)) == [Pure(1), ZCDP(2), Gaussian(3)]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"version": 2, "kind": "pure", "epsilon": 1.0}, "version 2"),
        ({"version": True, "kind": "pure", "epsilon": 1.0}, "version True"),
        ({"kind": "pure", "epsilon": 1.0}, "version None"),
        ({"version": 1, "kind": "prue", "epsilon": 1.0}, "'prue' is not one of pure, zcdp"),
        ({"version": 1, "kind": ["pure"], "epsilon": 1.0}, "is not one of"),
        ({"version": 1, "epsilon": 1.0}, "None is not one of"),
        ({"version": 1, "kind": "pure"}, "unknown field: epsilon"),
        ({"version": 1, "kind": "zcdp", "rho": 1.0}, "unknown field: count"),
        ({"version": 1, "kind": "pure", "epsilon": 1.0, "delta": 0}, "unknown field: delta"),
        ({"version": 1, "kind": "pure", "epsilon": "1"}, "epsilon='1'"),
        ({"version": 1, "kind": "pure", "epsilon": -1.0}, "at least 0"),
        ({"version": 1, "kind": "sequence", "events": {}}, "must be a list"),
        ({"version": 1, "kind": "sequence", "events": []}, "at least one"),
        ({"version": 1, "kind": "sequence", "events": ["pure"]}, "must be an object"),
        ([], "must be an object"),
        (None, "must be an object"),
    ],
)
def test_anything_else_is_refused(value, complaint):
    with pytest.raises(ValueError, match=complaint):
        load(value)


def test_deep_nesting_is_refused_not_recursed():
    value = {"kind": "pure", "epsilon": 1.0}
    for _ in range(MAX_DEPTH + 1):
        value = {"kind": "sequence", "events": [value]}
    with pytest.raises(ValueError, match="nested more than"):
        from_json(value)


def test_only_events_are_written():
    class Cheaper(Pure):
        """A subclass could mean anything."""

    for bad in (Cheaper(1), "pure", None):
        with pytest.raises(TypeError, match="is not an event"):
            to_json(bad)
