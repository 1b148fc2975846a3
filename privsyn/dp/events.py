"""Events: descriptions of what a mechanism does to its data. accountant.py has their costs.

The union is closed and the meaning of a kind never changes: new behavior is a new kind. An event's
parameters (``rho``, ``noise_multiplier``) already include adjacency and contribution bounds, so
its price needs no knowledge of the dataset, the method or the account.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

FORMAT_VERSION = 1
MAX_DEPTH = 16
"""Deepest nesting that ``load`` accepts: a row of the ledger may come from an altered database."""


class _Checked:
    """An event whose fields are within their bounds, which follow from their names."""

    def __post_init__(self) -> None:
        for name, value in vars(self).copy().items():
            if name in _BOUNDS:
                _real(self, name, **_BOUNDS[name])
            elif name in ("event", "events"):
                _events(value if name == "events" else (value,))
            elif type(value) is not int or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")


_BOUNDS: Mapping[str, Mapping[str, float]] = {
    "epsilon": {"low": 0.0},
    "rho": {"low": 0.0},
    "range": {"low": 0.0},
    "noise_multiplier": {"above": 0.0},
    "rate": {"low": 0.0, "high": 1.0},
}


@dataclass(frozen=True)
class Pure(_Checked):
    """A mechanism of pure loss ``epsilon`` (nats)."""

    epsilon: float


@dataclass(frozen=True)
class ZCDP(_Checked):
    """``count`` adaptive runs of a mechanism that is ``rho``-zCDP.

    >>> ZCDP(rho=0.01, count=3)
    ZCDP(rho=0.01, count=3)
    """

    rho: float
    count: int = 1


@dataclass(frozen=True)
class BoundedRange(_Checked):
    """``count`` adaptive draws whose log ratio between neighbors lies in [t - range, t].

    t in [0, range] may depend on the draw and on all earlier draws; only ``range`` is public. The
    exponential mechanism is an example (Durfee, Rogers 2019).

    >>> BoundedRange(range=0.5, count=48)
    BoundedRange(range=0.5, count=48)
    """

    range: float
    count: int = 1


@dataclass(frozen=True)
class Gaussian(_Checked):
    """``count`` adaptive runs of real-valued Gaussian noise.

    Attributes:
        noise_multiplier: Standard deviation over L2 sensitivity.
        count: Number of runs.
    """

    noise_multiplier: float
    count: int = 1


@dataclass(frozen=True)
class DiscreteGaussian(_Checked):
    """``count`` adaptive runs of discrete Gaussian noise *on a fine lattice*.

    The standard deviation is at least 2^16 lattice steps: only then does the continuous curve
    hold (mechanisms.DiscreteGaussian sees to it, and charges zCDP on a coarser lattice).

    Attributes:
        noise_multiplier: Standard deviation over L2 sensitivity, both in lattice steps.
        count: Number of runs.
    """

    noise_multiplier: float
    count: int = 1


@dataclass(frozen=True)
class SampledGaussian(_Checked):
    """``steps`` adaptive rounds of Gaussian noise on a Poisson sample of the units.

    It holds for neighbors that differ by one unit that is there or contributes nothing, not for the
    replacement of one unit by another. The noise is real-valued, or discrete and as fine as that of
    mechanisms.SampledGaussian.

    Attributes:
        rate: Probability of each unit to enter a round.
        noise_multiplier: Standard deviation over the clip norm of one unit.
        steps: Number of rounds.
    """

    rate: float
    noise_multiplier: float
    steps: int


@dataclass(frozen=True)
class Composed(_Checked):
    """All of ``events``, one after the other, on the same units. Costs add."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Rounds(_Checked):
    """All of ``events``, one after the other, repeated ``count`` times on the same units.

    It equals a sequence of ``count`` such sequences, each chosen after the earlier ones. Costs add.
    """

    events: tuple[Event, ...]
    count: int


@dataclass(frozen=True)
class Disjoint(_Checked):
    """Each of ``cells`` public parts of the data runs one of ``events``. The costliest one counts.

    Right only where the part of a record is fixed by the record's own unit id and label, and
    where what one unit changes over all parts together stays within the one sensitivity that
    each event was computed with (m records, and both places of a replaced unit, counted already).
    Proof: [B8] in bounds.md. Trusted inside one release only. A sampled Gaussian is refused: its
    sensitivity is not additive.

    Attributes:
        events: The different events that occur in the parts; one entry if all are equal.
        cells: Number of parts.
    """

    events: tuple[Event, ...]
    cells: int

    def __post_init__(self) -> None:
        super().__post_init__()
        # A part runs exactly one event, so there are never more events than parts.
        if self.cells < len(self.events):
            raise ValueError(f"cells={self.cells} is less than the {len(self.events)} events")
        if any(isinstance(leaf, SampledGaussian) for leaf in leaves(self)):
            # Its cost does not shrink with a unit's share of the sensitivity [B8].
            raise ValueError("a sampled Gaussian cannot run inside disjoint parts")


