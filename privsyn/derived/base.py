"""What is made from a finished release at no cost: one protocol for all kinds of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import ValidationError

from privsyn.derived.kinds import KINDS, SECTIONS
from privsyn.derived.parent import open_parent
from privsyn.publishing.dvc import DvcPublisher, DvcRevision
from privsyn.release import certificate, verification
from privsyn.release.plan import Plan
from privsyn.section import Section
from privsyn.stages.approval import refuse_unapproved
from privsyn.stages.audit import refuse_withheld
from privsyn.stages.base import Context
from privsyn.stages.releases import Releases, Work
from privsyn.stages.sign import sign


class DerivedPlan(Section):
    """What is to be made from a release, before it is: all public.

    Attributes:
        plan_schema: Of the plan's file.
        method: The kind's name.
        parent: The release.
    """

    plan_schema: str
    method: str
    parent: Plan

    @property
    def id(self) -> str:
        """Its name, which begins with its parent's."""
        raise NotImplementedError


P = TypeVar("P", bound=DerivedPlan)


class Derived(Protocol[P]):
    """A kind of thing that is made from a finished release alone.

    Guarantee: the parent's. The release itself, public models and public randomness are all that is
    read, so what is made is post-processing and charges nothing. Its certificate holds its
    parent's, and the ledger notes both.
    """

    name: ClassVar[str]
    """Its key in ``derived`` of certificates."""
    Planned: ClassVar[type[Any]]
    """The model of its plans, a DerivedPlan."""
    own_run: ClassVar[bool]
    """Whether it has a run of its own in MLflow; else it is part of its parent's."""

    def plan(self, ctx: Context, parent: Plan, **asked: Any) -> P:
        """What would be made of a release, as the config and what was asked for say.

        Raises:
            ConfigError: It cannot be made of this release.
        """

    def make(self, ctx: Context, planned: P) -> Path:
        """Make and certify it; its folder. One that exists by this plan is returned as it is.

        Raises:
            DataError: Its parent is not here.
            VerificationError: The parent is not what was certified.
        """

    def check(self, ctx: Context, planned: P) -> Path:
        """Check what was made; its folder, which is in quarantine where the checks fail.

        Raises:
            ValidationFailed: They do.
        """

    def publish(self, ctx: Context, planned: P) -> dict[str, Any]:
        """Version it with DVC and push it; public facts. Publishing again is harmless.

        Raises:
            PublishError: DVC or its remote refused.
        """

    def trace(self, ctx: Context, folder: Path, sealed: Mapping[str, Any]) -> None:
        """Write to MLflow what one that lies here should have there and has not."""


class Described(Derived[P], Work[P], Protocol):
    """A kind with settings of its own, which dvc.yaml and Airflow make as they make a release."""


def derive(
    ctx: Context, kind: Derived[P], release_id: str, *, published: bool = True, **asked: Any
) -> Path:
    """Make one thing of a kind from a finished release, check it, and publish it.

    Args:
        ctx: Config and ledger.
        kind: What is made.
        release_id: The release.
        published: Version and push it with DVC.
        asked: What the kind wants to know besides the config.

    Returns:
        Its folder.

    Raises:
        DataError: The release is not here.
        VerificationError: It is not what was certified.
        ConfigError: It is itself made from a release, or nothing of this kind can be made of it.
        ValidationFailed: What was made fails its checks; it lies in quarantine/.
    """
    planned = kind.plan(ctx, open_parent(ctx, release_id).plan, **asked)
    kind.make(ctx, planned)
    folder = kind.check(ctx, planned)
    if published:
        kind.publish(ctx, planned)
    return folder


def versioned(
    ctx: Context, planned: DerivedPlan, folder: Path
) -> tuple[DvcRevision, dict[str, Any], dict[str, Any]]:
    """Version what was made with DVC and push it.

    Returns:
        The version, its certificate, and public facts for whoever consumes it.

    Raises:
        ApprovalNeeded: The account asks that somebody approves exactly this certificate first.
        VerificationError: It is not what was certified and committed.
        PublishError: DVC or its remote refused.
        ValidationFailed: The disclosure audit of its parent did not let that through.
    """
    refuse_withheld(ctx, planned.parent)
    # An approval names a certificate: what lies here must still be what that one was written of.
    verification.raise_failed(folder, verification.verify(folder, ctx.ledger))
    refuse_unapproved(ctx, folder)
    services = ctx.config.services
    sign(ctx, folder)
    revision = DvcPublisher(ctx.workspace.root, remote=services.dvc_remote).publish(
        folder, git_commit=services.git_commit
    )
    _, sealed = certificate.read(folder)
    facts = {
        "release_id": planned.id,
        "parent": planned.parent.id,
        "certificate_sha256": certificate.digest(sealed),
        "class": sealed["class"],
        "dvc_revision": revision.md5,
    }
    return revision, sealed, facts


def load_kind(name: str) -> Derived[Any]:
    """The kind of a name in KINDS."""
    module, _, attribute = KINDS[name].makes.partition(":")
    kind: Derived[Any] = getattr(importlib.import_module(module), attribute)()
    return kind


def kind_of(sealed: Mapping[str, Any]) -> Derived[Any] | None:
    """The kind of what a certificate is of; None for a release, or a kind that is not known."""
    found = next((name for name in KINDS if name in sealed.get("derived", {})), None)
    return None if found is None else load_kind(found)


def work_named(name: str) -> Work[Any]:
    """What makes a section of ``methods``: a release, or something from one."""
    if name not in SECTIONS:
        return Releases(name)
    kind: Described[Any] = load_kind(name)  # type: ignore[assignment]  # it has settings
    return kind


def work_of(planned: Plan | DerivedPlan) -> Work[Any]:
    """What carries a plan out."""
    return work_named(planned.method)


def read_plan(content: bytes) -> Plan | DerivedPlan:
    """A plan of any kind from its file.

    Raises:
        ValidationError: It is none.
    """
    for name in SECTIONS:
        try:
            planned: DerivedPlan = load_kind(name).Planned.model_validate_json(content)
            return planned
        except ValidationError:
            continue
    return Plan.model_validate_json(content)
