"""What an epsilon and a delta say, in words; and when they say little.

Public settings are all that is read. A caution is advice: what an account must not exceed is its
policy, with ``account.limits``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privsyn.data.settings import DatasetConfig
from privsyn.data.tally import folded
from privsyn.dp.adjacency import Adjacency
from privsyn.ledger.settings import AccountConfig, PrivacyConfig
from privsyn.methods.base import Mechanism, SizedFor

LARGE_EPSILON, VAST_EPSILON = 10.0, 100.0
"""From the first on a release protects weakly; from the second on in name only."""

LARGE_DELTA = 1e-4
"""From here on a delta is large for any but a small group, whose size is then to be told."""

_WORDS = ((12, "trillion"), (9, "billion"), (6, "million"))

MOVES: Mapping[Adjacency, str] = {
    Adjacency.ADD_REMOVE: "Take any one {unit} out of the data, or add one",
    Adjacency.REPLACE_NULL: "Swap any one {unit} in the data for an empty one",
    Adjacency.REPLACE_ONE: "Swap any one {unit} in the data for any other",
}
"""What neighbouring datasets differ by."""


def factor(epsilon: float) -> str:
    """``e ** epsilon`` in words, rounded up.

    >>> factor(1), factor(10), factor(20)
    ('2.72', '22,027', '485.2 million')
    >>> factor(1e9)
    'a number of 434,294,482 digits'
    """
    digits = epsilon / math.log(10)
    if digits < 6:
        found = math.exp(epsilon)
        return f"{math.ceil(found):,}" if found >= 100 else f"{math.ceil(100 * found) / 100:g}"
    for power, word in _WORDS:
        if power <= digits < power + 3:
            return f"{math.ceil(10 ** (digits - power + 1)) / 10:g} {word}"
    if digits > 1e12:
        return "a number of more than a trillion digits"
    return f"a number of {math.floor(digits) + 1:,} digits"


def said(epsilon: float, delta: float, unit: str, adjacency: Adjacency) -> str:
    """The guarantee of a release, in a sentence that promises no more than it does."""
    return (
        f"{MOVES[adjacency].format(unit=unit)}: the probability of any outcome grows at most by "
        f"the factor e^epsilon = e^{epsilon:g} ({factor(epsilon)}), plus delta = {delta:g}"
    )


def of_epsilon(epsilon: float, unit: str, spent: float | None = None) -> tuple[str, ...]:
    """A caution where an epsilon is large.

    Args:
        epsilon: What was asked for.
        unit: Who is protected.
        spent: What the release costs, which counts where it is clearly less; None before it is
            known.
    """
    said = f"privacy.epsilon={epsilon:g}"
    if spent is not None and spent < 0.95 * epsilon:
        epsilon, said = spent, f"epsilon {math.ceil(1000 * spent) / 1000:g}"
    if epsilon < LARGE_EPSILON:
        return ()
    strength = "protects in name only" if epsilon >= VAST_EPSILON else "is weak protection"
    return (
        f"{said} lets the probability of any outcome grow by the factor "
        f"e^epsilon, {factor(epsilon)}, through one {unit}: that {strength}. At "
        "epsilon 1 the factor is 2.72.",
    )


def of_release(
    privacy: PrivacyConfig, account: AccountConfig, spent: float | None = None
) -> tuple[str, ...]:
    """Cautions on what one release may cost, one line each; ``spent`` as of_epsilon has it."""
    epsilon, delta, unit = privacy.epsilon, privacy.delta, account.unit
    found = [*of_epsilon(epsilon, unit, spent)]
    size = account.public_size
    if size is not None and delta >= 1 / (10 * size):
        found.append(
            f"privacy.delta={delta:g} is at least one over ten times account.public_size={size}: "
            f"releases that give whole records of some {unit} away would stay within it. Set it "
            f"below {1 / (10 * size):.2g}."
        )
    elif size is None and delta >= LARGE_DELTA:
        found.append(
            f"privacy.delta={delta:g} is large: it should be below one over ten times the number "
            f"of {unit}s. Set account.public_size to a public estimate of that number."
        )
    if account.delta and delta > account.delta:
        found.append(
            f"privacy.delta={delta:g} is above account.delta={account.delta:g}: what the account "
            "promises over its life is told at the smaller one."
        )
    return tuple(found)


def of_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Advice on labels that hardly differ: they are two all the same."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(folded(label), []).append(label)
    return tuple(
        f"dataset.labels: {' and '.join(map(repr, several))} differ by case, spaces or punctuation "
        "alone, and are labels with texts of their own. If one is a slip, correct it in the file "
        "and take it out."
        for several in alike.values()
        if len(several) > 1
    )


def of_bound(records: int, unit: str) -> tuple[str, ...]:
    """Advice where a unit may have so many records that little is left of any.

    Args:
        records: Of a unit at most.
        unit: Who is protected.
    """
    if records < MANY:
        return ()
    return (
        f"dataset.max_records_per_unit={records} hides a {unit} with {records} records, and what "
        f"{records} can move: noise is that of one record many times over, or what is released of "
        f"each is that much less. Most releases are better at 1 to {MANY // 3}: of a {unit} with "
        "more, some are left out, chosen by a keyed hash.",
    )


MANY = 10
"""Records of a unit from which on a bound is worth a word."""
CROWDED = 3
"""Times batch_size from which on a bucket's records are worth a word."""
SCARCE = 1.25
"""Times the records there are, from which on settings for so many are worth a word."""


