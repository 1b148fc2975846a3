"""What a guarantee means in words, cautions where it is weak, and advice on sizes and prompts.

Public settings are all that is read. A caution is advice: what an account must not exceed is its
policy. Conditions and sentences are in ``templates/cautions.yaml``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.data.readers.columns import called_after_people
from privsyn.data.readers.image_files import FILE
from privsyn.data.settings import DatasetConfig
from privsyn.data.words import is_latin
from privsyn.dp.accountant import epsilon_without_secret, format_epsilon
from privsyn.dp.adjacency import Adjacency, plural
from privsyn.dp.event_tree import without_secret
from privsyn.dp.events import Event
from privsyn.dp.risk import (
    FAMILY,
    LARGE_EPSILON,
    STRONG_EPSILON,
    VAST_EPSILON,
    Risk,
    Strength,
    gaussian_risk,
    group_risk,
    odds,
    of_profile,
    risk,
    strength,
)
from privsyn.ledger.entries import Fill
from privsyn.ledger.settings import AccountConfig, PrivacyConfig
from privsyn.methods.base import Mechanism, SizedFor
from privsyn.modalities.registry import modality_of
from privsyn.models.references import ENGLISH, TINY
from privsyn.release.plan import DatasetIdentity
from privsyn.sentences import Rows

if TYPE_CHECKING:
    from privsyn.config import Config

CAUTIONS = Rows(Path(__file__).parent / "templates" / "cautions.yaml")

LARGE_DELTA = 1e-4
"""From here on a delta is large for any but a small group, whose size is then to be told."""

MOVES: Mapping[Adjacency, str] = {
    Adjacency.ADD_REMOVE: "Take any one {unit} out of the data, or add one",
    Adjacency.REPLACE_NULL: "Swap any one {unit} in the data for an empty one",
    Adjacency.REPLACE_ONE: "Swap any one {unit} in the data for any other",
}
"""What neighboring datasets differ by."""


def definition(
    epsilon: float, delta: float, unit: str, adjacency: Adjacency, mu: float | None = None
) -> str:
    """The guarantee of a release as its definition has it, for specialists."""
    gaussian = "" if mu is None else GAUSSIAN.format(mu=format_epsilon(mu, digits=4))
    return (
        f"{MOVES[adjacency].format(unit=unit)}: the probability of any outcome grows at most by "
        f"the factor e^epsilon, plus delta, with epsilon {format_epsilon(epsilon)} and delta "
        f"{format_epsilon(delta)}{gaussian}"
    )


GAUSSIAN = (
    "; it is mu-Gaussian differentially private with mu {mu}, and the squares of the mus of "
    "several releases add up"
)


def rated_epsilon(target: float, spent: float) -> float:
    """The epsilon by which words judge a release: as asked for, or its cost if clearly less."""
    # Calibration seldom meets the target exactly: a cost within 5 percent of it counts as the
    # target.
    return spent if spent < 0.95 * target else target


def of_epsilon(
    epsilon: float, unit: str, spent: float | None = None, right: float | None = None
) -> tuple[str, ...]:
    """A caution where a release protects weakly or not at all.

    Args:
        epsilon: What was asked for.
        unit: Who is protected.
        spent: What the release costs, which counts where it is clearly less; None before it is
            known.
        right: ``Risk.right`` of its event; None before it is known.
    """
    named = f"privacy.epsilon={epsilon:g}"
    if spent is not None and rated_epsilon(epsilon, spent) != epsilon:
        epsilon, named = spent, f"epsilon {math.ceil(1000 * spent) / 1000:g}"
    level = strength(epsilon, right)
    return CAUTIONS.says(
        "epsilon",
        named=named,
        unit=unit,
        level=level,
        weak=level is Strength.WEAK,
        nothing=level is Strength.NONE,
        scale=scale_of(epsilon, right),
    )


def on_secret(unit: str, epsilon: float, known: Risk) -> str:
    """What a cost counts on that holds against whoever does not know the buckets.

    Args:
        unit: Who is protected.
        epsilon: Against somebody who knows them.
        known: The risk from them.
    """
    chance = math.ceil(100 * known.right - 1e-9)
    facts = {"unit": unit, "chance": chance, "epsilon": format_epsilon(epsilon, digits=4)}
    return str(CAUTIONS.first("secret", facts)["says"])


def odds_of(
    event: Event, unit: str, adjacency: str, delta: float, column: str | None = None
) -> tuple[str, ...]:
    """The odds of an event in sentences, with and without the secret of its buckets."""
    units = several(unit, column)
    words = (
        *risk(event).words(unit, adjacency, units),
        group_risk(event).words_together(FAMILY, units),
    )
    epsilon = epsilon_without_secret(event, delta)
    if epsilon is None:
        return words
    return *words, on_secret(unit, epsilon, risk(without_secret(event)))


def account_odds(balance: Fill) -> dict[str, str]:
    """The odds of an account in words: before, now, and at its cap."""
    cap = balance.cap
    chances = {"without any release": 0.5}
    if balance.right > 0.5:
        chances["from all releases so far"] = balance.right
        chances[f"from all of them, for {FAMILY} units together"] = balance.family_right
    if cap.delta:
        gaussian = gaussian_risk(cap.epsilon, cap.delta)
        chances["once the cap is spent, by Gaussian noise"] = gaussian.right
    chances["once it is spent, by any mechanism"] = of_profile([(cap.epsilon, cap.delta)]).right
    return {name: odds(right) for name, right in chances.items()}


ODDS = "how often somebody who knows all the other data guesses right if a {unit}'s data was used"
"""What ``account_odds`` are of."""


SCALE = f"{STRONG_EPSILON:g} is strong, {LARGE_EPSILON:g} weak, {VAST_EPSILON:g} none"
"""By which a reader may judge an epsilon."""


def scale_of(epsilon: float, right: float | None) -> str:
    """By what ``dp.risk.strength`` judges a release: the scale of epsilons, or its odds."""
    by_epsilon = strength(epsilon) is strength(epsilon, right)
    return SCALE if by_epsilon else "by the odds of its mechanism"


RESEMBLANCE = (
    "Differential privacy bounds what they tell of any one {unit}. It does not promise that none "
    "of them resembles or repeats a private record."
)
"""Of synthetic records: what the guarantee does not say."""


BY_AUDIT = (
    "It is published only where an internal audit against held-out records passes "
    "(evaluate.audit: block): that it is here is an answer that no epsilon covers."
)
"""Of a release that an audit lets out."""


def of_release(
    privacy: PrivacyConfig,
    account: AccountConfig,
    spent: float | None = None,
    right: float | None = None,
) -> tuple[str, ...]:
    """Cautions on what one release may cost; ``spent`` and ``right`` as of_epsilon has them."""
    return of_epsilon(privacy.epsilon, account.unit, spent, right) + CAUTIONS.says(
        "release",
        delta=privacy.delta,
        size=account.public_size,
        large=LARGE_DELTA,
        unit=account.unit,
        units=plural(account.unit),
        account=account,
    )


def several(unit: str, column: str | None = None) -> str:
    """Several of those who are protected: patients; units of a column that is named like nobody.

    Args:
        unit: One of them, as the account names it.
        column: Column of the unit: an account without a word of its own has its name.
    """
    unnamed = unit == column and not called_after_people(unit)
    return f"units of column {unit}" if unnamed else plural(unit)


def of_cap(privacy: PrivacyConfig, account: AccountConfig) -> tuple[str, ...]:
    """A caution where the account can pay for no release of the target."""
    return CAUTIONS.says("cap", privacy=privacy, account=account)


Described = DatasetConfig | DatasetIdentity


def stand_in_unit(dataset: Described) -> str:
    """What is protected in place of people where no column says whose a record is; else empty."""
    if dataset.unit is None:
        return "rows"
    return "files" if modality_of(dataset).by_file and dataset.unit == FILE else ""


def of_each(dataset: Described, most: int) -> str:
    """How many records of a unit are used, in words; or that nobody is named as the unit.

    Args:
        dataset: The records.
        most: Of a unit.
    """
    if rows := stand_in_unit(dataset):
        return f"{rows}, not people, are protected: no unit is named"
    things = modality_of(dataset).things
    return f"at most {most} {things if most > 1 else things.removesuffix('s')} of each"


def not_people(dataset: Described) -> str:
    """What to know where no column says whose a record is; else empty."""
    rows = stand_in_unit(dataset)
    return "".join(CAUTIONS.says("not_people", rows=rows, unit=dataset.unit))


def protected_unit(dataset: Described, unit: str) -> str:
    """Who is protected, in a word: the account's unit only where a column tells units apart.

    Args:
        dataset: The records.
        unit: As the account names it.
    """
    return stand_in_unit(dataset).removesuffix("s") or unit


def of_unit(dataset: Described) -> tuple[str, ...]:
    """A caution where no column says whose a record is."""
    caution = not_people(dataset)
    return (caution.replace(":", " (dataset.unit):", 1),) if caution else ()


def of_prompts(dataset: Described, models: Collection[str], *, own: bool) -> tuple[str, ...]:
    """What helps before any epsilon does, by public facts: what a text is, its language, the model.

    Args:
        dataset: Its public words: what a record is, labels, examples.
        models: The language models as a plan names them.
        own: Whether the settings bring prompts of their own, which need not say what a record is.
    """
    return CAUTIONS.says(
        "prompts",
        public=dataset,
        own=own,
        models=models,
        foreign=_foreign(dataset, models),
        tiny=TINY,
    )


def of_language(public: Described, models: Collection[str]) -> tuple[str, ...]:
    """A note where public words are in another language than the models, as far as letters tell."""
    foreign = _foreign(public, models)
    return CAUTIONS.says("prompts", public=public, own=True, models=(), foreign=foreign, tiny=TINY)


def _foreign(public: Described, models: Collection[str]) -> str:
    """The first of the models that knows English alone, where public words are not; else empty."""
    words = re.findall(r"[^\W\d_]+", " ".join([public.document or "", *public.labels]).casefold())
    foreign = (
        any(not word.isascii() for word in words)
        or not _ELSEWHERE.isdisjoint(words)
        or not all(is_latin(example.text) for example in public.examples)
    )
    return next((name for name in models if name in ENGLISH and foreign), "")


_ELSEWHERE = frozenset(
    "der das ein eine einer eines einem einen und von vom für mit zum zur ist nicht "
    "un une le les des du et pour avec dans aux el los las una del para con por "
    "il gli di della delle dei degli per uma dos em het een van voor met och till från".split()
)
"""Small words of other languages that are none of English."""


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
        source: What the number was taken from, for messages.
        public: Whether that is a public setting, by which sizes may be set. Of exact counts of the
            private file advice gives the direction alone: a setting is published.
    """

    units: float
    records: int
    source: str
    public: bool


