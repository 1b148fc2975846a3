"""What one reading of the private file kept and dropped, and why. Exact, hence internal.

It holds only counts, and hashes that this process alone can make. Reasons are words of this module,
labels are those that the config declares. A label that is not declared is content. If it differs
from a declared label only by case, spaces or punctuation, it is counted under that label.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privsyn.data.artifacts import Hashes
from privsyn.data.columns import MISSING as NO_VALUE
from privsyn.data.columns import OTHER, Column
from privsyn.data.records import Record, Row
from privsyn.data.unit_key import alike
from privsyn.data.words import ENGLISH, is_latin, word_count

UNPARSED = "row: cannot be parsed"
NO_OBJECT = "row: not a JSON object"
ROW_ENCODING = "row: not in UTF-8"
TOO_LONG = "row: a line is too long"
FIELDS = "row: not as many fields as the header"
UNDECLARED = "label: not declared"
IMAGE = "image: cannot be read"
OTHER_FILE = "image: a file of another kind"
MISSING = "missing or empty"
KIND = "of another type"
ENCODING = "not in UTF-8"
NOTHING = "a word or sign for nothing (NULL, NA, [deleted], ...)"
LOST = "a float that has lost digits"
LISTED = f"text: {KIND} (a list)"
JOIN = "Of a conversation name the roles: dataset.roles=[user, assistant]."
NO_TURN = "text: no turn of one of the roles"
_NEAR = "by capitals, spaces or punctuation alone"
_WORST = 10

_ADVICE: Mapping[str, str] = {
    NO_OBJECT: "Write one JSON object a line.",
    FIELDS: "Check the quotes of the CSV.",
    ENCODING: "Convert the file: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW.",
    _NEAR: "They are dropped: correct them in the file, or write the label in dataset.labels as "
    "files of this kind have it.",
    UNDECLARED: "Declare in dataset.labels those of them that are public.",
    LOST: "Several people may share it: read the column as text, or as Int64 in pandas, before "
    "it is written.",
    LISTED: JOIN,
    KIND: "A text is a string; a label or unit id is a string, a whole number, a date or a UUID.",
    OTHER_FILE: "HEIC, DICOM and other formats are not read: convert them to PNG or JPEG.",
    NOTHING: "Such rows are left out: where the word itself is meant, write another.",
    NO_TURN: "A turn is {role, content}, and its role one of dataset.roles.",
    IMAGE: "Known are PNG, JPEG and others of a bounded size, with 8 bits a value: map others by a "
    "range that is known without the file. Pointers of Git LFS: git lfs pull.",
}
"""Words in a reason -> the next step."""

_LONG, _READ, _ID = 8, 2000, 5
"""Fewest words of a text that is searched for these, most letters of it that are, and least letters
of an id that is looked for in it: a short one stands there by chance."""


def folded(label: str) -> str:
    """A label without case, spaces, punctuation and width, the usual misspellings."""
    normalized = unicodedata.normalize("NFKC", label).casefold()
    return "".join(letter for letter in normalized if letter.isalnum())


def undeclared(near: str | None) -> str:
    """The reason for a label that is not declared; ``near`` is the one that it nearly matches."""
    return UNDECLARED if near is None else f"label: differs from {near!r} {_NEAR}"


@dataclass
class RowCounts:
    """Exact counts of one reading. Internal: never logged, published or put beside a release.

    Memory does not grow with the records: hashes beyond a few million go to a nameless file.

    Attributes:
        rows: Rows of the file, parsable or not.
        used: Records that were handed out.
        dropped: Reason -> rows.
        labels: Declared label -> records kept.
        long: Records of eight words or more, or in other letters than Latin ones.
        long_without_english: Of these, records without any of the commonest English words.
        words: Number of words -> records kept; all long records are one class.
        letters: Number of letters, in tens -> records kept.
        columns: Column -> records kept whose value is ``other``, ``missing``, or ``prose``: other,
            and of eight words or more.
        answers: Column that is asked -> answer -> records kept.
        turns: Turns of a conversation -> rows.
        turns_left_out: Turns without words, such as calls of tools, or of other roles.
        own_ids: Records kept in whose content the id of their unit stands.
    """

    rows: int = 0
    used: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    long: int = 0
    long_without_english: int = 0
    words: Counter[int] = field(default_factory=Counter)
    letters: Counter[int] = field(default_factory=Counter)
    columns: dict[str, Counter[str]] = field(default_factory=dict)
    answers: dict[str, Counter[str]] = field(default_factory=dict)
    turns: Counter[int] = field(default_factory=Counter)
    turns_left_out: int = 0
    own_ids: int = 0
    _units: Hashes = field(default_factory=Hashes, repr=False)
    _alike: Hashes = field(default_factory=Hashes, repr=False)

    def count_dropped(self, reason: str) -> None:
        """Count an unused row."""
        self.dropped[reason] += 1

    def count_columns(self, columns: Mapping[str, Column], row: Row, values: Sequence[Any]) -> None:
        """Count what is outside of the declared cells of a record that is used."""
        for (name, column), cell, value in zip(columns.items(), row, values, strict=True):
            kind = column.cells[cell]
            if column.ask is not None:  # no answer is missing, unless nobody was asked
                self.answers.setdefault(name, Counter())[kind] += kind != NO_VALUE
                continue
            counts = self.columns.setdefault(name, Counter())
            if kind in (OTHER, NO_VALUE):  # no declared cell is called so
                counts[kind] += 1
                prose = isinstance(value, str) and len(value[:_READ].split()) >= _LONG
                counts["prose"] += kind == OTHER and prose

    def count_used(self, record: Record) -> None:
        """Count a record that is used."""
        self.used += 1
        unit, content = record.unit, record.content
        self.own_ids += len(unit) >= _ID and unit.casefold() in content.casefold()
        if record.label is not None:
            self.labels[record.label] += 1
        # Python's hash of a text is keyed per process, so these numbers mean nothing outside of it.
        self._units.add(hash(unit))
        self._alike.add(hash(alike(unit)))
        self.words[min(word_count(content), _LONGEST)] += 1
        self.letters[min(len(content) // 10, _LONGEST)] += 1
        words = content[:_READ].casefold().split()
        latin = is_latin(content[:_READ])
        if len(words) >= _LONG or not latin:
            self.long += 1
            self.long_without_english += not latin or ENGLISH.isdisjoint(words)

    def report(self, labels: Sequence[str], most: int) -> dict[str, Any]:
        """The counts as one JSON value.

        Args:
            labels: All declared labels, including those without a record.
            most: Most records of a unit that are used (m).
        """
        units = most_of_one = above = beyond = 0
        # Shape of each batch: (distinct units,).
        for records in self._units.counts():
            units += len(records)
            most_of_one = max(most_of_one, int(records.max(initial=0)))
            above += int((records > most).sum())
            beyond += int(np.maximum(records - most, 0).sum())
        apart = sum(len(records) for records in self._alike.counts())
        return {
            "rows": self.rows,
            "kept": self.used,
            "dropped": self.rows - self.used,
            "reasons": dict(self.dropped.most_common(_WORST)),
            "labels": {label: self.labels[label] for label in labels},
            "units": units,
            "records_per_unit_at_most": most_of_one,
            "units_above_the_bound": above,
            "records_above_the_bound": beyond,
            "units_alike": units - apart,
            "median_words": _median(self.words),
            "median_letters": 10 * _median(self.letters),
            "long": self.long,
            "long_without_english": self.long_without_english,
            "of_one_turn": self.turns[1],
            "turns_at_most": max(self.turns, default=0),
            "turns_left_out": self.turns_left_out,
            "own_ids": self.own_ids,
            "columns": {name: dict(counts) for name, counts in self.columns.items()},
            "answers": {name: dict(counts) for name, counts in self.answers.items()},
        }


_LONGEST = 100_000


def _median(counts: Counter[int]) -> int:
    """The upper median of counted numbers; 0 if there are none."""
    left = (counts.total() + 1) // 2
    for number in sorted(counts, reverse=True):
        left -= counts[number]
        if left <= 0:
            return number
    return 0


def of_another_language(counts: Mapping[str, Any]) -> bool:
    """Whether most longer texts hold no common English word or are not in Latin letters.

    In nine English datasets, at most 9% (IRC) and otherwise at most 3% of texts hold none.
    """
    return bool(2 * counts.get("long_without_english", 0) > counts.get("long", 0))


def advice(reason: str, labels: Mapping[str, int]) -> str:
    """The next step for a reason; empty if there is no advice.

    Args:
        reason: Why rows are not used.
        labels: Declared labels and their records.
    """
    spelt = (label for label, records in labels.items() if records)
    if any(reason == undeclared(label) for label in spelt):
        return "They are dropped: correct them in the file."
    return next((step for end, step in _ADVICE.items() if end in reason), "")
