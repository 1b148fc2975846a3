"""The built-in sample of images: scans of handwritten digits that scikit-learn ships.

1,797 digits of 8 x 8 pixels by 43 writers, whose names are not told: every scan is a unit of its
own. They are enlarged to 20 x 20 pixels and set with their centre of mass in the middle of a black
square of 28 x 28, as the digits are that public generators were trained on.

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998; scikit-learn's ``load_digits`` is its test part.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privsyn.data.artifacts import atomic_file
from privsyn.data.images import Pixels

LABELS = tuple("0123456789")
SIZE = 28
_BOX = 20
_TOP = 16.0
"""Largest value of a pixel in the source."""


def write_digits(path: Path) -> int:
    """Write the digits as an .npz file with the arrays ``image``, ``label`` and ``scan``.

    ``image`` has shape (1797, 28, 28) and type uint8, white on black; ``label`` holds 0 to 9 and
    ``scan`` a unit id of each. A file already there is replaced in one step.

    Returns:
        The number of images.

    Raises:
        StorageError: The file cannot be written.
    """
    from sklearn.datasets import load_digits

    scans, labels = load_digits(return_X_y=True)
    images = np.stack([_centred(scan.reshape(8, 8)) for scan in scans])
    with atomic_file(path, mode=0o600) as stream:
        np.savez_compressed(
            stream,
            image=images,
            label=np.asarray(labels, np.int64),
            scan=np.array([f"scan-{number:04d}" for number in range(len(images))]),
        )
    return len(images)


def _centred(scan: NDArray[np.float64]) -> Pixels:
    """A scan of values 0 to 16 as 28 x 28 pixels, its centre of mass in the middle."""
    from PIL import Image

    small = Image.fromarray((scan * (255 / _TOP)).round().astype(np.uint8))
    large = np.asarray(small.resize((_BOX, _BOX), Image.Resampling.BICUBIC))
    weights = large / large.sum()
    offsets = [
        int(np.clip(round((SIZE - 1) / 2 - centre), 0, SIZE - _BOX))
        for centre in (weights.sum(1) @ np.arange(_BOX), weights.sum(0) @ np.arange(_BOX))
    ]
    page = np.zeros((SIZE, SIZE), np.uint8)
    page[offsets[0] : offsets[0] + _BOX, offsets[1] : offsets[1] + _BOX] = large
    return page
