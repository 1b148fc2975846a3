"""What an account promises: its cap, its unit, and the terms of a single release.

The ledger remembers it: cap and unit are fixed when an account is opened, and its terms may become
stricter, but never laxer unnoticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from privsyn.dp.accountant import epsilon_at
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.event_tree import is_amplified
from privsyn.dp.events import Event
from privsyn.dp.random_allocation import POINTS, largest_mu
from privsyn.dp.rooms import NO_ROOMS, Rooms
from privsyn.errors import BudgetError, ConfigError, PolicyBroken
from privsyn.ledger import sa, schema
from privsyn.ledger.entries import Cost
from privsyn.ledger.settings import (
    AccountConfig,
    ApprovalConfig,
    PolicyConfig,
    RoomsConfig,
    approval_of,
    read_policy,
)

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
        internal_metrics: Whether it is to be measured beside held-out records.
        amplified: Whether its cost counts on the secret draw of buckets.
        at: The account's delta, where ``epsilon`` is at that and not at the release's own.
    """

    method: str
    epsilon: float
    delta: float
    internal_metrics: bool = False
    amplified: bool = False
    at: float | None = None

    @classmethod
    def of(cls, spec: AccountSpec, cost: Cost) -> ReleaseRequest:
        """What a release asks of an account, at no less than the price of its event."""
        asked, event = cost.guarantee, cost.event
        request = cls(cost.method, asked.epsilon, asked.delta, amplified=is_amplified(event))
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


class Terms(PolicyConfig):
    """Rules of an account, besides its cap: of its policy and of the account itself.

    Attributes:
        policy: Name of the policy they are from.
        public_size: Of the account, where the policy judges delta by it.
    """

    policy: str | None = None
    public_size: int | None = None

    def dump(self) -> dict[str, Any]:
        """Those that are set, for JSON."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def load(cls, dumped: Mapping[str, Any] | str | None) -> Terms:
        """The inverse of ``dump``, also from its JSON; no terms from None."""
        if isinstance(dumped, str):
            return cls.model_validate_json(dumped)
        return cls.model_validate(dumped or {})

    @property
    def source(self) -> str:
        """Where a person finds the rules."""
        return f"policy {self.policy}" if self.policy else "its own rules"

    @property
    def approvals(self) -> ApprovalConfig:
        """What a person must approve."""
        return self.approval or ApprovalConfig()

    @property
    def most_delta(self) -> float | None:
        """Most that one release may ask."""
        if self.delta_exponent is None or self.public_size is None:
            return self.delta
        # Of a public estimate: the true count is private.
        by_size = float(self.public_size**-self.delta_exponent)
        return by_size if self.delta is None else min(self.delta, by_size)

    @property
    def limits_epsilon(self) -> bool:
        """Whether a rule is about a release's epsilon."""
        rules = (self.epsilon, self.period, self.approvals.spend_above)
        return any(rule is not None for rule in rules)

    def broken_by(self, request: ReleaseRequest, adjacency: str, unit: str) -> list[str]:
        """Every rule that a release of an account breaks: value, limit, next step."""
        at = ""
        if request.at is not None:
            at = f", at account.delta={request.at:g} and not privacy.delta={request.delta:g},"
        epsilon, delta = f"privacy.epsilon={request.epsilon:g}{at}", self.most_delta
        by_size = f" = account.public_size={self.public_size} ** -{self.delta_exponent or 0:g}"
        why = "" if delta == self.delta else by_size
        window, days = (self.period.epsilon, self.period.days) if self.period else (None, 0)
        one, many = (
            "the most that one release may ask",
            f"the most for all releases of any {days} days",
        )
        ceilings = (
            (epsilon, request.epsilon, self.epsilon, f", {one}"),
            (f"privacy.delta={request.delta:g}", request.delta, delta, f"{why}, {one}"),
            (epsilon, request.epsilon, window, f", {many}"),
        )
        choices = (
            ("method", request.method, self.methods),
            ("account.adjacency", adjacency, self.adjacencies),
            ("account.unit", unit, self.units),
        )
        broken = [
            f"{what} is above {most:g}{note}: lower it to {most:g} or less"
            for what, value, most, note in ceilings
            if most is not None and value > most
        ]
        broken += [
            f"{setting}={named} is not allowed: use {' or '.join(allowed) or 'none'}"
            for setting, named, allowed in choices
            if allowed is not None and named not in allowed
        ]
        if request.internal_metrics and not self.internal_metrics:
            broken.append(
                "releases are measured beside held-out records, which is not allowed: set "
                "evaluate.by=nothing"
            )
        if request.amplified and not self.amplification:
            broken.append(
                "its cost counts on the secret draw of buckets, which is not allowed: set "
                "account.amplification=false"
            )
        return broken

    def laxer_than(self, other: Terms) -> list[str]:
        """Every rule of ``other`` that is weaker here, or missing."""
        laxer = [
            f"{name} {'without limit' if most is None else f'{most:g}'}, was {was:g}"
            for name, most, was in (
                ("epsilon", self.epsilon, other.epsilon),
                ("delta", self.most_delta, other.most_delta),
                ("spend_above", self.approvals.spend_above, other.approvals.spend_above),
            )
            if was is not None and (most is None or most > was)
        ]
        now, then = self.period, other.period
        if then and (now is None or now.epsilon > then.epsilon or now.days < then.days):
            period = f"{now.epsilon:g} in {now.days} days" if now else "without limit"
            laxer.append(f"period {period}, was {then.epsilon:g} in {then.days}")
        laxer += [
            f"{name} {'any' if allowed is None else ', '.join(allowed)}, was "
            f"{', '.join(was) or 'none'}"
            for name, allowed, was in (
                ("methods", self.methods, other.methods),
                ("adjacencies", self.adjacencies, other.adjacencies),
                ("units", self.units, other.units),
            )
            if was is not None and (allowed is None or not set(allowed) <= set(was))
        ]
        laxer += [
            f"{name} allowed, was forbidden"
            for name in ("internal_metrics", "amplification")
            if getattr(self, name) and not getattr(other, name)
        ]
        laxer += [
            f"approval.{name} not asked for, was asked for"
            for name in ("publish", "two_people")
            if getattr(other.approvals, name) and not getattr(self.approvals, name)
        ]
        return laxer


