"""What a begun release goes by however often it is resumed, and how one is given up."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from privsyn.data.artifacts import private_folder, storage_error, sync_folder, write_json_atomic
from privsyn.errors import LeaseHeld, PrivsynError, ReleaseLost
from privsyn.ledger.checks import lost
from privsyn.release.plan import Plan
from privsyn.release.scratch import GIVEN_UP, RUN
from privsyn.stages.base import Context
from privsyn.stages.place import Place, vault_of


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
            return cls(**json.loads((scratch / RUN).read_text()))
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
        refuse_given_up(ctx, plan.id)
        vault = vault_of(ctx, ctx.ledger.entry(plan.id))
        if vault is not None:
            found = vault.find(ctx.ledger, plan.id)
            if found is None:
                raise ReleaseLost(f"release {plan.id} has ended: its place in the vault is gone.")
            there = cls(found.nonce, found.shards)
            there.begin(ctx, plan)
            return there
        scratch = ctx.workspace.scratch(plan.id)
        run = cls.load(scratch)
        # A nonce nobody knows makes the ledger tell a lost scratch from one that lies elsewhere.
        (run or cls(secrets.token_hex(16), 0)).begin(ctx, plan)
        if run is None:
            raise ReleaseLost(f"release {plan.id} has no scratch in {scratch}.")
        return run

    def begin(self, ctx: Context, plan: Plan) -> None:
        """Begin or resume the release in the ledger, from this project's scratch or the vault.

        Raises:
            LeaseHeld: This scratch is a copy, and the one it was copied from is still there.
            ReleaseLost: See Ledger.begin; its other errors as well.
        """
        vault = vault_of(ctx, ctx.ledger.entry(plan.id))
        if vault is not None:
            ctx.ledger.begin(plan.id, vault.place(plan.id, self.nonce), self.nonce)
            return
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
    def pin(cls, ctx: Context, plan: Plan) -> Run:
        """The run of a release's place, started with the plan's shards if it is new.

        Of two processes that start at once one wins, and both get its run.

        Raises:
            ConfigError: It lies in another vault, or under another key.
        """
        vault = vault_of(ctx, ctx.ledger.entry(plan.id))
        if vault is not None:
            found = vault.pin(ctx.ledger, plan.id, plan.shards)
            return cls(found.nonce, found.shards)
        return cls._pinned(ctx.workspace.scratch(plan.id), plan.shards)

    @classmethod
    def _pinned(cls, scratch: Path, shards: int) -> Run:
        run = cls.load(scratch)
        if run is None:
            private_folder(scratch)
            mine = cls(secrets.token_hex(16), shards)
            draft = scratch / f".run-{mine.nonce}"
            write_json_atomic(draft, asdict(mine), mode=0o600)
            try:
                with suppress(FileExistsError):
                    os.link(draft, scratch / RUN)
                draft.unlink()
                sync_folder(scratch)
            except OSError as error:
                raise storage_error("write", scratch / RUN, error) from error
            run = cls.load(scratch)
        return run or mine


def give_up(ctx: Context, place: Place, release_id: str, reason: str) -> str:
    """Lose a begun release after a draw that must not be followed by another.

    Its place is made unusable first, which needs no ledger: the release can no longer be resumed,
    whatever becomes of the ledger.

    Args:
        ctx: Ledger and project.
        place: Of the release.
        release_id: The release.
        reason: Why, in words that hold no record text.

    Returns:
        What is left to do where the ledger could not be told, as a sentence; else nothing.
    """
    teller = place.give_up()
    try:
        ctx.ledger.lose(release_id, reason)
    except PrivsynError:
        if teller is not None:
            return f"The ledger could not be told and is told by {teller}. "
        return (
            "Neither could the ledger be told nor the release's place be marked: before anything "
            f"else runs, privsyn ledger lose {release_id}. "
        )
    return ""


def refuse_given_up(ctx: Context, release_id: str) -> None:
    """Tell the ledger of a begun release that was given up while it could not be told.

    Raises:
        ReleaseLost: It was.
        LedgerUnavailable: It cannot be told now either.
    """
    entry = ctx.ledger.find(release_id)
    vault = None if entry is None or entry.state != "BEGUN" else vault_of(ctx, entry)
    here = (ctx.workspace.scratch(release_id) / GIVEN_UP).exists()
    if here or (vault is not None and vault.holds(ctx.ledger, release_id, GIVEN_UP)):
        entry = ctx.ledger.lose(release_id, "given up after a draw")
        raise lost(release_id, entry.reason or "")
