"""Rulers and rivals: numbers that are right where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.evaluation.judge import (
    ENCODER,
    WORDS,
    Case,
    ClassMeans,
    best_free,
    chosen,
    draws_of,
    judge,
    likeness,
    table,
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
    assert best_free(scores[ENCODER]) in ("chosen", "zero_shot")
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
