"""Next-token accuracy, against counts made by hand from the model's logits."""

import pytest
import torch

from privsyn.errors import ModelError
from privsyn.evaluation.language_model import _interval, next_token_accuracy
from privsyn.models.protocols import PromptTemplate
from privsyn.models.references import BUILTIN
from privsyn.models.training import causal_lm as student

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
