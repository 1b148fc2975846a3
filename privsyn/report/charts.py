"""Charts of a document as inline SVG; colours come from the page's style sheet."""

from __future__ import annotations

from markupsafe import Markup

from privsyn.report.blocks import Counts, Histogram
from privsyn.report.html import render

WIDTH = 340
"""Of a phone's page, so that letters are there as large as they are written."""

PLOT_TOP, PLOT_BOTTOM, LEFT = 36, 190, 40
MAX_BARS = 20


def histogram_chart(histogram: Histogram) -> Markup:
    """A histogram of one number per row, the median marked."""
    edges, counts = histogram.edges, histogram.counts
    step = _tick(max(1, *counts))
    top = -(-max(1, *counts) // step) * step
    scale = (PLOT_BOTTOM - PLOT_TOP) / top
    slot = (WIDTH - LEFT) / len(counts)
    bars = []
    for i, count in enumerate(counts):
        last = i == len(counts) - 1 and histogram.longer
        bars.append(
            {
                "span": f"{edges[i]:,} or more" if last else _span(edges[i], edges[i + 1] - 1),
                "count": count,
                "x": LEFT + i * slot + 1,
                "y": PLOT_BOTTOM - count * scale,
                "width": slot - 2,
                "height": count * scale,
            }
        )
    bins = min(max(0.0, (histogram.median - edges[0]) / (edges[1] - edges[0])), len(counts))
    return render(
        "histogram.html",
        of=histogram.of,
        things=histogram.things,
        median=f"{histogram.median:g}",
        mark=LEFT + bins * slot,
        lines=[(value, PLOT_BOTTOM - value * scale) for value in range(0, top + 1, step)],
        bars=bars,
        edges=[(LEFT + i * slot, text, anchor) for i, text, anchor in _edge_labels(histogram)],
        left=LEFT,
        width=WIDTH,
        bottom=PLOT_BOTTOM,
    )


def label_chart(counts: Counts) -> Markup:
    """Things per name as horizontal bars, in the given order; at most twenty."""
    labels = counts.items
    shown = list(labels[:MAX_BARS])
    most = max((count for _, count in shown), default=0) or 1
    name_width = min(150, 16 + 7 * max((len(_short(label)) for label, _ in shown), default=0))
    count_width = 12 + 7 * len(f"{most:,}")
    pitch = 36 if len(shown) <= 6 else 26 if len(shown) <= 10 else 21
    height = len(shown) * pitch + 6
    room = WIDTH - name_width - count_width
    bars = [
        {
            "label": label,
            "short": _short(label),
            "count": count,
            "middle": i * pitch + pitch / 2 + 3,
            "width": max(room * count / most, 1 if count else 0),
        }
        for i, (label, count) in enumerate(shown)
    ]
    return render(
        "labels.html",
        of=counts.of,
        bars=bars,
        left=name_width,
        width=WIDTH,
        height=height,
        pitch=pitch,
    )


def _edge_labels(histogram: Histogram) -> list[tuple[float, str, str]]:
    """Position in bins, text and anchor of at most seven labels under the bars."""
    edges, bins = histogram.edges, len(histogram.counts)
    every = -(-bins // 6)
    last = bins - 1 if histogram.longer else bins
    labels = [(float(i), f"{edges[i]:,}", "middle") for i in range(0, bins, every)]
    labels = [label for label in labels if last - label[0] >= every]
    if histogram.longer:
        return [*labels, (float(bins), f"{edges[-2]:,}+", "end")]
    return [*labels, (float(bins), f"{edges[-1]:,}", "end")]


def _short(label: str) -> str:
    return label if len(label) <= 19 else label[:17] + "..."


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _tick(top: int) -> int:
    """A round step that gives at most five grid lines."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if top <= 5 * step:
                return step
        power *= 10
