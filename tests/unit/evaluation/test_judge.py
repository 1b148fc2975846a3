"""Rulers and rivals: numbers that are right where the answer is known."""

from collections import Counter

import numpy as np
import pytest

import privsyn.evaluation.judge as judging
from privsyn.evaluation.classifiers import draws_of
from privsyn.evaluation.judge import (
    ENCODER,
    RIVALS,
    RULERS,
    VOTER,
    WORDS,
    Answers,
    Case,
    Ruler,
    Scores,
    chosen,
    directions,
    judge,
    likeness,
    likeness_metrics,
)
from privsyn.evaluation.report import gains, usefulness, verdict

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


EXAMPLES = [(f"{name} sat {i}", name) for name in NAMES for i in range(2)]


def columns(scores, ruler):
    return {rival.name for rival in scores.rivals(ruler)}


def test_a_release_is_set_beside_every_rival_by_every_ruler():
    public = pairs(120, right=0.5)
    scores = judge(
        case(pairs(30), public, examples=EXAMPLES), {ENCODER: embed, VOTER: embed}, replicates=20
    )
    assert [ruler.name for ruler in scores.rulers] == [ENCODER, WORDS, VOTER]
    everyone = {rival.name for rival in RIVALS}
    assert columns(scores, ENCODER) == columns(scores, VOTER) == everyone
    assert columns(scores, WORDS) == everyone - {"zero_shot"}, "words have no direction"
    assert scores.value(ENCODER, "release") == 1
    assert scores.value(ENCODER, "chance") == pytest.approx(1 / 3)
    assert scores.value(ENCODER, "gain") == 0  # the label's own words are as good
    assert scores.best_free(ENCODER).name in ("examples", "chosen", "zero_shot")
    # one that does not decide is measured once, so there is no interval to tell of
    names = {metric.name for metric in scores.metrics({})}
    assert {f"{WORDS}.accuracy_low", f"{WORDS}.gain_low", f"{VOTER}.accuracy"} <= names
    assert not {f"{VOTER}.accuracy_low", f"{VOTER}.gain_low"} & names


def test_rivals_without_texts_are_there_where_none_were_written():
    scores = judge(case(pairs(30)), {ENCODER: embed}, replicates=5)
    assert columns(scores, ENCODER) == {"chance", "zero_shot", "real", "all_real"}
    scores = judge(case(pairs(30), examples=EXAMPLES), {ENCODER: embed}, replicates=5)
    assert "examples" in columns(scores, ENCODER) & columns(scores, WORDS)


def test_what_the_users_own_examples_teach_is_free():
    """Label words say nothing here and no text was written; five examples tell it all."""
    codes = dict(zip(NAMES, ("Q17", "Q4", "Q88"), strict=True))
    coded = [(text, codes[label]) for text, label in pairs(150)]
    release, known = coded[:30], coded[:60]
    invented = [(text, codes[label]) for text, label in EXAMPLES]
    without = judge(Case(release, coded, known), {ENCODER: embed}, replicates=20)
    assert without[ENCODER, "gain"].low > 0.3
    beside = judge(Case(release, coded, known, examples=invented), {ENCODER: embed}, replicates=20)
    assert beside.value(ENCODER, "examples") == beside.value(ENCODER, "zero_shot") == 1
    assert beside.value(ENCODER, "gain") == 0
    public = [(text, codes[label]) for text, label in pairs(60, words="cat dog owl")]
    texts = judge(Case(release, coded, known, public, invented), {ENCODER: embed}, replicates=5)
    assert {"examples", "everything"} <= columns(texts, WORDS)


def test_a_direction_is_of_words_and_examples_where_there_are_some():
    words = directions(case(pairs(30)), embed)
    np.testing.assert_allclose(np.linalg.norm(words, axis=1), 1)
    one = directions(case(pairs(30), examples=EXAMPLES[:1]), embed)
    np.testing.assert_array_equal(one, words)  # one label's examples differ from no other's
    # Examples that say the other way pull a direction over; a label without any keeps its own.
    wrong = [("dog sat", "cat"), ("cat sat", "dog")]
    pulled = directions(case(pairs(30), examples=wrong), embed)
    assert (pulled[:2] * words[:2]).sum(axis=1).max() < 0.9 < pulled[2] @ words[2]


