"""The papers' judge, which is fine-tuned on the texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from privsyn.models.references import BUILTIN, ModelReference

with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(Path(__file__).parents[3] / "benchmarks" / "papers")
    import fine_tuned

PAIRS = [(f"{('bill', 'knee')[i % 2]} {i % 7}", ("Billing", "Symptoms")[i % 2]) for i in range(40)]


@pytest.fixture
def folder(tmp_path):
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(BUILTIN)
    tokenizer.save_pretrained(tmp_path)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def tuned(folder, train, texts):
    reference = ModelReference("MODEL", str(folder))
    return fine_tuned.predict_fine_tuned(reference, train, texts)


def test_a_model_learns_from_the_texts_alone_and_the_same_every_time(folder, monkeypatch):
    monkeypatch.setattr(fine_tuned, "_RATE", 0.02)
    texts = ["bill 9", "knee 9", ""]
    first, again = (tuned(folder, PAIRS, texts) for _ in range(2))
    assert first.shape == (3, 3)
    np.testing.assert_array_equal(first, again)
    assert (first[:, :2] == ["Billing", "Symptoms"]).all()
    rows = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in PAIRS)
    for file in ("synthetic.jsonl", "real.jsonl"):
        (folder / file).write_text(rows)
    assert fine_tuned.accuracies(folder, folder, folder / "real.jsonl") == [1.0] * 3


def test_one_label_needs_no_model(tmp_path):
    assert (tuned(tmp_path, [("a", "A")], ["x", "y"]) == "A").all()
