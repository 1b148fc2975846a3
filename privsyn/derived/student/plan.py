"""A student before it is trained."""

from __future__ import annotations

from typing import Any, Literal

from privsyn.derived.base import DerivedPlan
from privsyn.release.plan import ModelUse, identity_digest

STUDENT_SCHEMA = "privsyn-student/1"


class StudentPlan(DerivedPlan):
    """A small model before it is trained on a release's texts: all public.

    ``settings`` are those of ``methods.distill`` that shape the model; ``models`` are the language
    model whose tokenizer it takes (``base``) and the one it starts from (``init``), where it does.
    """

    plan_schema: str = STUDENT_SCHEMA
    method: Literal["distill"] = "distill"
    settings: dict[str, Any]
    models: dict[Literal["base", "init"], ModelUse]

    @property
    def id(self) -> str:
        """Name of the student: its parent's, and 32 bits of its settings' SHA-256."""
        identity = self.model_dump(mode="json", include={"settings", "models"})
        return f"{self.parent.id}.student-{identity_digest(identity)[:8]}"