@dataclass(frozen=True)
class RandomAllocation(_Checked):
    """``event`` in the place of each unit: one of ``places``, drawn uniformly and kept secret.

    Right only where the place of a unit is drawn anew in every release, independently of the data
    and of earlier releases, and is never told; where what a place yields depends on its own records
    and on public facts alone; and for neighbors that differ by one unit that is there or
    contributes nothing. Proof: [B19] in bounds.md. Without the secret it costs ``event``.

    Attributes:
        event: What one place runs. A sampled Gaussian is refused.
        places: Number of places.
    """

    event: Event
    places: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(isinstance(leaf, SampledGaussian) for leaf in leaves(self.event)):
            raise ValueError("a sampled Gaussian cannot run in a place drawn at random")
        # [B19] proves one draw of places, not a draw inside another.
        if any(isinstance(child, RandomAllocation) for child in branches(self.event)):
            raise ValueError("a random allocation cannot run inside another one")


Event: TypeAlias = (
    Pure
    | ZCDP
    | BoundedRange
    | Gaussian
    | DiscreteGaussian
    | SampledGaussian
    | Composed
    | Rounds
    | Disjoint
    | RandomAllocation
)

KINDS: Mapping[str, type[Any]] = {
    "pure": Pure,
    "zcdp": ZCDP,
    "bounded_range": BoundedRange,
    "gaussian": Gaussian,
    "discrete_gaussian": DiscreteGaussian,
    "sampled_gaussian": SampledGaussian,
    "sequence": Composed,
    "rounds": Rounds,
    "disjoint": Disjoint,
    "random_allocation": RandomAllocation,
}


def leaves(event: Event) -> Iterator[Event]:
    """The events without children, in order."""
    for child in branches(event):
        if not children(child):
            yield child


def branches(event: Event) -> Iterator[Event]:
    """An event, its children and theirs, in order."""
    yield event
    for child in children(event):
        yield from branches(child)


def children(event: Event) -> tuple[Event, ...]:
    """The events that an event is made of; none for a leaf."""
    match event:
        case Composed(events) | Rounds(events) | Disjoint(events):
            return events
        case RandomAllocation(inner):
            return (inner,)
        case _:
            return ()


def to_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object, without the format version.

    >>> to_json(Pure(0.5))
    {'kind': 'pure', 'epsilon': 0.5}
    """
    # The exact type, not isinstance: a subclass could mean something else and get the same price.
    kind = next((name for name, cls in KINDS.items() if type(event) is cls), None)
    if kind is None:
        raise TypeError(f"{type(event).__name__} is not an event")
    values: dict[str, Any] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name == "events":
            value = [to_json(child) for child in value]
        values[field.name] = to_json(value) if field.name == "event" else value
    return {"kind": kind, **values}


def from_json(value: object, depth: int = 0) -> Event:
    """The event of a JSON object that ``to_json`` made.

    Raises:
        ValueError: Unknown kind, a field too many or too few, or a value out of bounds.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"an event must be an object, not {type(value).__name__}")
    # Before the recursion: a crafted value must not exhaust the stack.
    if depth > MAX_DEPTH:
        raise ValueError(f"an event is nested more than {MAX_DEPTH} deep")
    kind = value.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ValueError(f"event kind {kind!r} is not one of {', '.join(KINDS)}")
    values = {name: item for name, item in value.items() if name != "kind"}
    names = {field.name for field in fields(cls)}
    # A field too many is refused, too: a newer version may have given it a meaning that costs more.
    if set(values) != names:
        differing = ", ".join(sorted(map(str, set(values) ^ names)))
        raise ValueError(f"event kind {kind!r} has a missing or unknown field: {differing}")
    if "events" in values:
        if not isinstance(values["events"], list):
            raise ValueError("events must be a list")
        values["events"] = tuple(from_json(child, depth + 1) for child in values["events"])
    if "event" in values:
        values["event"] = from_json(values["event"], depth + 1)
    event: Event = cls(**values)
    return event


def dump(event: Event) -> dict[str, Any]:
    """An event as a JSON object with the format version: what ledgers and certificates store."""
    return {"version": FORMAT_VERSION, **to_json(event)}


def load(value: object) -> Event:
    """The inverse of ``dump``.

    Raises:
        ValueError: Another format version, or anything ``from_json`` refuses.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"an event must be an object, not {type(value).__name__}")
    version = value.get("version")
    # type, not isinstance: True == 1 in Python.
    if type(version) is not int or version != FORMAT_VERSION:
        raise ValueError(f"event format version {version!r} is not {FORMAT_VERSION}")
    return from_json({name: item for name, item in value.items() if name != "version"})


def _real(
    event: object,
    name: str,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    high: float = math.inf,
) -> None:
    """Store the field as a finite float within its bounds, so that 1 and 1.0 are one event."""
    raw = getattr(event, name)
    try:
        value = float(raw)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    # float("1") and float(True) succeed, but a stored event must not depend on such a conversion.
    if isinstance(raw, bool | str | bytes) or not math.isfinite(value):
        raise ValueError(f"{name}={raw!r} must be a finite number")
    if not (low <= value <= high and value > above):
        least = f"at least {low:g}" if low > above else f"above {above:g}"
        most = f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"{name}={raw!r} must be {least}{most}")
    object.__setattr__(event, name, value + 0.0)  # -0.0 becomes 0.0: one event, one JSON


def _events(events: object) -> None:
    if not isinstance(events, tuple) or not events:
        raise ValueError("events must be a tuple of at least one event")
    for child in events:
        if type(child) not in KINDS.values():
            raise TypeError(f"{type(child).__name__} is not an event")