NONE = Terms()
"""Of an account without any."""


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
    def of(cls, *, rooms: bool, chances: bool) -> Split:
        """The split of a new account.

        Args:
            rooms: Whether the account has rooms: they are part of the Gaussian filter, which then
                has nearly all of delta.
            chances: Whether a release may have a chance to reveal all: a trained model or a random
                allocation, which the adjacency replace_one refuses.
        """
        # What chances take costs Gaussian noise under 1% of its room.
        if rooms:
            return cls(0.02, 0.94, 0.0, 0.04) if chances else cls(0.02, 0.98, 0.0)
        return cls(gaussian=0.35, chances=0.05) if chances else cls()


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

    def refuse(self, release: str, request: ReleaseRequest) -> None:
        """Refuse a release that breaks a rule of the terms.

        Raises:
            PolicyBroken: Names all of them.
        """
        broken = self.terms.broken_by(request, self.adjacency, self.unit)
        if broken:
            raise PolicyBroken(
                f"account {self.name} ({self.terms.source}) does not allow {release}: "
                f"{'; '.join(broken)}.",
                hint="Nothing was spent.",
            )

    @classmethod
    def of(cls, config: Config, terms: Terms = NONE) -> AccountSpec:
        """The spec a config asks for, with the terms of its policy and approvals."""
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
            rooms=rooms_for(account.rooms, account.delta) if account.rooms else NO_ROOMS,
            split=Split.of(
                rooms=account.rooms is not None,
                chances=account.adjacency is not Adjacency.REPLACE_ONE,
            ),
            terms=terms,
        )


SETTINGS: Mapping[str, str] = {
    "dataset": "dataset.name",
    "unit_column": "dataset.unit",
    "period_days": "account.period.days",
    "period_epsilon": "account.period.epsilon",
    **{
        name: f"account.{name}"
        for name in ("name", "unit", "adjacency", "epsilon", "delta", "rooms")
    },
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
    policy = read_policy(account, root)
    if policy.delta_exponent is not None and account.public_size is None:
        raise ConfigError(
            f"account.policy={account.policy} judges delta by account.public_size, which is not "
            "set.",
            hint="Set it to a public estimate of how many units there are.",
        )
    approval = approval_of(account, root)
    return Terms(
        **policy.model_dump(exclude={"approval", "amplification"}),
        policy=account.policy,
        public_size=None if policy.delta_exponent is None else account.public_size,
        amplification=policy.amplification and account.amplification,
        approval=None if approval == ApprovalConfig() else approval,
    )


def spec_of(row: Row) -> AccountSpec:
    """The spec an account row holds."""
    return AccountSpec(
        **{name: row[name] for name in SETTINGS if name != "rooms"},
        rooms=rooms_of(row),
        split=split_of(row),
        terms=Terms.load(row["terms"]),
    )


def split_of(row: Row) -> Split | None:
    """How an account shares its delta; None where that is 0."""
    return Split(**json.loads(row["split"])) if row["split"] else None


def rooms_for(config: RoomsConfig, delta: float) -> Rooms:
    """The rooms of an account with this delta."""
    rooms = NO_ROOMS
    if (one := config.trainings) is not None:
        noise = one.noise_multiplier
        rooms = replace(rooms, rate=one.sampling_rate, noise_multiplier=noise, steps=one.steps)
    if (pure := config.pure) is not None:
        rooms = replace(rooms, loss=pure.epsilon, responses=pure.times)
    if (room := config.amplified) is not None:
        low = largest_mu(room.buckets, room.epsilon, delta, POINTS, _ROUNDED)
        mu = low * (1 + 2 * _ROUNDED)  # at least what any release of this epsilon has
        rooms = replace(rooms, mu=mu, places=room.buckets, allocations=room.times)
    return rooms


_ROUNDED = 1e-6


def rooms_of(row: Row) -> Rooms:
    """The rooms an account was opened with."""
    return Rooms(**json.loads(row["rooms"])) if row["rooms"] else NO_ROOMS


def accounts_by(connection: sa.Connection, **only: str) -> list[Row]:
    """The rows of all accounts, or of those of a name or dataset; by name."""
    query = sa.select(schema.accounts).filter_by(**only).order_by(schema.accounts.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def find_account(connection: sa.Connection, name: str) -> Row | None:
    """The row of an account."""
    return next(iter(accounts_by(connection, name=name)), None)


def account_row(connection: sa.Connection, name: str) -> Mapping[str, Any]:
    """The row of an account that must exist."""
    row = find_account(connection, name)
    if row is None:
        raise BudgetError(f"account {name} is not in the ledger.", hint="See: privsyn ledger show")
    return row
