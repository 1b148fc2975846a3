"""The public model as a reader: perplexities, of the release and of real texts."""

import math

import pytest

from privsyn.evaluation.language_model import perplexity_gap
from privsyn.models.language.likelihood import Readable, log_likelihoods
from privsyn.models.loading import load_role
from privsyn.models.settings import ModelsConfig, PerformanceConfig


def named(metrics):
    return {metric.name: metric.value for metric in metrics}


def test_likelihoods_are_those_of_the_network():
    import torch

    model = load_role(ModelsConfig(language="tiny"), "language", PerformanceConfig())
    assert isinstance(model, Readable)
    prompt, text = "Text: my bill", " is late again"
    (nats, tokens), (alone, counted) = log_likelihoods(model, [(prompt, text), ("", text)], 512)
    encoded = model.tokenizer([prompt, text], add_special_tokens=False)
    head, tail = encoded["input_ids"]
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([[*head, *tail]])).logits[0].log_softmax(-1)
    expected = sum(float(logits[len(head) - 1 + i, token]) for i, token in enumerate(tail))
    assert nats == pytest.approx(expected, abs=1e-4)
    assert (tokens, counted) == (len(tail), len(tail) - 1)
    assert alone < 0
    assert log_likelihoods(model, [("", "a")], 512) == [(0.0, 0)]
    assert log_likelihoods(model, [("", text)], 3)[0][1] == 2  # cut


def test_perplexity_is_of_tokens_and_has_an_interval():
    nats = {"real": -3.0, "fake": -1.0}

    def read(pairs):
        return [(nats[text] * (1 + i % 3), 1 + i % 3) for i, (_, text) in enumerate(pairs)]

    found = named(perplexity_gap(["fake"] * 50, ["real"] * 30, read, 40))
    assert found["perplexity.synthetic"] == pytest.approx(math.e)
    assert found["perplexity.gap"] == pytest.approx(-2)
    assert found["perplexity.gap_low"] <= -2 <= found["perplexity.gap_high"]
    assert perplexity_gap(["a"] * 19, ["b"] * 40, read, 40) == []
    assert perplexity_gap(["a"] * 40, ["b"] * 40, lambda pairs: [(0.0, 0)] * len(pairs), 40) == []
