"""Plots of a release as PNG files. The title of a plot of held-out real data says so."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privsyn.data.artifacts import atomic_file
from privsyn.data.words import word_count
from privsyn.evaluation.metrics import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID, BAR, MARK = "#16202c", "#566270", "#e1e5ea", "#3d6fb4", "#b5521b"
WIDTH = 7.2
MAX_BARS = 30
OF_SYNTHETIC = frozenset({"lengths.png", "labels.png", "samples.png"})
"""Plots of the synthetic file alone."""

IN_REPORT = OF_SYNTHETIC | {"recall.png"}
"""Plots that a report draws as SVG and does not copy."""


def draw_plots(
    folder: Path, texts: Sequence[str], labels: Sequence[str | None], metrics: Sequence[Metric]
) -> list[Path]:
    """Draw the plots for which there is data.

    ``lengths.png`` and ``labels.png`` show the synthetic file alone. ``recall.png`` shows the
    downstream metrics of each label and is internal.

    Returns:
        The files written.

    Raises:
        StorageError: Disk full or no permission.
    """
    plots: list[tuple[str, Figure]] = []
    if texts:
        plots.append(("lengths.png", _lengths(texts)))
    plots += _label_plots("texts", labels, metrics)
    return [_save(figure, folder / name) for name, figure in plots]


def draw_image_plots(
    folder: Path, sheet: bytes | None, labels: Sequence[str | None], metrics: Sequence[Metric]
) -> list[Path]:
    """As draw_plots, with a contact sheet of the images, ``samples.png``, in place of lengths.

    Raises:
        StorageError: Disk full or no permission.
    """
    files = []
    if sheet is not None:
        files.append(folder / "samples.png")
        with atomic_file(files[0]) as stream:
            stream.write(sheet)
    plots = _label_plots("images", labels, metrics)
    return files + [_save(figure, folder / name) for name, figure in plots]


def _label_plots(
    things: str, labels: Sequence[str | None], metrics: Sequence[Metric]
) -> list[tuple[str, Figure]]:
    """Rows per label and recall per label, if there are labels."""
    names = list(dict.fromkeys(label for label in labels if label is not None))
    counts = Counter(labels)
    recall = {
        metric.label: metric.value
        for metric in metrics
        if metric.label is not None and metric.name.startswith("downstream.recall.")
    }
    plots: list[tuple[str, Figure]] = []
    if names:
        plots.append(("labels.png", _labels(things, {name: counts[name] for name in names})))
    if recall:
        accuracy = next((m.value for m in metrics if m.name == "downstream.accuracy"), None)
        plots.append(("recall.png", _recall(recall, accuracy)))
    return plots


def _lengths(texts: Sequence[str]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    words = np.array([word_count(text) for text in texts])
    median, top = float(np.median(words)), float(np.quantile(words, 0.99, method="lower"))
    figure, axes = _figure("Length of the synthetic texts", 3.6)
    width = max(1, round((top - words.min()) / 30))
    edges = np.arange(words.min(), top + width + 1, width)
    counts, _, _ = axes.hist(
        np.minimum(words, edges[-1] - 1), bins=edges.tolist(), color=BAR, rwidth=0.94
    )
    axes.set_ylim(0, 1.14 * np.max(counts))  # room for the label of the median
    axes.set_xlim(edges[0], edges[-1])
    axes.axvline(median, color=INK, linewidth=1, linestyle=(0, (3, 3)))
    axes.annotate(
        f"median {median:g}",
        (median, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(5, -9),
        textcoords="offset points",
        color=INK,
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))  # counts are integers
    axes.yaxis.grid(True, color=GRID)
    above = int((words >= edges[-1]).sum())
    longer = f" ({above:,} longer than {edges[-1] - 1:,.0f} in the last bar)" if above else ""
    axes.set_xlabel(f"words per text{longer}", color=SOFT)
    axes.set_ylabel("texts", color=SOFT)
    return figure


def _labels(things: str, counts: dict[str, int]) -> Figure:
    shown = list(counts)[:MAX_BARS]
    title = f"Synthetic {things} per label" + _cut_note(len(counts))
    figure, axes = _bars(title, shown, [counts[label] for label in shown], "{:,.0f}", BAR)
    axes.set_xlim(0, max(counts.values()))
    axes.xaxis.set_visible(False)
    return figure


def _recall(recall: dict[str, float], accuracy: float | None) -> Figure:
    shown = list(recall)[:MAX_BARS]
    title = "Recall per label on held-out real records [internal]" + _cut_note(len(recall))
    figure, axes = _bars(title, shown, [recall[label] for label in shown], "{:.2f}", MARK)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.grid(True, color=GRID)
    if accuracy is not None:
        axes.axvline(accuracy, color=INK, linewidth=1, linestyle=(0, (3, 3)))
    line = "" if accuracy is None else f"; dashed: accuracy {accuracy:.3f}"
    axes.set_xlabel(f"trained on synthetic, tested on real{line}", color=SOFT)
    return figure


def _bars(
    title: str, names: Sequence[str], values: Sequence[float], form: str, color: str
) -> tuple[Figure, Axes]:
    figure, axes = _figure(title, 1.3 + 0.34 * len(names))
    axes.barh(range(len(names)), values, height=0.66, color=color)
    for row, value in enumerate(values):
        text = axes.text(1.015, row, form.format(value), va="center_baseline", color=INK)
        text.set_transform(axes.get_yaxis_transform())
    axes.set_yticks(range(len(names)), [_plain(name) for name in names], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines["bottom"].set_visible(False)
    return figure, axes


def _cut_note(count: int) -> str:
    return f" (first {MAX_BARS} of {count})" if count > MAX_BARS else ""


def _plain(label: str) -> str:
    """A label as literal text: matplotlib reads dollar signs as mathematics."""
    short = label if len(label) <= 32 else label[:30] + "..."
    return short.replace("$", r"\$")


def _figure(title: str, height: float) -> tuple[Figure, Axes]:
    """A figure outside pyplot's global list: it is freed with its last reference."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(WIDTH, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    figure.suptitle(title, x=0.018, ha="left", color=INK, fontsize=12, fontweight="bold")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(colors=SOFT, length=0)
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Figure, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a label in another script
        with atomic_file(path) as stream:  # 0600: some of it is internal
            figure.savefig(stream, format="png", dpi=150, metadata={"Software": None})
    return path


