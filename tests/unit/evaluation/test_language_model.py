"""A model that reads: perplexities of the public one, next tokens of a student, by hand."""

import math

import pytest
import torch

from privsyn.errors import ModelError
from privsyn.evaluation.language_model import _interval, next_token_accuracy, perplexity_gap
from privsyn.models.language.likelihood import Readable, log_likelihoods
from privsyn.models.loading import load_role
from privsyn.models.protocols import PromptTemplate
from privsyn.models.references import BUILTIN
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training import causal_lm as student


def named(metrics):
    return {metric.name: metric.value for metric in metrics}


def test_likelihoods_are_those_of_the_network():
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


TEXTS = [
    (None, "Dear Sir, I am writing to ask when my bill is due."),
    (None, "my visit was late"),
    (None, "hello "),
]


def by_hand(max_tokens):
    """Hits, tokens and nats of the embedded model, one text and one token at a time."""
    tokenizer, model = student.read_tokenizer(BUILTIN), student.read_model(BUILTIN).eval()
    hits, tokens, nats = 0, 0, 0.0
    for _, text in TEXTS:
        prefix = tokenizer("<|start|>Text:", add_special_tokens=False)["input_ids"]
        body = tokenizer(f" {text.strip()}", add_special_tokens=False)["input_ids"]
        body = [*body, tokenizer.eos_token_id] if len(body) < max_tokens else body[:max_tokens]
        for place, token in enumerate(body):
            with torch.inference_mode():
                row = model(torch.tensor([prefix + body[:place]])).logits[0, -1].log_softmax(-1)
            hits += int(row.argmax() == token)
            nats -= float(row[token])
            tokens += 1
    return hits, tokens, nats


@pytest.mark.parametrize("max_tokens", [64, 5])
def test_the_numbers_are_those_counted_by_hand(max_tokens):
    hits, tokens, nats = by_hand(max_tokens)
    metrics = next_token_accuracy(BUILTIN, TEXTS, max_tokens=max_tokens)
    found = {metric.name: metric.value for metric in metrics}
    assert 0 < hits < tokens
    assert found["student.next_token_accuracy"] == pytest.approx(hits / tokens)
    assert found["student.cross_entropy"] == pytest.approx(nats / tokens, rel=1e-4)
    assert found["student.tokens"] == tokens
    low, high = (found[f"student.next_token_accuracy_{end}"] for end in ("low", "high"))
    assert low <= hits / tokens <= high
    assert low < high


def test_everything_is_internal_and_named():
    metrics = next_token_accuracy(BUILTIN, TEXTS, max_tokens=8, called="public")
    assert {metric.cls for metric in metrics} == {"internal"}
    assert all(metric.name.startswith("public.") for metric in metrics)
    assert next_token_accuracy(BUILTIN, [], max_tokens=8) == []


def test_the_interval_is_over_texts_whose_tokens_hang_together():
    alike, apart = (_interval(hits, [10] * 40) for hits in ([5] * 40, [0, 10] * 20))
    assert alike == (0.5, 0.5)
    assert apart[0] < 0.4 < 0.6 < apart[1]


def test_the_prompt_and_the_commonest_token_are_as_asked_for():
    tokenizer = student.read_tokenizer(BUILTIN)
    same = [(None, "the"), (None, "the"), (None, "visit")]
    ends = sum(
        len(tokenizer(f" {text}", add_special_tokens=False)["input_ids"]) for _, text in same
    )
    template = PromptTemplate(private="", public="Something else entirely:")
    own, other = (
        {m.name: m.value for m in next_token_accuracy(BUILTIN, same, max_tokens=8, **how)}
        for how in ({}, {"template": template})
    )
    assert own["student.commonest_token"] == other["student.commonest_token"] == 3 / (3 + ends)
    assert own["student.cross_entropy"] != other["student.cross_entropy"]


@pytest.mark.parametrize("texts", [TEXTS, []])
def test_a_folder_without_a_model_is_refused_whether_there_is_a_text_or_not(tmp_path, texts):
    with pytest.raises(ModelError):
        next_token_accuracy(tmp_path, texts, max_tokens=8)


def test_how_texts_share_passes_does_not_matter(monkeypatch):
    together = next_token_accuracy(BUILTIN, TEXTS, max_tokens=16)
    monkeypatch.setitem(student.PASS_TOKENS, "cpu", 1)
    apart = next_token_accuracy(BUILTIN, TEXTS, max_tokens=16)
    assert [metric.value for metric in apart] == pytest.approx(
        [metric.value for metric in together], rel=1e-4
    )
