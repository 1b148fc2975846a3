"""Plots are written, are images, and say what they show."""

import sys
from pathlib import Path

import pytest

from privsyn.errors import StorageError
from privsyn.evaluation import plots
from privsyn.evaluation.metrics import Metric
from privsyn.evaluation.plots import draw_plots

TEXTS = ["my knee hurts", "the bill is wrong again and again", "hello"] * 5
LABELS = ["Symptoms", "Billing", None] * 5
RECALL = [
    Metric("downstream.accuracy", 0.8, "internal", "accuracy"),
    Metric("downstream.recall.billing", 0.9, "internal", "recall", "Billing"),
    Metric("downstream.recall.symptoms", 0.0, "internal", "recall", "Symptoms"),
]


def test_each_plot_is_an_image(tmp_path: Path) -> None:
    from matplotlib.image import imread

    files = draw_plots(tmp_path / "plots", TEXTS, LABELS, RECALL)
    assert [file.name for file in files] == ["lengths.png", "labels.png", "recall.png"]
    for file in files:
        image = imread(file)
        assert image.shape[0] > 100
        assert image.shape[1] > 500
        assert image.min() < image.max()


def test_only_what_there_is_data_for_is_drawn(tmp_path: Path) -> None:
    assert draw_plots(tmp_path, [], [], []) == []
    assert [file.name for file in draw_plots(tmp_path, ["", ""], [], [])] == ["lengths.png"]


def test_held_out_data_is_labeled_internal() -> None:
    figure = plots._recall({"Billing": 0.5}, 0.5)
    assert "[internal]" in figure.get_suptitle()
    for public in (plots._lengths(TEXTS), plots._labels("texts", {"Billing": 3})):
        assert "internal" not in public.get_suptitle()


def test_titles_fit_the_picture() -> None:
    labels = {f"a label with a name that does not want to end {i}": i / 40 for i in range(40)}
    figure = plots._recall(labels, None)
    figure.canvas.draw()  # type: ignore[attr-defined]
    title = figure.texts[0].get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= figure.bbox.x1


@pytest.mark.parametrize("label", ["$x^$ _{", r"\frac", "\u9884\u7ea6", "a" * 500, "", "\n"])
def test_any_label_can_be_drawn(tmp_path: Path, label: str) -> None:
    metric = Metric("downstream.recall.x", 0.5, "internal", "n", label)
    assert len(draw_plots(tmp_path, ["x"], [label], [metric])) == 3


def test_one_giant_text_does_not_squash_the_rest() -> None:
    figure = plots._lengths([*TEXTS, "word " * 50_000])
    low, high = figure.axes[0].get_xlim()
    assert high - low < 20
    assert "1 longer than" in figure.axes[0].get_xlabel()


def test_pyplot_and_its_global_state_are_not_used(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    draw_plots(tmp_path, TEXTS, LABELS, RECALL)
    assert ("matplotlib.pyplot" in sys.modules) is before


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StorageError, match="taken"):
        draw_plots(tmp_path / "taken", TEXTS, LABELS, RECALL)


@pytest.mark.parametrize("texts", [["a b c", "a b c d", "a"], ["a b"] * 3, TEXTS])
def test_texts_are_counted_in_whole_numbers(texts):
    (axes,) = plots._lengths(texts).axes
    assert all(float(tick).is_integer() for tick in axes.get_yticks())
