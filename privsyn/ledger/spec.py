"""What an account promises: its cap, its unit, and the terms of a single release.

The ledger remembers it: cap and unit are fixed when an account is opened, and its terms may become
stricter, but never laxer unnoticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.dp.accountant import Guarantee, epsilon_at
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.event_tree import is_amplified
from privsyn.dp.events import Event
from privsyn.dp.rooms import NO_ROOMS, Rooms
from privsyn.errors import BudgetError, ConfigError, PolicyBroken
from privsyn.ledger import schema
from privsyn.ledger.settings import AccountConfig, approval_of, read_policy

if TYPE_CHECKING:
    from pathlib import Path

    from privsyn.config import Config

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class ReleaseRequest:
    """What a release asks of its account's terms.

    Attributes:
        method: Name of the method.
        epsilon: Of the release alone, as ``at_price_of``.
        delta: Of the release alone.
        adjacency: The account's.
        unit: The account's.
        internal_metrics: Whether it is to be measured beside held-out records.
        amplified: Whether its cost counts on the secret draw of buckets.
        at: The account's delta, where ``epsilon`` is at that and not at the release's own.
    """

    method: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    internal_metrics: bool = False
    amplified: bool = False
    at: float | None = None

    @classmethod
    def of(
        cls, spec: AccountSpec, event: Event, method: str, guarantee: Guarantee
    ) -> ReleaseRequest:
        """What a release asks of an account, at no less than the price of its event."""
        request = cls(
            method,
            guarantee.epsilon,
            guarantee.delta,
            spec.adjacency,
            spec.unit,
            amplified=is_amplified(event),
        )
        return request.at_price_of(event, spec.delta) if spec.terms.limits_epsilon else request

    def at_price_of(self, event: Event, delta: float) -> ReleaseRequest:
        """The same at no less than the price of its event, whatever it says of itself.

        A larger delta makes any epsilon small, so no release is judged at a larger one than its
        account's: else whoever names the delta would choose the epsilon that the rules see.

        Args:
            event: What the release does to the data.
            delta: The account's.
        """
        # At the smaller delta: the larger one would make any epsilon look small.
        at = min(self.delta, delta)
        epsilon = max(self.epsilon, epsilon_of(event, at))
        return replace(self, epsilon=epsilon, at=delta if delta < self.delta else None)


@dataclass(frozen=True)
class Terms:
    """Rules of an account, besides its cap. What is None or as by default is no rule.

    Attributes:
        policy: Name of the policy they are from.
        epsilon: Most that one release may ask.
        delta: Most that one release may ask.
        period_days: Length of the policy's sliding window, in days.
        period_epsilon: Cap within the window, at the account's delta.
        methods: Those that are allowed.
        adjacencies: Those that are allowed.
        units: Those that are allowed.
        internal_metrics: Whether releases may be measured beside held-out records.
        amplification: Whether costs may count on the secret draw of buckets.
        spend_above: Epsilon from above which a person must approve that it is spent.
        publish: Whether a person must approve what is published.
        two_people: Whether that must be another one than who request.
        file: SHA-256 of the file of policies they were read from.
        size_rule: How ``delta`` follows from the public size, where it does.
    """

    policy: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    period_days: int | None = None
    period_epsilon: float | None = None
    methods: tuple[str, ...] | None = None
    adjacencies: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    internal_metrics: bool = True
    amplification: bool = True
    spend_above: float | None = None
    publish: bool = False
    two_people: bool = False
    file: str | None = field(default=None, compare=False)
    size_rule: str | None = field(default=None, compare=False)

    def dump(self) -> dict[str, Any]:
        """Those that are set, for JSON."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        rules = {name: value for name, value in values.items() if value != getattr(NONE, name)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in rules.items()
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any] | str | None) -> Terms:
        """The inverse of ``dump``, also from its JSON; no terms from None."""
        rules = json.loads(dumped) if isinstance(dumped, str) else dict(dumped or {})
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in rules.items()
        }
        return cls(**values)

    @property
    def limits_epsilon(self) -> bool:
        """Whether a rule is about a release's epsilon."""
        rules = (self.epsilon, self.period_epsilon, self.spend_above)
        return any(rule is not None for rule in rules)

    @property
    def source(self) -> str:
        """Where a person finds the rules."""
        return f"policy {self.policy}" if self.policy else "account.limits"

    def broken_by(self, request: ReleaseRequest) -> list[str]:
        """Every rule that a release breaks: value, limit, next step."""
        broken = []
        at = ""
        if request.at is not None:
            at = f", at account.delta={request.at:g} and not privacy.delta={request.delta:g},"
        for name, value, most, why, note in (
            ("epsilon", request.epsilon, self.epsilon, None, at),
            ("delta", request.delta, self.delta, self.size_rule, ""),
        ):
            if most is not None and value > most:
                broken.append(
                    f"privacy.{name}={value:g}{note} is above {most:g}"
                    f"{f' = {why}' if why else ''}, the most that one release may ask: lower it to "
                    f"{most:g} or less"
                )
        if self.period_epsilon is not None and request.epsilon > self.period_epsilon:
            broken.append(
                f"privacy.epsilon={request.epsilon:g}{at} is above {self.period_epsilon:g}, the "
                f"most for all releases of any {self.period_days} days: lower it"
            )
        for setting, named, allowed in (
            ("method", request.method, self.methods),
            ("account.adjacency", request.adjacency, self.adjacencies),
            ("account.unit", request.unit, self.units),
        ):
            if allowed is not None and named not in allowed:
                broken.append(
                    f"{setting}={named} is not allowed: use {' or '.join(allowed) or 'none'}"
                )
        if request.internal_metrics and not self.internal_metrics:
            broken.append(
                "evaluate.enabled=true measures releases beside held-out records, which is not "
                "allowed: set evaluate.enabled=false"
            )
        if request.amplified and not self.amplification:
            broken.append(
                "its cost counts on the secret draw of buckets, which is not allowed: set "
                "account.amplification=false"
            )
        return broken

    def refuse(self, account: str, release: str, request: ReleaseRequest) -> None:
        """Refuse a release that breaks a rule.

        Raises:
            PolicyBroken: Names all of them.
        """
        broken = self.broken_by(request)
        if broken:
            raise PolicyBroken(
                f"account {account} ({self.source}) does not allow {release}: {'; '.join(broken)}.",
                broken=tuple(broken),
                hint="Nothing was spent.",
            )

    def laxer_than(self, other: Terms) -> list[str]:
        """Every rule of ``other`` that is weaker here, or missing."""
        laxer = []
        for name in ("epsilon", "delta", "spend_above"):
            value, was = getattr(self, name), getattr(other, name)
            if was is not None and (value is None or value > was):
                laxer.append(f"{name} {_limit(value)}, was {was:g}")
        if other.period_epsilon is not None and (
            self.period_epsilon is None
            or self.period_epsilon > other.period_epsilon
            or (self.period_days or 0) < (other.period_days or 0)
        ):
            period = f"{_limit(self.period_epsilon)} in {self.period_days or 'no'} days"
            laxer.append(f"period {period}, was {other.period_epsilon:g} in {other.period_days}")
        for name in ("methods", "adjacencies", "units"):
            value, was = getattr(self, name), getattr(other, name)
            if was is not None and (value is None or not set(value) <= set(was)):
                allowed = "any" if value is None else ", ".join(value)
                laxer.append(f"{name} {allowed}, was {', '.join(was) or 'none'}")
        if self.internal_metrics and not other.internal_metrics:
            laxer.append("internal_metrics allowed, was forbidden")
        if self.amplification and not other.amplification:
            laxer.append("amplification allowed, was forbidden")
        for name in ("publish", "two_people"):
            if getattr(other, name) and not getattr(self, name):
                laxer.append(f"approval.{name} not asked for, was asked for")
        return laxer


