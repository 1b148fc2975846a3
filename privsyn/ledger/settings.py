"""Settings of the budget: ``account`` and ``privacy``; and policies, which accounts name.

A policy is the rules of a privacy officer, by name, in a file of their own.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from privsyn.dp.adjacency import Adjacency
from privsyn.errors import ConfigError
from privsyn.files import parse_yaml, read_file
from privsyn.section import NAME, Section, explain, nearest

POLICIES = "policies.yaml"
"""File of policies beside params.yaml, owned by whoever answers for privacy; a link, it may be."""


class PeriodConfig(Section):
    """A second filter over a sliding window; it renews nothing of the lifetime cap."""

    days: int = Field(ge=1, le=3660)
    """Length of the window in days."""
    epsilon: float = Field(gt=0, allow_inf_nan=False)
    """Cap within the window."""


class ApprovalConfig(Section):
    """What a person must approve, and how long an answer is waited for."""

    spend_above: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """A release of more epsilon than this is reserved only once it is approved."""
    publish: bool = False
    """Whether a release is published only once it is approved."""
    two_people: bool = False
    """Whether who approves must be another than who asked."""


class TrainingRoomConfig(Section):
    """Room for trainings of dp_lora: any with at most this rate and at least this noise."""

    sampling_rate: float = Field(gt=0, lt=1)
    """Largest sampling rate."""
    noise_multiplier: float = Field(gt=0, allow_inf_nan=False)
    """Least noise multiplier; privsyn plan names it."""
    steps: int = Field(ge=1, le=1_000_000)
    """Steps of all trainings together."""


class PureRoomConfig(Section):
    """Room for pure steps, each of at most this epsilon."""

    epsilon: float = Field(gt=0, le=20)
    """Largest epsilon of a step."""
    times: int = Field(ge=1, le=10_000)
    """Number of steps."""


class BucketsRoomConfig(Section):
    """Room for releases whose buckets are secret, each of at most this epsilon."""

    buckets: int = Field(ge=2, le=4096)
    """Least number of buckets of a release."""
    epsilon: float = Field(gt=0, le=20)
    """Largest epsilon, at account.delta."""
    times: int = Field(ge=1, le=100_000)
    """Number of releases."""


class RoomsConfig(Section):
    """What an account is opened for, beside Gaussian noise. What is not used is lost."""

    trainings: TrainingRoomConfig | None = None
    """Room for trainings."""
    pure: PureRoomConfig | None = None
    """Room for pure steps."""
    amplified: BucketsRoomConfig | None = None
    """Room for invisible_ink and private_prediction."""


class AccountConfig(Section):
    """The privacy account all versions of the dataset share."""

    name: str = Field(pattern=NAME)
    """Account name in the ledger."""
    unit: str = Field(default="record", pattern=NAME)
    """What is protected: record, patient, user."""
    adjacency: Adjacency
    """add_remove, replace_null or replace_one."""
    epsilon: float = Field(gt=0, allow_inf_nan=False)
    """Lifetime cap."""
    delta: float = Field(ge=0, lt=1, allow_inf_nan=False)
    """Lifetime cap's delta."""
    period: PeriodConfig | None = None
    """Optional cap per window."""
    public_size: int | None = Field(default=None, ge=1)
    """Public estimate of how many units there are; a delta is judged by it. Never counted from the
    data."""
    policy: str | None = Field(default=None, pattern=NAME)
    """Name of the policy the account is held to, in policies.yaml. The ledger remembers its
    rules."""
    approval: ApprovalConfig | None = None
    """What a person must approve, besides what the policy says."""
    amplification: bool = True
    """Whether a release may cost less because its buckets are filled by a secret draw
    (invisible_ink, private_prediction). False: its cost holds whoever knows them. The ledger
    remembers false."""
    rooms: RoomsConfig | None = None
    """Trainings and pure steps that the account sets room aside for, so that more of all kinds fit;
    {}: for Gaussian noise alone. Fixed at opening."""

    @model_validator(mode="after")
    def _check_rooms(self) -> AccountConfig:
        rooms = self.rooms
        if rooms is None:
            return self
        if self.delta == 0:
            raise ValueError("rooms needs account.delta above 0, which is 0")
        if self.adjacency is Adjacency.REPLACE_ONE and (rooms.trainings or rooms.amplified):
            raise ValueError(
                "rooms.trainings and rooms.amplified need account.adjacency add_remove or "
                "replace_null, not replace_one: set both to null"
            )
        return self


