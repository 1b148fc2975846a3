"""How long drawing took on this machine: internal, since it depends on the records."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.release.plan import Plan
from privsyn.stages.base import Context


@dataclass(frozen=True)
class Pace:
    """An earlier release by the same method and models.

    Attributes:
        release_id: Which.
        rows: Records it holds at most.
        seconds: What drawing it took, over all its parts.
    """

    release_id: str
    rows: int
    seconds: float


def note(ctx: Context, plan: Plan, part: int | str, seconds: float) -> None:
    """Remember how long a part was drawn for; a resumed part took the sum."""
    folder = ctx.workspace.internal(plan.id) / "pace"
    private_folder(folder)
    file = folder / f"{part}.json"
    with suppress(OSError, ValueError, LookupError, TypeError):
        seconds += json.loads(file.read_bytes())["seconds"]
    write_json_atomic(file, {**_kind(plan), "rows": plan.rows, "seconds": seconds}, mode=0o600)


def last(ctx: Context, plan: Plan) -> Pace | None:
    """The latest release here that the same method drew with the same models."""
    found: list[tuple[float, Pace]] = []
    for folder in (ctx.workspace.state / "internal").glob("*/pace"):
        with suppress(OSError, ValueError, LookupError, TypeError):
            parts = [json.loads(file.read_bytes()) for file in folder.glob("*.json")]
            if all(_kind(plan).items() <= part.items() for part in parts):
                seconds = sum(float(part["seconds"]) for part in parts)
                pace = Pace(folder.parent.name, int(parts[0]["rows"]), seconds)
                found.append((folder.stat().st_mtime, pace))
    return max(found, key=lambda item: item[0])[1] if found else None


def _kind(plan: Plan) -> dict[str, object]:
    models = {role: use.revision for role, use in plan.models.items()}
    return {"method": plan.method, "models": models}
