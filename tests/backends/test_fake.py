"""The toy model keeps the contract the privacy proofs lean on."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.backends.fake import FakeLogitModel, FakeTextModel
from privsyn.backends.protocols import LogitModel, PromptTemplate, TextModel
from privsyn.errors import ModelError

TEMPLATE = PromptTemplate("Text: {reference} Text:", "Text:")


def run(model: FakeLogitModel, references: list[str], steps: int = 3) -> list[np.ndarray]:
    rows = model.private_rows(TEMPLATE, [None] * len(references), references, 4, steps)
    out = []
    for _ in range(steps):
        out.append(rows.logits())
        rows.append([1 + len(text) % 5 for text in references])
    return out


def test_satisfies_the_protocol() -> None:
    model: LogitModel = FakeLogitModel()
    assert model.public_rows(TEMPLATE, ["x", None], 2).logits().shape == (2, model.vocab_size)
    assert model.private_rows(TEMPLATE, [], [], 4, 2).logits().shape == (0, model.vocab_size)


def test_rows_do_not_see_each_other() -> None:
    alone = run(FakeLogitModel(), ["my bill"])
    among = run(FakeLogitModel(), ["help", "my bill", "the visit was late " * 99])
    for one, many in zip(alone, among, strict=True):
        np.testing.assert_array_equal(one[0], many[1])


def test_coupling_breaks_independence_on_purpose() -> None:
    leaky = FakeLogitModel(coupling=1e-3)
    assert (run(leaky, ["my bill"])[0][0] != run(leaky, ["my bill", "help"])[0][0]).any()


def test_reference_is_cut_to_its_public_length() -> None:
    model = FakeLogitModel()
    long, short = run(model, ["a b c d my bill"])[0], run(model, ["a b c d"])[0]
    np.testing.assert_array_equal(long, short)


def test_script_gives_exact_logits() -> None:
    def script(label: str | None, reference: str | None, tokens: tuple[int, ...]) -> list[float]:
        return [0.0, 1.0 if reference == "x" else -1.0, float(len(tokens))]

    model = FakeLogitModel(("<end>", "a", "b"), script=script)
    rows = model.private_rows(TEMPLATE, ["l", "l"], ["x", "y"], 1, 2)
    rows.append([1, 2])
    assert rows.logits().tolist() == [[0, 1, 1], [0, -1, 1]]


def test_check_says_by_how_much() -> None:
    model = FakeLogitModel(context=20)
    model.check(TEMPLATE, 8, 10)
    with pytest.raises(ModelError, match="3 tokens shorter"):
        model.check(TEMPLATE, 8, 13)


def test_decode_is_total_and_append_is_strict() -> None:
    model = FakeLogitModel()
    assert model.decode([1, 2, 0, -7, 999]) == "the visit"
    rows = model.public_rows(TEMPLATE, [None], 1)
    with pytest.raises(ValueError, match="2 tokens for 1 rows"):
        rows.append([1, 1])
    rows.append([1])
    with pytest.raises(ValueError, match="max_tokens=1"):
        rows.append([1])


def test_columns_and_rewinding() -> None:
    model = FakeLogitModel()
    rows = model.private_rows(TEMPLATE, [None] * 3, ["my", "bill", "help"], 4, 2)
    first = rows.logits()
    np.testing.assert_array_equal(rows.logits(slice(1, 3), np.array([5, 0])), first[1:, [5, 0]])
    rows.append([1, 2, 3])
    assert (rows.logits() != first).any()
    rows.rewind()
    np.testing.assert_array_equal(rows.logits(), first)


def test_text_model_keeps_what_it_was_given() -> None:
    fake = FakeTextModel()
    model: TextModel = fake
    prompts = ["a knee", "", "a bill \ud800", "a knee"]
    first = model.complete(prompts, max_tokens=4, temperature=1.0)
    assert fake.prompts == prompts
    assert first[0] != first[3]  # sampling: the same prompt again is another text
    assert all(0 < len(text.split()) <= 4 for text in first)
    assert FakeTextModel().complete(prompts, max_tokens=4, temperature=1.0) == first
    greedy = model.complete(["a knee"] * 2, max_tokens=4, temperature=0)
    assert greedy == [first[0]] * 2
    assert len(fake.prompts) == 6
    assert model.complete([], max_tokens=4, temperature=0) == []


def test_text_model_follows_a_script() -> None:
    fake = FakeTextModel(script=lambda prompt, before: f"{prompt} and so on")
    assert fake.complete(["x"], max_tokens=3, temperature=1.0) == ["x and so"]