class PrivacyConfig(Section):
    """What this release may cost."""

    epsilon: float = Field(gt=0, allow_inf_nan=False)
    """Epsilon of this release."""
    delta: float = Field(gt=0, lt=1, allow_inf_nan=False)
    """Delta of this release."""
    draw: int = Field(default=0, ge=0)
    """Number of the draw. The same draw returns the same release at no cost; a higher number makes
    a fresh one and is charged."""


class PolicyConfig(Section):
    """What a policy allows. A rule that is not named does not hold."""

    epsilon: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest epsilon of one release."""
    delta: float | None = Field(default=None, gt=0, lt=1)
    """Largest delta of one release."""
    delta_exponent: float | None = Field(default=None, gt=0, le=10)
    """x: no release may have a delta above account.public_size ** -x."""
    period: PeriodConfig | None = None
    """Largest epsilon of all releases within any so many days."""
    methods: tuple[str, ...] | None = None
    """Allowed methods."""
    adjacencies: tuple[Adjacency, ...] | None = None
    """Allowed adjacencies."""
    units: tuple[str, ...] | None = None
    """Allowed privacy units."""
    internal_metrics: bool = True
    """Whether releases may be measured beside held-out records."""
    amplification: bool = True
    """As account.amplification; false forbids it to all accounts."""
    approval: ApprovalConfig | None = None
    """What a person must approve, on top of account.approval."""


def read_policy(account: AccountConfig, root: Path) -> PolicyConfig:
    """The policy an account names; an empty one where it names none.

    Args:
        account: Names the policy.
        root: The project folder, where the file is.

    Raises:
        ConfigError: The file is missing or not well formed, or has no policy of that name.
    """
    name = account.policy
    if name is None:
        return PolicyConfig()
    try:
        raw = parse_yaml(read_file(root / POLICIES))
    except OSError as error:
        raise ConfigError(
            f"account.policy={name}: {POLICIES} cannot be read: {error.strerror}.",
            hint="Ask whoever owns the policies for the file.",
        ) from None
    except ValueError as error:
        raise ConfigError(f"{POLICIES} {error}") from None
    policies = raw.get("policies") if isinstance(raw, dict) else None
    if not isinstance(policies, dict) or set(raw) != {"policies"}:
        raise ConfigError(
            f"{POLICIES} must hold `policies:`, with rules by name, and nothing else."
        )
    if name not in policies:
        known = [str(key) for key in policies]
        near = nearest(name, known)
        raise ConfigError(
            f"account.policy={name} is not in {POLICIES}, which has {', '.join(known)}.",
            hint=f"Did you mean {near}?" if near else "",
        )
    try:
        return PolicyConfig.model_validate(policies[name] or {})
    except ValidationError as error:
        problem = explain(PolicyConfig, error, f"policies.{name}.")
        raise ConfigError(f"{POLICIES}: {problem}") from None


def approval_of(account: AccountConfig, root: Path) -> ApprovalConfig:
    """What a person must approve: the stricter of account and policy in each. See read_policy."""
    rules = [one for one in (account.approval, read_policy(account, root).approval) if one]
    above = [one.spend_above for one in rules if one.spend_above is not None]
    return ApprovalConfig(
        spend_above=min(above, default=None),
        publish=any(one.publish for one in rules),
        two_people=any(one.two_people for one in rules),
    )
