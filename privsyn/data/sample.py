"""The built-in sample: messages of made-up patients to a made-up group of clinics.

They ship as a file, whose datasheet is messages.md.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from privsyn.data.artifacts import atomic_file
from privsyn.errors import ConfigError

LABELS = ("Appointments", "Prescriptions", "Test results", "Billing", "Symptoms")
ROWS = 4000
SHIPPED = Path(__file__).with_name("messages.jsonl.gz")


@dataclass(frozen=True)
class SampleSummary:
    """What was written.

    Attributes:
        path: The JSONL file.
        rows: Number of messages.
        patients: Number of distinct patients.
    """

    path: Path
    rows: int
    patients: int


def write_sample(path: Path, *, rows: int = ROWS) -> SampleSummary:
    """Write patient-portal messages as JSONL rows of id, patient_id, label and text.

    A file already there is replaced in one step.

    Args:
        path: The file to write; its folder is made if missing.
        rows: Number of messages: the first so many, in order of the day they were written.

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
    return SampleSummary(path=path, rows=rows, patients=len(patients))
