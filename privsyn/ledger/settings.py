"""Settings of the budget: ``account`` and ``privacy``."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    Field,
)

from privsyn.dp.adjacency import Adjacency
from privsyn.files import LocalPath, OnDisk, Sha256
from privsyn.section import NAME, Section


class PeriodConfig(Section):
    """A second filter over a sliding window; it renews nothing of the lifetime cap."""

    days: int = Field(ge=1, le=3660, description="Length of the window in days.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Cap within the window.")


class LimitsConfig(Section):
    """What no single release may exceed, however much is left. The ledger remembers it."""

    epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Largest privacy.epsilon of a release."
    )
    delta: float | None = Field(
        default=None, gt=0, lt=1, description="Largest privacy.delta of a release."
    )


class ApprovalConfig(Section):
    """What a person must approve, and how long an answer is waited for."""

    spend_above: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="A release of more epsilon than this is reserved only once it is approved.",
    )
    publish: bool = Field(
        default=False, description="Whether a release is published only once it is approved."
    )
    two_people: bool = Field(
        default=False, description="Whether who approves must be another than who asked."
    )
    hours: int = Field(
        default=72,
        ge=1,
        le=8760,
        description="How long Airflow waits for an answer; none by then is a refusal.",
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
    policies: Annotated[LocalPath, OnDisk("file")] | None = Field(
        default=None, description="File of policies, owned by whoever answers for privacy."
    )
    policies_digest: Sha256 | None = Field(
        default=None, description="SHA-256 the file of policies must have; null: any."
    )
    policy: str | None = Field(
        default=None,
        pattern=NAME,
        description="Name of the policy the account is held to. The ledger remembers its rules.",
    )
    approval: ApprovalConfig | None = Field(
        default=None, description="What a person must approve, besides what the policy says."
    )
    strict: bool = Field(
        default=True,
        description="Refuse a private file that another account has paid for. False: warn, where "
        "you add up the budgets of both yourself.",
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
