"""Records, buckets, and the wrapper that private values travel in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
Row = tuple[int, ...]
"""The cell of each declared column of a record, in the order of their names."""


class Private(Generic[T]):
    """A private value whose text form is redacted and that refuses to be pickled or serialized.

    Only ``reveal()`` returns the value. Methods, file readers, partitioning and internal evaluation
    reveal records; nothing else does. Keys of the ledger are wrapped, too.

    >>> Private("Ann has flu")
    Private(<redacted>)
    """

    # No __dict__: vars() and debuggers that list it would show the value.
    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Private(<redacted>)"

    __str__ = __repr__

    # A format such as {value:>20} would otherwise raise TypeError and name the type.
    def __format__(self, spec: str) -> str:
        return repr(self)

    # Pickles reach other processes, caches and XComs.
    def __reduce__(self) -> NoReturn:
        raise TypeError("a Private value is not pickled; pass a file reference instead")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Private) and bool(self._value == other._value)

    __hash__ = None  # type: ignore[assignment]  # equal values must not be findable by hash


@dataclass(frozen=True, repr=False)
class Record:
    """One row of the private file, after column mapping.

    Attributes:
        unit: Stable id of the person or thing protected.
        label: One of the declared labels, or None in a dataset without labels.
        content: A text, or the PNG file of an image in base64.
        row: The cell of each declared column (``data/columns.py``).
    """

    unit: str
    label: str | None
    content: str
    row: Row = ()

    def __repr__(self) -> str:
        return "Record(<redacted>)"


@dataclass(frozen=True)
class Cell:
    """A public place in the partition: one label and one bucket number.

    Attributes:
        index: Position among all cells of the release, 0-based; also the row of its first output.
        label: The label all records of the cell carry, or None.
        bucket: Number within the label, 0-based.
    """

    index: int
    label: str | None
    bucket: int

    @classmethod
    def grid(cls, labels: Sequence[str], buckets: int) -> list[Cell]:
        """``buckets`` cells per label, in the order of the labels; without labels for None."""
        places = [(label, bucket) for label in labels or (None,) for bucket in range(buckets)]
        return [cls(index, label, bucket) for index, (label, bucket) in enumerate(places)]


@dataclass(frozen=True)
class Bucket:
    """A cell and the private records in it. It may be empty.

    Attributes:
        cell: The cell.
        contents: Contents of its records.
        units: Keyed hash of each record's unit, in the order of the contents. A unit has the same
            hash in every bucket. If left out, each record is its own unit.
        rows: Cells of each record's declared columns, in the order of the contents.
    """

    cell: Cell
    contents: Private[list[str]]
    units: Private[list[str]] = field(default_factory=lambda: Private([]))
    rows: Private[list[Row]] = field(default_factory=lambda: Private([]))

    def __post_init__(self) -> None:
        if not self.rows._value:
            object.__setattr__(self, "rows", Private([()] * len(self.contents._value)))
        count, unit_count = len(self.contents._value), len(self.units._value)
        if count and not unit_count:
            unit_names = [f"{self.cell.index}/{number}" for number in range(count)]
            object.__setattr__(self, "units", Private(unit_names))
        elif unit_count != count:
            raise ValueError("a bucket names one unit per text, or none")
        if len(self.rows._value) != count:
            raise ValueError("a bucket has one row per text, or none")
