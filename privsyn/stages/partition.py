"""partition: begin the release, then sort the records into their buckets."""

from __future__ import annotations

import json
import os
import secrets
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
from privsyn.errors import ReleaseLost, VerificationError
from privsyn.methods.base import Trained
from privsyn.release import Plan
from privsyn.stages.base import Context
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
            ReleaseLost: Its scratch was here and is gone: the ledger marks it LOST.
            LeaseHeld: It runs elsewhere, or its scratch is another one.
        """
        scratch = ctx.workspace.scratch(plan.id)
        run = cls.load(scratch)
        # A nonce nobody knows makes the ledger tell a lost scratch from one that lies elsewhere.
        ctx.ledger.begin(plan.id, str(scratch), run.nonce if run else secrets.token_hex(16))
        if run is None:
            raise ReleaseLost(f"release {plan.id} has no scratch in {scratch}.")
        return run

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


@traced
def partition(ctx: Context, plan: Plan) -> int:
    """Begin the release in the ledger, durably, and only then open a record.

    Returns:
        Number of shards to generate. A resumed release keeps the number it began with. Zero where
        the release is already committed.

    Raises:
        ReleaseLost: The release began elsewhere and its scratch is gone.
        LeaseHeld: Another live process partitions this release.
    """
    if ctx.ledger.entry(plan.id).state == "COMMITTED":
        return 0
    account = ctx.open_account()
    scratch = ctx.workspace.scratch(plan.id)
    run = Run.pin(scratch, plan.shards)
    ctx.ledger.begin(plan.id, str(scratch), run.nonce)
    method, settings = plan.load_method()
    header = journal_header(ctx, plan)

    parts: list[int | str] = list(range(run.shards))
    if isinstance(method, Trained):
        parts.append(TRAIN)

    def before_finish() -> None:
        lease.check()
        for shard in parts:
            file, own = journal_file(scratch, shard), header | {"shard": shard}
            Journal.create(file, own)
            with Journal.open(file, own) as journal:
                if len(journal):
                    raise VerificationError(
                        f"release {plan.id} has drawn from a partition that is gone.",
                        hint=f"Give it up: privsyn ledger lose {plan.id}",
                    )

    with ctx.ledger.acquire(plan.id, "partition") as lease:
        write_partition(
            ctx.source(plan),
            account.partition_key.reveal(),
            method.cells(settings, plan.dataset.labels),
            scratch / BUCKETS,
            1 if method.whole else run.shards,
            before_finish=before_finish,
        )
    _remember_source(ctx, plan)
    return run.shards


SOURCE = "source.json"


def source_changed(ctx: Context, plan: Plan) -> bool:
    """Whether the private file is another one than the release was made from. Internal.

    A release is found by its dataset version, so a file that changed under the same version is not
    used; its owner should be told.
    """
    try:
        kept = json.loads((ctx.workspace.internal(plan.id) / SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(kept != _source(ctx))


def _remember_source(ctx: Context, plan: Plan) -> None:
    folder = ctx.workspace.internal(plan.id)
    private_folder(folder)
    if not (folder / SOURCE).exists():
        write_json_atomic(folder / SOURCE, _source(ctx), mode=0o600)


def _source(ctx: Context) -> dict[str, str | int] | None:
    """Name, size and time of the private file, of a folder sum and newest: never published."""
    path = ctx.path(ctx.config.dataset.path)
    try:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        stats = [file.stat() for file in files]
    except OSError:
        return None
    return {
        "path": str(path.resolve()),
        "size": sum(stat.st_size for stat in stats),
        "changed": max((stat.st_mtime_ns for stat in stats), default=0),
    }


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
