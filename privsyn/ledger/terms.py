"""What an account lets a single release ask, and what people must approve.

The ledger remembers it: an account's terms may become stricter, and never laxer unnoticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from privsyn.dp.accountant import epsilon_at
from privsyn.dp.events import Event
from privsyn.errors import PolicyBroken


@dataclass(frozen=True)
class Asked:
    """What a release asks of its account's terms.

    Attributes:
        method: Name of the method.
        epsilon: Of the release alone, as ``judged``.
        delta: Of the release alone.
        adjacency: The account's.
        unit: The account's.
        internal_metrics: Whether it is to be measured beside held-out records.
        at: The account's delta, where ``epsilon`` is at that and not at the release's own.
    """

    method: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    internal_metrics: bool = False
    at: float | None = None

    def judged(self, event: Event, delta: float) -> Asked:
        """The same at no less than the price of its event, whatever it says of itself.

        A larger delta makes any epsilon small, so no release is judged at a larger one than its
        account's: else whoever names the delta would choose the epsilon that the rules see.

        Args:
            event: What the release does to the data.
            delta: The account's.
        """
        at = min(self.delta, delta)
        epsilon = max(self.epsilon, priced(event, at))
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
        spend_above: Epsilon from above which a person must approve that it is spent.
        publish: Whether a person must approve what is published.
        two_people: Whether that must be another one than who asked.
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
    spend_above: float | None = None
    publish: bool = False
    two_people: bool = False
    file: str | None = field(default=None, compare=False)
    size_rule: str | None = field(default=None, compare=False)

    def dump(self) -> dict[str, Any]:
        """Those that are set, for JSON."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        set_ = {name: value for name, value in found.items() if value != getattr(NONE, name)}
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in set_.items()
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any] | str | None) -> Terms:
        """The inverse of ``dump``, also from its JSON; no terms from None."""
        found = json.loads(dumped) if isinstance(dumped, str) else dict(dumped or {})
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in found.items()
        }
        return cls(**values)

    @property
    def priced(self) -> bool:
        """Whether a rule is about a release's epsilon."""
        rules = (self.epsilon, self.period_epsilon, self.spend_above)
        return any(rule is not None for rule in rules)

    @property
    def source(self) -> str:
        """Where a person finds the rules."""
        return f"policy {self.policy}" if self.policy else "account.limits"

    def broken_by(self, asked: Asked) -> list[str]:
        """Every rule that a release breaks: value, limit, next step."""
        found = []
        at = ""
        if asked.at is not None:
            at = f", at account.delta={asked.at:g} and not privacy.delta={asked.delta:g},"
        for name, value, most, why, note in (
            ("epsilon", asked.epsilon, self.epsilon, None, at),
            ("delta", asked.delta, self.delta, self.size_rule, ""),
        ):
            if most is not None and value > most:
                found.append(
                    f"privacy.{name}={value:g}{note} is above {most:g}"
                    f"{f' = {why}' if why else ''}, the most that one release may ask: lower it to "
                    f"{most:g} or less"
                )
        if self.period_epsilon is not None and asked.epsilon > self.period_epsilon:
            found.append(
                f"privacy.epsilon={asked.epsilon:g}{at} is above {self.period_epsilon:g}, the most "
                f"for all releases of any {self.period_days} days: lower it"
            )
        for setting, named, allowed in (
            ("method", asked.method, self.methods),
            ("account.adjacency", asked.adjacency, self.adjacencies),
            ("account.unit", asked.unit, self.units),
        ):
            if allowed is not None and named not in allowed:
                found.append(
                    f"{setting}={named} is not allowed: use {' or '.join(allowed) or 'none'}"
                )
        if asked.internal_metrics and not self.internal_metrics:
            found.append(
                "evaluate.enabled=true measures releases beside held-out records, which is not "
                "allowed: set evaluate.enabled=false"
            )
        return found

    def refuse(self, account: str, release: str, asked: Asked) -> None:
        """Refuse a release that breaks a rule.

        Raises:
            PolicyBroken: Names all of them.
        """
        broken = self.broken_by(asked)
        if broken:
            raise PolicyBroken(
                f"account {account} ({self.source}) does not allow {release}: {'; '.join(broken)}.",
                broken=tuple(broken),
                hint="Nothing was spent.",
            )

    def laxer_than(self, other: Terms) -> list[str]:
        """Every rule of ``other`` that is weaker here, or missing."""
        found = []
        for name in ("epsilon", "delta", "spend_above"):
            value, was = getattr(self, name), getattr(other, name)
            if was is not None and (value is None or value > was):
                found.append(f"{name} {_said(value)}, was {was:g}")
        if other.period_epsilon is not None and (
            self.period_epsilon is None
            or self.period_epsilon > other.period_epsilon
            or (self.period_days or 0) < (other.period_days or 0)
        ):
            period = f"{_said(self.period_epsilon)} in {self.period_days or 'no'} days"
            found.append(f"period {period}, was {other.period_epsilon:g} in {other.period_days}")
        for name in ("methods", "adjacencies", "units"):
            value, was = getattr(self, name), getattr(other, name)
            if was is not None and (value is None or not set(value) <= set(was)):
                allowed = "any" if value is None else ", ".join(value)
                found.append(f"{name} {allowed}, was {', '.join(was) or 'none'}")
        if self.internal_metrics and not other.internal_metrics:
            found.append("internal_metrics allowed, was forbidden")
        for name in ("publish", "two_people"):
            if getattr(other, name) and not getattr(self, name):
                found.append(f"approval.{name} not asked for, was asked for")
        return found


NONE = Terms()
"""Of an account without any."""


def _said(value: float | None) -> str:
    return "without limit" if value is None else f"{value:g}"


@lru_cache(maxsize=1024)
def priced(event: Event, delta: float) -> float:
    """Epsilon of an event at a delta, kept in memory; what no delta covers is infinite."""
    try:
        return epsilon_at(event, delta)
    except ValueError:
        return math.inf
