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
from privsyn.data.readers.formats import read_records, repeating_columns
from privsyn.data.row_counts import RowCounts, advice, of_another_language
from privsyn.data.settings import DatasetConfig
from privsyn.errors import DataError, PrivsynError
from privsyn.modalities.registry import modality_of
from privsyn.models.references import ENGLISH
from privsyn.release.advice import TrainedOn, of_label_sizes, of_prompts, of_sizes
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, OpenPlan, open_plan
from privsyn.stages.plan import WRITERS, about_words, longest, own_prompts, plan

CHECK = "check.json"


def check(ctx: Context) -> dict[str, dict[str, Any]]:
    """Counts of the private file, and of ``dataset.test_path`` where there is one, by path.

    Opens no account and writes nothing.

    Raises:
        DataError: A file is missing, empty, damaged or lacks a column.
    """
    dataset = ctx.config.dataset.resolved(ctx.day)
    counts_of = {}
    for path in (dataset.path, dataset.test_path):
        if path is None:
            continue
        row_counts = RowCounts()
        for _ in read_records(dataset, ctx.source_path(path), row_counts):
            pass
        counts = row_counts.report(dataset.labels, dataset.max_records_per_unit)
        if 1 < counts["kept"] == counts["units"] and modality_of(dataset).worded:
            # Ids of rows, it may be: another column may say whose they are.
            counts["other_units"] = repeating_columns(dataset, ctx.source_path(path))
        counts_of[str(path)] = counts
    return counts_of


def sizes(ctx: Context, counts: Mapping[str, Any], method: str) -> tuple[str, ...]:
    """Whether a method's settings suit the records of the private file.

    Where no plan can be made yet, as for want of a model, there is nothing to say: `plan` does.
    """
    try:
        planned = plan(ctx, method)
    except PrivsynError:
        return ()
    release = open_plan(ctx, planned)
    mechanism, cells = release.mechanism, len(release.cells)
    there, where = _trained_on(planned, counts), f"methods.{method}"
    used = there.records / max(1, counts["kept"])
    train = {label: used * records for label, records in counts["labels"].items()}
    return (
        of_sizes(where, mechanism, cells, there)
        or of_label_sizes(where, mechanism, cells, train)
        or (f"{where}: settings and number of records fit.",)
    )


def first_steps(ctx: Context, method: str) -> tuple[str, ...]:
    """What helps a release before any epsilon does, by public settings: see ``of_prompts``."""
    dataset, given = ctx.config.dataset, ctx.config.method(method)
    models = _writers(ctx) if modality_of(dataset).worded else []
    return of_prompts(dataset.document, dataset.labels, models, own=own_prompts(given))


def _writers(ctx: Context) -> list[str]:
    """The language model that writes, by its setting; of a server nothing is known."""
    models = ctx.config.models
    return [models.language] if models.server is None else [f"{models.server}"]


def helps_first(ctx: Context, planned: Plan) -> str:
    """What helps a release before any epsilon does, by its plan and its counts; or nothing."""
    counts = _read_counts(ctx.workspace.internal(planned.id)) or {}
    models = [use.source for role, use in planned.models.items() if role in WRITERS]
    given, dataset = ctx.config.method(planned.method), planned.dataset
    steps = [
        *of_prompts(dataset.document, dataset.labels, models, own=own_prompts(given)),
        length(f"methods.{planned.method}", given, counts) if modality_of(dataset).worded else "",
    ]
    return "; ".join(step.rstrip(".") for step in steps if step)


def language_of(planned: Plan, folder: Path) -> str:
    """See ``language``, of a release by its internal folder."""
    counts = _read_counts(folder) or {}
    return language([use.source for use in planned.models.values()], counts)


def length(where: str, settings: Any, counts: Mapping[str, Any]) -> str:
    """Advice on records that are far longer than the texts of a release will be."""
    setting, tokens = longest(where, settings)
    if tokens is None or counts.get("median_letters", 0) < _LONGER * LETTERS * tokens:
        return ""
    return (
        f"half of the records have {counts['median_words']:,} words or more, and a text of the "
        f"release has at most {setting}={tokens} tokens, about {about_words(tokens)} words: it can "
        f"hold a short piece alone. Raise {setting}, or split the records into short ones before"
    )


LETTERS = 4
"""Letters of a token, roughly."""
_LONGER = 2
"""Times as long as the longest text from which on records are worth a word."""


def trained_on(planned: Plan, folder: Path) -> TrainedOn | None:
    """The records that trained a release, by its internal folder; None where that has no counts."""
    counts = _read_counts(folder)
    return None if counts is None else _trained_on(planned, counts)


