"""partition: begin the release, then sort the records into their buckets."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import (
    private_folder,
    storage_error,
    sync_folder,
    write_json_atomic,
)
from privsyn.data.journal import Journal
from privsyn.data.partition import partition as write_partition
from privsyn.data.public_files import shares_text
from privsyn.data.readers.formats import lines_and_values
from privsyn.data.tally import Tally
from privsyn.errors import (
    ConfigError,
    DataError,
    LeaseHeld,
    PrivsynError,
    ReleaseLost,
    VerificationError,
)
from privsyn.ledger.checks import lost
from privsyn.methods.base import TrainsModel
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.stages.check import keep, refuse_empty
from privsyn.stages.lineage import traced

BUCKETS = "buckets"
TRAIN = "train"
"""The part of a release that is neither shard nor partition: its model's training."""


@dataclass(frozen=True)
class Run:
    """What pins a begun release to its scratch place.

    Attributes:
        nonce: Known to the ledger from ``begin`` on: another scratch cannot pass for this one.
        shards: Parts the run was started with; a resumed run keeps them.
    """

    nonce: str
    shards: int

    @classmethod
    def load(cls, scratch: Path) -> Run | None:
        """The run whose scratch this is; None if there is none."""
        try:
            return cls(**json.loads((scratch / "run.json").read_text()))
        except FileNotFoundError:
            return None

    @classmethod
    def resume(cls, ctx: Context, plan: Plan) -> Run:
        """The run a begun release was started with, here.

        Raises:
            ReleaseLost: Its scratch was here and is gone, or was given up: the ledger marks it
                LOST.
            LeaseHeld: It runs elsewhere, or its scratch is another one.
        """
        scratch = ctx.workspace.scratch(plan.id)
        refuse_given_up(ctx, plan.id)
        run = cls.load(scratch)
        # A nonce nobody knows makes the ledger tell a lost scratch from one that lies elsewhere.
        (run or cls(secrets.token_hex(16), 0)).begin(ctx, plan)
        if run is None:
            raise ReleaseLost(f"release {plan.id} has no scratch in {scratch}.")
        return run

    def begin(self, ctx: Context, plan: Plan) -> None:
        """Begin or resume the release in the ledger, from this project's scratch.

        Raises:
            LeaseHeld: This scratch is a copy, and the one it was copied from is still there.
            ReleaseLost: See Ledger.begin; its other errors as well.
        """
        scratch = ctx.workspace.scratch(plan.id)
        entry = ctx.ledger.begin(plan.id, str(scratch), self.nonce)
        first = Path(entry.scratch or scratch)
        held = Run.load(first)
        if held is not None and held.nonce == self.nonce and not os.path.samefile(first, scratch):
            raise LeaseHeld(
                f"release {plan.id}: {scratch} is a copy of {first}, where it was begun.",
                hint="Resume it there: of two copies one would draw again what the other has "
                "drawn.",
            )

    @classmethod
    def pin(cls, scratch: Path, shards: int) -> Run:
        """The run of this scratch place, started with ``shards`` parts if it is new.

        Of two processes that start at once one wins, and both get its run.
        """
        run = cls.load(scratch)
        if run is None:
            private_folder(scratch)
            mine = cls(secrets.token_hex(16), shards)
            draft = scratch / f".run-{mine.nonce}"
            write_json_atomic(draft, asdict(mine), mode=0o600)
            try:
                with suppress(FileExistsError):
                    os.link(draft, scratch / "run.json")
                draft.unlink()
                sync_folder(scratch)
            except OSError as error:
                raise storage_error("write", scratch / "run.json", error) from error
            run = cls.load(scratch)
        return run or mine


GIVEN_UP = "given-up.json"


def give_up(ctx: Context, release_id: str, reason: str) -> bool:
    """Lose a begun release after a draw that must not be followed by another.

    The scratch is made unusable first, by a rename, which a full disk does not stop: the release
    can no longer be resumed, whatever becomes of the ledger.

    Args:
        ctx: Ledger and project.
        release_id: The release.
        reason: Why, in words that hold no record text.

    Returns:
        Whether the ledger could be told. If not, the next run, settle or sweep tells it.
    """
    scratch = ctx.workspace.scratch(release_id)
    with suppress(OSError):  # then the ledger's word has to do
        os.replace(scratch / "run.json", scratch / GIVEN_UP)
        sync_folder(scratch)
    try:
        ctx.ledger.lose(release_id, reason)
    except PrivsynError:
        return False
    return True


def refuse_given_up(ctx: Context, release_id: str) -> None:
    """Tell the ledger of a begun release that was given up while it could not be told.

    Raises:
        ReleaseLost: It was.
        LedgerUnavailable: It cannot be told now either.
    """
    if (ctx.workspace.scratch(release_id) / GIVEN_UP).exists():
        entry = ctx.ledger.lose(release_id, "given up after a draw")
        raise lost(release_id, entry.reason or "")