def draw_choice(
    points: Sequence[tuple[str, float, float, float | None, float | None]],
    baselines: Mapping[str, float],
    of: str = "accuracy",
) -> bytes:
    """Epsilon against accuracy as a PNG file, each method a line with its intervals. Internal.

    Args:
        points: Method, epsilon, accuracy and the ends of its interval, if it has one; at least
            one point.
        baselines: Accuracies of free or unattainable references, by name.
        of: Name of the measure on the y-axis.
    """
    figure, axes = _figure(f"Epsilon against {of}, by held-out real records [internal]", 3.8)
    for number, method in enumerate(dict.fromkeys(name for name, *_ in points)):
        line = sorted((point[1:] for point in points if point[0] == method), key=lambda p: p[0])
        color = (BAR, MARK, INK, SOFT)[number % 4]
        x, y, *_ = zip(*line, strict=True)
        axes.plot(x, y, marker="o", color=color, label=_plain(method))
        for epsilon, _, low, high in line:
            if low is not None and high is not None:
                axes.vlines(epsilon, low, high, color=color, linewidth=1)
    for number, (name, value) in enumerate(baselines.items()):
        style = (0, (4, 2 + 2 * number))
        axes.axhline(value, color=SOFT, linewidth=1, linestyle=style, label=_plain(name))
    ticks = sorted({epsilon for _, epsilon, *_ in points})
    if len(ticks) > 1:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        axes.xaxis.minorticks_off()
    axes.set_ylim(0, 1)
    axes.yaxis.grid(True, color=GRID)
    axes.set_xlabel("epsilon of the release", color=SOFT)
    axes.set_ylabel(of, color=SOFT)
    figure.legend(loc="outside right center", frameon=False, labelcolor=INK)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()
