"""What stands beside a generator is solved for together with it."""

import pytest

from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.event_tree import is_amplified
from privsyn.dp.events import Composed, DiscreteGaussian, Pure, SampledGaussian
from privsyn.methods.base import PricingFacts
from privsyn.methods.registry import load_method
from tests.unit.methods.test_presets import settings

OPEN = {
    "invisible_ink": {"max_tokens": 48, "texts_per_label": 20, "batch_size": 8},
    "private_prediction": {"svt_threshold": "null", "temperature": "null", "max_tokens": 16},
    "private_evolution": {"noise_multiplier": "null"},
    "keyphrase_seeding": {"noise": "gaussian"},
    "dp_lora": {"noise_multiplier": "null"},
}
"""Settings with which a continuous parameter is solved for."""
NULL, ONE = Adjacency.REPLACE_NULL, Adjacency.REPLACE_ONE
TABLE, ACCURACY = DiscreteGaussian(5.0), Pure(0.5)


@pytest.mark.parametrize(("before", "after"), [((), (ACCURACY,)), ((TABLE,), (ACCURACY,))])
@pytest.mark.parametrize(
    ("name", "adjacency", "secret"),
    [
        (name, adjacency, secret)
        for name in OPEN
        for adjacency in ((NULL,) if name == "dp_lora" else (NULL, ONE))
        for secret in {False, adjacency is NULL and name in ("invisible_ink", "private_prediction")}
    ],
)
def test_a_release_meets_its_target_whatever_stands_beside(name, adjacency, secret, before, after):
    target, unit = Guarantee(3.0, 1e-6), PrivacyUnit("person", 1)
    facts = PricingFacts(adjacency, unit, ("a", "b"), secret, before, after)
    changed = OPEN[name] | ({"batch_size": 64, "max_texts": 4} if "pred" in name else {})
    mechanism = load_method(name).calibrate(settings(name, **changed), target, facts)
    assert mechanism.whole == Composed((*before, mechanism.event, *after))
    assert is_amplified(mechanism.whole) is secret
    assert 3 * (1 - 1e-6) <= guarantee(mechanism.whole, 1e-6).epsilon <= 3


def test_any_event_may_stand_beside():
    facts = PricingFacts(NULL, PrivacyUnit("person", 1), after=(SampledGaussian(0.01, 2.0, 100),))
    small = settings("invisible_ink", **OPEN["invisible_ink"])
    mechanism = load_method("invisible_ink").calibrate(small, Guarantee(3.0, 1e-6), facts)
    assert guarantee(mechanism.whole, 1e-6).epsilon == pytest.approx(3, rel=1e-6)
