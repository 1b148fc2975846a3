"""The toy model keeps the contract the privacy proofs lean on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from privsyn.errors import ModelError
from privsyn.models.protocols import (
    LogitModel,
    PromptTemplate,
    Sampling,
    TrainableModel,
    Training,
)
from tests.fakes import FakeLogitModel, FakeTrainableModel

TEMPLATE = PromptTemplate("Text: {reference} Text:", "Text:")


def run(model: FakeLogitModel, references: list[str], steps: int = 3) -> list[np.ndarray]:
    rows = model.private_rows(
        TEMPLATE, [None] * len(references), references, 4, steps, declared=[None]
    )
    out = []
    for _ in range(steps):
        out.append(rows.logits())
        rows.append([1 + len(text) % 5 for text in references])
    return out


def test_satisfies_the_protocol() -> None:
    model: LogitModel = FakeLogitModel()
    assert model.public_rows(TEMPLATE, ["x", None], 2).logits().shape == (2, model.vocab_size)
    assert model.private_rows(TEMPLATE, [], [], 4, 2, declared=[]).logits().shape == (
        0,
        model.vocab_size,
    )


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


def training(**settings: object) -> Training:
    given = {
        "template": PromptTemplate("{label}{reference}", "{label}"), "labels": ("x", "y"),
        "max_tokens": 4, "clip_norm": 0.5, "records_per_unit": 2, "micro_batch": 1, "rank": 2,
        "alpha": 1.0, "target_modules": None,
    }  # fmt: skip
    return Training(**(given | settings))  # type: ignore[arg-type]


TEXTS = ["my bill is ready", "the visit was late and late", "", "nothing known \ud800", "help"]


def test_trainable_model_satisfies_the_protocol(tmp_path: Path) -> None:
    model: TrainableModel = FakeTrainableModel()
    trainer = model.trainer(training())
    rows = [trainer.encode("x", text) for text in TEXTS]
    assert [len(ids) for ids, _ in rows] == [5, 5, 2, 2, 3]
    assert not trainer.has_moved()
    total = trainer.clipped_sum([rows[:2], rows[2:3]])
    trainer.update(total / 2.0**24, 0.1)
    assert trainer.has_moved()
    for name, content in trainer.files().items():
        (tmp_path / name).write_bytes(content)
    writer = model.writer(training(), tmp_path, Sampling())
    assert all(0 < len(text.split()) <= 4 for text in writer.write(["x", "y", "x"]))
    with pytest.raises(ModelError, match="shorter than max_tokens=600"):
        model.trainer(training(max_tokens=600))


def test_trainable_models_gradient_is_that_of_the_loss() -> None:
    trainer = FakeTrainableModel().trainer(training())
    rng = np.random.default_rng(0)
    trainer.theta = rng.normal(size=trainer.theta.shape)
    unit = [trainer.encode("x", "my bill is"), trainer.encode("y", "help me help")]

    def loss() -> float:
        whole = 0.0
        for ids, start in unit:
            logs = [
                trainer.theta[a, b] - np.log(np.exp(trainer.theta[a]).sum())
                for a, b in pairwise(ids)
            ]
            whole -= sum(logs[start - 1 :]) / (len(ids) - start)
        return whole

    gradient, step = trainer.gradient(unit), 1e-6
    for place in [(12, 6), (6, 7), (13, 11), (11, 11), (3, 3)]:
        trainer.theta[place] += step
        high = loss()
        trainer.theta[place] -= 2 * step
        low = loss()
        trainer.theta[place] += step
        assert gradient[place] == pytest.approx((high - low) / (2 * step), abs=1e-8)


def test_trainable_models_units_do_not_see_each_other_and_are_clipped_once() -> None:
    trainer = FakeTrainableModel().trainer(training(clip_norm=0.1))
    units = [[trainer.encode("x", text)] for text in TEXTS]
    alone = [trainer.clipped_sum([unit]) for unit in units]
    np.testing.assert_array_equal(trainer.clipped_sum(units), np.sum(alone, axis=0))
    np.testing.assert_array_equal(trainer.clipped_sum(units[::-1]), np.sum(alone, axis=0))
    both = trainer.clipped_sum([[row for unit in units[:2] for row in unit]])
    for whole in (*alone, both):
        assert sum(int(value) ** 2 for value in whole) <= (2**24) ** 2
    assert (trainer.clipped_sum([[*units[0], *units[1], *units[4]]]) == both).all()  # m = 2
    trainer.theta[12] = np.nan
    assert not trainer.clipped_sum([units[0]]).any()
