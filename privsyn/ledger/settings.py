"""Settings of the budget: ``account`` and ``privacy``."""

from __future__ import annotations

from pydantic import (
    Field,
)

from privsyn.dp.adjacency import Adjacency
from privsyn.section import NAME, Section


class PeriodConfig(Section):
    """A second filter over a sliding window; it renews nothing of the lifetime cap."""

    days: int = Field(ge=1, le=3660, description="Length of the window in days.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Cap within the window.")


class LimitsConfig(Section):
    """The account's policy: what no single release may exceed, however much is left."""

    epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Largest privacy.epsilon of a release."
    )
    delta: float | None = Field(
        default=None, gt=0, lt=1, description="Largest privacy.delta of a release."
    )


class AccountConfig(Section):
    """The privacy account all versions of the dataset share."""

    name: str = Field(pattern=NAME, description="Account name in the ledger.")
    unit: str = Field(
        default="record", pattern=NAME, description="What is protected: record, patient, user."
    )
    adjacency: Adjacency = Field(description="add_remove, replace_null or replace_one.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Lifetime cap.")
    delta: float = Field(ge=0, lt=1, allow_inf_nan=False, description="Lifetime cap's delta.")
    period: PeriodConfig | None = Field(default=None, description="Optional cap per window.")
    public_size: int | None = Field(
        default=None,
        ge=1,
        description="Public estimate of how many units there are; a delta is judged by it. Never "
        "counted from the data.",
    )
    limits: LimitsConfig = Field(
        default=LimitsConfig(), description="What no single release may exceed."
    )
    strict: bool = Field(
        default=False,
        description="Refuse a private file that another account has paid for, instead of warning.",
    )
    methods: tuple[str, ...] = Field(
        default=(),
        description="Methods the account is opened for, such as [invisible_ink]. They decide how "
        "its delta is shared by its filters; every method may use it. Fixed at opening.",
    )


class PrivacyConfig(Section):
    """What this release may cost."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Epsilon of this release.")
    delta: float = Field(gt=0, lt=1, allow_inf_nan=False, description="Delta of this release.")
    draw: int = Field(
        default=0,
        ge=0,
        description="Number of the draw. The same draw returns the same release at no cost; "
        "a higher number makes a fresh one and is charged.",
    )
