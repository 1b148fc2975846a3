"""A modality is chosen in one place, and every table that goes by its name knows it."""

import ast
import itertools
import json
import re
from datetime import date
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from privsyn.data.columns import Column, in_cells
from privsyn.data.settings import ImageConfig
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.modalities.images import Images
from privsyn.modalities.registry import MODALITIES, drawn_with, modality_of
from privsyn.modalities.table import Tables
from privsyn.modalities.text import TEXTS, Texts
from privsyn.release.plan import DatasetIdentity
from privsyn.report.outward import outward
from privsyn.validation.suite import SHIPPED
from tests.unit.report.release_folder import seal_folder

PRIVSYN = Path(__file__).parents[3] / "privsyn"
FORM = ImageConfig(size=8, mode="L")


COLUMNS = {"age": Column(range=(18, 95))}
YEAR = (date(2024, 1, 1), date(2024, 12, 31))


def identity(images, **changes):
    return DatasetIdentity.model_validate(
        {"name": "some", "version": "v1", "label": None, "labels": (), "text": "{a}: {b}",
         "unit": None, "holdout": 0, "images": images, **changes}
    )  # fmt: skip


def test_the_settings_say_of_which_modality_a_dataset_is():
    assert modality_of(identity(None)) == TEXTS
    assert modality_of(identity(FORM)) == modality_of(identity(FORM, text=None)) == Images(FORM)
    assert modality_of(identity(None, text=None, columns=COLUMNS)) == Tables(COLUMNS)


def test_a_record_and_a_row_in_its_cells_read_alike():
    """Else the audit would miss whoever is outside of a declared range."""
    columns = COLUMNS | {"way": Column(values=("web",)), "day": Column(dates=YEAR)}
    rng = np.random.default_rng(1)
    for row in itertools.product(*(range(len(one.cells)) for one in columns.values())):
        drawn = {
            name: one.draw(cell, rng)
            for (name, one), cell in zip(columns.items(), row, strict=True)
        }
        assert Tables(columns).read_released(Path(), drawn) == in_cells(columns, row)


def test_the_models_say_what_a_method_draws():
    assert drawn_with(("language",)) is drawn_with(("embedder", "text")) is Texts
    assert drawn_with(("image_embedder", "image")) is Images
    assert drawn_with((), columns_alone=True) is Tables
    assert drawn_with(()) is Texts, "of a method without models"


def test_every_modality_is_checked_and_shown(tmp_path):
    (tmp_path / "synthetic.jsonl").write_bytes(b"")
    suites = {modality.suite for modality in MODALITIES.values()}
    assert {file.stem for file in SHIPPED.glob("*.json")} == suites
    for modality in (TEXTS, Images(FORM), Tables(COLUMNS)):
        assert list(modality.rows(tmp_path / "synthetic.jsonl")) == []
        written = modality.write(tmp_path / modality.name, [])
        table = {"text": None, "columns": {"age": {"range": [18, 95]}}}
        plan = {"dataset": table, "columns": {}} if isinstance(modality, Tables) else {}
        seal_folder(written.path.parent, 0, media=written.media_type, plan=plan)
        assert f"0 synthetic {modality.things}" in outward(written.path.parent).to_html()


def test_private_evolution_takes_every_modality_that_models_draw():
    annotation = PrivateEvolutionConfig.model_fields["modality"].annotation
    drawn = [modality for modality in MODALITIES.values() if modality is not Tables]
    assert set(get_args(annotation)) == {modality.name for modality in drawn}
    for modality in drawn:
        assert modality.embedder in modality.sampled_by
        assert modality.generator is None or modality.generator in modality.sampled_by


@pytest.mark.parametrize("images", [None, FORM])
def test_content_of_the_other_modality_is_refused_without_being_shown(images):
    content = "secret" if images else b"secret"
    with pytest.raises(TypeError) as refused:
        modality_of(identity(images)).entry(content)
    assert "secret" not in str(refused.value)


def test_a_drawn_text_holds_no_character_that_the_suite_refuses():
    suite = json.loads((SHIPPED / "text.json").read_text())
    (refused,) = (
        expectation["kwargs"]["regex"]
        for expectation in suite["expectations"]
        if expectation.get("description", "").startswith("No control characters")
    )
    drawn = "".join(map(chr, range(0x300)))
    (kept,) = modality_of(identity(None)).entry(drawn).values()
    assert kept == re.sub(refused, "", drawn) != drawn
    assert {"\t", "\n", "\r", " ", "a", "\u00e9"} <= set(kept)


def test_nobody_else_asks_whether_records_are_images():
    asked = {
        file.relative_to(PRIVSYN).as_posix()
        for file in PRIVSYN.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Compare | ast.IfExp | ast.If | ast.BoolOp)
        for part in ast.walk(node if isinstance(node, ast.Compare | ast.BoolOp) else node.test)
        if isinstance(part, ast.Attribute) and part.attr == "images"
    }
    # config.py chooses a method's presets, before there is a dataset; its settings refuse what is
    # for texts alone.
    choose = {"modalities/registry.py", "data/contents.py", "config.py", "data/settings.py"}
    assert asked == choose


def test_prompts_say_names_of_code_in_words_where_nothing_else_is_said_for_them():
    labels = ("card_arrival", "__", "Sci/Tech", "a_b")
    own = identity(None).model_copy(
        update={"labels": labels, "label_descriptions": {"a_b": "alpha"}}
    )
    assert dict(own.subject.descriptions) == {"card_arrival": "card arrival", "a_b": "alpha"}
