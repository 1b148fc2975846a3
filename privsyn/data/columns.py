"""Declared columns of a record: what stands beside its text, as one cell of a public list.

A column is declared, never read from the data: its values, the bins of its range, or the months of
its dates. The value of every record is in one of its cells; one that is outside of the declaration
is ``other``, and one that is missing has a cell of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date as Day
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from privsyn.data.unit_key import EXACT, label_id, spells_nothing
from privsyn.section import Section

if TYPE_CHECKING:
    import numpy as np

OTHER, MISSING = "other", "missing"
"""The last two cells of every column."""
MOST_COLUMNS, MOST_VALUES = 12, 100


def _as_text(value: Any) -> Any:
    # YAML reads yes and no as truth values, and codes as numbers.
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else value


def _spelled(value: Any) -> str | None:
    """The one spelling of a value: that of a label, without case, and yes for true.

    A file says true where YAML says yes.

    >>> _spelled("Web"), _spelled(True), _spelled("yes")
    ('web', 'yes', 'yes')
    """
    key = (label_id(value) or "").casefold()
    return {"true": "yes", "false": "no"}.get(key, key) or None


class Column(Section):
    """A column beside the text: values, a range or dates. All of it is public."""

    values: tuple[Annotated[str, BeforeValidator(_as_text)], ...] | None = Field(
        default=None, min_length=1
    )
    """Its values, at most 100, as the file spells them."""
    range: tuple[float, float] | None = None
    """Smallest and largest number."""
    bins: int = Field(default=10, ge=1, le=MOST_VALUES)
    """Cells of a range."""
    decimals: int = Field(default=0, ge=0, le=9)
    """Decimals of a synthetic number."""
    dates: tuple[Day, Day] | None = None
    """First and last day."""
    by: Literal["month", "year"] = "month"
    """Length of a cell of dates."""
    ask: str | None = Field(
        default=None, min_length=1, max_length=200, exclude_if=lambda question: question is None
    )
    """A question about the text, of which values are the answers: such a column is not in the file,
    and models.language on this machine answers, record by record."""

    @model_validator(mode="after")
    def _one_kind(self) -> Column:
        kinds = [k for k in ("values", "range", "dates") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise ValueError("declare one of values, range and dates")
        if self.ask is not None:
            self._refuse_question(self.ask)
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range={list(self.range)} must rise")
        if self.range is not None:
            self._refuse_steps(self.range)
        if self.dates is not None:
            self._refuse_days(*self.dates)
        if len(self.cells) > MOST_VALUES + 2:
            wider = "name fewer, and all others become `other`" if self.values else "take by=year"
            raise ValueError(
                f"it has {len(self.cells) - 2:,} cells, and at most {MOST_VALUES} are drawn well: "
                f"{wider}, or leave it out"
            )
        seen: dict[str, str] = {}
        for value in self.values or ():
            key = _spelled(value)
            if spells_nothing(value) or key in (OTHER, MISSING):
                raise ValueError(
                    f"values holds {value!r}, which is a cell of every column: leave it out"
                )
            if key is None:
                raise ValueError(f"values holds {value!r}, which no record can have: write a text")
            if key in seen:
                raise ValueError(
                    f"values holds a value twice: {seen[key]!r} and {value!r} are one, since case "
                    "does not count: name it once"
                )
            seen[key] = value
        return self

    def _refuse_question(self, question: str) -> None:
        if len(self.values or ()) < 2:
            raise ValueError("ask needs values, two or more: one of them is the answer")
        # Braces are places of the prompt, and a line break could end the question.
        wrong = [one for one in (question, *(self.values or ())) if set(one) & set("{}\n\r")]
        if wrong or not question.strip():
            raise ValueError(f"{(wrong or [question])[0]!r} must be one line without braces")

    def _refuse_days(self, start: Day, end: Day) -> None:
        if start > end:
            raise ValueError(f"dates: {start} is after {end}")
        if end.year == Day.max.year:
            raise ValueError(f"dates: {end} is no day of a record: later days become `other`")

    def _refuse_steps(self, limits: tuple[float, float]) -> None:
        if max(map(abs, limits)) * 10**self.decimals > EXACT:
            raise ValueError(
                f"range={list(limits)} has more digits than a number keeps with "
                f"decimals={self.decimals}: take smaller limits, or fewer decimals"
            )
        firsts = self._firsts
        if any(one >= following for one, following in pairwise(firsts)):
            raise ValueError(
                f"a bin of range={list(limits)} holds no number of decimals={self.decimals}: "
                f"take fewer than bins={self.bins}, or more decimals"
            )

    @cached_property
    def _firsts(self) -> list[int]:
        """First number of each bin, in steps of the last decimal; then what follows the last."""
        assert self.range is not None  # noqa: S101 - of a range alone
        # Exact, as written: floats would leave a bin without its only number.
        low, high = (Fraction(repr(limit)) * 10**self.decimals for limit in self.range)
        width = (high - low) / self.bins
        firsts = [math.ceil(low + number * width) for number in range(self.bins)]
        return [*firsts, math.floor(high) + 1]

    @cached_property
    def spans(self) -> list[tuple[Day, Day]]:
        """First and last day of each cell of dates."""
        spans: list[tuple[Day, Day]] = []
        first, end = self.dates or (Day.max, Day.min)
        while first <= end:
            month = 12 if self.by == "year" else first.month
            following = Day(first.year + month // 12, month % 12 + 1, 1)
            spans.append((first, min(following - timedelta(days=1), end)))
            first = following
        return spans

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """What its cells are called: declared ones in order, then ``other`` and ``missing``."""
        return (*self._declared(), OTHER, MISSING)

    @cached_property
    def _places(self) -> Mapping[str | None, int]:
        return {_spelled(value): place for place, value in enumerate(self.values or ())}

    @property
    def dtype(self) -> str:
        """Type of its values, as pyarrow and ``datasets`` call it."""
        if self.range is not None:
            return "float64" if self.decimals else "int64"
        return "string" if self.dates is None else "date32"

    @property
    def domain(self) -> str:
        """What was declared, in words."""
        if self.values is not None:
            answers = f", as a model answers: {self.ask}" if self.ask else ""
            return f"{', '.join(self.values)} or {OTHER}{answers}"
        if self.range is not None:
            return f"{self.range[0]:g} to {self.range[1]:g}, drawn in {self.bins} bins"
        first, last = self.spans[0][0], self.spans[-1][1]
        return f"days {first} to {last}, drawn by {self.by}"

    def _declared(self) -> Iterator[str]:
        if self.values is not None:
            yield from self.values
        elif self.range is not None:
            for least, following in pairwise(self._firsts):
                ends = (number / 10**self.decimals for number in (least, following - 1))
                yield " to ".join(dict.fromkeys(f"{end:.{self.decimals}f}" for end in ends))
        else:
            form = "%Y" if self.by == "year" else "%B %Y"
            yield from (first.strftime(form) for first, _ in self.spans)

    def cell(self, value: Any) -> int:
        """The cell of a record's value, from this value and public settings alone. Never raises."""
        last = len(self.cells) - 1
        other = last - 1
        # NaN is how pandas writes a missing value.
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return last
        if isinstance(value, str) and (spells_nothing(value) or not value.strip()):
            return last
        if self.values is not None:
            place = self._places.get(_spelled(value))
        elif self.range is not None:
            place = self._bin(value, self.range)
        else:
            place = self._span(_day(value))
        return other if place is None else place

    def _bin(self, value: Any, limits: tuple[float, float]) -> int | None:
        """Number of the bin of a number, rounded as declared; None if it is none, or outside."""
        try:
            number = float(value.strip() if isinstance(value, str) else value)
        except (TypeError, ValueError, OverflowError):
            return None
        if isinstance(value, bool) or not limits[0] <= number <= limits[1]:  # NaN is not within
            return None
        place = bisect_right(self._firsts, round(number * 10**self.decimals)) - 1
        return min(max(place, 0), self.bins - 1)

    def _span(self, day: Day | None) -> int | None:
        """Number of the cell of a day; None if it is none, or outside."""
        if day is None or self.dates is None or not self.dates[0] <= day <= self.dates[1]:
            return None
        return bisect_right(self.spans, day, key=itemgetter(0)) - 1

    def released_cell(self, cell: int) -> int:
        """The cell in which a released value is found that was drawn in this one; see ``draw``."""
        missing = len(self.cells) - 1
        return missing if self.values is None and cell == missing - 1 else cell

    def draw(self, cell: int, rng: np.random.Generator) -> str | float | int | None:
        """A synthetic JSON value in a cell: a text, a number, a day as ISO text, or None.

        A number is uniform among those of its bin with so many decimals, and a day within its cell.
        ``missing`` is None, and so is ``other`` of numbers and days.
        """
        other = len(self.cells) - 2
        if self.values is not None:
            return (*self.values, OTHER, None)[cell]
        if cell >= other:
            return None
        if self.range is not None:
            least, following = self._firsts[cell : cell + 2]
            number = least + int(rng.integers(following - least))
            return number / 10**self.decimals if self.decimals else number
        first, last = self.spans[cell]
        return (first + timedelta(days=int(rng.integers((last - first).days + 1)))).isoformat()


Ask = Callable[[str, Sequence[int]], tuple[int, ...]]
"""From the text of a record and the cells of its columns to these with its answers; see ``ask``.

privacy: a function of this one record."""


def in_file(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Those columns of which a file has the values; the others are asked."""
    return {name: column for name, column in columns.items() if column.ask is None}


Columns = Annotated[dict[str, Column], AfterValidator(lambda named: dict(sorted(named.items())))]
"""Name -> column, by name: a plan that was read back from JSON has the same order."""


def in_cells(columns: Mapping[str, Column], row: Sequence[int]) -> str:
    """The names of a row's cells on one line, as far as a released row shows them."""
    named = zip(columns.items(), row, strict=True)
    return ", ".join(f"{name}: {one.cells[one.released_cell(cell)]}" for (name, one), cell in named)


def _day(value: Any) -> Day | None:
    """The day of a date, a time or ISO text; None if it is none."""
    if isinstance(value, Day):
        return value.date() if isinstance(value, datetime) else value
    try:
        return datetime.fromisoformat(value.strip()).date() if isinstance(value, str) else None
    except ValueError:
        return None
