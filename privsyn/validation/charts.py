"""Charts of the validation page as inline SVG; colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from privsyn.validation.profile import Histogram

WIDTH = 460
PLOT_TOP, PLOT_BOTTOM, LEFT = 22, 190, 46
MAX_BARS = 20


def histogram_chart(histogram: Histogram, median: float, *, of: str, things: str) -> str:
    """A histogram of one number per row, the median marked.

    Args:
        histogram: The histogram.
        median: In the unit of its edges.
        of: What the number is, such as ``words per text``.
        things: What the rows are, such as ``texts``.
    """
    edges, counts = histogram.edges, histogram.counts
    step = _tick(max(counts))
    top = -(-max(counts) // step) * step
    scale = (PLOT_BOTTOM - PLOT_TOP) / top
    slot = (WIDTH - LEFT) / len(counts)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} 232" role="img" '
        f'aria-label="Histogram of {of}, median {median:g}">'
    ]
    for value in range(0, top + 1, step):
        y = PLOT_BOTTOM - value * scale
        style = "grid" if value else "axis"
        parts.append(f'<line class="{style}" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,}</text>')
    for i, count in enumerate(counts):
        last = i == len(counts) - 1 and histogram.longer
        span = f"{edges[i]:,} or more" if last else _span(edges[i], edges[i + 1] - 1)
        parts.append(
            f'<rect class="bar" x="{LEFT + i * slot + 1:.1f}" '
            f'y="{PLOT_BOTTOM - count * scale:.1f}" width="{slot - 2:.1f}" '
            f'height="{count * scale:.1f}"><title>{span}: {count:,} {things}</title></rect>'
        )
    parts += [
        f'<text x="{LEFT + i * slot:.1f}" y="{PLOT_BOTTOM + 17}" '
        f'text-anchor="{anchor}">{text}</text>'
        for i, text, anchor in _edge_labels(histogram)
    ]
    x = LEFT + min(max(0.0, (median - edges[0]) / (edges[1] - edges[0])), len(counts)) * slot
    anchor = "end" if x > WIDTH - 70 else "start"
    parts.append(
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{PLOT_BOTTOM}"/>'
        f'<text class="marked" x="{x + (-6 if anchor == "end" else 6):.1f}" y="15" '
        f'text-anchor="{anchor}">median {median:g}</text>'
        f'<text x="{(LEFT + WIDTH) / 2}" y="226" text-anchor="middle">{of}</text></svg>'
    )
    return "".join(parts)


def label_chart(labels: Sequence[tuple[str, int]]) -> str:
    """Rows per label as horizontal bars, in the given order; at most twenty."""
    shown = list(labels[:MAX_BARS])
    most = max((count for _, count in shown), default=0) or 1
    name_width = min(190, 16 + 7 * max((len(label) for label, _ in shown), default=0))
    count_width = 12 + 7 * len(f"{most:,}")
    pitch = 36 if len(shown) <= 6 else 26 if len(shown) <= 10 else 21
    height = len(shown) * pitch + 6
    room = WIDTH - name_width - count_width
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Rows per label">'
    ]
    for i, (label, count) in enumerate(shown):
        middle = i * pitch + pitch / 2 + 3
        width = max(room * count / most, 1 if count else 0)
        parts.append(
            f'<text class="name" x="0" y="{middle + 4:.1f}">{escape(_short(label))}'
            f"<title>{escape(label)}</title></text>"
            f'<rect class="bar" x="{name_width}" y="{middle - pitch * 0.32:.1f}" '
            f'width="{width:.1f}" height="{pitch * 0.64:.1f}"/>'
            f'<text x="{name_width + width + 7:.1f}" y="{middle + 4:.1f}">{count:,}</text>'
        )
    return "".join(parts) + "</svg>"


def _edge_labels(histogram: Histogram) -> list[tuple[float, str, str]]:
    """Position in bins, text and anchor of at most nine labels under the bars."""
    edges, bins = histogram.edges, len(histogram.counts)
    every = -(-bins // 8)
    last = bins - 1 if histogram.longer else bins
    labels = [(float(i), f"{edges[i]:,}", "middle") for i in range(0, bins, every)]
    labels = [label for label in labels if last - label[0] >= every]
    if histogram.longer:
        return [*labels, (last + 0.5, f"{edges[-2]:,}+", "middle")]
    return [*labels, (float(bins), f"{edges[-1]:,}", "end")]


def _short(label: str) -> str:
    return label if len(label) <= 25 else label[:23] + "..."


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
