"""What the ledger answers with: specs, accounts, entries, balances. Frozen values, no database."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from privsyn.data.records import Private
from privsyn.errors import ConfigError

if TYPE_CHECKING:
    from privsyn.config import Config


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
    def of(cls, config: Config, sampled: Collection[bool] = ()) -> AccountSpec:
        """The spec a config asks for.

        Args:
            config: The project's.
            sampled: For each of account.methods, whether it samples its units.
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