NONE = Terms()
"""Of an account without any."""


def _limit(value: float | None) -> str:
    return "without limit" if value is None else f"{value:g}"


@lru_cache(maxsize=1024)
def epsilon_of(event: Event, delta: float) -> float:
    """Epsilon of an event at a delta, kept in memory; what no delta covers is infinite."""
    try:
        return epsilon_at(event, delta)
    # Infinite: no rule about epsilon may let it pass.
    except ValueError:
        return math.inf


@dataclass(frozen=True)
class Split:
    """How an account's delta is shared by its filters: fixed at its creation.

    Attributes:
        renyi: For any mixture of releases.
        gaussian: For releases that Gaussian noise covers.
        repeats: For releases of one and the same event, such as trained models of one recipe.
        chances: Beside ``gaussian``, for the chances that random allocations [B19] and trained
            models [B20] reveal more than Gaussian noise does.
    """

    renyi: float = 0.2
    gaussian: float = 0.4
    repeats: float = 0.4
    chances: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.renyi, self.gaussian, self.repeats, self.chances)
        if not all(0 <= share <= 1 for share in shares) or math.fsum(shares) > 1 + 1e-12:
            raise ValueError(f"shares={shares} must be at least 0 and add up to at most 1")
        if self.renyi == 0:
            raise ValueError("renyi=0: no filter would be left for a mixture of releases")

    @classmethod
    def for_methods(
        cls, kinds: Collection[Kind], *, chances: bool = False, rooms: bool = False
    ) -> Split:
        """The split for the methods that an account is opened for.

        Args:
            kinds: The kind of each method; empty: all methods.
            chances: Whether a release may have a chance to reveal all: a trained model or a random
                allocation, which the adjacency replace_one refuses.
            rooms: Whether the account has rooms: they are part of the Gaussian filter, which then
                has nearly all of delta.
        """
        if rooms:
            gaussian, part = (0.94, 0.04) if chances else (0.98, 0.0)
            return cls(renyi=0.02, gaussian=gaussian, repeats=0.0, chances=part)
        named = {"whole" if kind == "places" and not chances else kind for kind in kinds}
        split = cls(*_SPLITS[named.pop()]) if len(named) == 1 else cls()
        if not chances or split.gaussian < split.renyi:  # repeats hold trainings without a chance
            return split
        part = split.gaussian / 8  # costs Gaussian noise under 1% of its room
        return replace(split, gaussian=split.gaussian - part, chances=part)


