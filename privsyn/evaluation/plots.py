"""The picture of a comparison: epsilon against accuracy, as a PNG file. Internal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID, BAR, MARK = "#16202c", "#566270", "#e1e5ea", "#3d6fb4", "#b5521b"
WIDTH = 7.2


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
