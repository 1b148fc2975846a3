"""The trainer of the embedded image models, end to end on arrays of invented images."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from privsyn.models.images.image_folders import read_facts
from privsyn.models.images.loading import load_image_embedder, load_image_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tools.base_image.diffusion import Images, Recipe, as_signal, export, orders, train
from tools.base_image.encoder import EncoderRecipe, augmented, train_encoder
from tools.base_image.evaluate import frechet_distance, report

ROOT = Path(__file__).parents[2]
TINY = Recipe(size=8, narrow=8, wide=16, batch=8, steps=6, warm_up=2, save_every=3, noise_steps=50)
CPU = PerformanceConfig(device="cpu", rows_per_pass=8, threads=1)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8x8: a bright left half or a bright right half, with noise."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, n in (("train", 64), ("test", 16)):
        labels = np.arange(n) % 2
        pictures = rng.integers(0, 40, (n, 8, 8))
        for picture, label in zip(pictures, labels, strict=True):
            picture[:, 4 * label : 4 * label + 4] += 200
        arrays |= {f"{part}_images": pictures.astype(np.uint8), f"{part}_labels": labels}
    path = tmp_path_factory.mktemp("images") / "halves.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Path:
    """Both models, trained for a few steps."""
    work = tmp_path_factory.mktemp("work")
    train(images, work, TINY, "cpu")
    train_encoder(images, work, EncoderRecipe(width=8, narrow=8, wide=8, batch=16, epochs=60))
    return work


def test_blocks_are_a_permutation_of_pixels() -> None:
    pictures = np.arange(128, dtype=np.uint8).reshape(2, 8, 8)
    signal = as_signal(pictures, 2)
    assert signal.shape == (2, 4, 4, 4)
    back = torch.nn.functional.pixel_shuffle(signal, 2)[:, 0]
    assert np.array_equal(((back + 1) * 127.5).round().byte().numpy(), pictures)


def test_an_epoch_holds_every_image_once_and_resumes_anywhere() -> None:
    whole, resumed = orders(10, 3, 0, 0), orders(10, 3, 0, 4)
    batches = [next(whole) for _ in range(9)]
    assert all(len(set(np.concatenate(batches[i : i + 3]))) == 9 for i in (0, 3, 6))
    assert not np.array_equal(batches[0], batches[3])
    assert all(np.array_equal(next(resumed), batch) for batch in batches[4:])


def test_a_stopped_run_ends_as_an_unbroken_one(tmp_path: Path, images: Path, work: Path) -> None:
    """Stopped after the first checkpoint: same weights, same averages, same curve."""
    rate = Recipe.rate_at

    def stopping(recipe: Recipe, step: int) -> float:
        if step == 4:
            raise KeyboardInterrupt
        return rate(recipe, step)

    unbroken = torch.load(work / "checkpoint.pt", weights_only=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recipe, "rate_at", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(images, tmp_path, TINY, "cpu")
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 3
    train(images, tmp_path, TINY, "cpu")
    resumed = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    for part in ("network", "averaged"):
        for name, value in unbroken[part].items():
            torch.testing.assert_close(resumed[part][name], value, msg=name)
    curve = [json.loads(line) for line in (work / "curve.jsonl").read_text().splitlines()]
    assert [line["step"] for line in curve] == [3, 6]
    assert all(np.isfinite(line["held_out"]) for line in curve)


def test_training_lowers_the_loss(tmp_path: Path, images: Path) -> None:
    recipe = Recipe(**{**TINY.__dict__, "steps": 60, "save_every": 30, "batch": 16, "rate": 3e-3})
    train(images, tmp_path, recipe, "cpu")
    curve = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert curve[-1]["train"] < 0.8 * curve[0]["train"]


def test_the_export_is_a_folder_privsyn_samples_from(work: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    export(work, folder, ("left", "right"), 3, 1.5)
    cfg = ModelsConfig(image=str(folder))
    facts = read_facts(folder, cfg)
    assert (facts.size, facts.mode, facts.labels) == ((8, 8), "L", ("left", "right"))
    assert (facts.null_class, facts.steps, facts.guidance) == (2, 3, 1.5)
    made = load_image_model(cfg, CPU).random(3, "right")
    assert [image.shape for image in made] == [(8, 8)] * 3
    with pytest.raises(ValueError, match="3 labels for 2 classes"):
        export(work, tmp_path / "other", ("a", "b", "c"), 3, 1.0)


def test_the_encoder_tells_classes_apart(work: Path, images: Path) -> None:
    data = Images.read(images)
    encoder = load_image_embedder(ModelsConfig(image_embedder=str(work / "encoder")), CPU)
    vectors = encoder.embed(list(data.test))
    assert vectors.shape == (16, 8)
    centres = [vectors[data.test_labels == c].mean(0) for c in (0, 1)]
    nearest = np.argmin([np.linalg.norm(vectors - centre, axis=1) for centre in centres], axis=0)
    assert (nearest == data.test_labels).mean() > 0.9


def test_augmentation_keeps_range_and_shape() -> None:
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(6, 1, 8, 8, generator=generator)
    for _ in range(4):
        moved, shown = augmented(clean, generator)
        assert moved.shape == shown.shape == clean.shape
        assert 0 <= float(shown.min()) <= float(shown.max()) <= 1
        assert not torch.equal(moved, clean)


def test_frechet_distance_of_normals() -> None:
    """|m - m'|^2 + sum (s - s')^2 for independent coordinates."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=(200_000, 2))
    other = rng.normal(size=(200_000, 2)) * [2.0, 3.0] + [1.0, 0.0]
    assert frechet_distance(one, other) == pytest.approx(1 + 1 + 4, rel=0.02)
    assert abs(frechet_distance(one, one)) < 1e-6


def test_the_report_and_its_contact_sheet(
    work: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, sheet = tmp_path / "model", tmp_path / "sheet.png"
    export(work, folder, ("0", "1"), 3, 1.0)
    rows = report(images, work, [str(folder)], 40, [2], [1.0, 2.0], sheet, 1)
    assert [row["guidance"] for row in rows] == [1.0, 2.0]
    assert all(0 <= row["accuracy"] <= 1 and row["distance"] > 0 for row in rows)
    with Image.open(sheet) as picture:
        assert picture.size == (20 * 8 * 2, 4 * 8 * 2)
    assert '"floor"' in capsys.readouterr().out


def test_the_command_line_says_what_it_does() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tools.base_image", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(step in shown for step in ("train", "encoder", "export", "evaluate"))
