"""Digits and letters from fonts: the contract of a VariationAPI, and the search for a drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privsyn.errors import ModelError
from privsyn.models.images import simulator
from privsyn.models.images.simulator import LABELS, SIZE, FontSimulator
from privsyn.models.loading import describe_role, load_role
from privsyn.models.settings import ModelsConfig, PerformanceConfig


def seeded(seed: int = 0) -> FontSimulator:
    return FontSimulator(np.random.default_rng(seed))


def distance(one: Any, other: Any) -> float:
    return float(np.sqrt(((one.astype(float) - other.astype(float)) ** 2).mean()))


def test_every_label_has_ink_and_its_own_shape() -> None:
    model = seeded()
    means = [np.mean(model.random(40, label), axis=0) for label in LABELS[:10]]
    assert all(10 < mean.mean() < 120 for mean in means)
    apart = [distance(means[i], means[j]) for i in range(10) for j in range(i)]
    assert min(apart) > 5
    for label in LABELS:
        image = model.random(1, label)[0]
        assert (image.shape, image.dtype) == (SIZE, np.uint8)
        assert image.max() > 100


def test_every_face_draws_every_label() -> None:
    middle = (simulator._LOW + simulator._HIGH) / 2
    for face in range(len(simulator.FACES)):
        middle[0] = face
        drawn = {simulator.draw(label, middle).tobytes() for label in LABELS}
        assert len(drawn) >= len(LABELS) - 1, simulator.FACES[face]  # O and 0 may look alike


def test_count_and_randomness() -> None:
    assert seeded().random(0, "1") == []
    images = seeded().random(7, "1")
    assert np.array_equal(images, seeded().random(7, "1"))
    assert not np.array_equal(FontSimulator().random(7, "1"), FontSimulator().random(7, "1"))


def test_an_unknown_label_is_refused() -> None:
    model = seeded()
    with pytest.raises(ModelError, match="label 'ten' is not one of the model's: 0, 1, 2"):
        model.random(1, "ten")
    with pytest.raises(ModelError, match="label ''"):
        model.vary(model.random(1, "1"), "", 0.5)
    with pytest.raises(ValueError, match="degree"):
        model.vary([], "1", -0.1)


def test_degrees() -> None:
    model = seeded()
    images = model.random(60, "4")
    assert all(map(np.array_equal, model.vary(images, "4", 0.0), images))
    moved = [
        np.mean([distance(a, b) for a, b in zip(images, model.vary(images, "4", d), strict=True)])
        for d in (0.05, 0.3, 1.0)
    ]
    assert moved[0] < 0.75 * moved[1] < 0.75 * moved[2]
    assert np.array_equal(seeded(3).vary(images, "4", 1.0), seeded(3).random(60, "4"))


def test_variations_keep_order() -> None:
    model = seeded()
    images = [model.random(1, None)[0] for _ in range(12)]
    varied = model.vary(images, None, 0.02)
    nearest = [int(np.argmin([distance(v, image) for image in images])) for v in varied]
    assert nearest == list(range(12))


def test_another_process_finds_the_drawing_again() -> None:
    """A resumed run has the pixels only: what it varies must still be the image."""
    images = seeded(5).random(20, "5")
    resumed = seeded(6)
    near = resumed.vary(images, "5", 1e-9)
    others = seeded(7).random(20, "5")
    found = np.mean([distance(a, b) for a, b in zip(images, near, strict=True)])
    apart = np.mean([distance(a, b) for a, b in zip(images, others, strict=True)])
    assert found < 0.6 * apart


@pytest.mark.parametrize(
    "sample",
    [
        np.zeros((8, 8), np.uint8),
        np.full((40, 20, 3), 255, np.uint8),
        np.zeros((0, 4), np.uint8),
        np.ones((28, 28)),
    ],
)
def test_any_image_can_be_varied(sample: Any) -> None:
    for label in ("A", None):
        assert seeded().vary([sample], label, 0.4)[0].shape == SIZE


def test_identity() -> None:
    cfg = ModelsConfig(image="simulator")
    identity = describe_role(cfg, "image")
    assert identity.image == (28, 28, "L")
    assert identity.labels == LABELS
    model = load_role(cfg, "image", PerformanceConfig())
    assert model.revision == identity.revision


def test_the_revision_is_of_the_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = simulator.revision()
    monkeypatch.setattr(simulator, "FACES", (*simulator.FACES[:-1], "cmmi10.ttf"))
    assert simulator.revision() != before


def test_a_missing_font_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "FACES", ("NoSuchFace.ttf",))
    with pytest.raises(ModelError, match="pip install matplotlib"):
        FontSimulator()
