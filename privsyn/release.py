"""A release before it exists: its plan, and the identity its name is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from privsyn.config import ImageConfig, Section
from privsyn.dp.accountant import Guarantee
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.events import Event, load
from privsyn.methods.base import Method, MethodPlan, Role, load_method

PLAN_SCHEMA = "privsyn-plan/1"
STUDENT_SCHEMA = "privsyn-student/1"


class DatasetIdentity(Section):
    """The dataset as the release knows it: public facts, an opaque version, no digest of data."""

    name: str
    version: str
    label: str | None
    labels: tuple[str, ...]
    text: str
    unit: str | None
    holdout: float
    images: ImageConfig | None = None

    @model_serializer(mode="wrap")
    def _without_null_images(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Releases of texts keep the identity they had before there were images."""
        fields: dict[str, Any] = dump(self)
        return {key: value for key, value in fields.items() if key != "images" or value is not None}


class ModelUse(Section):
    """One model a release reads."""

    source: str
    revision: str
    dtype: str


class Plan(Section):
    """A release before it exists: all public, computed without opening a data file.

    ``identity`` fields decide the release id: whatever shapes the distribution of the output.
    """

    plan_schema: str = PLAN_SCHEMA
    release_id: str | None = Field(description="Null until the account exists.")
    method: str
    settings: dict[str, Any]
    dataset: DatasetIdentity
    account: str
    adjacency: Adjacency
    unit: str
    max_records_per_unit: int
    target_epsilon: float
    target_delta: float
    draw: int
    models: dict[Role, ModelUse]
    partition_key: str | None = Field(description="Public id of the account's partition key.")
    epsilon: float
    delta: float
    rho: float | None
    event: dict[str, Any]
    derived: dict[str, float]
    invariants: tuple[str, ...]
    warnings: tuple[str, ...]
    rows: int = Field(description="Synthetic records the release will hold at most: public.")
    min_rows: int | None = Field(
        default=None, description="And at least. Null: exactly as many as rows."
    )
    shards: int = Field(description="Parts the release is generated in.")

    @property
    def id(self) -> str:
        """The release id of a plan whose account exists."""
        if self.release_id is None:
            raise ValueError("the plan has no account yet")
        return self.release_id

    @property
    def row_bounds(self) -> tuple[int, int]:
        """Fewest and most rows of the artifact."""
        return (self.rows if self.min_rows is None else self.min_rows), self.rows

    @property
    def rows_said(self) -> str:
        """The bounds in words."""
        fewest, most = self.row_bounds
        return str(most) if fewest == most else f"{fewest} to {most}"

    @property
    def target(self) -> Guarantee:
        """What the release was asked to cost at most."""
        return Guarantee(self.target_epsilon, self.target_delta)

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """Unit and its bound on records."""
        return PrivacyUnit(self.unit, self.max_records_per_unit)

    def privacy_event(self) -> Event:
        """The event tree."""
        return load(self.event)

    def load_method(self) -> tuple[Method, Any]:
        """The method and its validated settings."""
        method = load_method(self.method)
        return method, method.Config.model_validate(self.settings)

    def method_plan(self) -> MethodPlan:
        """Event and derived numbers, computed again from settings, target, adjacency and unit."""
        method, settings = self.load_method()
        return method.plan(
            settings, self.target, self.adjacency, self.privacy_unit, self.dataset.labels
        )


class StudentPlan(Section):
    """A small model before it is trained on a release's texts: all public.

    ``settings`` are those of ``methods.distill`` that shape the model; ``models`` are the language
    model whose tokenizer it takes (``base``) and the one it starts from (``init``), where it does.
    """

    plan_schema: str = STUDENT_SCHEMA
    method: Literal["distill"] = "distill"
    parent: Plan
    settings: dict[str, Any]
    models: dict[Literal["base", "init"], ModelUse]

    @property
    def id(self) -> str:
        """Name of the student: its parent's, and 32 bits of its settings' SHA-256."""
        identity = self.model_dump(mode="json", include={"settings", "models"})
        return f"{self.parent.id}.student-{_digest(identity)[:8]}"


def read_plan(content: bytes) -> Plan | StudentPlan:
    """A plan of either kind from its file.

    Raises:
        ValidationError: It is neither.
    """
    try:
        return StudentPlan.model_validate_json(content)
    except ValidationError:
        return Plan.model_validate_json(content)


IDENTITY = (
    "method",
    "settings",
    "dataset",
    "account",
    "adjacency",
    "unit",
    "max_records_per_unit",
    "target_epsilon",
    "target_delta",
    "draw",
    "models",
    "partition_key",
)
"""Fields of a plan that enter the release id. Derived numbers follow from them."""


def release_id(identity: Mapping[str, Any]) -> str:
    """Name of a release: its method and 64 bits of its identity's SHA-256, as canonical JSON."""
    return f"{identity['method']}-{_digest({key: identity[key] for key in IDENTITY})[:16]}"


def _digest(value: Mapping[str, Any]) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