def _trained_on(planned: Plan, counts: Mapping[str, Any]) -> TrainedOn:
    share = 1 - planned.dataset.holdout
    left = counts["kept"] - counts["records_above_the_bound"]
    return TrainedOn(share * counts["units"], int(share * left), "the private file", public=False)


def lines(ctx: Context, counts: Mapping[str, Any]) -> dict[str, str]:
    """The counts of one file for a person."""
    dataset, account = ctx.config.dataset, ctx.config.account
    kind, bound = modality_of(dataset), dataset.max_records_per_unit
    who = account.unit if dataset.unit is not None else "row"
    usable, beyond = counts["kept"], counts["records_above_the_bound"]
    table = {"rows": f"{counts['rows']:,}"}
    if counts["dropped"]:
        table |= {"kept": f"{usable:,}", "dropped": f"{counts['dropped']:,}"}
    for place, (reason, rows) in enumerate(counts["reasons"].items(), 1):
        advised = advice(reason, counts["labels"])
        many = "1 row" if rows == 1 else f"{rows:,} rows"
        table[f"  reason {place}"] = f"{many}, {reason}. {advised}".strip()
    for label, records in counts["labels"].items():
        table[f"label {label}"] = f"{records:,}" if records else _NOBODY
    table[f"{who}s"] = f"{counts['units']:,}"
    if dataset.unit is not None:
        most = counts["records_per_unit_at_most"]
        thing = kind.things.removesuffix("s") if most == 1 else kind.things
        table[f"{who}s"] += f", with {most:,} {thing} at most"
    if beyond:
        table["not used"] = (
            f"{beyond:,} {kind.things}: {counts['units_above_the_bound']:,} {who}s have more than "
            f"{bound}, and {bound} of each {who} {'is' if bound == 1 else 'are'} used "
            "(dataset.max_records_per_unit)"
        )
    table["used"] = f"{usable - beyond:,} {kind.things}"
    if dataset.holdout:
        aside = dataset.holdout * (usable - beyond)
        table["used"] += f", some {aside:,.0f} of them kept for testing (dataset.holdout)"
    if span := counts.get("span"):
        table["values"] = value_range_text(*span)
    if counts["duplicate_texts"]:
        table["copies"] = f"{counts['duplicate_texts']:,} {kind.things} are copies of another one"
    if kind.worded and usable:
        table["length"] = f"half of the texts have {counts['median_words']:,} words or more"
        method = ctx.config.first_method
        if note := length(f"methods.{method}", ctx.config.method(method), counts):
            table["too long"] = note
    if alike := counts["units_alike"]:
        table["ids alike"] = (
            f"{alike:,} {who}s have an id that differs from another by case, spaces, width or "
            "leading zeros alone. If these are the same people, each counts twice: write their ids "
            "alike"
        )
    if floats := counts["float_ids"]:
        table["ids as floats"] = (
            f"{floats:,} ids are written as floats are (12.0, 1.2e+05): whoever wrote the file had "
            "made numbers of them, which loses digits of long ids. Read the column as text, or as "
            "Int64 in pandas, before it is written"
        )
    if twice := counts.get("decoded_wrongly"):
        table["wrong letters"] = (
            f"{twice:,} texts hold signs such as \u00c3\u00bc in place of one letter: they are in "
            f"UTF-8, and are read as {dataset.encoding}. Set dataset.encoding=utf-8, or repair the "
            "file"
        )
    if note := _too_few(ctx, counts):
        table["note"] = note
    if note := whose_rows(dataset, counts):
        table["who is protected"] = note
    models = ctx.config.models
    if note := language([models.language] if models.server is None else [], counts):
        table["language"] = note
    return {**table, **kind.read_as}


def value_range_text(low: float, high: float) -> str:
    """What the values of images with more than 8 bits span, and the setting that suits it."""
    whole = low.is_integer() and high.is_integer()
    shown = f"{low:,.0f} to {high:,.0f}" if whole else f"{low:g} to {high:g}"
    if not whole or low < 0:
        return (
            f"{shown}. Set dataset.images.window=[black, white] as whoever made the images says, "
            "such as [-1000, 400] in Hounsfield units or [0, 1]"
        )
    bits = min(max(8, int(high).bit_length() + int(high).bit_length() % 2), 32)
    room = f" of {(1 << 16) - 1:,}" if bits <= 16 else ""
    return f"brightest value {high:,.0f}{room}: set dataset.images.depth={bits}"


def whose_rows(dataset: DatasetConfig, counts: Mapping[str, Any]) -> str:
    """Advice where the unit may be the row; it follows from the counts."""
    others = counts.get("other_units", {})
    one = (
        "no unit is named (dataset.unit): rows, not people, are protected"
        if dataset.unit is None
        else f"every id in {dataset.unit!r} is on one row alone, so it may be the id of a row"
        if others
        else ""
    )
    if not others:
        return one
    named = "; ".join(
        f"{column!r} has {values:,} values on {counts['kept']:,} rows"
        for column, values in others.items()
    )
    return (
        f"{one}. {named}. If such a column says whose row it is, name it in dataset.unit: with "
        "several rows each, people are protected less than is said"
    )


