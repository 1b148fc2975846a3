"""Policies by name: rules of a privacy officer, in a file of their own, that accounts name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import Field, ValidationError

from privsyn.dp.adjacency import Adjacency
from privsyn.errors import ConfigError
from privsyn.files import parse_yaml, read_file
from privsyn.ledger.settings import AccountConfig, ApprovalConfig, PeriodConfig
from privsyn.section import Section
from privsyn.spelling import explain, nearest


class PolicyConfig(Section):
    """What a policy allows. A rule that is not named does not hold."""

    epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Largest epsilon of one release."
    )
    delta: float | None = Field(
        default=None, gt=0, lt=1, description="Largest delta of one release."
    )
    delta_exponent: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="x: no release may have a delta above account.public_size ** -x.",
    )
    period: PeriodConfig | None = Field(
        default=None, description="Largest epsilon of all releases within any so many days."
    )
    methods: tuple[str, ...] | None = Field(default=None, description="Allowed methods.")
    adjacencies: tuple[Adjacency, ...] | None = Field(
        default=None, description="Allowed adjacencies."
    )
    units: tuple[str, ...] | None = Field(default=None, description="Allowed privacy units.")
    internal_metrics: bool = Field(
        default=True, description="Whether releases may be measured beside held-out records."
    )
    approval: ApprovalConfig | None = Field(
        default=None, description="What a person must approve, on top of account.approval."
    )


def read_policy(account: AccountConfig, root: Path) -> tuple[PolicyConfig, str | None]:
    """The policy an account names, and the SHA-256 of its file; an empty one where it names none.

    Args:
        account: Names policy and file.
        root: The project folder, which the file's path is relative to.

    Raises:
        ConfigError: The file is missing, is not what ``account.policies_digest`` says, is not
            well formed, or has no policy of that name.
    """
    name = account.policy
    if name is None:
        return PolicyConfig(), None
    if account.policies is None:
        raise ConfigError(
            f"account.policy={name} needs account.policies: the file that says what it allows."
        )
    file = root / account.policies
    try:
        content = read_file(file)
        raw = parse_yaml(content)
    except OSError as error:
        raise ConfigError(
            f"account.policies={account.policies} cannot be read: {error.strerror}.",
            hint="Ask whoever owns the policies for the file.",
        ) from None
    except ValueError as error:
        raise ConfigError(f"account.policies={account.policies} {error}") from None
    found = hashlib.sha256(content).hexdigest()
    if account.policies_digest not in (None, found):
        raise ConfigError(
            f"account.policies={account.policies} has the SHA-256 {found}, and "
            f"account.policies_digest={account.policies_digest}: the policies were changed.",
            hint="Look at what changed, and pin the new digest.",
        )
    policies = raw.get("policies") if isinstance(raw, dict) else None
    if not isinstance(policies, dict) or set(raw) != {"policies"}:
        raise ConfigError(
            f"account.policies={account.policies} must hold `policies:`, with rules by name, and "
            "nothing else."
        )
    known = [str(key) for key in policies]
    if name not in policies:
        near = nearest(name, known)
        raise ConfigError(
            f"account.policy={name} is not in {account.policies}, which has {', '.join(known)}.",
            hint=f"Did you mean {near}?" if near else "",
        )
    try:
        return PolicyConfig.model_validate(policies[name] or {}), found
    except ValidationError as error:
        said = explain(PolicyConfig, error, f"policies.{name}.")
        raise ConfigError(f"account.policies={account.policies}: {said}") from None


def approval_of(account: AccountConfig, policy: PolicyConfig) -> ApprovalConfig:
    """What a person must approve: the stricter of account and policy in each."""
    asked = [found for found in (account.approval, policy.approval) if found is not None]
    if not asked:
        return ApprovalConfig()
    above = [one.spend_above for one in asked if one.spend_above is not None]
    return ApprovalConfig(
        spend_above=min(above, default=None),
        publish=any(one.publish for one in asked),
        two_people=any(one.two_people for one in asked),
        hours=min(one.hours for one in asked),
    )


def asks_approval(account: AccountConfig, root: Path) -> ApprovalConfig:
    """What a person must approve, by account and policy. See read_policy."""
    return approval_of(account, read_policy(account, root)[0])
