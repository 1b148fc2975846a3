"""Rulers and rivals: numbers that are right where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.evaluation.judge import (
    ENCODER,
    VOTER,
    WORDS,
    Case,
    ClassMeans,
    best_free,
    chosen,
    draws_of,
    judge,
    likeness,
    metrics_of,
    table,
    verdict,
    weigh,
)

NAMES = ("cat", "dog", "owl")


def embed(texts):
    """A direction for each animal that a text begins with; the length moves it a little."""
    out = np.zeros((len(texts), 4), np.float32)
    for row, text in zip(out, texts, strict=True):
        for place, name in enumerate(NAMES):
            row[place] = text.startswith(name)
        row[3] = 0.01 * (len(text) % 7) + 0.01
    return out


def pairs(count, right=1.0, words="ran home"):
    """Texts that begin with their label, or for a share of them with another one."""
    out = []
    for i in range(count):
        label = NAMES[i % 3]
        first = label if i < right * count else NAMES[(i + 1) % 3]
        out.append((f"{first} {words} {'x' * (i % 5)}", label))
    return out


def case(release, public=(), **changed):
    return Case(release, pairs(150), pairs(120), public, **changed)


def test_a_release_is_set_beside_every_rival_by_every_ruler():
    public = pairs(120, right=0.5)
    scores = judge(
        case(pairs(30), public, paid=ClassMeans(3.0, 1e-6)), {ENCODER: embed}, replicates=20
    )
    assert list(scores) == [ENCODER, WORDS]
    rivals = {"release", "public", "candidates", "chosen", "real", "all_real", "chance"}
    assert set(scores[WORDS].value) == rivals
    assert set(scores[ENCODER].value) == rivals | {"zero_shot", "means"}
    assert scores[ENCODER].value["release"].value == 1
    assert scores[ENCODER].value["chance"].value == pytest.approx(1 / 3)
    assert scores[ENCODER].gain["free"].value == 0  # the label's own words are as good
    values = {name: each.value for name, each in scores[ENCODER].value.items()}
    assert best_free(values) in ("chosen", "zero_shot")
    assert "| release | 1.000 | 1.000 |" in table(scores)


def test_rivals_without_texts_are_there_where_none_were_written():
    scores = judge(case(pairs(30), paid=ClassMeans(3.0, 1e-6)), {ENCODER: embed}, replicates=5)
    assert {"zero_shot", "means", "chance"} <= set(scores[ENCODER].value)
    assert not {"public", "candidates", "chosen"} & set(scores[ENCODER].value)


def test_label_words_say_nothing_where_labels_are_coded():
    codes = dict(zip(NAMES, ("Q17", "Q4", "Q88"), strict=True))
    coded = [(text, codes[label]) for text, label in pairs(150)]
    scores = judge(
        Case([(text, codes[label]) for text, label in pairs(30)], coded, coded[:60]),
        {ENCODER: embed},
        replicates=20,
    )[ENCODER]
    assert scores.value["zero_shot"].value < 0.5
    assert scores.gain["free"].low > 0.3


def test_names_stand_for_coded_labels():
    codes = dict(zip(NAMES, ("Q17", "Q4", "Q88"), strict=True))
    coded = [(text, codes[label]) for text, label in pairs(150)]
    names = {code: name for name, code in codes.items()}
    scores = judge(Case(coded[:30], coded, names=names), {ENCODER: embed}, replicates=5)[ENCODER]
    assert scores.value["zero_shot"].value == 1


def test_label_words_choose_the_texts_that_lean_to_them():
    picked = chosen(case(pairs(30), pairs(90, right=0.5)), dict.fromkeys(NAMES, 10), embed)
    assert len(picked) == 30
    assert all(text.startswith(label) for text, label in picked)


@pytest.mark.parametrize(("count", "draws"), [(30, 1), (60, 2), (300, 4), (20, 1)])
def test_draws_share_no_text(count, draws):
    found = draws_of([(f"{i} {text}", of) for i, (text, of) in enumerate(pairs(count))],
                     dict.fromkeys(NAMES, 10))  # fmt: skip
    assert len(found) == draws
    texts = [text for part in found for text, _ in part]
    assert len(texts) == len(set(texts)) == min(count, 30 * draws)


def test_the_paid_rival_gets_worse_with_less_epsilon_and_better_with_more_records():
    def means(epsilon, records=1.0):
        paid = ClassMeans(epsilon, 1e-6, records=records)
        scores = judge(case(pairs(30), paid=paid), {ENCODER: embed}, replicates=1)
        return scores[ENCODER].value["means"].value

    assert means(10.0) == 1
    assert means(0.01) < 0.7
    assert means(0.01, records=1000.0) == 1


def test_sigma_is_that_of_one_gaussian_mechanism():
    # Balle and Wang 2018: mu = .64733 at epsilon 3, delta 1e-6 is sigma 1.5448
    assert ClassMeans(3.0, 1e-6).sigma == pytest.approx(1.5448, abs=1e-3)
    assert ClassMeans(3.0, 1e-6, 2.0).sigma == pytest.approx(2 * 1.5448, abs=2e-3)


def test_texts_without_a_word_and_with_one_label_are_judged():
    scores = judge(Case([("!", "cat")] * 20, pairs(30), pairs(30)), {}, replicates=3)
    assert scores[WORDS].value["release"].value == pytest.approx(1 / 3)


def test_a_classifier_tells_other_words_from_real_ones_and_not_the_same():
    real = [(f"{text} {i % 11}", of) for i, (text, of) in enumerate(pairs(120))]
    same = likeness(Case(real[:40], real[40:80], real[80:], real[::3]), replicates=50)
    other = likeness(
        Case(pairs(40, words="WENT AWAY!"), real[40:80], real[80:], real[:40]), replicates=50
    )
    assert same["auc"].value < 0.7
    assert other["auc"].low > 0.9
    assert other["auc_style"].low > 0.9
    assert other["style_gain"].high < 0  # the public model's own are more like real ones
    assert other["frequent_words"].value < same["frequent_words"].value


def test_too_few_texts_have_no_likeness():
    assert likeness(case(pairs(10))) == {}


def test_first_persons_are_counted_in_english_alone():
    english = [(f"I think that the {text}", of) for text, of in pairs(60)]
    other = [(f"ich denke dass {text}", of) for text, of in pairs(60)]
    assert likeness(Case(english[:30], english[30:]))["first_person"].value == 1
    assert "first_person" not in likeness(Case(other[:30], other[30:]))


def ruled(ruler, accuracy, gain, low, free=0.6, real=0.8, rival="chosen", high=None):
    """Metrics of one ruler."""
    return {
        f"{ruler}.accuracy": accuracy,
        f"{ruler}.chance": 0.25,
        f"{ruler}.{rival}": free,
        f"{ruler}.real": real,
        f"{ruler}.real_records": 200,
        f"{ruler}.gain": gain,
        f"{ruler}.gain_low": low,
        f"{ruler}.gain_high": gain + 0.1 if high is None else high,
    }


GOOD = ruled("vectors", 0.75, 0.15, 0.05) | ruled("words", 0.72, 0.12, 0.02)
STYLE = {"likeness.style_gain": 0.1, "likeness.style_gain_low": 0.02}
NO_STYLE = {"likeness.style_gain": 0.01, "likeness.style_gain_low": -0.05}


@pytest.mark.parametrize(
    ("value", "grade", "sentence"),
    [
        (GOOD | STYLE, "good", "The records added topics, words and style."),
        (GOOD | NO_STYLE, "good", "The records added topics and words, not style."),
        # good by one ruler alone
        (
            GOOD | ruled("words", 0.61, 0.01, -0.05) | NO_STYLE,
            "fair",
            "The records added topics, not words or style.",
        ),
        (
            GOOD | ruled("vectors", 0.61, 0.01, -0.05) | NO_STYLE,
            "fair",
            "The records added words, not topics or style.",
        ),
        # a third ruler shows nothing
        (GOOD | ruled("classifier", 0.6, 0.0, -0.1) | STYLE, "fair", "topics, words and style"),
        (GOOD | ruled("classifier", 0.75, 0.15, 0.05) | STYLE, "good", "topics, words and style"),
        # gains that end at 0 are ties
        (
            ruled("vectors", 0.6, 0.0, 0.0) | ruled("words", 0.6, 0.0, 0.0) | NO_STYLE,
            "poor",
            "No gain over what is free could be shown.",
        ),
        (
            ruled("vectors", 0.5, -0.1, -0.2) | ruled("words", 0.7, 0.1, -0.001) | NO_STYLE,
            "poor",
            "No gain over what is free could be shown.",
        ),
        (
            ruled("vectors", 0.6, 0.0, -0.1) | ruled("words", 0.6, 0.0, -0.1) | STYLE,
            "fair",
            "The records added style, not topics or words.",
        ),
        # less than half of the way to real records by words
        (GOOD | ruled("words", 0.65, 0.05, 0.01) | STYLE, "fair", "topics, words and style"),
        # rulers that are missing
        (ruled("words", 0.72, 0.12, 0.02), "fair", "The records added words. Of topics and style"),
        (ruled("words", 0.6, 0.0, -0.1), "poor", "not shown to have added anything"),
        (ruled("vectors", 0.75, 0.15, 0.05) | STYLE, "fair", "Of words it is not known"),
        # what voted decides nothing
        (
            ruled("voter", 0.9, 0.3, 0.2) | ruled("words", 0.6, 0.0, -0.1) | NO_STYLE,
            "poor",
            "not shown to have added anything",
        ),
    ],
)  # fmt: skip
def test_the_verdict_is_that_of_all_rulers_together(value, grade, sentence):
    found = weigh(value)
    assert found is not None
    assert (found.grade, sentence in found.sentence) == (grade, True), found.sentence


def test_without_a_ruler_that_counts_there_is_no_verdict():
    assert weigh({}) is None
    assert weigh(ruled("voter", 0.9, 0.3, 0.2)) is None
    assert verdict({"downstream.accuracy": 1.0}) is None


def test_the_verdict_names_the_best_of_what_is_free_and_what_is_missing():
    said = str(verdict(GOOD | ruled("vectors", 0.6, -0.1, -0.2, 0.7, rival="zero_shot")))
    assert "best that is free 0.700 (label words without a text), 200 real records 0.800" in said
    assert "gain -0.100 [-0.200, +0.000]" in said
    assert "An encoder that took no part: UNAVAILABLE" in str(
        verdict(ruled("words", 0.7, 0.1, 0.05))
    )


def test_codes_are_said_to_mean_nothing():
    value = GOOD | {"vectors.zero_shot": 0.3, "vectors.zero_shot_low": 0.24, "vectors.public": 0.2}
    assert "labels mean nothing to the public model" in str(verdict(value))
    assert "mean nothing" not in str(verdict(value | {"vectors.zero_shot_low": 0.26}))
    assert "mean nothing" not in str(verdict(value | {"vectors.public": 0.5}))


def test_an_interval_over_other_records_holds_the_difference_and_is_the_same_every_time():
    public = pairs(120, right=0.5)
    first, again = (
        judge(case(pairs(30, right=0.8), public), {ENCODER: embed}, replicates=30) for _ in range(2)
    )
    assert first == again
    for interval in (*first[ENCODER].value.values(), *first[ENCODER].gain.values()):
        assert interval.low <= interval.value <= interval.high


def test_metrics_are_named_by_ruler_and_rival():
    judged = case(pairs(30), pairs(120, right=0.5), paid=ClassMeans(3.0, 1e-6, 2.0))
    scores = judge(judged, {ENCODER: embed, VOTER: embed}, replicates=5)
    found = {one.name: one for one in metrics_of(scores, likeness(judged), judged, {})}
    assert {f"{ruler}.accuracy" for ruler in (ENCODER, WORDS, VOTER)} <= set(found)
    assert "L2 sensitivity 2" in found["vectors.means"].note
    assert "of 120" in found["vectors.public"].note
    assert found["vectors.real_records"].value == 30
    assert weigh({name: one.value for name, one in found.items()}) is not None