def test_as_many_real_records_are_as_many_of_each_label():
    """One label in ten records, and a third of the release: drawn blindly it would be missed."""
    rare = [(text, label if label != "owl" or i % 30 == 2 else "dog")
            for i, (text, label) in enumerate(pairs(300))]  # fmt: skip
    (real,) = (rival for rival in RIVALS if rival.name == "real")
    drawn = real.texts(Case(pairs(30), rare, rare), None)
    for draw in drawn:
        assert Counter(label for _, label in draw) == dict.fromkeys(NAMES, 10)
    few = real.texts(Case(pairs(60), rare, rare), None)
    assert [Counter(label for _, label in draw)["owl"] for draw in few] == [10], "all there are"
    scores = judge(Case(pairs(60), rare, rare), {}, replicates=1)
    assert scores.value(WORDS, "real_records") == 50


def test_a_new_ruler_is_measured_by_its_row_alone(monkeypatch):
    def by_length(tool, judged, sets, again):
        right = np.array([len(text) > 0 for text, _ in judged.tested])
        return {name: Answers(right[None], right[None]) for name in sets}

    row = Ruler("length", "the length of a text", False, by_length)
    monkeypatch.setattr(judging, "RULERS", (*RULERS, row))
    scores = judge(case(pairs(30), pairs(120)), {}, replicates=2)
    assert scores.value("length", "release") == 1
    assert Scores.read({one.name: one.value for one in scores.metrics({})}) == scores


def test_label_words_choose_the_texts_that_lean_to_them():
    (picked,) = chosen(case(pairs(30), pairs(90, right=0.5)), embed)
    assert len(picked) == 30
    assert all(text.startswith(label) for text, label in picked)


@pytest.mark.parametrize(("count", "draws"), [(30, 1), (60, 2), (300, 4), (20, 1)])
def test_draws_share_no_text(count, draws):
    found = draws_of([(f"{i} {text}", of) for i, (text, of) in enumerate(pairs(count))],
                     dict.fromkeys(NAMES, 10))  # fmt: skip
    assert len(found) == draws
    texts = [text for part in found for text, _ in part]
    assert len(texts) == len(set(texts)) == min(count, 30 * draws)


def test_texts_without_a_word_and_with_one_label_are_judged():
    scores = judge(Case([("!", "cat")] * 20, pairs(30), pairs(30)), {}, replicates=3)
    assert scores.value(WORDS, "release") == pytest.approx(1 / 3)


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


def ruled(ruler, accuracy, gain, low, free=0.6, real=0.8, rival="chosen", high=None):
    return {
        f"{ruler}.accuracy": accuracy, f"{ruler}.chance": 0.25, f"{ruler}.{rival}": free,
        f"{ruler}.real": real, f"{ruler}.real_records": 200, f"{ruler}.gain": gain,
        f"{ruler}.gain_low": low, f"{ruler}.gain_high": gain + 0.1 if high is None else high,
    }  # fmt: skip


GOOD = ruled("vectors", 0.75, 0.15, 0.05) | ruled("words", 0.72, 0.12, 0.02)
STYLE = {"likeness.style_gain": 0.1, "likeness.style_gain_low": 0.02}
NO_STYLE = {"likeness.style_gain": 0.01, "likeness.style_gain_low": -0.05}


