"""The first card: it never says yes, and says of every release what a person has to decide."""

from itertools import product
from types import SimpleNamespace

from privsyn.data.settings import DatasetConfig
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.risk import Risk
from privsyn.release.advice import BY_AUDIT, not_people, on_secret
from privsyn.release.settings import Stated
from privsyn.report.sections import first_card

STATED: Stated = dict(
    curators="City council",
    contact="archive@council.example",
    license="CC-BY-4.0",
    intended_use="To train classifiers of letters.",
)
ROWS = not_people(DatasetConfig(name="d", path="p"))
GOOD = dict(
    epsilon=0.9, risk=Risk(0.02, 0.002, 0.09), unit="citizen", secret="", not_people="",
    is_private=True, passed=True, stated=STATED, unanswered=(), cautions=0, audited=False,
    unchecked=(), signer="ab" * 32,
)  # fmt: skip
WEAK = {"epsilon": 10.0, "risk": Risk(0.32, 0.108, 0.65), "cautions": 1}
VOID = {"epsilon": 50.0, "risk": Risk(1.0, 1.0, 0.9999), "cautions": 1}


def card(**changes):
    it = SimpleNamespace(**GOOD | changes)
    odds = it.risk.words(it.unit, Adjacency.ADD_REMOVE, "patients")
    facts = SimpleNamespace(
        plan=SimpleNamespace(
            delta=1e-6,
            max_records_per_unit=1,
            dataset=SimpleNamespace(
                name="letters", version="2026-11", document="letter from a citizen"
            ),
        ),
        account_balance={"cap": {"epsilon": 3.0}},
        judged_epsilon=it.epsilon,
        method_title="InvisibleInk",
        deployment=it.stated,
        odds=(*odds, it.secret) if it.secret else odds,
        units="patients",
        accuracy={},
        is_model=False,
        **{name: getattr(it, name) for name in ("risk", "unit", "not_people", "is_private")},
    )
    validation = {
        "success": it.passed,
        "expectations": [{}] * 11,
        "left_out": it.unchecked,
        "cautions": [BY_AUDIT] * it.audited + ["a"] * it.cautions,
        "signer": it.signer,
    }
    records = SimpleNamespace(
        content_text=lambda: "100 synthetic texts", in_short=lambda _: "All passed."
    )
    found = first_card(facts, validation if it.passed is not None else {}, records, it.unanswered)
    return {answer.question: answer for answer in found}


def test_no_card_says_yes_or_is_green():
    for private, passed, strength, unit, stated in product(
        (True, False), (True, False, None), ({}, WEAK, VOID), ("", ROWS), (STATED, {})
    ):
        found = card(is_private=private, passed=passed, not_people=unit, stated=stated, **strength)
        assert {answer.tone for answer in found.values()} <= {"plain", "bad"}
        assert not any("yes" in answer.answer.lower().split() for answer in found.values())
        assert (unit == ROWS) == (ROWS in found["For whom?"].answer)
        if not private or not passed:
            assert found["May I hand it out?"].answer.startswith(("No.", "Not yet"))
            assert found["May I hand it out?"].tone == "bad"


def test_a_cost_that_counts_on_a_secret_says_so_and_what_it_is_without():
    sentence = on_secret("citizen", 5.908, Risk(0.2, 0.05, 0.62))
    found = card(secret=sentence)["How private is it?"].points
    assert found[-1] == sentence
    assert "guesses right at most 81 times in 100: for them epsilon is 5.908." in sentence
    assert "perhaps every time" in on_secret("citizen", 60.0, Risk(1.0, 1.0, 1.0))
    assert not any("secret" in point for point in card()["How private is it?"].points)
