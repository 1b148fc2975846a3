"""The built-in samples: messages of made-up patients, and scans of handwritten digits.

The messages ship as a file, whose datasheet is messages.md. scikit-learn ships 1,797 digits of
8 x 8 pixels by 43 unnamed writers, so every scan is its own unit. Each is enlarged to 20 x 20
pixels and placed with its center of mass in the middle of a black square of 28 x 28, like the
digits that public generators were trained on.

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998; scikit-learn's ``load_digits`` is its test part.
"""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privsyn.data.artifacts import atomic_file
from privsyn.data.images import Pixels
from privsyn.errors import ConfigError

LABELS = ("Appointments", "Prescriptions", "Test results", "Billing", "Symptoms")
ROWS = 4000
SHIPPED = Path(__file__).with_name("messages.jsonl.gz")


def write_sample(path: Path, *, rows: int = ROWS) -> int:
    """Write patient-portal messages as JSONL rows of id, patient_id, label and text.

    A file already there is replaced in one step.

    Args:
        path: The file to write; its folder is made if missing.
        rows: Number of messages: the first so many, in order of the day they were written.

    Returns:
        The number of distinct patients.

    Raises:
        ConfigError: ``rows`` is out of bounds.
        StorageError: The file cannot be written.
    """
    if not 1 <= rows <= ROWS:
        raise ConfigError(f"rows={rows} must lie between 1 and {ROWS}: the sample holds no more.")
    patients = set()
    with gzip.open(SHIPPED) as messages, atomic_file(path, mode=0o600) as stream:
        for line in islice(messages, rows):
            stream.write(line)
            patients.add(json.loads(line)["patient_id"])
    return len(patients)


SIZE = 28
_BOX = 20
_TOP = 16.0
"""Largest value of a pixel in the source."""


def write_digits(path: Path) -> int:
    """Write the digits as an .npz file with the arrays ``image``, ``label`` and ``scan``.

    ``image`` has shape (1797, 28, 28) and type uint8, white on black. ``label`` holds 0 to 9 and
    ``scan`` holds a unit id per image. An existing file is replaced in one step.

    Returns:
        The number of images.

    Raises:
        StorageError: The file cannot be written.
    """
    from sklearn.datasets import load_digits

    scans, labels = load_digits(return_X_y=True)
    images = np.stack([_center(scan.reshape(8, 8)) for scan in scans])
    with atomic_file(path, mode=0o600) as stream:
        np.savez_compressed(
            stream,
            image=images,
            label=np.asarray(labels, np.int64),
            scan=np.array([f"scan-{number:04d}" for number in range(len(images))]),
        )
    return len(images)


def _center(scan: NDArray[np.float64]) -> Pixels:
    """A scan of values 0 to 16 as 28 x 28 pixels, its center of mass in the middle."""
    from PIL import Image

    small = Image.fromarray((scan * (255 / _TOP)).round().astype(np.uint8))
    large = np.asarray(small.resize((_BOX, _BOX), Image.Resampling.BICUBIC))
    weights = large / large.sum()
    offsets = [
        int(np.clip(round((SIZE - 1) / 2 - center), 0, SIZE - _BOX))
        for center in (weights.sum(1) @ np.arange(_BOX), weights.sum(0) @ np.arange(_BOX))
    ]
    page = np.zeros((SIZE, SIZE), np.uint8)
    page[offsets[0] : offsets[0] + _BOX, offsets[1] : offsets[1] + _BOX] = large
    return page
