"""Compare synthetic with real images: variety, a classifier, distances of features.

FID, precision and recall depend on the number of images and on the embedder, so every note names
both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data.images import Pixels
from privsyn.evaluation.classifiers import draws_of, score, split_holdout, with_label
from privsyn.evaluation.metrics import Metric, evenly_spaced, metrics_of
from privsyn.models.protocols import Embedder

if TYPE_CHECKING:
    from privsyn.data.profile import ImageRow

Features = NDArray[np.float64]

NEIGHBORS = 3
"""k of the manifolds, as in the paper."""
_FEWEST = 20
_SEED = 20240615
_SIDE = 32
_MOST_TRAINED = 10_000
_ROWS_PER_PASS = 512


def image_fidelity(rows: Sequence[ImageRow]) -> list[Metric]:
    """Metrics of the synthetic images alone: ``dp-release``. Omits what it cannot compute.

    Args:
        rows: Lines of the synthetic file; images that cannot be read count in ``images`` alone.
    """
    readable = [row for row in rows if row.readable]
    numbers: dict[str, float] = {"images": len(rows)}
    if readable:
        means = [row.mean for row in readable if row.mean is not None]
        spreads = [row.spread for row in readable if row.spread is not None]
        different = len({row.pixels_sha256 for row in readable})
        numbers |= {
            "duplicate_share": 1 - different / len(readable),
            "brightness_mean": float(np.mean(means)),
            "brightness_std": float(np.std(means)),
            "spread_mean": float(np.mean(spreads)),
        }
    return metrics_of(numbers, "dp-release", things="images")


def downstream_images(
    synthetic: Sequence[Pixels],
    synthetic_labels: Sequence[str | None],
    real: Sequence[Pixels],
    real_labels: Sequence[str | None],
) -> list[Metric]:
    """Train a support vector machine on pixels of synthetic images, test on held-out real ones.

    Images are reduced to 32 pixels a side; 10,000 are trained on at most, evenly spaced. Rows
    without a label are left out. With a single synthetic label that is always the answer.

    Returns:
        As classifiers.downstream; all internal. Empty if one side has no labeled image.
    """
    train, test = with_label(synthetic, synthetic_labels), with_label(real, real_labels)
    if not train or not test:
        return []
    labels, truth = [label for _, label in train], [label for _, label in test]
    return score(labels, truth, lambda: _fit(train)([one for one, _ in test]))


def downstream_beside(
    synthetic: Sequence[Pixels],
    synthetic_labels: Sequence[str | None],
    real: Sequence[Pixels],
    real_labels: Sequence[str | None],
) -> list[Metric]:
    """``downstream_images`` plus the same classifier trained on as many real images.

    The held-out images are split without reading their labels: some to train on, as many as the
    release has or a third, at most half, and a test set for both classifiers. Of the former as many
    of each label are trained on as the release has.

    Returns:
        As ``downstream_images``, with ``downstream.real`` and ``downstream.real_records``. Fewer
        than 40 labeled real images are not split: all are test images, without a baseline.
    """
    ours, theirs = with_label(synthetic, synthetic_labels), with_label(real, real_labels)
    if len(theirs) < 2 * _FEWEST or not ours:
        return downstream_images(synthetic, synthetic_labels, real, real_labels)
    pool, tested = split_holdout(theirs, max(len(ours), len(theirs) // 3))
    known, *_ = draws_of(pool, Counter(label for _, label in ours))

    def trained(on: Sequence[tuple[Pixels, str]]) -> list[Metric]:
        return downstream_images(*zip(*on, strict=True), *zip(*tested, strict=True))

    beside = next(one.value for one in trained(known) if one.name == "downstream.accuracy")
    further = {"downstream.real": beside, "downstream.real_records": len(known)}
    return [*trained(ours), *metrics_of(further, known=len(known))]


def image_classifier(train: Sequence[tuple[Pixels, str]]) -> Callable[[Pixels], str]:
    """The classifier of ``downstream_images``, trained, as a function of one image.

    privacy: it classifies one image at a time, so an answer does not depend on other images.
    """
    names = {label for _, label in train}
    if len(names) < 2:
        return lambda pixels: next(iter(names), "")
    predict = _fit(train)
    return lambda pixels: predict([pixels])[0]


def compare_images(
    synthetic: Sequence[Pixels],
    real: Sequence[Pixels],
    embedder: Embedder[Pixels],
    most: int,
    called: str,
) -> list[Metric]:
    """FID, precision and recall between synthetic and held-out real images: ``internal``.

    The same number of each side, evenly spaced, at most ``most``. Empty if a side has fewer than
    20. With twice as many real images, the same numbers are computed between two real samples: the
    values where nothing is synthetic.

    Args:
        synthetic: Synthetic images.
        real: Held-out real images.
        embedder: The encoder.
        most: Most images a side.
        called: The embedder's name, for the notes.
    """
    count = min(len(synthetic), len(real), most)
    if count < _FEWEST:
        return []

    def features(images: Sequence[Pixels], count: int) -> Features:
        return embedder.embed(evenly_spaced(images, count)).astype(np.float64)

    doubled = len(real) >= 2 * count
    known = features(real, 2 * count if doubled else count)
    if doubled:  # files may alternate labels: a split by position would separate them
        known = known[np.random.default_rng(_SEED).permutation(2 * count)]
    # The other half of the real images shows what distance equal sources have.
    theirs, others = known[:count], known[count:] if doubled else None
    how = f"{count} a side, {embedder.width} features of {called}"
    if count <= embedder.width:
        # The covariance has no full rank then; papers take 50,000 a side.
        how += " (fewer images than features: compare with values of as many images alone)"
    return [
        *_distances_of(features(synthetic, count), theirs, how),
        *(
            Metric(f"{one.name}_real", one.value, one.cls, "the same for other real images")
            for one in ([] if others is None else _distances_of(others, theirs, how))
        ),
    ]


def _distances_of(ours: Features, theirs: Features, how: str) -> list[Metric]:
    """The three numbers of two samples, the second real."""
    precision, recall = precision_recall(ours, theirs)
    numbers = {
        "fid": frechet_distance(ours, theirs),
        "precision": precision,
        "recall": recall,
    }
    return metrics_of(numbers, how=how, neighbors=NEIGHBORS)


def frechet_distance(first: Features, second: Features) -> float:
    """Squared 2-Wasserstein distance of the normal distributions fitted to two samples.

    |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), by singular values of the centered samples, so that
    fewer vectors than features need no special case. Biased upward for few vectors.

    Args:
        first: Shape (n, width), n at least 2.
        second: Shape (m, width), m at least 2.

    Source: Heusel et al. 2017, "GANs Trained by a Two Time-Scale Update Rule", section 2.
    """
    means = [part.mean(axis=0) for part in (first, second)]
    # part: (rows, width); root^T root is the covariance.
    roots = [
        (part - mean) / np.sqrt(len(part) - 1)
        for part, mean in zip((first, second), means, strict=True)
    ]
    # tr (C1 C2)^(1/2) is the nuclear norm of A B^T where C1 = A^T A and C2 = B^T B.
    width = first.shape[1]
    # shapes (rows, width) -> (at most width, width): the products below stay small
    left, right = (_triangle(root) if len(root) > width else root for root in roots)
    shared = np.linalg.svd(left @ right.T, compute_uv=False).sum()
    spread = sum(float((root**2).sum()) for root in roots)
    gap = float(((means[0] - means[1]) ** 2).sum())
    # Roundings may leave a small negative number for equal sets.
    return max(0.0, gap + spread - 2 * float(shared))


def _triangle(root: Features) -> Features:
    """R of the QR decomposition: fewer rows, the same Gram matrix."""
    upper: Any = np.linalg.qr(root, mode="r")
    return np.asarray(upper, np.float64)


def precision_recall(
    synthetic: Features, real: Features, k: int = NEIGHBORS
) -> tuple[float, float]:
    """Share of each sample that lies in the other's manifold.

    The manifold of a sample is the union of balls around its vectors, each up to the k-th nearest
    other vector of the sample.

    Source: Kynkaanniemi et al. 2019, "Improved Precision and Recall Metric for Assessing
    Generative Models", section 2, equations 1 and 2.
    """
    return _coverage(synthetic, real, k), _coverage(real, synthetic, k)


def _coverage(points: Features, sample: Features, k: int) -> float:
    """Share of points within the ball of some vector of the sample."""
    # radii: shape (sample,), squared distance to the k-th nearest other vector
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

    # In blocks, shape (rows per pass, columns): all distances at once would not fit in memory.
    for start in range(0, len(rows), _ROWS_PER_PASS):
        yield cdist(rows[start : start + _ROWS_PER_PASS], columns, "sqeuclidean")


def _fit(train: Sequence[tuple[Pixels, str]]) -> Callable[[Sequence[Pixels]], list[str]]:
    from sklearn.svm import SVC
    from threadpoolctl import threadpool_limits

    chosen = evenly_spaced(train, _MOST_TRAINED)
    # The time grows with the square of the rows, hence at most _MOST_TRAINED of them.
    model = SVC(C=5.0, gamma="scale")

    def predict(images: Sequence[Pixels]) -> list[str]:
        with threadpool_limits(limits=1):
            return [str(label) for label in model.predict(_vectors(images))]

    with threadpool_limits(limits=1):
        model.fit(_vectors([one for one, _ in chosen]), [label for _, label in chosen])
    return predict


def _vectors(images: Sequence[Pixels]) -> NDArray[np.float32]:
    """Pixels as rows of numbers from 0 to 1, shape (images, values)."""
    return np.stack([_shrink(one).ravel() for one in images]).astype(np.float32) / np.float32(255)


def _shrink(pixels: Pixels) -> Pixels:
    if max(pixels.shape[:2]) <= _SIDE:
        return pixels
    from PIL import Image

    small = Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.array(small, np.uint8)
