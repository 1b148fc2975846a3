"""The messages of a sample: who writes when about what, canaries included."""

from __future__ import annotations

import gzip
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random

from privsyn.data.artifacts import atomic_file, write_jsonl_atomic
from privsyn.data.sample import ROWS, SHIPPED
from privsyn.errors import ConfigError
from tools.portal.compose import Composer
from tools.portal.people import FIRST_DAY, Patient, invent_patients
from tools.portal.scene import Thread

MAX_ROWS = 100_000
DEFAULT_SEED = 20240108

DEFAULT_CANARIES = (
    "violet-kestrel-quince-7391",
    "MRN-000417",
    "tin lantern under the ninth stair",
    "ZX81-PLUM-5520",
    "oboe.marzipan.thursday.66",
)

_CARRIERS = (
    "The phone password on the account is {}.",
    "If you call, ask for the code word, {}.",
    "Please note {} in the chart.",
    "The old reference was {}.",
)
_PATIENTS_PER_ROW = 3 / 8
_COPIES = 3  # messages per canary, all of one patient
_SHINGLE = 8
_TRIES = 12  # redraws when a message repeats eight words of another patient's
_SHARES = (24.0, 22.0, 19.0, 17.0, 20.0)  # of the labels, before a patient's own leaning
_FOLLOW_UP = 0.42


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        path: The JSONL file.
        rows: Number of messages.
        patients: Number of distinct patients.
        labels: Messages per label.
        canaries: The planted strings.
    """

    path: Path
    rows: int
    patients: int
    labels: dict[str, int]
    canaries: tuple[str, ...]


def write_messages(
    path: Path,
    *,
    rows: int = ROWS,
    seed: int = DEFAULT_SEED,
    canaries: Sequence[str] = DEFAULT_CANARIES,
) -> Written:
    """Write patient-portal messages as JSONL rows of id, patient_id, label and text.

    The same arguments give the same bytes. A file already there is replaced in one step. No two
    messages are alike, each has 15 to 60 words, and every canary stands verbatim in at least one.

    Args:
        path: The file to write; its folder is made if missing.
        rows: Number of messages; the number of patients is three eighths of it.
        seed: Selects the sample.
        canaries: Distinctive strings to plant, each in up to three messages of one patient.

    Raises:
        ConfigError: ``rows`` or a canary is out of bounds.
        StorageError: The file cannot be written.
    """
    least = max(1, math.ceil(len(canaries) / _PATIENTS_PER_ROW))
    if not least <= rows <= MAX_ROWS:
        raise ConfigError(
            f"rows={rows} must lie between {least} ({len(canaries)} canaries, each with a patient "
            f"of its own) and {MAX_ROWS}."
        )
    for canary in canaries:
        if not 1 <= len(canary.split()) <= 12 or not canary.isprintable():
            raise ConfigError(
                f"a canary of {len(canary.split())} words must have 1 to 12, on one line."
            )
    messages = list(generate_messages(rows, canaries, Random(seed)))
    write_jsonl_atomic(path, messages, mode=0o600)
    return Written(
        path=path,
        rows=len(messages),
        patients=len({message["patient_id"] for message in messages}),
        labels=dict(Counter(message["label"] for message in messages)),
        canaries=tuple(canaries),
    )


def ship(path: Path = SHIPPED) -> Written:
    """Write the sample that ships in the package, compressed; equal messages give equal bytes."""
    with tempfile.TemporaryDirectory() as folder:
        written = write_messages(Path(folder) / "messages.jsonl")
        data = gzip.compress(written.path.read_bytes(), mtime=0)
    with atomic_file(path, mode=0o644) as stream:
        stream.write(data)
    return replace(written, path=path)


def generate_messages(rows: int, canaries: Sequence[str], rng: Random) -> Iterator[dict[str, str]]:
    """The rows of the sample in order of the day they were written."""
    patients = invent_patients(math.ceil(rows * _PATIENTS_PER_ROW), rng)
    counts = _message_counts(rows, len(patients), rng)
    planted = _plant(canaries, counts, rng)
    composer = Composer(rng)
    seen = _Seen()
    written: list[tuple[date, int, str, str, str]] = []
    for index, patient in enumerate(patients):
        extras = planted.get(index, [])
        for day, label, text in _correspondence(
            composer, patient, counts[index], extras, seen, rng
        ):
            written.append((day, len(written), patient.id, label, text))
    for number, (_, _, patient_id, label, text) in enumerate(sorted(written)):
        yield {
            "id": f"msg-{number + 1:06d}",
            "patient_id": patient_id,
            "label": label,
            "text": text,
        }


def _message_counts(rows: int, patients: int, rng: Random) -> list[int]:
    """Messages of each patient: one at least, most of the rest from the few who write often."""
    weights = [rng.lognormvariate(0.0, 0.9) for _ in range(patients)]
    extra = Counter(rng.choices(range(patients), weights, k=rows - patients))
    return [1 + extra[index] for index in range(patients)]


def _plant(canaries: Sequence[str], counts: Sequence[int], rng: Random) -> dict[int, list[str]]:
    """Sentences to place, by patient: every canary with a patient of its own who writes often."""
    order = sorted(range(len(counts)), key=lambda i: (counts[i] < _COPIES, rng.random()))
    return {
        host: [rng.choice(_CARRIERS).format(canary) for _ in range(min(_COPIES, counts[host]))]
        for host, canary in zip(order, canaries, strict=False)
    }


def _correspondence(
    composer: Composer,
    patient: Patient,
    count: int,
    extras: Sequence[str],
    seen: _Seen,
    rng: Random,
) -> Iterator[tuple[date, str, str]]:
    """All messages of one patient: threads of one to three, days apart, then a new matter."""
    leaning = [share * rng.gammavariate(1.6, 1.0) for share in _SHARES]
    day = FIRST_DAY + timedelta(rng.randrange(420))
    thread: Thread | None = None
    for number in range(count):
        if thread and len(thread.sent) < 3 and rng.random() < _FOLLOW_UP:
            day += timedelta(rng.randint(1, 6))
        else:
            day += timedelta(rng.randint(7, 60) if thread else 0)
            thread = composer.new_thread(patient, leaning)
        extra = extras[number] if number < len(extras) else ""
        for _ in range(_TRIES):
            text = composer.write(patient, thread, day, extra)
            if not seen.repeats(text, patient.id):
                break
        while text in seen:
            text = composer.write(patient, thread, day, extra)
        seen.add(text, patient.id)
        thread.sent.append(day)
        yield day, thread.label.name, text


class _Seen:
    """What was written so far, to keep two patients from using the same eight words in a row."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._owners: dict[tuple[str, ...], str] = {}

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def repeats(self, text: str, patient_id: str) -> bool:
        """Whether another patient's message holds a run of eight words of the text."""
        return any(self._owners.get(run, patient_id) != patient_id for run in shingles(text))

    def add(self, text: str, patient_id: str) -> None:
        """Remember a message that is kept."""
        self._texts.add(text)
        for run in shingles(text):
            self._owners.setdefault(run, patient_id)


def shingles(text: str) -> Iterator[tuple[str, ...]]:
    """Every run of eight words, without case and punctuation."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("'", ""))
    for start in range(len(words) - _SHINGLE + 1):
        yield tuple(words[start : start + _SHINGLE])