def publicly(dataset: DatasetConfig, account: AccountConfig) -> TrainedOn | None:
    """By ``account.public_size``; None where it is not set."""
    if account.public_size is None:
        return None
    # privacy: from the public estimate, never from the file: advice is printed and followed.
    units = account.public_size * (1 - dataset.holdout)
    records = int(units * dataset.max_records_per_unit)
    return TrainedOn(units, records, f"account.public_size={account.public_size}", public=True)


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
    suited, divisor, scarce = mechanism.sized_for, mechanism.divisor, SCARCE
    facts = {"where": where, "buckets": buckets, "divisor": divisor, "there": there}
    facts["publishes"] = PUBLISHES
    if divisor is not None:
        if there is not None and there.units >= CROWDED * divisor * buckets:
            return CAUTIONS.says("crowded", **facts, each=int(there.units // buckets))
        otherwise = CAUTIONS.first("empty_buckets", facts)["says"]
        settings = f"{buckets} buckets of batch_size={divisor}"
        suited, scarce = SizedFor(divisor * buckets, settings, otherwise), 1
    return () if suited is None else CAUTIONS.says("sizes", **facts, suited=suited, scarce=scarce)


def of_label_sizes(
    where: str, mechanism: Mechanism, buckets: int, train: Mapping[str, float]
) -> tuple[str, ...]:
    """Advice where one label has far fewer records than the settings suit: internal.

    Args:
        where: The method's section, for the message.
        mechanism: What the settings take the data to hold.
        buckets: How many cells there are, where each is a bucket of its own.
        train: Records of each label that train, by exact counts.
    """
    if len(train) < 2:
        return ()
    if mechanism.divisor is not None:
        suited_records = dict.fromkeys(train, mechanism.divisor * buckets / len(train))
    elif mechanism.sized_for is not None and mechanism.sized_for.shares:
        shares = dict(zip(train, mechanism.sized_for.shares, strict=True))
        suited_records = {
            label: share * mechanism.sized_for.records for label, share in shares.items()
        }
    else:
        return ()
    few = [
        f"{label} ({train[label]:.0f} records train, and the settings suit {suited:.0f})"
        for label, suited in suited_records.items()
        if 0 < train[label] * SCARCE < suited
    ]
    return CAUTIONS.says("label_sizes", where=where, few=few, publishes=PUBLISHES)


(PUBLISHES,) = CAUTIONS.says("publishes")
"""Beside advice that hangs on exact counts of records."""


def of_accuracy(scale: float, dataset: DatasetConfig, account: AccountConfig) -> tuple[str, ...]:
    """Advice where the noise on a published accuracy is large beside who is tested.

    Args:
        scale: Of the noise on each of its two sums, in units.
        dataset: Share held out.
        account: Public size.
    """
    if account.public_size is None:
        return ()
    tested = dataset.holdout * account.public_size
    return CAUTIONS.says(
        "accuracy",
        tested=tested,
        size=account.public_size,
        units=several(account.unit, dataset.unit),
        moved=min(1.0, 3 * scale / max(1.0, tested)),
        large=LARGE_NOISE,
    )


LARGE_NOISE = 0.1
"""Share by which noise may move an accuracy before that is worth a caution."""


def of_account(account: AccountConfig) -> tuple[str, ...]:
    """Cautions on what an account may spend in its life, one line each."""
    return CAUTIONS.says(
        "account",
        account=account,
        vast=VAST_EPSILON,
        large=LARGE_DELTA,
        no_protection=Strength.NONE,
    )


def settings_advice(
    config: Config,
    given: Any,
    writers: Sequence[str],
    spent: float | None = None,
    right: float | None = None,
) -> tuple[str, ...]:
    """Cautions and advice that need no plan, so that a page of the DAG has them, too.

    Args:
        config: Of the project.
        given: Settings of the method.
        writers: The language models that write, as the settings name them.
        spent: What the release costs; None before it is known.
        right: ``Risk.right`` of its event; likewise.
    """
    dataset, account = config.dataset, config.account
    return (
        *of_prompts(dataset, writers, own=own_prompts(given)),
        *of_unit(dataset),
        *of_release(config.privacy, account, spent, right),
        *of_cap(config.privacy, account),
        *of_account(account),
        *CAUTIONS.says("bound", records=dataset.max_records_per_unit, unit=account.unit, many=MANY),
    )


def writers_of(config: Config) -> list[str]:
    """The language model that writes, by its setting; of a server nothing is known."""
    if not modality_of(config.dataset).worded:
        return []
    return [config.models.language] if config.models.server is None else [f"{config.models.server}"]


def own_prompts(given: Any) -> bool:
    """Whether a method's settings bring prompts of their own, or need none."""
    text = getattr(given, "text", None)
    return (
        getattr(given, "prompt", None) is not None
        or getattr(text, "random_prompt", None) is not None
        or not getattr(given, "use_llm", True)
    )