_NOBODY = (
    "0: no record has it, so its texts would be made of noise and the public model alone. Correct "
    "the file, or the spelling in dataset.labels. To take a label out because no record has it "
    "publishes that: labels come from what was known without the file"
)
_FEW = 100
"""Records below which a release is hardly about anything: a fixed bound, not one of the data."""
_CHANCE = 1e-3


def _too_few(ctx: Context, counts: Mapping[str, Any]) -> str:
    """Advice on a file with few records; it follows from the counts that are shown."""
    left, holdout = counts["kept"] - counts["records_above_the_bound"], ctx.config.dataset.holdout
    if not 0 < left < _FEW:
        return ""
    advice = f"fewer than {_FEW} records are too few to make or to measure anything by"
    if holdout and holdout ** counts["units"] >= _CHANCE:
        advice += (
            f"; dataset.holdout={holdout:g} may even set all of them aside, and then no release "
            "can be made: dataset.holdout=0 keeps them"
        )
    return f"{advice}."


def language(names: Iterable[str], counts: Mapping[str, Any]) -> str:
    """Advice on records in another language than the models'; it follows from counts.

    Args:
        names: The language models as settings or a plan name them. Of one of the user's own
            nothing is known.
        counts: What ``RowCounts.report`` says.
    """
    english = [name for name in names if name in ENGLISH]
    if not english or not of_another_language(counts):
        return ""
    return (
        f"most records hold no common English word, and {english[0]}, the default prompts and the "
        "embedder know English alone: docs/models.md, Other languages"
    )


def none_usable(ctx: Context, path: str, counts: Mapping[str, Any]) -> DataError:
    """The refusal of a file none of whose records can be used: which columns, what they hold."""
    dataset, reasons = ctx.config.dataset, list(counts["reasons"])
    columns = {"text": dataset.text, "label": dataset.label, "unit": dataset.unit}
    reasons_by_column = []
    for reason in reasons:
        setting, colon, what = reason.partition(": ")
        column = columns.get(setting)
        where = f" (column {column!r})" if column and modality_of(dataset).searched else ""
        reasons_by_column.append(f"{setting}{where}{colon}{what}")
    steps = dict.fromkeys(advice(reason, counts["labels"]) for reason in reasons)
    return DataError(
        f"{path} holds no record that can be used: {'; '.join(reasons_by_column) or 'no row'}.",
        hint=" ".join(filter(None, steps)),
    )


def refuse_empty(release: OpenPlan, key: bytes) -> None:
    """Refuse a release that no record would enter, before anything is spent.

    This looks at the records: what is told is one bit, whether any is there that can be used, to
    the owner, of a release that then does not exist. With ``dataset.check: false`` nobody looks.

    Raises:
        DataError: No record can be used.
    """
    source, dataset = release.source, release.ctx.config.dataset
    if dataset.check and not has_training(source, key):
        holdout = dataset.holdout
        aside = f" Or dataset.holdout={holdout:g} sets aside all there is." if holdout else ""
        raise DataError(
            f"{source.path} holds no record that this release can use.",
            hint=f"See why with: privsyn check.{aside} Nothing was spent; dataset.check=false does "
            "not look.",
        )


def store_counts(ctx: Context, plan: Plan, row_counts: RowCounts) -> None:
    """Put the counts of a partition into the state folder; those of an earlier one where it is."""
    if row_counts.rows:
        folder = ctx.workspace.internal(plan.id)
        private_folder(folder)
        counts = row_counts.report(plan.dataset.labels, plan.max_records_per_unit)
        write_json_atomic(folder / CHECK, {"class": "internal"} | counts, mode=0o600)


def counts_line(folder: Path, plan: Plan) -> str | None:
    """The counts of a release's partition in one line; None where there are none."""
    counts = _read_counts(folder)
    if counts is None:
        return None
    summary = f"{counts['kept']:,} of {counts['rows']:,} rows can be used"
    if beyond := counts["records_above_the_bound"]:
        left = counts["kept"] - beyond
        summary += f", {left:,} after at most {plan.max_records_per_unit} a {plan.unit}"
    if counts["reasons"]:
        (reason, rows), *_ = counts["reasons"].items()
        summary += f"; dropped most often: {rows:,}, {reason}. All reasons: privsyn check"
    return summary


def _read_counts(folder: Path) -> dict[str, Any] | None:
    try:
        counts: dict[str, Any] = json.loads((folder / CHECK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return counts
