"""What epsilon and delta are said to mean, and what the account's policy refuses."""

import json
from types import SimpleNamespace

import pytest

from privsyn.data.settings import DatasetConfig
from privsyn.errors import PolicyBroken
from privsyn.ledger.settings import AccountConfig, PrivacyConfig
from privsyn.release.advice import of_account, of_epsilon, of_release, of_sizes, publicly

ACCOUNT = {"name": "a", "unit": "patient", "adjacency": "add_remove", "epsilon": 30, "delta": 1e-6}


def account(**changes):
    return AccountConfig.model_validate(ACCOUNT | changes)


def release(epsilon=1.0, delta=1e-6):
    return PrivacyConfig(epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(
    ("privacy", "held", "said"),
    [
        (release(10), account(), "epsilon=10 is weak protection against somebody who knows all"),
        (release(1e9), account(), "privacy.epsilon=1e+09 is no protection in practice"),
        (release(1, 1e-3), account(), "above account.delta=1e-06"),
        (release(1, 0.999), account(delta=0.999), "privacy.delta=0.999 is large"),
        (release(1, 1e-3), account(public_size=100), "one over ten times account.public_size=100"),
        (release(1, 1e-6), account(public_size=100_000), "account.public_size=100000"),
    ],
)
def test_a_release_that_protects_little_is_told(privacy, held, said):
    assert said in " ".join(of_release(privacy, held))


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (account(epsilon=1e308), "account.epsilon=1e+308 as a lifetime cap holds nothing back"),
        (account(delta=0.999), "account.delta=0.999 is large"),
        (account(delta=1e-5, public_size=10_000), "for account.public_size=10000"),
        (account(period={"days": 30, "epsilon": 1e6}), "account.period.epsilon=1e+06"),
    ],
)
def test_an_account_that_caps_nothing_is_told(held, said):
    assert said in " ".join(of_account(held))


def test_ordinary_settings_are_not_nagged_about():
    held = account(public_size=50_000)
    assert of_release(release(3, 1e-6), held) == of_account(held) == ()
    assert of_release(release(3, 1e-6), account()) == of_account(account()) == ()


def project(tmp_path, **changes):
    raw = {
        "dataset": {"name": "d", "path": "private.jsonl", "unit": "unit"},
        "account": ACCOUNT | changes.pop("account", {}),
        "privacy": {"epsilon": 20, "delta": 1e-3},
        "methods": {"invisible_ink": {}},
    }
    (tmp_path / "params.yaml").write_text(json.dumps(raw | changes))
    return tmp_path / "params.yaml"


def test_plan_says_them_and_enforces_the_policy(tmp_path):
    from privsyn.stages.base import open_context
    from privsyn.stages.plan import plan

    planned = plan(open_context(project(tmp_path)), "invisible_ink")
    assert "privacy.epsilon=20 is weak protection" in " ".join(planned.warnings)
    assert "above account.delta" in " ".join(planned.warnings)
    (tmp_path / "policies.yaml").write_text("policies: {low: {epsilon: 5}}")
    strict = open_context(project(tmp_path, account={"policy": "low"}))
    with pytest.raises(PolicyBroken, match=r"policy low.*privacy\.epsilon=20 is above 5,"):
        plan(strict, "invisible_ink")


def test_plan_speaks_of_the_epsilon_that_a_release_really_costs(tmp_path):
    from privsyn.stages.base import open_context
    from privsyn.stages.plan import plan

    few = {"private_prediction": {"private_tokens": 1, "batch_size": 1000, "svt_noise": 10.0}}
    planned = plan(open_context(project(tmp_path, methods=few)), "private_prediction")
    assert planned.epsilon < 10
    assert "protection" not in " ".join(planned.warnings)


def sized(divisor=None, suited=None):
    """A mechanism that says what its settings take the data to hold, and nothing else."""
    return SimpleNamespace(divisor=divisor, sized_for=suited)


def there(size, holdout=0.2, records_each=1):
    dataset = DatasetConfig(
        name="d", path="x.jsonl", holdout=holdout, unit="id", max_records_per_unit=records_each
    )
    return publicly(dataset, account(public_size=size))


@pytest.mark.parametrize(
    ("divisor", "buckets", "size", "told"),
    [
        (8, 100, 1000, None),
        (8, 40, 1000, None),
        (8, 33, 1000, "puts about 24 records into each of 33 buckets of batch_size=8"),
        (8, 4, 1000, "takes 25 times as long"),
        (8, 101, 1000, "suit some 808 records, and account.public_size=1000 leaves 800 at most"),
        (16, 100, 1000, "Lower batch_size to 8"),
        (16, 5000, 1000, "Lower batch_size to 1,"),
        (16, 50, None, "suit some 800 records: privsyn check says whether there are as many"),
        (None, 5000, 10, None),
        (None, 5000, None, None),
    ],
)
def test_buckets_that_would_get_too_few_records_or_far_too_many_get_advice(
    divisor, buckets, size, told
):
    found = of_sizes("methods.m", sized(divisor), buckets, there(size))
    assert bool(found) == (told is not None)
    assert all(str(told) in line for line in found)


@pytest.mark.parametrize(
    ("asked", "spent", "said"),
    [
        (10.0, None, ["privacy.epsilon=10 is weak"]),
        (10.0, 9.993, ["privacy.epsilon=10 is weak"]),
        (10.0, 1.103, []),
        (100.0, 20.0, ["epsilon 20 is weak"]),
        (100.0, 100.0, ["privacy.epsilon=100 is no protection in practice"]),
        (9.0, 9.0, []),
    ],
)
def test_a_release_that_cost_clearly_less_is_cautioned_of_what_it_cost(asked, spent, said):
    found = of_epsilon(asked, "patient", spent)
    assert [one[: len(words)] for one, words in zip(found, said, strict=True)] == said


def test_a_mechanism_whose_odds_are_bad_is_cautioned_whatever_its_epsilon():
    assert of_epsilon(6.0, "patient", 6.0, 0.8) == ()
    (weak,) = of_epsilon(6.0, "patient", 6.0, 0.95)
    assert "privacy.epsilon=6 is weak protection" in weak
    assert "(by the odds of its mechanism)" in weak
    (none,) = of_epsilon(6.0, "patient", 6.0, 0.9975)
    assert "privacy.epsilon=6 is no protection in practice" in none
