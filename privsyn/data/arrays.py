"""Arrays as bytes, without pickle."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_npy(array: NDArray[Any]) -> bytes:
    """An array as an .npy file, without pickle."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def from_npy(data: bytes) -> NDArray[Any]:
    """The array of an .npy file, without pickle."""
    array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array
