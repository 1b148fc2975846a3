"""partition: begin the release, then sort the records into their buckets."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from privsyn.data.artifacts import (
    private_folder,
    storage_error,
    sync_folder,
    write_json_atomic,
)
from privsyn.data.partition import partition as write_partition
from privsyn.release import Plan
from privsyn.stages.base import Context
from privsyn.stages.lineage import traced

BUCKETS = "buckets"


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
    scratch = ctx.workspace.scratch(plan.id)
    run = Run.pin(scratch, plan.shards)
    ctx.ledger.begin(plan.id, str(scratch), run.nonce)
    account = ctx.ledger.open_account(ctx.account)
    method, settings = plan.load_method()
    with ctx.ledger.acquire(plan.id, "partition"):
        write_partition(
            ctx.dataset,
            account.partition_key.reveal(),
            method.cells(settings, plan.dataset.labels),
            scratch / BUCKETS,
            run.shards,
        )
    return run.shards
