"""The data that `make demo` and `make up` begin with.

Nothing of the columns beside the messages is known of anybody: they are drawn, from a fixed seed,
so that text, label and columns depend on each other. Words of children are written by young adults
and words of old age by the old; who asks about bills calls, who has symptoms uses the app; colds
are of winter; the old call more often. What a release keeps of that can be measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from privsyn.config import Config
from privsyn.data.artifacts import atomic_file, private_folder
from privsyn.data.sample import write_digits, write_sample
from privsyn.release.workspace import Workspace

SAMPLE = Path(".privsyn/sample/messages.jsonl")
COLUMNED = Path(".privsyn/sample/messages-with-columns.jsonl")
DIGITS = Path(".privsyn/sample/digits.npz")
"""Where the invented messages and the scans of digits are written when the config names them."""
CHANNELS = ("app", "phone", "desk")
COLUMNS = {
    "age": {"range": [18, 98], "bins": 8},
    "channel": {"values": list(CHANNELS)},
    "visited": {"dates": ["2025-01-01", "2025-12-31"]},
}
"""What ``dataset.columns`` declares of the messages, and ``columns.pairs``."""
PAIRS = [["age", "channel"]]
_YOUNG = re.compile(r"\b(?:son|daughter|kids?|baby|school|pregnan\w*|breastfeed\w*)\b", re.I)
_OLD = re.compile(r"\b(?:medicare|hip|knees?|blood pressure|cholesterol|cane|grand\w+)\b", re.I)
_COLD = re.compile(r"\b(?:cough\w*|fever|flu|cold|throat|sinus|congest\w*)\b", re.I)
_SHARES = {  # of app, phone and desk
    "Billing": (0.2, 0.6, 0.2),
    "Symptoms": (0.7, 0.2, 0.1),
    "Appointments": (0.3, 0.4, 0.3),
}


def write_sample_if_asked(config: Config, root: Path) -> None:
    """Write the sample that the config names, if it is not there."""
    path = config.dataset.path
    if path not in (SAMPLE, COLUMNED, DIGITS) or (root / path).exists():
        return
    private_folder(Workspace(root).state)
    writers: dict[Path, Callable[[Path], object]] = {
        SAMPLE: write_sample,
        COLUMNED: write_messages,
        DIGITS: write_digits,
    }
    writers[path](root / path)


def write_messages(path: Path) -> None:
    """Write the messages with their columns as JSON Lines."""
    write_sample(path)
    rng = np.random.default_rng(7)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    with atomic_file(path, mode=0o600) as stream:
        for record in records:
            stream.write((json.dumps(record | columns_of(record, rng)) + "\n").encode())


def columns_of(record: dict[str, str], rng: np.random.Generator) -> dict[str, object]:
    """Invented columns of a message, by its label and its words."""
    text = record["text"]
    middle = 34 if _YOUNG.search(text) else 72 if _OLD.search(text) else 52
    age = int(np.clip(rng.normal(middle, 9 if middle != 52 else 16), 18, 97))
    shares = np.array(_SHARES.get(record["label"], (0.5, 0.3, 0.2)))
    shares[1] *= 2.5 if age > 64 else 1
    months = np.ones(12)
    if _COLD.search(text):
        months[[0, 1, 10, 11]] = 6
    month = rng.choice(12, p=months / months.sum()) + 1
    return {
        "age": age,
        "channel": str(rng.choice(CHANNELS, p=shares / shares.sum())),
        "visited": f"2025-{month:02d}-{rng.integers(1, 29):02d}",
    }
