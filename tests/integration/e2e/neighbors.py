"""One check for all methods: with a constant mechanism nothing else of the data comes through."""

from __future__ import annotations

import json

import yaml

from privsyn.data.unit_key import UnitKey
from privsyn.stages.plan import plan
from privsyn.stages.validate import validate


def published_by_neighbors(project, method, noise, release):
    """Plan, certificate, artifact, validation and exhibits, for the data and for its neighbors.

    Every neighbor differs in what a release reads, whatever the account's key: the unit that is
    varied is not held out and below its cap, and where units are held out one of those goes too.
    """
    ctx = project.context()
    plan(ctx, method, open_account=True)
    lone, full, new, *held = _units(ctx)
    label = "Billing"
    first = {"unit": lone, "label": label, "text": "visit is late today"}
    cap = ctx.config.dataset.max_records_per_unit
    whole = [{"unit": full, "label": label, "text": f"my bill {i}"} for i in range(cap + 1)]
    aside = [{"unit": unit, "label": label, "text": "held out bill"} for unit in held]
    records = [json.loads(line) for line in project.data.read_text().splitlines()]
    others = [*whole, *aside, *records]
    data = {
        "base": [first, *others],
        "removed": others,
        "unit removed": [first, *aside, *records],
        "added": [first, *others, {"unit": new, "label": label, "text": "bill was late"}],
        "longer": [first | {"text": first["text"] * 100}, *others],
        "label moved": [first | {"label": "Symptoms"}, *others],
        "label unknown": [first | {"label": "Other"}, *others],
        "nulled": [first | {"text": None}, *others],
        "held out removed": [first, *whole, *records],
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


def _units(ctx):
    """Names of three units that are not held out, and one that is where some are."""
    key = UnitKey(ctx.open_account().partition_key.reveal())
    holdout = ctx.config.dataset.holdout
    names = [f"unit {i}" for i in range(1000)]
    kept = [name for name in names if key.name(name)[1] >= holdout]
    held = [name for name in names if key.name(name)[1] < holdout]
    return [*kept[:3], *held[:1]]


def assert_alike(found):
    differing = [name for name, published in found.items() if published != found["base"]]
    assert not differing
    assert {"certificate.json", "report.html", "report.json"} <= found["base"].keys()
