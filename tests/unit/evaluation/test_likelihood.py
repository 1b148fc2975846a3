"""The public model as a reader: perplexities, and answers with examples in its prompt."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privsyn.evaluation.language_model import in_context, perplexity_gap
from privsyn.models.language.likelihood import Readable, log_likelihoods
from privsyn.models.language.prompts import CHARS_PER_TOKEN
from privsyn.models.loading import load_role
from privsyn.models.settings import ModelsConfig, PerformanceConfig


def named(metrics):
    return {metric.name: metric.value for metric in metrics}


def test_likelihoods_are_those_of_the_network():
    import torch

    model = load_role(ModelsConfig(language="tiny"), "language", PerformanceConfig(threads=1))
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


def test_a_text_is_cut_before_it_is_tokenized():
    """One of millions of letters costs no more than one of as many as are read."""
    model, seen = load_role(ModelsConfig(language="tiny"), "language", PerformanceConfig()), []

    class Watched:
        network = model.network

        def tokenizer(self, text, **settings):
            seen.append(text)
            return model.tokenizer(text, **settings)

    prompt, text = "first " * 5000 + "Text:", " the bill is late" * 5000
    [(nats, tokens)] = log_likelihoods(Watched(), [(prompt, text)], 16)
    [(short, counted)] = log_likelihoods(model, [(prompt[-600:], text[:600])], 16)
    assert (nats, tokens) == (pytest.approx(short), counted)
    assert max(map(len, seen)) == 16 * CHARS_PER_TOKEN
    assert prompt.endswith(seen[0])
    assert text.startswith(seen[1])


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


def test_a_model_that_learns_from_its_prompt_is_right_and_one_that_cannot_is_not():
    records = [(f"about {label} {i}", label) for i in range(30) for label in ("cats", "dogs")]
    asked = []

    def reads(pairs):
        asked.append(pairs[0][0])
        text = pairs[0][0].rpartition("Text: ")[2]
        return [(0.0 if label.strip() in text else -9.0, 1) for _, label in pairs]

    found = in_context({"synthetic": records, "real": []}, records, reads, 24)
    values = named(found)
    assert (values["in_context.synthetic"], values["in_context.records"]) == (1, 24)
    assert values["in_context.chance"] == pytest.approx(0.5, abs=0.1)
    assert values["in_context.low"] <= 1 <= values["in_context.high"]
    assert "in_context.real" not in values
    assert {metric.cls for metric in found} == {"internal"}
    assert all(prompt.count("Text: ") == 5 for prompt in asked)
    blind = named(in_context({"synthetic": records}, records, lambda p: [(-1.0, 1)] * len(p), 60))
    assert blind["in_context.synthetic"] == 0.5
    assert in_context({"synthetic": records}, records[:10], reads, 24) == []
    few = named(in_context({"synthetic": records, "public": records}, records, reads, 8))
    assert (few["in_context.records"], few["in_context.public"]) == (8, 1)
    assert in_context({"synthetic": records}, [("a", "cats")] * 30, reads, 24) == []
    assert np.isfinite(list(values.values())).all()


def test_shots_are_as_many_as_asked_for():
    records = [(f"about {label} {i}", label) for i in range(30) for label in ("cats", "dogs")]
    asked = []

    def reads(pairs):
        asked.append(pairs[0][0])
        return [(-1.0, 1)] * len(pairs)

    found = in_context({"synthetic": records}, records, reads, 24, shots=7)
    assert all(prompt.count("Text: ") == 8 for prompt in asked)
    assert "7 examples" in found[0].note


def test_calibration_takes_off_what_the_prompt_alone_prefers():
    """Zhao et al. 2021: a model that likes one label whatever it reads is right once divided."""
    records = [(f"about {label} {i}", label) for i in range(30) for label in ("cats", "dogs")]
    blank = []

    def reads(pairs):
        text = pairs[0][0].rpartition("Text: ")[2].removesuffix("\nLabel:")
        if text in ("N/A", "[MASK]", ""):
            blank.append(text)
        liked = {" cats": -1.0, " dogs": -4.0}
        return [(liked[label] + (label.strip() in text), 1) for _, label in pairs]

    plain = named(in_context({"synthetic": records}, records, reads, 24))
    assert plain["in_context.synthetic"] < 0.6
    assert not blank
    calibrated = in_context({"synthetic": records}, records, reads, 24, calibrated=True)
    assert named(calibrated)["in_context.synthetic"] == 1
    assert set(blank) == {"N/A", "[MASK]", ""}
    assert calibrated[0].note.endswith("calibrated")
