"""check: what a release could use of the private file, counted for its owner. Costs nothing.

Exact counts are not differentially private. They are for whoever holds the file already: they go to
that person's terminal and to the state folder, into no log, lineage or release, and no draw depends
on them. They hold no text, no unit and no label but those the config declares.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.data.columns import MISSING, OTHER, Ask
from privsyn.data.readers.formats import columns_of_people, read_records
from privsyn.data.row_counts import RowCounts, advice, of_another_language
from privsyn.errors import DataError, PrivsynError
from privsyn.modalities.registry import modality_of
from privsyn.models.loading import load_role
from privsyn.models.references import ENGLISH
from privsyn.progress import ASKING, under_way
from privsyn.publishing import trackers_of
from privsyn.release.advice import (
    TrainedOn,
    of_cap,
    of_label_sizes,
    of_prompts,
    of_sizes,
    own_prompts,
    several,
    writers_of,
)
from privsyn.release.plan import Plan
from privsyn.sentences import Rows
from privsyn.stages.base import CHECK, Context, open_plan
from privsyn.stages.plan import about_words, longest, plan

_SAYS = Rows(Path(__file__).with_name("advice.yaml"))


def count(ctx: Context) -> dict[str, dict[str, Any]]:
    """Counts of the private file, and of ``dataset.test_path`` where there is one, by path.

    Opens no account and writes nothing.

    Raises:
        DataError: A file is missing, empty, damaged or lacks a column.
        ModelError: The model that answers columns cannot be loaded.
    """
    dataset, counts_of = ctx.dataset, {}
    places = {name: ctx.source_path(getattr(dataset, name)) for name in ("path", "test_path")}
    located, config = dataset.model_copy(update=places), ctx.config
    ask: Ask | None = None
    if dataset.questions:
        ask = load_role(config.models, "answers", config.performance).ask(dataset.columns)
    for path, place in ((dataset.source, None), (dataset.test_path, located.test_path)):
        if path is None:
            continue
        row_counts = RowCounts()
        with under_way(ctx.on_progress, ASKING if ask else "read records"):
            deque(read_records(located, place, row_counts, ask), maxlen=0)
        counts = row_counts.report(dataset.labels, dataset.max_records_per_unit)
        # Ids of rows, it may be, though an export doubled some: another column may say whose.
        if 1 < counts["kept"] < 2 * counts["units"] and not modality_of(dataset).by_file:
            counts["other_units"] = columns_of_people(located, place)
        counts_of[str(path)] = counts
    return counts_of


def check(ctx: Context, counts_by_file: Mapping[str, Mapping[str, Any]], method: str) -> list[str]:
    """What the counts and the settings of a method call for, a sentence or two each. Internal.

    Args:
        ctx: The project.
        counts_by_file: As ``count`` returns them.
        method: The release that is weighed.
    """
    advice = [
        one
        for counts in counts_by_file.values()
        for one in _SAYS.says("counts", **_facts(ctx, counts, method))
    ]
    advice += tracked(ctx)
    first, *_ = counts_by_file.values()
    return list(dict.fromkeys([*advice, *_of_method(ctx, first, method)]))


def tracked(ctx: Context) -> list[str]:
    """Where the private files of a project are under version control, with the step."""
    dataset = ctx.config.dataset.with_dates(ctx.config.dataset.dates(ctx.day))
    settings = {"dataset.path": dataset.path, "dataset.test_path": dataset.test_path}
    return [
        one
        for setting, path in settings.items()
        if isinstance(path, Path)
        for tool in trackers_of(ctx.path(path))
        for one in _SAYS.says(tool, setting=setting, path=path)
    ]


def _of_method(ctx: Context, counts: Mapping[str, Any], method: str) -> list[str]:
    """What a release needs before any epsilon, how its labels share it, and whether sizes suit."""
    dataset, given, where = ctx.config.dataset, ctx.config.method(method), f"methods.{method}"
    advice = [
        *of_prompts(dataset, writers_of(ctx.config), own=own_prompts(given)),
        *of_cap(ctx.config.privacy, ctx.config.account),
    ]
    try:
        planned = plan(ctx, method)
    except PrivsynError:  # as for want of a model: `plan` says so
        return advice
    if planned.label_shares:
        advice.append(f"{where}: {planned.rows_said} {planned.things}, {planned.label_shares}.")
    release = open_plan(ctx, planned)
    mechanism, cells, there = release.mechanism, len(release.cells), _trained_on(planned, counts)
    used = there.records / max(1, counts["kept"])
    train = {label: used * records for label, records in counts["labels"].items()}
    least = planned.marginals.least if planned.marginals else 0.0
    thin = ", ".join(label for label, records in train.items() if 0 < records < least)
    advice += _SAYS.says("columns", thin=thin, least=least)
    # Both: a total that fits may hide a label that does not, and one that does not fit, which.
    sizes = (
        *of_sizes(where, mechanism, cells, there),
        *of_label_sizes(where, mechanism, cells, train),
    )
    return [*advice, *(sizes or (f"{where}: settings and number of records fit.",))]


def trained_on(planned: Plan, folder: Path) -> TrainedOn | None:
    """The records that trained a release, by its internal folder; None where that has no counts."""
    counts = _read_counts(folder)
    return None if counts is None else _trained_on(planned, counts)


def _trained_on(planned: Plan, counts: Mapping[str, Any]) -> TrainedOn:
    share = 1 - planned.dataset.holdout
    left = counts["kept"] - counts["records_above_the_bound"]
    return TrainedOn(share * counts["units"], int(share * left), "the private file", public=False)


def _facts(ctx: Context, counts: Mapping[str, Any], method: str) -> dict[str, Any]:
    """What the rows of a table and of advice.yaml speak of."""
    dataset, account = ctx.config.dataset, ctx.config.account
    kind, bound = modality_of(dataset), dataset.max_records_per_unit
    models = ctx.config.models
    who = account.unit if dataset.unit is not None else "row"
    used = counts["kept"] - counts["records_above_the_bound"]
    setting, tokens = longest(f"methods.{method}", ctx.config.method(method))
    written = kind.worded and not models.server
    return {
        **counts,
        "who": who,
        "whom": several(who, dataset.unit),
        "things": kind.things,
        "bound": bound,
        "used": used,
        "holdout": dataset.holdout,
        "column": dataset.unit,
        "size": account.public_size,
        "people": several(account.unit, dataset.unit),
        "empty": ", ".join(label for label, records in counts["labels"].items() if not records),
        "others": ", ".join(map(repr, counts.get("other_units", ()))),
        "tokens": tokens if kind.worded and used else None,
        "setting": setting,
        "words": tokens and about_words(tokens),
        "words_twice": tokens and about_words(2 * tokens),
        **_outside(counts),
        "model": models.language,
        "foreign": written and models.language in ENGLISH and of_another_language(counts),
    }


def _outside(counts: Mapping[str, Any]) -> dict[str, str]:
    """Columns of which half of the records or more have a text, another value, or none."""
    columns, usable = counts.get("columns", {}), counts["kept"]
    mostly = {
        kind: [name for name, of in columns.items() if 0 < usable <= 2 * of.get(kind, 0)]
        for kind in ("prose", OTHER, MISSING)
    }
    mostly[OTHER] = [name for name in mostly[OTHER] if name not in mostly["prose"]]
    return {kind: ", ".join(names) for kind, names in mostly.items()}


def lines(ctx: Context, counts: Mapping[str, Any]) -> dict[str, str]:
    """The counts of one file for a person."""
    facts, kind = _facts(ctx, counts, ctx.config.first_method), modality_of(ctx.config.dataset)
    table = {"rows": f"{counts['rows']:,}"}
    if counts["dropped"]:
        table |= {"kept": f"{counts['kept']:,}", "dropped": f"{counts['dropped']:,}"}
    for place, (reason, rows) in enumerate(counts["reasons"].items(), 1):
        advised = advice(reason, counts["labels"])
        many = "1 row" if rows == 1 else f"{rows:,} rows"
        table[f"  reason {place}"] = f"{many}, {reason}. {advised}".strip()
    table |= {f"label {label}": f"{records:,}" for label, records in counts["labels"].items()}
    if most := counts.get("turns_at_most"):
        table["turns"] = f"{most:,} at most; conversations of one: {counts['of_one_turn']:,}"
    if turns := counts.get("turns_left_out"):
        table["turns left out"] = f"{turns:,}, without words or of a role not in dataset.roles"
    for name, outside in counts.get("columns", {}).items():
        shares = (
            f"{outside.get(kind, 0):,} {kind} ({outside.get(kind, 0) / max(1, counts['kept']):.1%})"
            for kind in (OTHER, MISSING)
        )
        table[f"column {name}"] = ", ".join(shares)
    for name, answers in counts.get("answers", {}).items():
        each = (f"{records:,} {answer}" for answer, records in answers.items() if records)
        table[f"column {name}"] = ", ".join(each) or "nobody was asked"
    most = counts["records_per_unit_at_most"]
    thing = kind.things.removesuffix("s") if most == 1 else kind.things
    with_most = "" if facts["column"] is None else f", with {most:,} {thing} at most"
    table[facts["whom"]] = f"{counts['units']:,}{with_most}"
    if beyond := counts["records_above_the_bound"]:
        table["not used"] = (
            f"{beyond:,} {kind.things}, of {counts['units_above_the_bound']:,} {facts['whom']} "
            f"with more than {facts['bound']} each (dataset.max_records_per_unit)"
        )
    table["used"] = f"{facts['used']:,} {kind.things}"
    if facts["holdout"]:
        aside = facts["holdout"] * facts["used"]
        table["used"] += f", some {aside:,.0f} of them kept for testing (dataset.holdout)"
    if kind.worded and counts["kept"]:
        table["length"] = f"half of the texts have {counts['median_words']:,} words or more"
    return table


def none_usable(ctx: Context, path: str, counts: Mapping[str, Any]) -> DataError:
    """The refusal of a file none of whose records can be used: which columns, what they hold."""
    dataset, reasons = ctx.config.dataset, list(counts["reasons"])
    columns = {"text": dataset.text, "label": dataset.label, "unit": dataset.unit}
    reasons_by_column = []
    for reason in reasons:
        setting, colon, what = reason.partition(": ")
        column = columns.get(setting)
        where = f" (column {column!r})" if column and modality_of(dataset).worded else ""
        reasons_by_column.append(f"{setting}{where}{colon}{what}")
    steps = dict.fromkeys(advice(reason, counts["labels"]) for reason in reasons)
    return DataError(
        f"{path} holds no record that can be used: {'; '.join(reasons_by_column) or 'no row'}.",
        hint=" ".join(filter(None, steps)),
    )


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
