"""partition: begin the release, sort the records into their buckets, draw their columns."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from privsyn.address import Stream
from privsyn.data.artifacts import private_folder, write_json_atomic
from privsyn.data.partition import keep_holdout, read_marker, read_training
from privsyn.data.partition import partition as write_partition
from privsyn.data.public_files import shares_text
from privsyn.data.readers.arrow import PrivateCopy, copy_batches
from privsyn.data.readers.formats import check_rows, lines_and_values, source_of
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import examples
from privsyn.errors import ConfigError, DataError, VerificationError
from privsyn.ledger.leases import Lease
from privsyn.methods.base import Backends, TrainsModel
from privsyn.progress import ASKING, under_way
from privsyn.release.plan import Plan
from privsyn.release.workdir import (
    ACCURACY,
    BUCKETS,
    COLUMNS,
    HELD_OUT,
    PARTITION,
    TRAIN,
    Workdir,
    bucket_files,
    cache_folder,
    part_name,
)
from privsyn.stages.base import (
    CHECK,
    Context,
    OpenPlan,
    again_if_finished,
    check_machine,
    find_workdir,
    open_plan,
    trace_stage,
)
from privsyn.stages.columns import draw_columns
from privsyn.stages.draw import load_answerer


@again_if_finished
def partition(
    ctx: Context,
    plan: Plan | OpenPlan,
    *,
    shards: int | None = None,
    backends: Backends | None = None,
) -> int:
    """Begin the release in the ledger, durably, and only then sort the records.

    Where columns stand beside the text, their noisy marginals are drawn from all records here.

    Before it begins, public files that it reads are compared with the records, and it is looked
    whether any record can be used, so that a mistake costs nothing.

    Args:
        ctx: Config and ledger.
        plan: The release; its account must hold a RESERVED entry, or a BEGUN one.
        shards: Parts to begin it in. None: as many as the plan says.
        backends: Models already loaded: one of them may answer columns that are asked.

    Returns:
        Number of shards to generate. A resumed release keeps the number it began with. Zero where
        the release is already committed.

    Raises:
        ConfigError: A public file shares text with the private one.
        DataError: The private file changed since the release was reserved, or no record of it can
            be used.
        ModelError: The model that answers columns is missing, or is not the planned one.
        ReleaseLost: The release has begun and its scratch, or a journal of a part that was drawn,
            is gone.
        LeaseHeld: Another live process partitions this release.
    """
    release = open_plan(ctx, plan)
    plan = release.plan
    with trace_stage(ctx, plan.id, "partition"):
        entry = ctx.ledger.releases.get(plan.id)
        if entry.state == "COMMITTED":
            return 0
        with ExitStack() as stack:
            answerer = None
            if entry.state == "RESERVED":  # begun, it was looked at, and is resumed as it is
                release = _looked_through(release, stack)
                answerer = load_answerer(release, backends)
            account = ctx.charged_account()
            work = find_workdir(ctx, ctx.ledger.releases.get(plan.id))
            # From here on the cost is final: what follows reads records into buckets.
            work.begin(plan.shards if shards is None else shards)
            lease = stack.enter_context(ctx.ledger.leases.acquire(plan.id, PARTITION))
            stack.enter_context(work)
            key, row_counts = account.partition_key.reveal(), RowCounts()
            files = 1 if release.method.whole else work.shards
            if not work.is_finished(PARTITION):
                if read_marker(work.folder / BUCKETS) is None:
                    release = _read_once(release, work.folder / READ)
                    answerer = answerer or load_answerer(release, backends)
                with under_way(ctx.on_progress, ASKING if answerer else "sort records"):
                    write_partition(
                        release.source,
                        key,
                        release.cells,
                        work.folder / BUCKETS,
                        files,
                        # privacy: with the name, for a seed that was copied to another release
                        seed=work.seed and f"{plan.id} {work.seed}",
                        before_finish=partial(_finish, release, work, lease, key),
                        row_counts=row_counts,
                        ask=answerer.ask(plan.dataset.columns) if answerer else None,
                    )
                # Shards that read all records share one file of buckets, hence the set.
                names = [name for shard in range(files) for name in bucket_files(shard)]
                names += [HELD_OUT] if plan.accuracy is not None else []
                header = release.journal_header
                work.hand_on(PARTITION, lease, sorted(set(names)), header=header)
                (work.folder / READ).unlink(missing_ok=True)
            draw_columns(release, work)
        _store_counts(ctx, plan, row_counts)
        return work.shards


def _looked_through(release: OpenPlan, stack: ExitStack) -> OpenPlan:
    """A release that may begin, over its source as that was read: a query or a table only once.

    Raises:
        ConfigError: As ``partition``.
        DataError: As ``partition``.
    """
    ctx = release.ctx
    check_machine(release)
    if isinstance(source_of(release.source), Stream):
        folder = stack.enter_context(cache_folder(ctx.workspace.scratch(release.id)))
        release = _read_once(release, folder / READ)
    _refuse_other_file(release, "Run again. Nothing was drawn.")
    check_rows(release.source)
    _refuse_private_text(release)
    _refuse_empty(release, ctx.charged_account().partition_key.reveal())
    return release


READ = "read"
"""What was read of a query or a table, until it is in buckets: a killed run goes on from it."""


def _read_once(release: OpenPlan, file: Path) -> OpenPlan:
    """A release over what a private file keeps of its query or table; over files as it is."""
    source = source_of(release.source)
    if not isinstance(source, Stream):
        return release
    if isinstance(source, PrivateCopy):
        source.file.replace(file)
    elif not file.exists():
        copy_batches(source, file)
    return replace(release, copy=PrivateCopy(file, f"{source}"))


def _finish(release: OpenPlan, work: Workdir, lease: Lease, key: bytes) -> None:
    """Give every part that will draw an empty journal, before the partition counts as finished.

    Raises:
        DataError: The private file changed while it was read.
        VerificationError: A part has drawn from a partition that is gone.
    """
    plan = release.plan
    lease.check()
    # The file may have been written to while it was read: then the buckets mix two versions.
    _refuse_other_file(release, f"Put it back as it was, or: privsyn ledger lose {plan.id}")
    leases = release.ctx.ledger.leases.parts(plan.id)
    parts: list[int | str] = list(range(work.shards))
    parts += [TRAIN] if isinstance(release.method, TrainsModel) else []
    parts += [ACCURACY] if plan.accuracy is not None else []
    parts += [COLUMNS] if plan.marginals is not None else []
    for part in parts:
        first = release.journal_header | {"shard": part}
        if part_name(part) not in leases:  # else draws were made into one: it must be there
            work.create_journal(part, first)
        if work.entries(part, first) or leases.get(part_name(part)):
            raise VerificationError(
                f"release {plan.id} has drawn from a partition that is gone.",
                hint="Put its scratch back as it was: its cost is paid. Only where that is "
                f"gone for good: privsyn ledger lose {plan.id}",
            )
    if plan.accuracy is not None:  # now, for the file may change before it is drawn
        keep_holdout(release.source, key, work.folder / HELD_OUT)


def _refuse_private_text(release: OpenPlan) -> None:
    """Refuse public files and examples that hold lines or values of the private ones.

    What they hold may reach the release word for word, at no cost. The refusal is one bit about the
    records, told to their owner; no draw has been made, and none follows from it.

    Raises:
        ConfigError: Names the settings, and nothing of what is shared.
    """
    ctx, plan = release.ctx, release.plan
    read = [item for item in ctx.public_files(plan.method) if item[2].kind == "file"]
    invented = {one.text for one in examples((plan.dataset, release.settings))}
    if not (read or invented):
        return
    source = release.source
    files = [source.source] + ([source.test_path] if source.test_path else [])

    def is_shared(public: Iterable[bytes]) -> bool:
        rows = (row.reveal() for file in files for row in lines_and_values(source, file))
        return shares_text(public, rows, plan.dataset.labels)

    public = [ctx.files.read(setting, value) for setting, value, _ in read]
    if public and is_shared(public):
        raise ConfigError(
            f"{' or '.join(setting for setting, *_ in read)} names a file that shares text with "
            "the private file, so it is not public.",
            hint="Name a file that was not made from the records. Nothing was drawn.",
        )
    if invented and is_shared(" ".join(text.split()).encode() for text in invented):
        raise ConfigError(
            "dataset.examples, or the method's examples, shares text with the private file, so "
            "it is not public.",
            hint="Invent the examples. Nothing was drawn.",
        )


def _refuse_other_file(release: OpenPlan, hint: str) -> None:
    """Refuse another private file than the one that was compared with those of other accounts.

    Asked before the release begins, and again of the file that was read: a release may have begun
    and been killed before it read any.

    Raises:
        DataError: It changed since the release was reserved.
    """
    plan = release.plan
    if source_changed(release.ctx, release):
        raise DataError(
            f"dataset.version={plan.dataset.version}: the private file changed since release "
            f"{plan.id} was reserved.",
            hint=hint,
        )


def source_changed(ctx: Context, plan: Plan | OpenPlan) -> bool:
    """Whether the private file is another one than was noted with the release. Internal.

    False where none was noted, or the file cannot be read.
    """
    release = open_plan(ctx, plan)
    known = [
        source.fingerprint
        for source in ctx.ledger.releases.sources(account=release.plan.account)
        if source.release_id == release.id
    ]
    try:
        # A file that is gone has not changed: a resumed run works from its buckets.
        return bool(known) and ctx.fingerprint(release.source) not in known
    except DataError:
        return False


def _refuse_empty(release: OpenPlan, key: bytes) -> None:
    """Refuse a release that no record would enter, before anything is spent.

    This looks at the records: what is told is one bit, whether any is there that can be used, to
    the owner, of a release that then does not exist.

    Raises:
        DataError: No record can be used.
    """
    source, dataset = release.source, release.ctx.config.dataset
    if next(read_training(source, key), None) is None:
        holdout = dataset.holdout
        aside = f" Or dataset.holdout={holdout:g} sets aside all there is." if holdout else ""
        raise DataError(
            f"{source.source} holds no record that this release can use.",
            hint=f"See why with: privsyn check.{aside} Nothing was spent.",
        )


def _store_counts(ctx: Context, plan: Plan, row_counts: RowCounts) -> None:
    """Put the counts of a partition into the state folder; those of an earlier one where it is."""
    if row_counts.rows:
        folder = ctx.workspace.internal(plan.id)
        private_folder(folder)
        counts = row_counts.report(plan.dataset.labels, plan.max_records_per_unit)
        write_json_atomic(folder / CHECK, {"class": "internal"} | counts, mode=0o600)
