"""The toy model keeps the contract the privacy proofs lean on."""

from __future__ import annotations

import numpy as np

from privsyn.models.protocols import PromptTemplate
from tests.fakes import FakeLogitModel

TEMPLATE = PromptTemplate("Text: {reference} Text:", "Text:")


def run(model, references, steps=3):
    rows = model.private_rows(
        TEMPLATE, [None] * len(references), references, 4, steps, declared=[None]
    )
    out = []
    for _ in range(steps):
        out.append(rows.logits())
        rows.append([1 + len(text) % 5 for text in references])
    return out


def test_rows_do_not_see_each_other():
    alone = run(FakeLogitModel(), ["my bill"])
    among = run(FakeLogitModel(), ["help", "my bill", "the visit was late " * 99])
    for one, many in zip(alone, among, strict=True):
        np.testing.assert_array_equal(one[0], many[1])


def test_coupling_breaks_independence_on_purpose():
    leaky = FakeLogitModel(coupling=1e-3)
    assert (run(leaky, ["my bill"])[0][0] != run(leaky, ["my bill", "help"])[0][0]).any()


def test_reference_is_cut_to_its_public_length():
    model = FakeLogitModel()
    long, short = run(model, ["a b c d my bill"])[0], run(model, ["a b c d"])[0]
    np.testing.assert_array_equal(long, short)
