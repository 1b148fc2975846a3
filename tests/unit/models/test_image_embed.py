"""Encoders of images: each vector from its own image alone, to the last bit; any array has one."""

import shutil
from typing import Any

import numpy as np
import pytest

from privsyn.errors import ModelError
from privsyn.models.images.image_embed import ImageEmbedder, as_pixels
from privsyn.models.images.image_folders import BUILTIN_ENCODER
from privsyn.models.loading import describe_role, load_image_embedder, load_role
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tests.unit.models.tiny_generators import save_clip, save_vit

RNG = np.random.default_rng(0)
SHAPES = [(28, 28), (8, 8), (28, 28, 3), (1, 1), (200, 3), (17, 31, 3), (28, 28, 4), (5, 5, 1)]
IMAGES = [RNG.integers(0, 256, SHAPES[i % len(SHAPES)]).astype(np.uint8) for i in range(45)]
ODD: list[Any] = [
    np.zeros((0, 0), np.uint8), np.zeros((3, 0, 3), np.uint8), np.full((4, 4), np.nan),
    np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2, 2, 2), np.uint8), np.uint8(3),
    np.zeros(5, np.uint8),
]  # fmt: skip


def load(embedder="builtin", rows=16):
    cfg = ModelsConfig(image_embedder=str(embedder))
    return load_image_embedder(cfg, PerformanceConfig(rows_per_pass=rows))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("encoders")
    return {
        "builtin": load(),
        "vit": load(save_vit(root / "vit")),
        "clip": load(save_clip(root / "clip")),
    }


KINDS = ("builtin", "vit", "clip")


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_depends_on_its_own_image_alone(kind, models):
    model = models[kind]
    whole = model.embed(IMAGES)
    assert whole.shape == (len(IMAGES), model.width)
    assert whole.dtype == np.float32
    order = RNG.permutation(len(IMAGES))
    assert np.array_equal(model.embed([IMAGES[i] for i in order]), whole[order]), "permuted"
    inserted = model.embed([*IMAGES[:7], ODD[0], *IMAGES[7:]])
    assert np.array_equal(np.delete(inserted, 7, axis=0), whole), "one inserted"
    assert np.array_equal(model.embed(IMAGES[3:4]), whole[3:4]), "alone"
    others = [np.full((28, 28), 255, np.uint8)] * 15
    assert np.array_equal(model.embed([*others, IMAGES[9]])[-1], whole[9]), "other neighbors"


@pytest.mark.parametrize("rows", [1, 24, 64])
def test_the_builtin_holds_at_other_pass_sizes(rows, models):
    model = load(rows=rows)
    whole = model.embed(IMAGES)
    assert np.array_equal(model.embed(IMAGES[::-1]), whole[::-1])
    np.testing.assert_allclose(whole, models["builtin"].embed(IMAGES), atol=1e-4)


def test_a_coupled_encoder_is_refused():
    """The probe must see a batch statistic: the defect that breaks the privacy guarantee."""

    def coupled(rows):
        flat = rows.flatten(1).float()
        return flat - flat.mean(0)

    with pytest.raises(ModelError, match="changes with its place"):
        ImageEmbedder(
            coupled,
            lambda sample: as_pixels(sample, (4, 4), "L"),
            "cpu",
            source="coupled",
            revision="1",
            rows_per_pass=16,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_embedding_is_total(kind, models):
    vectors = models[kind].embed(ODD)
    assert vectors.shape == (len(ODD), models[kind].width)
    assert np.isfinite(vectors).all()
    assert models[kind].embed([]).shape == (0, models[kind].width)


def test_identity(tmp_path):
    folder = tmp_path / "own"
    shutil.copytree(BUILTIN_ENCODER, folder)
    cfg = ModelsConfig(image_embedder=str(folder))
    same = describe_role(cfg, "image_embedder")
    assert same.revision == describe_role(ModelsConfig(), "image_embedder").revision
    weights = folder / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    assert describe_role(cfg, "image_embedder").revision != same.revision
    loaded = load_role(cfg, "image_embedder", PerformanceConfig())
    assert loaded.revision == describe_role(cfg, "image_embedder").revision


def test_bad_folders_are_refused(tmp_path):
    folder = tmp_path / "own"
    shutil.copytree(BUILTIN_ENCODER, folder)
    config = folder / "config.json"
    text = config.read_text()
    config.write_text(text.replace("64", "48"))
    with pytest.raises(ModelError, match="do not fit together"):
        load(folder)
    config.write_text(text)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    with pytest.raises(ModelError, match="truncated"):
        load(folder)
    weights.unlink()
    with pytest.raises(ModelError, match="no weights"):
        load(folder)
    with pytest.raises(ModelError, match=r"models\.image_embedder"):
        load(tmp_path / "nothing here")
