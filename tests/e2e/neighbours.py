"""One check for all methods: with a constant mechanism nothing else of the data comes through."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from small_project import Project

from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.plan import plan
from privsyn.stages.validate import validate


def published_by_neighbours(
    project: Project, method: str, noise: type, release: Callable[[Context], tuple[Plan, Path]]
) -> dict[str, dict[str, bytes]]:
    """Plan, certificate, artifact, validation and exhibits, for the data and for its neighbours."""
    plan(project.context(), method, open_account=True)
    records = [json.loads(line) for line in project.data.read_text().splitlines()]
    data = {
        "base": records,
        "removed": records[1:],
        "unit removed": [record for record in records if record["unit"] != "u3"],
        "added": [*records, {"unit": "new", "label": "Billing", "text": "bill was late"}],
        "longer": [records[0] | {"text": records[0]["text"] * 100}, *records[1:]],
        "label moved": [records[0] | {"label": "Symptoms"}, *records[1:]],
        "label unknown": [records[0] | {"label": "Other"}, *records[1:]],
        "nulled": [records[0] | {"text": None}, *records[1:]],
    }
    found = {}
    for name, changed in data.items():
        copy = project.copy(project.root.parent / name)
        copy.write(changed)
        ctx = copy.context()
        ctx.noise = noise
        planned, folder = release(ctx)
        validate(ctx, planned)
        files = [path for path in folder.rglob("*") if path.is_file()]
        published = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        planned_bytes = yaml.safe_dump(planned.model_dump(mode="json")).encode()
        found[name] = published | {"plan": planned_bytes}
    return found


def assert_alike(found: dict[str, dict[str, bytes]]) -> None:
    """All published the same bytes."""
    differing = [name for name, published in found.items() if published != found["base"]]
    assert not differing
    assert "certificate.json" in found["base"]
