"""Releases as folders for others' tools."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pandas as pd
import pytest
import yaml
from PIL import Image

from privsyn.errors import ConfigError, ValidationFailed, VerificationError
from privsyn.export import FORMATS, dataset_card, export
from privsyn.release import certificate
from privsyn.release.facts import ReleaseFacts
from privsyn.report import verification
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate, write_report
from tests.integration.e2e.small_project import (
    CANARY,
    build_project,
    finish,
    reseal,
    reserve_release,
    rows,
    stand_in,
    times,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    from privsyn.methods.base import Backends

    made = build_project(tmp_path_factory.mktemp("handover") / "p")
    made.write([row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)])
    ctx = made.context("privacy.epsilon=2")
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends({"language": stand_in()}))
    validate(ctx, planned)
    settle(ctx, planned)
    return made


@pytest.fixture(scope="module")
def folder(project):
    return sorted((project.root / "releases").glob("invisible_ink-????????????????"))[0]


def failed(folder):
    report = json.loads((folder / "validation.json").read_text())
    (folder / "validation.json").write_text(json.dumps(report | {"success": False}))
    write_report(folder)


@pytest.mark.parametrize("form", FORMATS)
def test_others_tools_read_an_export(folder, tmp_path, form):
    from datasets import load_dataset

    made = export(folder, form, tmp_path / "out", license="cc-by-4.0")
    read = load_dataset(str(made), cache_dir=str(tmp_path / "cache"))["train"]
    with (folder / "synthetic.jsonl").open() as stream:
        texts = [json.loads(line)["text"] for line in stream]
    assert read["txt" if form == "webdataset" else "text"] == texts
    assert all(check.passed is not False for check in verification.verify(made / "release", None))
    assert (made / "certificate.json").read_bytes() == (folder / "certificate.json").read_bytes()
    assert times(made) == times(folder)
    assert len(times(folder)) == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["out"]


def test_words_of_settings_are_no_mark_up_on_the_card(folder):
    sealed = certificate.read(folder)[1]
    sealed["plan"]["dataset"]["labels"] = ["a|b\n---\nlicense: mit", "<script>", "[x](y)"]
    card = dataset_card(ReleaseFacts(sealed), "hf", None)
    assert "<script>" not in card
    assert "license" not in yaml.safe_load(card.split("---\n")[1])
    assert "| a\\|b --- license: mit, \\<script\\>, \\[x\\](y) |" in card


def test_a_cell_that_a_spreadsheet_would_compute_is_text(tmp_path, folder):
    cells = ["=cmd|'/C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "plain", 'a "b", c\nd']
    written = [{"id": str(n), "text": cell} for n, cell in enumerate(cells)]
    FORMATS["csv"][0](written, tmp_path, folder)
    with (tmp_path / "train.csv").open(encoding="utf-8", newline="") as stream:
        read = [row["text"] for row in csv.DictReader(stream)]
    assert read == [f"'{cell}" for cell in cells[:6]] + cells[6:]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    from tests.integration.e2e import tiny_images

    with pytest.MonkeyPatch.context() as patch:
        tiny_images.register(patch)
        made = tiny_images.image_project(tmp_path_factory.mktemp("pictures") / "p")
        ctx = made.context()
        planned = reserve_release(ctx, "tiny_images")
        finish(ctx, planned, None)
        folder = validate(ctx, planned)
        settle(ctx, planned)
    return folder


@pytest.mark.parametrize("form", FORMATS)
def test_others_tools_read_an_export_of_images(pictures, tmp_path, form, monkeypatch):
    """By ``datasets`` as the card says; Parquet, CSV and JSON Lines by pandas, too."""
    from datasets import DatasetInfo, load_dataset
    from huggingface_hub import DatasetCard

    from tests.integration.e2e import tiny_images

    tiny_images.register(monkeypatch)
    made = export(pictures, form, tmp_path / "out")
    rows = [json.loads(line) for line in (pictures / "synthetic.jsonl").read_text().splitlines()]
    pixels = [Image.open(pictures / row["file"]).tobytes() for row in rows]
    card = DatasetCard.load(made / "README.md").data
    assert card.task_categories == ["image-classification"]
    found = load_dataset(str(made), cache_dir=str(tmp_path / "cache"))["train"]
    if form == "webdataset":
        assert [one["png"].tobytes() for one in found] == pixels
        said = [{"id": row["id"], "label": row["label"]} for row in rows]
        assert list(found["json"]) == said
    elif form in ("hf", "parquet"):
        assert found.features == DatasetInfo._from_yaml_dict(card.dataset_info).features
        assert [one["image"].tobytes() for one in found] == pixels
        frame = pd.read_parquet(made / "data/train.parquet")
        read = [Image.open(io.BytesIO(one["bytes"])).tobytes() for one in frame["image"]]
        assert (read, list(frame["label"])) == (pixels, [row["label"] for row in rows])
    else:
        frame = (
            pd.read_csv(made / "train.csv", dtype=str)
            if form == "csv"
            else pd.read_json(made / "train.jsonl", lines=True, dtype=False)
        )
        assert list(frame["file"]) == list(found["file"]) == [row["file"] for row in rows]
        assert [Image.open(made / name).tobytes() for name in frame["file"]] == pixels


def test_what_is_not_a_whole_valid_private_release_is_not_exported(project, folder, tmp_path):
    copy = tmp_path / folder.name

    def fresh():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        return copy

    with pytest.raises(ConfigError, match="Did you mean parquet"):
        export(folder, "parqet", tmp_path / "out")
    with pytest.raises(ConfigError, match="already exists"):
        export(folder, "csv", fresh())
    with pytest.raises(ConfigError, match="inside the release itself"):
        export(folder, "csv", folder / "inner")
    with (fresh() / "synthetic.jsonl").open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(VerificationError, match="artifact is unchanged"):
        export(copy, "csv", tmp_path / "out")
    failed(fresh())
    with pytest.raises(ValidationFailed, match="failed its checks"):
        export(copy, "csv", tmp_path / "out")
    (fresh() / "validation.json").unlink()
    with pytest.raises(VerificationError, match="report"):
        export(copy, "csv", tmp_path / "out")
    fresh()
    sealed = certificate.read(copy)[1] | {"class": "not-private", "noise": "seeded"}
    reseal(copy, sealed)
    write_report(copy)
    with pytest.raises(VerificationError, match="predictable noise"):
        export(copy, "csv", tmp_path / "out")
    with pytest.raises(VerificationError, match="ledger digests"):
        export(copy, "csv", tmp_path / "out", ctx=project.context())
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_full_disk_leaves_no_half_of_an_export(folder, tmp_path, full_disk):
    from privsyn.errors import StorageError

    with full_disk(2000), pytest.raises(StorageError, match="cannot write"):
        export(folder, "csv", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