@traced("partition")
def partition(ctx: Context, plan: Plan) -> int:
    """Begin the release in the ledger, durably, and only then sort the records.

    Before it begins, public files that it reads are compared with the records, and it is looked
    whether any record can be used, so that a mistake costs nothing.

    Returns:
        Number of shards to generate. A resumed release keeps the number it began with. Zero where
        the release is already committed.

    Raises:
        ConfigError: A public file shares text with the private one.
        DataError: The private file changed since the release was reserved, or no record of it can
            be used.
        ReleaseLost: The release has begun and its scratch, or a journal of a part that was drawn,
            is gone.
        LeaseHeld: Another live process partitions this release.
    """
    refuse_given_up(ctx, plan.id)
    entry = ctx.ledger.entry(plan.id)
    if entry.state == "COMMITTED":
        return 0
    if entry.state == "RESERVED":  # begun, it was looked at, and is resumed as it is
        if source_changed(ctx, plan):
            raise DataError(
                f"dataset.version={plan.dataset.version}: the private file changed since release "
                f"{plan.id} was reserved.",
                hint="Run again. Nothing was drawn.",
            )
        _refuse_private_text(ctx, plan)
        refuse_empty(ctx, plan, ctx.open_account().partition_key.reveal())
    account = ctx.open_account()
    scratch = ctx.workspace.scratch(plan.id)
    run = Run.pin(scratch, plan.shards)
    run.begin(ctx, plan)
    method, settings = ctx.planned(plan)
    header = journal_header(ctx, plan)

    parts: list[int | str] = list(range(run.shards))
    if isinstance(method, TrainsModel):
        parts.append(TRAIN)

    def before_finish() -> None:
        lease.check()
        held = ctx.ledger.parts(plan.id)
        for shard in parts:
            file, own = journal_file(scratch, shard), header | {"shard": shard}
            if part_name(shard) not in held:  # else draws were made into one: it must be there
                Journal.create(file, own)
            with open_journal(ctx, plan, file, own) as journal:
                if len(journal) or held.get(part_name(shard)):
                    raise VerificationError(
                        f"release {plan.id} has drawn from a partition that is gone.",
                        hint="Put its scratch back as it was: its cost is paid. Only where that is "
                        f"gone for good: privsyn ledger lose {plan.id}",
                    )

    tally = Tally()
    with ctx.ledger.acquire(plan.id, "partition") as lease:
        write_partition(
            ctx.source(plan),
            account.partition_key.reveal(),
            method.cells(settings, plan.dataset.labels),
            scratch / BUCKETS,
            1 if method.whole else run.shards,
            before_finish=before_finish,
            tally=tally,
        )
    keep(ctx, plan, tally)
    return run.shards


def _refuse_private_text(ctx: Context, plan: Plan) -> None:
    """Refuse public files that hold lines or values of the private ones.

    What they hold may reach the release word for word, at no cost. The refusal is one bit about the
    records, told to their owner; no draw has been made, and none follows from it.

    Raises:
        ConfigError: Names the settings, and nothing of what is shared.
    """
    read = [item for item in ctx.public_files(plan.method) if item[2].kind == "file"]
    if not read:
        return
    source = ctx.source(plan)
    files = [source.path] + ([source.test_path] if source.test_path else [])
    rows = (
        row.reveal()
        for file in files
        for row in lines_and_values(source.model_copy(update={"path": file}))
    )
    public = [ctx.files.read(setting, value, digest) for setting, value, _, digest in read]
    if shares_text(public, rows, plan.dataset.labels):
        raise ConfigError(
            f"{' or '.join(setting for setting, *_ in read)} names a file that shares text with "
            "the private file, so it is not public.",
            hint="Name a file that was not made from the records. Nothing was drawn.",
        )


def source_changed(ctx: Context, plan: Plan) -> bool:
    """Whether the private file is another one than was noted with the release. Internal.

    False where none was noted, or the file cannot be read.
    """
    held = [
        source.fingerprint
        for source in ctx.ledger.sources(account=plan.account)
        if source.release_id == plan.id
    ]
    try:
        return bool(held) and ctx.fingerprint(ctx.source(plan).path) not in held
    except DataError:
        return False


def part_name(part: int | str) -> str:
    """What the ledger calls the part of a release that a journal is of."""
    return f"shard-{part}"


def open_journal(ctx: Context, plan: Plan, file: Path, header: Mapping[str, Any]) -> Journal:
    """A part's journal. One that is gone cannot be replayed: the release is LOST."""
    try:
        return Journal.open(file, header)
    except ReleaseLost:
        ctx.ledger.lose(plan.id, "a journal is gone")
        raise


def journal_file(scratch: Path, part: int | str) -> Path:
    """The journal of a part: made before any draw, so that a missing one is never a new one."""
    return scratch / (f"journal-{part:05d}" if isinstance(part, int) else f"journal-{part}")


def journal_header(ctx: Context, plan: Plan) -> dict[str, Any]:
    """What the draws of a release belong to: another model or noise source may not go on."""
    return {
        "release": plan.id,
        "noise": ctx.noise().kind,
        "models": {role: use.revision for role, use in plan.models.items()},
    }