@pytest.mark.parametrize(
    ("value", "grade", "aspects"),
    [
        (GOOD | STYLE, "good", "topics: yes, words: yes, style: yes"),
        # good by one ruler alone
        (
            GOOD | ruled("words", 0.61, 0.01, -0.05) | NO_STYLE,
            "fair",
            "topics: yes, words: not shown, style: not shown",
        ),
        # gains that end at 0 are ties
        (
            ruled("vectors", 0.6, 0.0, 0.0) | ruled("words", 0.6, 0.0, 0.0) | NO_STYLE,
            "poor",
            "No gain over what is free could be shown (topics: not shown, words: not shown",
        ),
        (
            ruled("vectors", 0.6, 0.0, -0.1) | ruled("words", 0.6, 0.0, -0.1) | STYLE,
            "fair",
            "topics: not shown, words: not shown, style: yes",
        ),
        # less than half of the way to real records by words
        (GOOD | ruled("words", 0.65, 0.05, 0.01) | STYLE, "fair", "topics: yes, words: yes"),
        # rulers that are missing
        (ruled("words", 0.72, 0.12, 0.02), "fair", "topics: not measured, words: yes, style: not"),
        # what voted decides nothing
        (
            ruled("voter", 0.9, 0.3, 0.2) | ruled("words", 0.6, 0.0, -0.1) | NO_STYLE,
            "poor",
            "topics: not measured",
        ),
    ],
)  # fmt: skip
def test_what_the_records_added_is_said_by_all_rulers_together(value, grade, aspects):
    found, sentences = gains(Scores.read(value), value.get("likeness.style_gain_low"))
    assert (found, aspects in sentences[0]) == (grade, True), sentences


@pytest.mark.parametrize(
    ("accuracy", "low", "real", "all_real", "grade", "said"),
    [
        # a release that adds nothing to what is free and teaches as much as real records
        (0.91, 0.88, 0.84, 0.87, "good", "right about 91% of real records"),
        (0.80, 0.75, 0.81, 0.87, "fair", "all real records is right about 87%"),
        (0.80, 0.75, 0.81, None, "good", "200 real records (as many of each label)"),
        (0.27, 0.22, 0.73, 0.80, "poor", "not shown to teach more than always naming"),
        (0.27, 0.26, 0.28, 0.29, None, "real records teach hardly more"),
        (0.70, 0.60, None, None, None, "no classifier that learned from real records"),
    ],
)
def test_how_useful_a_release_is_is_said_by_what_real_records_teach(
    accuracy, low, real, all_real, grade, said
):
    value = ruled("vectors", accuracy, -0.1, -0.2) | ruled("words", 0.1, -0.1, -0.2)
    value |= {"vectors.accuracy_low": low, "vectors.real": real, "vectors.all_real": all_real}
    value = {name: number for name, number in value.items() if number is not None}
    found, sentences = usefulness(Scores.read(value), "the dial")
    assert (found, said in sentences[0]) == (grade, True), sentences
    assert ("Raise the dial." in sentences) == (found in ("fair", "poor"))
    assert gains(Scores.read(value), None)[0] == "poor"


def test_without_a_ruler_that_counts_nothing_is_graded():
    assert verdict({}) is None
    voter = Scores.read(ruled("voter", 0.9, 0.3, 0.2))
    assert gains(voter, None)[0] is None
    assert "By a simple classifier" in str(verdict({"downstream.accuracy": 1.0}))


def test_an_interval_over_other_records_holds_the_difference_and_is_the_same_every_time():
    public = pairs(120, right=0.5)
    first, again = (
        judge(case(pairs(30, right=0.8), public), {ENCODER: embed}, replicates=30) for _ in range(2)
    )
    assert first == again
    for interval in first.table.values():
        assert interval.low <= interval.value <= interval.high


def test_metrics_are_named_by_ruler_and_rival():
    judged = case(pairs(30), pairs(120, right=0.5), examples=EXAMPLES)
    scores = judge(judged, {ENCODER: embed, VOTER: embed}, replicates=5)
    every = [*scores.metrics({ENCODER: "an encoder here"}), *likeness_metrics(likeness(judged))]
    found = {one.name: one for one in every}
    assert {one.cls for one in every} == {"internal"}
    assert len(found) == len(every)
    assert {f"{ruler}.accuracy" for ruler in (ENCODER, WORDS, VOTER)} <= set(found)
    assert found["vectors.public"].note == (
        "accuracy by an encoder here, of as many texts of the public model"
    )
    assert "30 real records" in found["vectors.real"].note
    assert found["vectors.real_records"].value == 30
    assert Scores.read({name: one.value for name, one in found.items()}) == scores
