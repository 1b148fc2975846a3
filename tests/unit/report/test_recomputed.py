"""Every number of the document that may leave the room, of every kind of release, once more."""

import json
from typing import Any

import numpy as np
import pytest

from privsyn import layout
from privsyn.data.artifacts import sha256_file
from privsyn.data.images import encode
from privsyn.data.profile import read_image_rows
from privsyn.data.settings import ImageConfig
from privsyn.dp.accuracy import STEPS, NoisyAccuracy
from privsyn.dp.adjacency import Adjacency
from privsyn.evaluation.embeddings import fidelity
from privsyn.evaluation.images import image_fidelity
from privsyn.modalities.images import Images
from privsyn.release.certificate import accuracy_figures
from privsyn.stages.validate import write_report
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import validate_file
from tests.unit.report import recomputed
from tests.unit.report.recomputed import forms
from tests.unit.report.release_folder import note_checks, seal_folder, write_rows
from tests.unit.validation.synthetic_files import LABELS, good_rows


def written(folder, rows, labels=LABELS, **kind):
    file = folder / layout.ARTIFACT
    result = validate_file(file, ValidationConfig(), tuple(labels), (rows, rows), **kind)
    texts = [row.get("text") for row in recomputed.rows_of(folder)]
    found = image_fidelity(read_image_rows(file)) if kind else fidelity(texts)
    note_checks(folder, result, numbers=[one.to_json() for one in found], cautions=[])
    write_report(folder)
    return folder


def compare(folder):
    """Every number of JSON and page; and that a change of the records would be seen."""
    assert recomputed.check(folder) > 40
    known = {form for value in recomputed.numbers(folder).values() for form in forms(value)}
    known |= {form for name in recomputed.numbers(folder) for form in forms(name)}  # of sizes
    more = recomputed.on_page(folder) - recomputed.sayable(folder) - known
    assert more <= {"10", "255"}  # of powers of ten; what a white pixel is
    rows = (folder / layout.ARTIFACT).read_text().splitlines()
    (folder / layout.ARTIFACT).write_text("".join(f"{row}\n" for row in rows[:-3]))
    with pytest.raises(AssertionError):
        recomputed.check(folder)


def read(folder):
    found: dict[str, Any] = json.loads((folder / layout.REPORT_JSON).read_text())
    return found


def test_images(tmp_path):
    (tmp_path / layout.IMAGES).mkdir()
    rng, rows = np.random.default_rng(3), []
    for i in range(20):
        name = f"{layout.IMAGES}/{i:06d}.png"
        pixels = (
            rng.integers(0, 40 + 10 * i, (9, 7), np.uint8)
            if i % 5
            else np.full((9, 7), 80, np.uint8)
        )
        (tmp_path / name).write_bytes(encode(pixels))
        sha = sha256_file(tmp_path / name)
        rows.append({"id": f"i-{i}", "label": LABELS[i % 2], "file": name, "sha256": sha})
    write_rows(tmp_path, rows)
    seal_folder(tmp_path, 20, LABELS, media=layout.IMAGE_ROWS)
    written(tmp_path, 20, modality=Images(ImageConfig(size=9, mode="L")))
    found = {block["kind"] for _, block in recomputed.blocks(read(tmp_path))}
    assert {"histogram", "counts", "picture", "numbers"} <= found
    compare(tmp_path)


@pytest.mark.parametrize("right", [125, -4000])
def test_an_accuracy_that_was_paid_for(tmp_path, right):
    """Also one that is lost in noise."""
    write_rows(tmp_path, good_rows())
    mechanism = NoisyAccuracy(0.5, Adjacency.ADD_REMOVE)
    paid = accuracy_figures(mechanism, right * STEPS, (75 if right > 0 else right) * STEPS)
    seal_folder(tmp_path, 40, LABELS, accuracy=paid)
    compare(written(tmp_path, 40))
