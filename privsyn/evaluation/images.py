"""Synthetic against real images: variety, a classifier, distances in the features of an embedder.

FID and precision and recall are estimates that move with the number of images and with the
embedder: every note says both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data.images import Pixels
from privsyn.evaluation.classify import score
from privsyn.evaluation.metrics import Metric
from privsyn.models.protocols import Embedder

if TYPE_CHECKING:
    from privsyn.validation.image_profile import ImageRow

Features = NDArray[np.float64]

NEIGHBOURS = 3
"""k of the manifolds, as in the paper."""
_FEWEST = 20
_SIDE = 32
_MOST_TRAINED = 10_000
_ROWS_PER_PASS = 512


def image_fidelity(rows: Sequence[ImageRow]) -> list[Metric]:
    """Metrics of the synthetic images alone: ``dp-release``. What cannot be computed is left out.

    Args:
        rows: Lines of the synthetic file; images that cannot be read count in ``images`` alone.
    """
    readable = [row for row in rows if row.readable]
    metrics = [Metric("images", float(len(rows)), "dp-release", "synthetic images")]
    if not readable:
        return metrics
    different = len({row.pixels_sha256 for row in readable})
    means = [row.mean for row in readable if row.mean is not None]
    spreads = [row.spread for row in readable if row.spread is not None]
    ratios = [
        ("duplicate_share", 1 - different / len(readable), "share that repeat an earlier one"),
        ("brightness_mean", float(np.mean(means)), "mean value of an image, 0 to 255"),
        ("brightness_std", float(np.std(means)), "standard deviation of that between images"),
        ("spread_mean", float(np.mean(spreads)), "largest less smallest value of an image"),
    ]
    return metrics + [Metric(name, value, "dp-release", note) for name, value, note in ratios]


def downstream_images(
    synthetic: Sequence[Pixels],
    synthetic_labels: Sequence[str | None],
    real: Sequence[Pixels],
    real_labels: Sequence[str | None],
) -> list[Metric]:
    """Train a support vector machine on pixels of synthetic images, test on held-out real ones.

    Images are reduced to 32 pixels a side; 10,000 are trained on at most, evenly spaced. Rows
    without a label are left out. Where there is one synthetic label, that is always the answer.

    Returns:
        As classify.downstream; all internal. Empty where one side has no labelled image.
    """
    train = [(one, label) for one, label in _pairs(synthetic, synthetic_labels)]
    test = [(one, label) for one, label in _pairs(real, real_labels)]
    if not train or not test:
        return []
    labels, truth = [label for _, label in train], [label for _, label in test]
    return score(labels, truth, lambda: _predict(train, [one for one, _ in test]))


def image_classifier(train: Sequence[tuple[Pixels, str]]) -> Callable[[Pixels], str]:
    """The classifier of ``downstream_images``, trained, as a function of one image.

    privacy: it is asked one image at a time, so that an answer does not depend on other images.
    """
    names = {label for _, label in train}
    if len(names) < 2:
        return lambda pixels: next(iter(names), "")
    model = _fitted(train)

    def answer(pixels: Pixels) -> str:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1):
            return str(model.predict(_vectors([pixels]))[0])

    return answer


def compare_images(
    synthetic: Sequence[Pixels],
    real: Sequence[Pixels],
    load: Callable[[], Embedder[Pixels]],
    most: int,
    called: str,
) -> list[Metric]:
    """FID, precision and recall between synthetic and held-out real images: ``internal``.

    As many of each side, evenly spaced, ``most`` at most. Empty where a side has fewer than 20.

    Args:
        synthetic: Synthetic images.
        real: Held-out real images.
        load: Gives the embedder; not called where there is nothing to embed.
        most: Images a side.
        called: The embedder's name, for the notes.
    """
    count = min(len(synthetic), len(real), most)
    if count < _FEWEST:
        return []
    embedder = load()
    ours, theirs = (
        embedder.embed(
            [images[i] for i in np.linspace(0, len(images) - 1, count).astype(int)]
        ).astype(np.float64)
        for images in (synthetic, real)
    )
    how = f"{count} a side, {embedder.width} features of {called}"
    precision, recall = precision_recall(ours, theirs)
    return [
        Metric(
            "fid",
            frechet_distance(ours, theirs),
            "internal",
            f"Frechet distance to held-out real images, {how}; lower is closer, and few images "
            "raise it",
        ),
        Metric(
            "precision",
            precision,
            "internal",
            f"share of synthetic images among the real ones (k={NEIGHBOURS}), {how}",
        ),
        Metric(
            "recall",
            recall,
            "internal",
            f"share of real images among the synthetic ones (k={NEIGHBOURS}), {how}",
        ),
    ]


def frechet_distance(first: Features, second: Features) -> float:
    """Squared 2-Wasserstein distance of the normal distributions fitted to two samples.

    |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), by singular values of the centred samples, so that
    fewer vectors than features are no special case. Biased upwards for few vectors.

    Args:
        first: Shape (n, width), n at least 2.
        second: Shape (m, width), m at least 2.

    Source: Heusel et al. 2017, "GANs Trained by a Two Time-Scale Update Rule", section 2.
    """
    means = [part.mean(axis=0) for part in (first, second)]
    roots = [
        (part - mean) / np.sqrt(len(part) - 1)
        for part, mean in zip((first, second), means, strict=True)
    ]
    # tr (C1 C2)^(1/2) is the nuclear norm of A B^T where C1 = A^T A and C2 = B^T B.
    width = first.shape[1]
    left, right = (_triangle(root) if len(root) > width else root for root in roots)
    shared = np.linalg.svd(left @ right.T, compute_uv=False).sum()
    spread = sum(float((root**2).sum()) for root in roots)
    gap = float(((means[0] - means[1]) ** 2).sum())
    return max(0.0, gap + spread - 2 * float(shared))


def _triangle(root: Features) -> Features:
    """R of QR: fewer rows, the same products."""
    upper: Any = np.linalg.qr(root, mode="r")
    return np.asarray(upper, np.float64)


def precision_recall(
    synthetic: Features, real: Features, k: int = NEIGHBOURS
) -> tuple[float, float]:
    """Share of each sample that lies in the other's manifold.

    The manifold of a sample is the union of balls around its vectors, each up to the k-th nearest
    other vector of the sample.

    Source: Kynkaanniemi et al. 2019, "Improved Precision and Recall Metric for Assessing
    Generative Models", section 2, equations 1 and 2.
    """
    return _covered(synthetic, real, k), _covered(real, synthetic, k)


def _covered(points: Features, sample: Features, k: int) -> float:
    """Share of points within the ball of some vector of the sample."""
    radii = np.concatenate(
        [
            # The nearest of all is the vector itself.
            np.partition(block, min(k, len(sample) - 1), axis=1)[:, min(k, len(sample) - 1)]
            for block in _distances(sample, sample)
        ]
    )
    hits = sum(int((block <= radii).any(axis=1).sum()) for block in _distances(points, sample))
    return hits / len(points)


def _distances(rows: Features, columns: Features) -> Any:
    """Squared distances, some rows at a time."""
    from scipy.spatial.distance import cdist

    for start in range(0, len(rows), _ROWS_PER_PASS):
        yield cdist(rows[start : start + _ROWS_PER_PASS], columns, "sqeuclidean")


def _pairs(images: Sequence[Pixels], labels: Sequence[str | None]) -> list[tuple[Pixels, str]]:
    return [(one, label) for one, label in zip(images, labels, strict=True) if label is not None]


def _predict(train: Sequence[tuple[Pixels, str]], images: Sequence[Pixels]) -> list[str]:
    from threadpoolctl import threadpool_limits

    model = _fitted(train)
    with threadpool_limits(limits=1):
        return [str(label) for label in model.predict(_vectors(images))]


def _fitted(train: Sequence[tuple[Pixels, str]]) -> Any:
    from sklearn.svm import SVC
    from threadpoolctl import threadpool_limits

    places = np.linspace(0, len(train) - 1, min(len(train), _MOST_TRAINED)).astype(int)
    chosen = [train[place] for place in places]
    model = SVC(C=5.0, gamma="scale")
    with threadpool_limits(limits=1):
        return model.fit(_vectors([one for one, _ in chosen]), [label for _, label in chosen])


def _vectors(images: Sequence[Pixels]) -> NDArray[np.float32]:
    """Pixels as rows of numbers from 0 to 1, shape (images, values)."""
    return np.stack([_reduced(one).ravel() for one in images]).astype(np.float32) / np.float32(255)


def _reduced(pixels: Pixels) -> Pixels:
    if max(pixels.shape[:2]) <= _SIDE:
        return pixels
    from PIL import Image

    small = Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.array(small, np.uint8)
