"""A release of images through every stage: files, digests, suite, page, evaluation, DVC."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privsyn import layout
from privsyn.data.artifacts import sha256_file
from privsyn.data.images import annotate, decode_png, encode
from privsyn.display.releases import outcome
from privsyn.errors import ConfigError, DataError, ValidationFailed, VerificationError
from privsyn.methods.base import Backends
from privsyn.release import certificate
from privsyn.report import verification
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.evaluate import evaluate
from privsyn.stages.partition import partition, source_changed
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish, record, restore
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate
from tests.integration.e2e.small_project import failures, finish, measured_by, reserve_release
from tests.integration.e2e.test_metadata import read_by_others
from tests.integration.e2e.tiny_images import LABELS, SIZE, image_project, private_image, register
from tests.noise import SeededNoise


class MeanValues:
    """An embedder: 4 x 4 means of an image."""

    revision, width = "means", 16

    def embed(self, samples):
        step = SIZE // 4
        return np.stack(
            [one.reshape(4, step, 4, step).mean((1, 3)).ravel() for one in samples]
        ).astype(np.float32)


@pytest.fixture(autouse=True)
def _method(monkeypatch):
    register(monkeypatch)


@pytest.fixture
def project(tmp_path):
    return image_project(tmp_path / "project")


def release(ctx):
    planned = reserve_release(ctx, "tiny_images")
    return planned, finish(ctx, planned, None)


def test_rows_name_their_images_and_the_certificate_its_exhibits(project):
    ctx = project.context()
    planned, folder = release(ctx)
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["0"] * 3 + ["1"] * 3
    assert [row["file"] for row in rows] == [f"images/{i:06d}.png" for i in range(6)]
    assert all(set(row) == {"id", "label", "file", "sha256"} for row in rows)
    for row in rows:
        assert decode_png((folder / row["file"]).read_bytes()).shape == (SIZE, SIZE)
    _, sealed = certificate.read(folder)
    assert sealed["artifact"]["media_type"] == layout.IMAGE_ROWS
    assert set(sealed["exhibits"]) == {"round-00.png", "rounds.csv"}
    assert sealed["drawn"] == {"drawn": 6}
    assert failures(folder, ctx.ledger) == {}
    names = [check.name for check in verification.verify(folder, ctx.ledger)]
    assert {"images are unchanged", "exhibits are unchanged"} <= set(names)
    assert settle(ctx, planned) == "COMMITTED"
    assert not ctx.workspace.scratch(planned.id).exists()


def test_every_picture_says_that_it_is_synthetic_and_whose(project, tmp_path):
    """As any reader of PNG files shows it; and a description of the release is read by others."""
    ctx = project.context()
    planned, folder = release(ctx)
    for file in (folder / "images").iterdir():
        with Image.open(file) as picture:
            picture.load()
            said = picture.text
        assert said["Software"] == "privsyn"
        assert said["Description"].startswith("Synthetic image")
        assert said["Description"].endswith(f"Release {planned.id}.")
        plain = encode(decode_png(file.read_bytes()))
        assert annotate(plain, said) == file.read_bytes()
    assert certificate.read(folder)[1]["artifact"]["synthetic"] is True
    handed_out = tmp_path / "handed-out"
    shutil.copytree(folder, handed_out)
    record(folder, tmp_path / "records", ctx.config.deployment, ctx.ledger)
    shutil.copy(tmp_path / "records" / "croissant.json", handed_out)
    read = read_by_others(handed_out)
    assert [row["records/file"] for row in read] == [f"images/{i:06d}.png" for i in range(6)]


DAMAGE = {
    "changed": lambda file: file.write_bytes(file.read_bytes()[:-1] + b"x"),
    "missing": lambda file: file.unlink(),
    "not of the release": lambda file: shutil.copy(file, file.with_name("extra.png")),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        register(patch)
        ctx = image_project(tmp_path_factory.mktemp("made") / "project").context()
        return ctx, release(ctx)[1]


@pytest.fixture
def copied(made, tmp_path):
    return Path(shutil.copytree(made[1], tmp_path / made[1].name))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("images/000002.png", "images are unchanged"),
        ("exhibits/round-00.png", "exhibits are unchanged"),
    ],
)
def test_verify_tells_what_happened_to_a_picture(made, copied, file, check, damage):
    DAMAGE[damage](copied / file)
    found = failures(copied, made[0].ledger)
    assert list(found) == [check]
    assert found[check].startswith(f"1 {damage}: ")
    with pytest.raises(VerificationError, match=damage):
        verification.raise_on_failure(copied, verification.verify(copied, None))


def test_a_link_a_folder_nothing_or_a_file_elsewhere_is_no_picture_of_a_release(copied, tmp_path):
    file = copied / "images" / "000000.png"
    shutil.move(file, tmp_path / "elsewhere.png")
    file.symlink_to(tmp_path / "elsewhere.png")
    assert "changed" in failures(copied)["images are unchanged"]
    file.unlink()
    file.mkdir()
    assert "changed" in failures(copied)["images are unchanged"]
    file.rmdir()
    shutil.move(tmp_path / "elsewhere.png", file)
    rows = [json.loads(line) for line in (copied / "synthetic.jsonl").read_text().splitlines()]
    rows[0]["file"] = "../../private/000000.png"
    rows[1] |= {"file": rows[2]["file"], "sha256": rows[2]["sha256"]}
    kept = (copied / "synthetic.jsonl").read_text()
    (copied / "synthetic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = failures(copied)["images are unchanged"]
    assert found.startswith("2 named elsewhere or twice")
    (copied / "synthetic.jsonl").write_text(kept)
    for folder in ("images", "exhibits"):
        shutil.rmtree(copied / folder)
    assert set(failures(copied)) == {"images are unchanged", "exhibits are unchanged"}


def test_images_beside_a_release_of_texts_do_not_verify(tmp_path):
    rows = tmp_path / "synthetic.jsonl"
    rows.write_text('{"id": "a", "text": "b"}\n')
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "secret.png").write_bytes(encode(private_image(1)))
    artifact = {
        "file": rows.name,
        "sha256": sha256_file(rows),
        "rows": 1,
        "media_type": "application/jsonl",
    }
    checks = verification._artifact(tmp_path, {"artifact": artifact})
    assert [check.name for check in checks if check.passed is False] == ["images are unchanged"]


def test_the_form_of_the_images_is_part_of_the_release_id_and_texts_have_none(
    project, make_project
):
    one = plan(project.context(), "tiny_images", open_account=True)
    other = project.context("dataset.images.column=scan")
    assert plan(other, "tiny_images", open_account=True).id != one.id
    for form in ("{size: 9, mode: L}", "{size: 28, mode: RGB}"):
        with pytest.raises(ConfigError, match="draws 28x28 L images"):
            plan(project.context(f"dataset.images={form}"), "tiny_images")
    form = {"size": SIZE, "mode": "L", "column": "image"}
    assert one.dataset.model_dump()["images"] == form
    texts = plan(make_project("texts").context(), "invisible_ink", open_account=True)
    assert texts.dataset.model_dump()["images"] is None
    assert json.loads(texts.model_dump_json())["dataset"]["images"] is None


def test_images_of_another_size_stay_in_quarantine(project):
    ctx = project.context("methods.tiny_images.side=9")
    planned, _ = release(ctx)
    with pytest.raises(ValidationFailed, match="expect_column_values_to_be_between"):
        validate(ctx, planned)
    quarantine = ctx.workspace.quarantine(planned.id)
    assert (quarantine / "images" / "000000.png").is_file()
    assert failures(quarantine, ctx.ledger) == {}


def test_a_suite_of_texts_is_refused_before_anything_is_charged(project):
    ctx = project.context("validation.suite=text")
    planned = plan(ctx, "tiny_images", open_account=True)
    with pytest.raises(ConfigError, match="does not fit"):
        reserve(ctx, planned)
    assert ctx.ledger.releases.find(planned.id) is None


def test_evaluation_is_internal_and_names_the_embedder(tmp_path):
    project = image_project(tmp_path / "project", dataset={"holdout": 0.5})
    for number in range(100, 180):
        path = project.root / "private" / LABELS[number % 2] / f"scan{number}.png"
        path.write_bytes(encode(private_image(number)))
    ctx = project.context("methods.tiny_images.images_per_label=15")
    planned, folder = release(ctx)
    with measured_by(Backends({"image_embedder": MeanValues()})):
        internal = evaluate(ctx, planned)
    metrics = {
        metric["name"]: metric
        for metric in json.loads((internal / "evaluation.json").read_text())["metrics"]
    }
    assert {"downstream.accuracy", "fid", "precision", "recall"} <= metrics.keys()
    assert {metric["class"] for metric in metrics.values()} == {"internal"}
    assert "30 a side, 16 features of evaluate.encoder=efficientnet-lite0" in metrics["fid"]["note"]
    assert metrics["downstream.records"]["value"] > 20
    assert (internal / "evaluation.json").stat().st_mode & 0o077 == 0
    assert not (folder / "evaluation.json").exists()
    lines = outcome(ctx, planned)
    assert lines["images"] == "30"
    assert "rows" not in lines
    assert "By a simple classifier" in lines["utility (internal)"]


@pytest.mark.parametrize("place", ["images/notes.txt", "images/deep/a.png", "more/a.png"])
def test_nothing_else_in_a_folder_is_published(project, place):
    from privsyn.publishing import DvcPublisher

    ctx = project.context()
    planned, _ = release(ctx)
    folder = validate(ctx, planned)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(b"x")
    with pytest.raises((VerificationError, DataError)):
        publish(ctx, planned)
    if place != "images/notes.txt":  # a file of the folder is the certificate's affair
        with pytest.raises(DataError, match="not a file of a release"):
            DvcPublisher(project.root).publish(folder)


def test_a_second_attempt_writes_the_same_folder(project):
    ctx = project.context()
    planned = reserve_release(ctx, "tiny_images")
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard)
    building = ctx.workspace.release(planned.id).with_name(f".{planned.id}.new")
    (building / "images").mkdir(parents=True)
    (building / "images" / "left-over.png").write_bytes(b"x")
    folder = certify(ctx, planned)
    assert failures(folder, ctx.ledger) == {}
    assert certify(project.context(), planned) == folder


@pytest.mark.slow
def test_published_exported_and_restored_byte_for_byte(project):
    ctx = project.context()
    ctx.noise = lambda: SeededNoise(4)
    planned, folder = release(ctx)
    folder = validate(ctx, planned)
    before = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert len(before) == 6 + 6 + 2
    answer = publish(ctx, planned)
    assert answer["rows"] == 6
    synthetic = ctx.workspace.synthetic("tiny_images")
    assert {p.relative_to(synthetic).as_posix() for p in synthetic.rglob("*") if p.is_file()} == {
        name.as_posix()
        for name in before
        if name.name not in ("validation.json", "report.html", "report.json", "quality.json")
    }
    # dvc.yaml has the reports in another folder.
    assert set(failures(synthetic, ctx.ledger)) == {"validation reports"}
    shutil.rmtree(folder)
    shutil.rmtree(project.root / ".dvc" / "cache")
    assert restore(ctx, planned.id) == folder
    after = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert after == before
    assert failures(folder, ctx.ledger) == {}


def test_the_owner_is_told_when_an_image_changed_under_its_version(project):
    ctx = project.context()
    planned, _ = release(ctx)
    assert not source_changed(ctx, planned)
    (project.root / "private" / "1" / "scan1.png").write_bytes(encode(private_image(77)) + b" ")
    assert source_changed(project.context(), planned)
