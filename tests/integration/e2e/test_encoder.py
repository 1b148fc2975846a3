"""The encoder that measures images is never the one that cast the votes of the release."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from privsyn.data.images import encode, to_content
from privsyn.data.records import Record
from privsyn.errors import ModelError
from privsyn.models.references import BUILTIN
from privsyn.stages.measure import Failures, beside, why_no_encoder
from privsyn.stages.plan import plan
from tests.integration.e2e.test_modality import DIGITS
from tests.unit.models.tiny_generators import save_resnet


@pytest.fixture(autouse=True)
def _nothing_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSYN_MODELS", str(tmp_path / "models"))


def test_the_voter_does_not_measure_its_own_choice(make_project):
    ctx = make_project().context(*DIGITS, "evaluate.image_encoder=builtin")
    planned = plan(ctx, "private_evolution")
    assert "cast the votes" in str(why_no_encoder(ctx, planned))
    # Another encoder voted: the builtin one may measure.
    other = planned.models["image_embedder"].model_copy(update={"revision": "sha256:other"})
    models = {**planned.models, "image_embedder": other}
    assert why_no_encoder(ctx, planned.model_copy(update={"models": models})) is None
    assert why_no_encoder(ctx, planned.model_copy(update={"models": {}})) is None


def test_an_encoder_that_is_not_here_names_the_command(make_project):
    ctx = make_project().context(*DIGITS)
    said = str(why_no_encoder(ctx, plan(ctx, "private_evolution")))
    assert "privsyn models fetch efficientnet-lite0" in said


def test_a_folder_of_transformers_measures(make_project, tmp_path):
    folder, language = save_resnet(tmp_path / "resnet"), tmp_path / "language"
    ctx = make_project().context(*DIGITS, f"evaluate.image_encoder={folder}")
    planned = plan(ctx, "private_evolution")
    assert why_no_encoder(ctx, planned) is None
    artifact, real = write_release(tmp_path)
    fids = {}
    for name in ("raw", "twice"):
        # Twice the features is four times the distance: they are taken as they are.
        if name == "twice":
            weights = load_file(folder / "model.safetensors")
            last = "encoder.stages.1.layers.0.layer.1.normalization"
            for part in ("weight", "bias"):
                weights[f"{last}.{part}"] *= 2
                weights[f"encoder.stages.1.layers.0.shortcut.normalization.{part}"] *= 2
            save_file(weights, folder / "model.safetensors", {"format": "pt"})
        metrics, _ = beside(ctx, planned, artifact, real, None, Failures())
        [fids[name]] = [metric for metric in metrics if metric.name == "fid"]
    assert fids["raw"].value > 0
    assert fids["twice"].value == pytest.approx(4 * fids["raw"].value, rel=1e-4)
    assert "32 features of evaluate.image_encoder=" in fids["raw"].note
    assert "fewer images than features" in fids["raw"].note
    # It voted: refused, by its files and not by its name.
    copied = shutil.copytree(folder, tmp_path / "copied")
    voted = make_project("voted").context(
        *DIGITS, f"evaluate.image_encoder={folder}", f"models.image_embedder={copied}"
    )
    assert "cast the votes" in str(why_no_encoder(voted, plan(voted, "private_evolution")))
    shutil.copytree(BUILTIN, language)
    for lacks, says in ((language, "not an image encoder"), (tmp_path, "config.json")):
        wrong = make_project(f"wrong-{lacks.name}").context(
            *DIGITS, f"evaluate.image_encoder={lacks}"
        )
        with pytest.raises(ModelError, match=rf"evaluate\.image_encoder=.*{says}") as refused:
            plan(wrong, "private_evolution")
        assert "\n" not in refused.value.message
        assert not (wrong.workspace.state / "ledger.db").exists()


def pictures(seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (28, 28)).astype(np.uint8) for _ in range(24)]


def write_release(folder):
    (folder / "images").mkdir()
    lines = []
    for number, pixels in enumerate(pictures(1)):
        png, name = encode(pixels), f"images/{number:06d}.png"
        (folder / name).write_bytes(png)
        sha = hashlib.sha256(png).hexdigest()
        row = {"id": str(number), "label": str(number % 2), "file": name, "sha256": sha}
        lines.append(json.dumps(row) + "\n")
    (folder / "synthetic.jsonl").write_text("".join(lines))
    real = [Record(str(i), str(i % 2), to_content(own)) for i, own in enumerate(pictures(2))]
    return folder / "synthetic.jsonl", real


@pytest.mark.parametrize("voted", [True, False])
def test_distances_are_left_out_where_the_voter_would_measure(make_project, tmp_path, voted):
    ctx = make_project().context(*DIGITS, "evaluate.image_encoder=builtin")
    planned = plan(ctx, "private_evolution")
    if not voted:
        planned = planned.model_copy(update={"models": {}})
    artifact, real = write_release(tmp_path)
    metrics, _ = beside(ctx, planned, artifact, real, None, Failures())
    names = {metric.name for metric in metrics}
    assert "downstream.accuracy" in names
    assert ({"fid", "kid", "precision", "recall"} <= names) is not voted
    assert ("fid" in names) is not voted
    notes = [metric.note for metric in metrics if metric.name == "fid"]
    assert all("evaluate.image_encoder=builtin" in note for note in notes)


@pytest.mark.parametrize("held_out", [0, 24])
def test_an_encoder_that_does_not_load_is_said_whether_an_image_is_held_out_or_not(
    make_project, tmp_path, monkeypatch, held_out
):
    ctx = make_project().context(*DIGITS, "evaluate.image_encoder=builtin")
    planned = plan(ctx, "private_evolution").model_copy(update={"models": {}})

    def damaged(*_):
        raise ModelError("damaged.")

    monkeypatch.setattr("privsyn.stages.measure.load_encoder", damaged)
    artifact, real = write_release(tmp_path)
    with pytest.raises(ModelError, match="damaged"):
        beside(ctx, planned, artifact, real[:held_out], None, Failures())
