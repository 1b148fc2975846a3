"""columns: the noisy marginals of a release, drawn before anything else of it, and its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privsyn.columns.marginals import Marginals
from privsyn.columns.rows import explained, synthetic_rows
from privsyn.data.artifacts import atomic_file, write_json_atomic
from privsyn.data.partition import beside
from privsyn.data.records import Bucket
from privsyn.errors import ReleaseLost
from privsyn.models.rows import NO_ROWS, SyntheticRows
from privsyn.release.plan import Plan
from privsyn.release.workdir import (
    BUCKETS,
    COLUMNS,
    EXHIBITS,
    PARTITION,
    ROWS,
    Workdir,
    bucket_files,
)
from privsyn.stages.base import OpenPlan
from privsyn.stages.draw import Drawing, open_begun, session

TABLES = f"{EXHIBITS}/columns.json"
"""The noisy tables: they are published."""
_DRAW, _PAIRS = "marginals", "pairs"


def draw_columns(release: OpenPlan, work: Workdir) -> None:
    """Draw the marginals of the declared columns, once, and make the rows of the release.

    Guarantee: plan.marginals, which is in the release's event. The draw is in a journal of its own
    before anybody sees it, and so are the rows: a killed run draws no second ones.

    Raises:
        ReleaseLost: The release is not one that may be drawn from.
        VerificationError: The plan was edited, or is charged for another event.
        LeaseHeld: Another process draws them.
    """
    marginals = release.plan.marginals
    if marginals is None or work.is_finished(COLUMNS, ROWS):
        return
    # privacy: the marginals come from the plan, so it must be the one that was paid for
    if open_begun(release.ctx, release) is None:
        raise ReleaseLost(f"release {release.id} is committed: nothing more may be drawn for it.")
    with session(release, COLUMNS, work) as part:
        journal, records = part.journal, partial(_buckets, release, work)
        noisy = _noisy_counts(records, part, marginals, _DRAW)
        whole = marginals
        if marginals.choice is not None:
            whole, noisy = _with_pairs(records, part, marginals, noisy)

        def rows() -> bytes:
            rng = np.random.default_rng()  # public: rows are post-processing
            made = synthetic_rows(whole, list(whole.split(noisy)), release.plan.rows_by_label, rng)
            return json.dumps(list(made.items())).encode()

        made = json.loads(journal.public_file("rows", rows))
        # every draw is counted before its rows are handed on
        release.ctx.ledger.leases.renew(part.lease)
        with atomic_file(work.folder / TABLES) as stream:
            stream.write(_tables(whole, noisy))
        write_json_atomic(work.folder / ROWS, {"noise": part.noise.kind, "rows": made}, mode=0o600)
        work.hand_on(COLUMNS, part.lease, [TABLES, ROWS], journal=journal)


Records = Callable[[], Iterator[Bucket]]


def _with_pairs(
    records: Records, part: Drawing, marginals: Marginals, noisy: NDArray[np.int64]
) -> tuple[Marginals, NDArray[np.int64]]:
    """The tables with those of pairs that noisy scores choose, and all noisy counts [C4]."""
    choice, journal, every = marginals.choice, part.journal, marginals.candidates
    assert choice is not None  # noqa: S101 - asked by the caller
    scores = np.zeros(len(every.tables), np.int64)
    if not journal.has(f"pair/{choice.rounds - 1}"):
        exact = np.split(every.count(records()), every.ends[:-1])
        by_star = explained(marginals, list(marginals.split(noisy)), every.tables)
        scores = choice.scores(exact, by_star)

    def draw(number: int, free: list[int]) -> int:
        part.lease.check()
        chosen = journal.draw_array(
            f"pair/{number}",
            lambda: np.array([choice.mechanism.draw(scores[free], part.noise)], np.int64),
            1,
        )
        return int(chosen[0])

    pairs = choice.choose(every.tables, draw)
    counted = replace(every, tables=tuple(pairs), noise=choice.noise)
    together = _noisy_counts(records, part, counted, _PAIRS)
    return marginals.with_pairs(pairs), np.concatenate([noisy, together])


def _noisy_counts(
    records: Records, part: Drawing, marginals: Marginals, name: str
) -> NDArray[np.int64]:
    """Noisy counts of these tables, one after the other: one draw, in the journal by its name."""
    counts = np.zeros(0, np.int64)
    # Before the draw begins, since an exception within it would lose the release.
    if not part.journal.has(name):
        counts = marginals.count(records())
    part.lease.check()
    noise, cells = marginals.noise, marginals.ends[-1]
    return part.journal.draw_array(name, lambda: noise.draw(counts, part.noise), cells)


def _buckets(release: OpenPlan, work: Workdir) -> Iterator[Bucket]:
    """All records of the release without their texts, some at a time."""
    files = 1 if release.method.whole else work.shards
    for shard in range(files):
        work.bring(PARTITION, *bucket_files(shard))
        yield from beside(work.folder / BUCKETS, shard, release.cells, files)


def further_rows(plan: Plan, folder: Path, count: int) -> SyntheticRows:
    """So many further rows of each label of a finished release, by its noisy tables.

    Guarantee: post-processing of what lies in the release's folder.
    """
    marginals = plan.marginals
    if marginals is None:
        return NO_ROWS
    read = json.loads((folder / TABLES).read_bytes())["tables"]
    if marginals.choice is not None:
        names = ["label", *marginals.columns]
        pairs = [table["of"] for table in read[len(marginals.tables) :]]
        marginals = marginals.with_pairs((names.index(one), names.index(two)) for one, two in pairs)
    tables = [np.array(table["records"], np.float64) for table in read]
    counts, rng = dict.fromkeys(marginals.labels, count), np.random.default_rng()
    return SyntheticRows(marginals.columns, synthetic_rows(marginals, tables, counts, rng))


def _tables(marginals: Marginals, noisy: NDArray[np.int64]) -> bytes:
    """The noisy tables as a file: what is counted, and how many records each cell holds."""
    names = ["label", *marginals.columns]
    cells = [list(marginals.labels), *(list(c.cells) for c in marginals.columns.values())]
    tables = [
        {"of": [names[place] for place in pair], "records": np.round(table, 3).tolist()}
        for pair, table in zip(marginals.tables, marginals.split(noisy), strict=True)
    ]
    values = {
        "noise": marginals.deviation,
        "cells": dict(zip(names, cells, strict=True)),
        "tables": tables,
    }
    return (json.dumps(values) + "\n").encode()
