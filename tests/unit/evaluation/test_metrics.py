"""What may be published and what may not."""

import json
import math

import numpy as np
import pytest

from privsyn.evaluation.classifiers import downstream
from privsyn.evaluation.embeddings import compare_lengths, fidelity
from privsyn.evaluation.judge import (
    ENCODER,
    NEARNESS,
    VOTER,
    Case,
    judge,
    likeness,
    likeness_metrics,
)
from privsyn.evaluation.metrics import Metric, compare_labels

LABELS = ["Billing", "Symptoms"]


def test_a_metric_is_plain_json():
    metric = Metric("downstream.recall.a", 0.5, "internal", "share found", "A")
    assert json.loads(json.dumps(metric.to_json())) == {
        "name": "downstream.recall.a",
        "value": 0.5,
        "class": "internal",
        "note": "share found",
        "label": "A",
    }
    assert "label" not in Metric("x", 1.0, "dp-release", "n").to_json()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_is_finite(value):
    with pytest.raises(ValueError, match="omit a metric that cannot be computed"):
        Metric("x", value, "dp-release", "n")


def test_a_metric_has_a_known_class():
    with pytest.raises(ValueError, match="class of x is 'public'"):
        Metric("x", 1.0, "public", "n")


def test_every_number_beside_real_records_is_internal():
    def embed(texts):
        return np.array([[len(text), text.count("a"), 1] for text in texts], np.float32)

    pairs = [("a" * (i % 7 + 1) + " b" * (i % 2), "xy"[i % 2]) for i in range(120)]
    case = Case(pairs[:30], pairs[30:70], pairs[70:], pairs * 2, pairs[:2])
    unlabeled = Case(*([(text, "") for text, _ in part] for part in (pairs[:30], pairs[30:])))
    texts, labels = (list(part) for part in zip(*pairs[:30], strict=True))
    assert {metric.cls for metric in fidelity(texts)} == {"dp-release"}
    for found in (
        compare_lengths(texts, texts),
        downstream(texts, labels, texts, labels),
        list(judge(case, {ENCODER: embed, VOTER: embed}, replicates=2).metrics({})),
        list(likeness_metrics(likeness(case))),
        list(judge(unlabeled, {NEARNESS: embed}, replicates=2).metrics({})),
        compare_labels(["a", "b"], ["b", "b"]),
    ):
        assert found
        assert {metric.cls for metric in found} == {"internal"}


def test_labels_are_compared_by_share():
    (apart,) = compare_labels(["a", "a", "b", None], ["a", "b", "b", "b", "c", "c"])
    assert apart.value == pytest.approx((4 / 6 - 1 / 6 + abs(1 / 3 - 1 / 2) + 1 / 3) / 2)
    assert compare_labels([None], ["a"]) == compare_labels(["a"], []) == []


@pytest.mark.parametrize(
    ("bill", "knee", "about"),
    [
        ("账单金额", "膝盖疼痛", "我想问一下昨天的"),
        ("ค่ารักษา", "ปวดเข่า", "ฉันอยากถามเรื่อง"),
        ("ဆေးဖိုး", "ဒူးနာ", "ကျွန်တော်မေးချင်တာက"),
    ],
    ids=["zh", "th", "my"],
)
def test_the_classifier_by_words_reads_scripts_without_spaces(bill, knee, about):
    rng = np.random.default_rng(0)

    def texts(count):
        fill = ["".join(rng.permutation(list(about))) for _ in range(count)]
        return [f"{one}{(bill, knee)[i % 2]}{one[::-1]}" for i, one in enumerate(fill)]

    labels = LABELS * 20
    value = {m.name: m.value for m in downstream(texts(40), labels, texts(40), labels)}
    assert value["downstream.accuracy"] > 0.8
    lengths = {m.name: m.value for m in fidelity(texts(40))}
    assert lengths["words_mean"] > 8