Kind = Literal["whole", "places", "sampled"]
"""How a method uses the records: all of them, those of a bucket, or a sample."""
_SPLITS: Mapping[Kind, tuple[float, float, float]] = {
    "whole": (0.08, 0.9, 0.02),  # by Gaussian noise
    "places": (0.08, 0.46, 0.46),  # exactly, if all are alike, and else by Gaussian noise
    "sampled": (0.08, 0.02, 0.9),  # exactly
}
"""Shares for accounts of methods of one kind: renyi, gaussian, repeats."""


@dataclass(frozen=True)
class AccountSpec:
    """The terms of an account: fixed at its creation for the life of the dataset.

    Attributes:
        name: Account name.
        dataset: Lineage: the dataset over all its versions. One account each.
        unit: Name of the privacy unit. Each release says how many records of a unit it uses.
        adjacency: When two datasets are neighbors.
        epsilon: Lifetime cap.
        delta: Lifetime cap's delta; 0 admits pure events only.
        period_days: Length of the optional second filter's sliding window, in days.
        period_epsilon: Cap within the window, at the account's delta.
        unit_column: Column that holds the unit's id: what the unit is, whatever it is called.
            None where every row is its own unit.
        rooms: Rooms of its Gaussian filter for trainings and pure steps.
        split: Shares of delta of a new account's filters; None: the default. An account that is
            open keeps what it was opened with.
        terms: Rules besides the cap, which may become stricter in its life.
    """

    name: str
    dataset: str
    unit: str
    adjacency: str
    epsilon: float
    delta: float
    period_days: int | None = None
    period_epsilon: float | None = None
    unit_column: str | None = None
    rooms: Rooms = NO_ROOMS
    split: Split | None = field(default=None, compare=False)
    terms: Terms = field(default=NONE, compare=False)

    def __post_init__(self) -> None:
        for key in ("name", "dataset", "unit", "adjacency", "unit_column"):
            if getattr(self, key) == "":
                raise ConfigError(f"{SETTINGS[key]} must not be empty.")
        object.__setattr__(self, "adjacency", str(self.adjacency))
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"account.epsilon={self.epsilon} must be above 0 and finite.")
        if not 0 <= self.delta < 1:
            raise ConfigError(f"account.delta={self.delta} must be at least 0 and below 1.")
        if (self.period_days is None) != (self.period_epsilon is None):
            raise ConfigError("account.period needs both days and epsilon.")
        if self.period_days is not None and self.period_days < 1:
            raise ConfigError(f"account.period.days={self.period_days} must be at least 1.")
        if self.period_epsilon is not None and not 0 < self.period_epsilon < math.inf:
            raise ConfigError(
                f"account.period.epsilon={self.period_epsilon} must be above 0 and finite."
            )
        if not self.rooms:
            return
        # privacy: a charge holds one squared mu, of what lies beside the rooms of the lifetime cap
        if self.period_days is not None:
            raise ConfigError(
                "account.rooms and account.period cannot be combined.", hint="Set one to null."
            )
        if self.delta == 0:
            raise ConfigError("account.rooms needs account.delta above 0, which is 0.")
        kind = "trainings" if self.rooms.steps else "amplified" if self.rooms.allocations else None
        if kind and self.adjacency == Adjacency.REPLACE_ONE:
            raise ConfigError(
                f"account.rooms.{kind} needs account.adjacency add_remove or replace_null, not "
                "replace_one.",
                hint=f"Set account.rooms.{kind}=null.",
            )

    @classmethod
    def of(cls, config: Config, kinds: Collection[Kind] = (), terms: Terms = NONE) -> AccountSpec:
        """The spec a config asks for.

        Args:
            config: The project's.
            kinds: The kind of each of account.methods.
            terms: Of its policy, limits and approvals.
        """
        account, period = config.account, config.account.period
        return cls(
            name=account.name,
            dataset=config.dataset.name,
            unit=account.unit,
            adjacency=account.adjacency.value,
            epsilon=account.epsilon,
            delta=account.delta,
            period_days=period.days if period else None,
            period_epsilon=period.epsilon if period else None,
            unit_column=config.dataset.unit,
            rooms=account.rooms.to_rooms(account.delta) if account.rooms else NO_ROOMS,
            split=Split.for_methods(
                kinds,
                chances=account.adjacency is not Adjacency.REPLACE_ONE,
                rooms=account.rooms is not None,
            ),
            terms=terms,
        )