@dataclass(frozen=True)
class TrainedOn:
    """How many records may train a release, and who says so.

    Attributes:
        units: With a record each at least.
        records: At most.
        said: What the number was taken from: a setting for advice that may leave the room; the
            private file, whose exact counts may not.
    """

    units: float
    records: int
    said: str


def publicly(dataset: DatasetConfig, account: AccountConfig) -> TrainedOn | None:
    """By ``account.public_size``; None where it is not set."""
    if account.public_size is None:
        return None
    units = account.public_size * (1 - dataset.holdout)
    records = int(units * dataset.max_records_per_unit)
    return TrainedOn(units, records, f"account.public_size={account.public_size}")


def of_sizes(
    where: str, mechanism: Mechanism, buckets: int, there: TrainedOn | None
) -> tuple[str, ...]:
    """Advice where settings suit far more records than there are, or far fewer.

    Args:
        where: The method's section, for the message.
        mechanism: What the settings take the data to hold.
        buckets: How many cells there are, where each is a bucket of its own.
        there: Records that train; None where nobody knows.
    """
    suited, divisor = mechanism.sized_for, mechanism.divisor
    if divisor is not None:
        if there is not None and there.units >= CROWDED * divisor * buckets:
            return (_crowded(where, divisor, buckets, there),)
        fewer = "or write fewer texts"
        if there is not None:
            fewer = f"Lower batch_size to {max(1, there.records // buckets)}, {fewer}"
        suited = SizedFor(
            divisor * buckets,
            f"{buckets} buckets of batch_size={divisor}",
            f"buckets would be part empty and lean on the public model. {fewer}.",
        )
    if suited is None:
        return ()
    said = f"{where}: {suited.settings} suit some {math.ceil(suited.records)} records"
    if there is None:
        return (f"{said}: privsyn check says whether there are as many.",)
    if suited.records <= (SCARCE if divisor is None else 1) * there.records:
        return ()
    return (f"{said}, and {there.said} leaves {there.records} at most: {suited.otherwise}",)


def _crowded(where: str, divisor: int, buckets: int, there: TrainedOn) -> str:
    each = int(there.units // buckets)
    return (
        f"{where}: {there.said} puts about {each} records into each of {buckets} buckets of "
        f"batch_size={divisor}: a token reads them all, which takes {each / divisor:.0f} times as "
        f"long, and they outweigh the public model by as much. Raise batch_size towards {each}, or "
        "the number of buckets."
    )


def of_accuracy(scale: float, dataset: DatasetConfig, account: AccountConfig) -> tuple[str, ...]:
    """Advice where the noise on a published accuracy is large beside who is tested.

    Args:
        scale: Of the noise on each of its two sums, in units.
        dataset: Share held out.
        account: Public size.
    """
    if account.public_size is None:
        return ()
    units = dataset.holdout * account.public_size
    moved = min(1.0, 3 * scale / max(1.0, units))
    if moved <= LARGE_NOISE:
        return ()
    return (
        f"evaluate.paid: about {units:.0f} of account.public_size={account.public_size} "
        f"{account.unit}s are held out, of whom noise may move the accuracy by {moved:.0%}. Raise "
        "evaluate.paid.epsilon or dataset.holdout.",
    )


LARGE_NOISE = 0.1
"""Share by which noise may move an accuracy before that is worth a caution."""


def of_account(account: AccountConfig) -> tuple[str, ...]:
    """Cautions on what an account may spend in its life, one line each."""
    found = []
    if account.epsilon >= VAST_EPSILON:
        found.append(
            f"account.epsilon={account.epsilon:g} as a lifetime cap holds nothing back: "
            f"e^epsilon is {factor(account.epsilon)}."
        )
    size = account.public_size
    if account.delta >= (LARGE_DELTA if size is None else 1 / (10 * size)):
        bound = "" if size is None else f" for account.public_size={size}"
        found.append(f"account.delta={account.delta:g} is large{bound}.")
    period = account.period
    if period is not None and period.epsilon >= VAST_EPSILON:
        found.append(f"account.period.epsilon={period.epsilon:g} holds nothing back.")
    return tuple(found)
