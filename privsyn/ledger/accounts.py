"""What the ledger answers with: specs, accounts, entries, balances. Frozen values, no database."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from privsyn.data.records import Private
from privsyn.errors import ConfigError
from privsyn.ledger.policies import approval_of, read_policy
from privsyn.ledger.terms import NONE, Terms

if TYPE_CHECKING:
    from pathlib import Path

    from privsyn.config import Config
    from privsyn.ledger.settings import AccountConfig


@dataclass(frozen=True)
class Split:
    """How an account's delta is shared by its filters: fixed at its creation.

    Attributes:
        renyi: For any mixture of releases.
        gaussian: For releases with Gaussian noise or of the exponential mechanism.
        repeats: For releases of one and the same event, such as trained models of one recipe.
    """

    renyi: float = 0.2
    gaussian: float = 0.4
    repeats: float = 0.4

    def __post_init__(self) -> None:
        shares = (self.renyi, self.gaussian, self.repeats)
        if not all(0 <= share <= 1 for share in shares) or math.fsum(shares) > 1 + 1e-12:
            raise ValueError(f"shares={shares} must be at least 0 and add up to at most 1")
        if self.renyi == 0:
            raise ValueError("renyi=0: no filter would be left for a mixture of releases")

    @classmethod
    def declared(cls, sampled: Collection[bool]) -> Split:
        """The split for methods of which all, none or some sample their units (trained models)."""
        if set(sampled) == {True}:
            return cls(renyi=0.08, gaussian=0.02, repeats=0.9)
        if set(sampled) == {False}:
            return cls(renyi=0.08, gaussian=0.9, repeats=0.02)
        return cls()


@dataclass(frozen=True)
class AccountSpec:
    """The terms of an account: fixed at its creation for the life of the dataset.

    Attributes:
        name: Account name.
        dataset: Lineage: the dataset over all its versions. One account each.
        unit: Name of the privacy unit. Each release says how many records of a unit it uses.
        adjacency: When two datasets are neighbours.
        epsilon: Lifetime cap.
        delta: Lifetime cap's delta; 0 admits pure events only.
        period_days: Length of the optional second filter's sliding window, in days.
        period_epsilon: Cap within the window, at the account's delta.
        unit_column: Column that holds the unit's id: what the unit is, whatever it is called.
            None where every row is its own unit.
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

    @classmethod
    def of(cls, config: Config, sampled: Collection[bool] = (), terms: Terms = NONE) -> AccountSpec:
        """The spec a config asks for.

        Args:
            config: The project's.
            sampled: For each of account.methods, whether it samples its units.
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
            split=Split.declared(sampled),
            terms=terms,
        )


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
        spend_above=approval.spend_above,
        publish=approval.publish,
        two_people=approval.two_people,
        file=digest,
        size_rule=f"account.public_size={account.public_size} ** -{policy.delta_exponent:g}"
        if by_size is not None and delta == by_size
        else None,
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
}
"""Field of a spec -> the setting a user knows it by."""


@dataclass(frozen=True)
class Account:
    """An account as the ledger holds it.

    Attributes:
        spec: What it promises.
        key_id: Public, random id of the partition key; tells nothing about data or key.
        partition_key: 32 secret bytes from the operating system, drawn before any record was read.
        opened_at: Time of creation (UTC).
    """

    spec: AccountSpec
    key_id: str
    partition_key: Private[bytes]
    opened_at: datetime

    @property
    def name(self) -> str:
        """Account name."""
        return self.spec.name