SETTINGS: Mapping[str, str] = {
    "name": "account.name",
    "dataset": "dataset.name",
    "unit": "account.unit",
    "adjacency": "account.adjacency",
    "epsilon": "account.epsilon",
    "delta": "account.delta",
    "period_days": "account.period.days",
    "period_epsilon": "account.period.epsilon",
    "unit_column": "dataset.unit",
    "rooms": "account.rooms",
}
"""Field of a spec -> the setting a user knows it by."""


def terms_of(account: AccountConfig, root: Path) -> Terms:
    """The rules an account's settings ask for: the stricter of policy and account in each.

    Args:
        account: The settings.
        root: The project folder, where the file of policies is looked for.

    Raises:
        ConfigError: See read_policy; or the policy judges delta by a size that is not set.
    """
    policy, digest = read_policy(account, root)
    approval, limits = approval_of(account, policy), account.limits
    by_size = None
    if policy.delta_exponent is not None:
        if account.public_size is None:
            raise ConfigError(
                f"account.policy={account.policy} judges delta by account.public_size, which is "
                "not set.",
                hint="Set it to a public estimate of how many units there are.",
            )
        # Of a public estimate: the true count is private.
        by_size = account.public_size**-policy.delta_exponent
    deltas = [one for one in (limits.delta, policy.delta, by_size) if one is not None]
    epsilons = [one for one in (limits.epsilon, policy.epsilon) if one is not None]
    delta = min(deltas, default=None)
    return Terms(
        policy=account.policy,
        epsilon=min(epsilons, default=None),
        delta=delta,
        period_days=policy.period.days if policy.period else None,
        period_epsilon=policy.period.epsilon if policy.period else None,
        methods=policy.methods,
        adjacencies=None
        if policy.adjacencies is None
        else tuple(one.value for one in policy.adjacencies),
        units=policy.units,
        internal_metrics=policy.internal_metrics,
        amplification=policy.amplification and account.amplification,
        spend_above=approval.spend_above,
        publish=approval.publish,
        two_people=approval.two_people,
        file=digest,
        size_rule=f"account.public_size={account.public_size} ** -{policy.delta_exponent:g}"
        if by_size is not None and delta == by_size
        else None,
    )


SHARES = tuple(item.name for item in fields(Split))
"""Columns of an account that hold its split."""


def spec_of(row: Row) -> AccountSpec:
    """The spec an account row holds."""
    return AccountSpec(
        name=row["name"],
        dataset=row["dataset"],
        unit=row["unit"],
        adjacency=row["adjacency"],
        epsilon=row["epsilon"],
        delta=row["delta"],
        period_days=row["period_days"],
        period_epsilon=row["period_epsilon"],
        unit_column=row["unit_column"],
        rooms=rooms_of(row),
        split=split_of(row),
        terms=Terms.load(row["terms"]),
    )


def split_of(row: Row) -> Split | None:
    """How an account shares its delta; None where that is 0."""
    if row["renyi"] is None:
        return None
    return Split(**{name: row[name] for name in SHARES})


def rooms_of(row: Row) -> Rooms:
    """The rooms an account was opened with."""
    return Rooms(**json.loads(row["rooms"])) if row["rooms"] else NO_ROOMS


def all_accounts(connection: Connection) -> list[Row]:
    """The rows of all accounts, by name."""
    query = sa.select(schema.accounts).order_by(schema.accounts.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def find_account(connection: Connection, name: str) -> Row | None:
    """The row of an account."""
    query = sa.select(schema.accounts).where(schema.accounts.c.name == name)
    row = connection.execute(query).mappings().one_or_none()
    return dict(row) if row else None


def find_lineage(connection: Connection, dataset: str) -> Row | None:
    """The row of a dataset's account."""
    query = sa.select(schema.accounts).where(schema.accounts.c.dataset == dataset)
    row = connection.execute(query).mappings().one_or_none()
    return dict(row) if row else None


def account_row(connection: Connection | None, name: str) -> Mapping[str, Any]:
    """The row of an account that must exist."""
    row = find_account(connection, name) if connection else None
    if row is None:
        raise BudgetError(f"account {name} is not in the ledger.", hint="See: privsyn ledger show")
    return row
