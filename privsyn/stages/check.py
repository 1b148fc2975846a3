"""check: what a release could use of the private file, counted for its owner. Costs nothing.

Exact counts are not differentially private. They are for whoever holds the file already: they go to
that person's terminal and to the state folder, into no log, lineage or release, and no draw depends
on them. They hold no text, no unit and no label but those the config declares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.data.partition import has_training
from privsyn.data.readers.formats import read_records
from privsyn.data.tally import Tally, advice, of_another_language
from privsyn.errors import DataError, PrivsynError
from privsyn.modalities.registry import modality_of
from privsyn.models.references import ENGLISH
from privsyn.release.cautions import TrainedOn, of_sizes
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.plan import plan

CHECK = "check.json"


def check(ctx: Context) -> dict[str, dict[str, Any]]:
    """Counts of the private file, and of ``dataset.test_path`` where there is one, by path.

    Opens no account and writes nothing.

    Raises:
        DataError: A file is missing, empty, damaged or lacks a column.
    """
    dataset = ctx.config.dataset.resolved(ctx.day)
    found = {}
    for path in (dataset.path, dataset.test_path):
        if path is None:
            continue
        tally = Tally()
        for _ in read_records(dataset, ctx.source_path(path), tally):
            pass
        found[str(path)] = tally.report(dataset.labels, dataset.max_records_per_unit)
    return found


def sizes(ctx: Context, counts: Mapping[str, Any], method: str) -> tuple[str, ...]:
    """Whether a method's settings suit the records of the private file.

    Where no plan can be made yet, as for want of a model, there is nothing to say: `plan` does.
    """
    try:
        planned = plan(ctx, method)
    except PrivsynError:
        return ()
    made_by, settings = ctx.planned(planned)
    cells = len(made_by.cells(settings, planned.dataset.labels))
    there = _trained_on(planned, counts)
    found = of_sizes(f"methods.{method}", planned.mechanism(), cells, there)
    return found or (f"methods.{method}: its settings suit about as many records as there are.",)


def trained_on(planned: Plan, folder: Path) -> TrainedOn | None:
    """The records that trained a release, by its internal folder; None where that has no counts."""
    counts = _counted(folder)
    return None if counts is None else _trained_on(planned, counts)


def language_of(planned: Plan, folder: Path) -> str:
    """See ``language``, of a release by its internal folder."""
    counts = _counted(folder) or {}
    return language([use.source for use in planned.models.values()], counts)


def _trained_on(planned: Plan, counts: Mapping[str, Any]) -> TrainedOn:
    share = 1 - planned.dataset.holdout
    left = counts["kept"] - counts["records_above_the_bound"]
    return TrainedOn(share * counts["units"], int(share * left), "the private file")


def lines(ctx: Context, counts: Mapping[str, Any]) -> dict[str, str]:
    """The counts of one file for a person."""
    dataset = ctx.config.dataset
    said = {
        "rows": f"{counts['rows']:,}",
        "kept": f"{counts['kept']:,}",
        "dropped": f"{counts['dropped']:,}",
    }
    for place, (reason, rows) in enumerate(counts["reasons"].items(), 1):
        said[f"  reason {place}"] = (
            f"{rows:,} rows, {reason}. {advice(reason, counts['labels'])}".strip()
        )
    for label, records in counts["labels"].items():
        said[f"label {label}"] = f"{records:,}" if records else _NOBODY
    bound = dataset.max_records_per_unit
    said |= {
        "units": f"{counts['units']:,}, of at most {counts['records_per_unit_at_most']:,} "
        f"record(s) each",
        "above the bound": f"{counts['records_above_the_bound']:,} record(s) of "
        f"{counts['units_above_the_bound']:,} unit(s) are beyond max_records_per_unit={bound}",
        "left to use": f"{counts['kept'] - counts['records_above_the_bound']:,} record(s), those "
        "held out among them",
        "same text again": f"{counts['duplicate_texts']:,}",
    }
    if note := _too_few(ctx, counts):
        said["note"] = note
    models = ctx.config.models
    if note := language([models.language] if models.server is None else [], counts):
        said["language"] = note
    return {**said, **modality_of(dataset).read_as}


_NOBODY = (
    "0: texts of it would be made of noise and the public model alone. Take it out of "
    "dataset.labels, or write it as the file has it"
)
_FEW = 100
"""Records below which a release is hardly about anything: a fixed bound, not one of the data."""
_CHANCE = 1e-3


def _too_few(ctx: Context, counts: Mapping[str, Any]) -> str:
    """What is to be said of a file with few records; it follows from the counts that are shown."""
    left, holdout = counts["kept"] - counts["records_above_the_bound"], ctx.config.dataset.holdout
    if not 0 < left < _FEW:
        return ""
    said = f"fewer than {_FEW} records are too few to make or to measure anything by"
    if holdout and holdout ** counts["units"] >= _CHANCE:
        said += (
            f"; dataset.holdout={holdout:g} may even set all of them aside, and then no release "
            "can be made: dataset.holdout=0 keeps them"
        )
    return f"{said}."


def language(names: Iterable[str], counts: Mapping[str, Any]) -> str:
    """What is to be said of records in another language than the models'; it follows from counts.

    Args:
        names: The language models as settings or a plan name them. Of one of the user's own
            nothing is known.
        counts: Of a tally.
    """
    english = [name for name in names if name in ENGLISH]
    if not english or not of_another_language(counts):
        return ""
    return (
        f"most records hold no common English word, and {english[0]}, the default prompts and the "
        "embedder know English alone: docs/models.md, Other languages"
    )


def refuse_empty(ctx: Context, plan: Plan, key: bytes) -> None:
    """Refuse a release that no record would enter, before anything is spent.

    This looks at the records: what is told is one bit, whether any is there that can be used, to
    the owner, of a release that then does not exist. With ``dataset.check: false`` nobody looks.

    Raises:
        DataError: No record can be used.
    """
    source = ctx.source(plan)
    if ctx.config.dataset.check and not has_training(source, key):
        holdout = ctx.config.dataset.holdout
        aside = f" Or dataset.holdout={holdout:g} sets aside all there is." if holdout else ""
        raise DataError(
            f"{source.path} holds no record that this release can use.",
            hint=f"See why with: privsyn check.{aside} Nothing was spent; dataset.check=false does "
            "not look.",
        )


def keep(ctx: Context, plan: Plan, tally: Tally) -> None:
    """Put the counts of a partition into the state folder; those of an earlier one where it is."""
    if tally.rows:
        folder = ctx.workspace.internal(plan.id)
        private_folder(folder)
        counts = tally.report(plan.dataset.labels, plan.max_records_per_unit)
        write_json_atomic(folder / CHECK, {"class": "internal"} | counts, mode=0o600)


def kept(folder: Path, plan: Plan) -> str | None:
    """The counts of a release's partition in one line; None where there are none."""
    counts = _counted(folder)
    if counts is None:
        return None
    said = f"{counts['kept']:,} of {counts['rows']:,} rows can be used"
    if beyond := counts["records_above_the_bound"]:
        left = counts["kept"] - beyond
        said += f", {left:,} after at most {plan.max_records_per_unit} a {plan.unit}"
    if counts["reasons"]:
        (reason, rows), *_ = counts["reasons"].items()
        said += f"; dropped most often: {rows:,}, {reason}. All reasons: privsyn check"
    return said


def _counted(folder: Path) -> dict[str, Any] | None:
    try:
        counts: dict[str, Any] = json.loads((folder / CHECK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return counts
