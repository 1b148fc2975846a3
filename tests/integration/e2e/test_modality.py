"""plan refuses a generator that draws something else than the dataset holds, before any cost."""

from __future__ import annotations

import pytest

from privsyn.errors import ConfigError, ModelError
from privsyn.stages.plan import plan

DIGITS = (
    "dataset.images={size: 28, mode: L}",
    'dataset.labels=["0", "1"]',
    "methods.private_evolution={modality: image, population: 4, rounds: 1, degrees: [0.5]}",
)


def planned(make_project, method, *overrides):
    ctx = make_project().context(*overrides)
    found = plan(ctx, method)
    assert not (ctx.workspace.state / "ledger.db").exists()
    return found


def test_images_for_images(make_project):
    found = planned(make_project, "private_evolution", *DIGITS)
    assert set(found.models) == {"image", "image_embedder"}
    assert found.dataset.images is not None


def test_foreign_labels_where_classes_are_none_of_them(make_project):
    foreign = (*DIGITS, "dataset.labels=[benign, malignant]", "models.image_class=any")
    project = make_project()
    found = plan(project.context(*foreign), "private_evolution")
    assert found.models["image"].revision.endswith("+class=any")
    ours = plan(project.context(*DIGITS), "private_evolution")
    assert found.privacy_event() == ours.privacy_event()


@pytest.mark.parametrize(
    ("method", "overrides", "error", "message", "hint"),
    [
        ("invisible_ink", DIGITS, ConfigError, "draws texts, and dataset letters holds images",
         "Use private_evolution for images"),
        ("private_evolution", DIGITS[1:], ConfigError, "draws images, and dataset letters holds",
         "modality=text"),
        ("private_evolution", (*DIGITS[:2], "methods.private_evolution.modality=text"),
         ConfigError, "draws texts, and dataset letters holds images", "modality=image"),
        ("private_evolution", (*DIGITS, "dataset.images.size=32"), ConfigError,
         "draws 28x28 L images, and dataset.images asks for 32x32 L", "dataset.images.size=28"),
        ("private_evolution", (*DIGITS, "dataset.images.mode=RGB"), ConfigError,
         "asks for 28x28 RGB", "mode=L"),
        ("private_evolution", (*DIGITS, 'dataset.labels=["0", "ten"]'), ModelError,
         "label 'ten' is not one of the model's", "dataset.labels"),
        ("private_evolution", (*DIGITS, 'dataset.labels=["0", "ten"]'), ModelError,
         "is not one of the model's", "models.image_class=any"),
        ("private_evolution", (*DIGITS, "models.image_embedder=/no/such/folder"), ModelError,
         "no such directory", "directory"),
        *(("private_evolution", (*DIGITS, f"evaluate.encoder={name}"), ModelError,
           f"evaluate.encoder={name}: there is no such directory", "directory")
          for name in ("/no/such/folder", "google/vit")),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    make_project, method, overrides, error, message, hint
):
    with pytest.raises(error) as refused:
        planned(make_project, method, *overrides)
    assert message in refused.value.message
    assert hint in refused.value.hint
