"""The data that `make demo` and `make up` begin with."""

from __future__ import annotations

from pathlib import Path

from privsyn.config import Config
from privsyn.data.artifacts import private_folder
from privsyn.data.sample import write_digits, write_sample
from privsyn.release.workspace import Workspace

SAMPLE = Path(".privsyn/sample/messages.jsonl")
DIGITS = Path(".privsyn/sample/digits.npz")
"""Where the invented messages and the scans of digits are written when the config names them."""


def write_sample_if_asked(config: Config, root: Path) -> None:
    """Write the sample of texts or of images if the config names it and it is not there."""
    path = config.dataset.path
    if path not in (SAMPLE, DIGITS) or (root / path).exists():
        return
    private_folder(Workspace(root).state)
    if path == DIGITS:
        write_digits(root / DIGITS)
    else:
        write_sample(root / SAMPLE)
