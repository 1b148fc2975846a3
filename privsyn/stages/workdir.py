"""Where a begun release keeps its files: on this machine, or in the store that all machines share.

What a resumed release must match is checked when its folder is opened.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import (
    private_folder,
    storage_error,
    sync_folder,
    wipe,
    write_json_atomic,
)
from privsyn.data.draws import Draws
from privsyn.data.journal import Journal
from privsyn.errors import ConfigError, LeaseHeld, PrivsynError, ReleaseLost, StorageError
from privsyn.filelock import file_lock
from privsyn.ledger.entries import Entry, lost
from privsyn.ledger.leases import Lease
from privsyn.release import layout, verification
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.scratch import GIVEN_UP, RUN, journal_file, part_name
from privsyn.stages.audit import withheld
from privsyn.stages.base import Context
from privsyn.vault.journal import LedgerJournal, entries, kept
from privsyn.vault.release import ReleaseVault, Vault


@dataclass(frozen=True)
class Run:
    """What pins a begun release to its scratch place.

    Attributes:
        nonce: Known to the ledger from ``begin`` on: another scratch cannot pass for this one.
        shards: Parts the run was started with; a resumed run keeps them.
        seed: Secret of the release's buckets. It lies in the scratch or in the vault alone, and is
            deleted with the records there; the ledger never learns it.
    """

    nonce: str
    shards: int
    seed: str = field(repr=False)

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
        vault = vault_of(ctx, ctx.ledger.releases.get(plan.id))
        if vault is not None:
            row = vault.find(ctx.ledger, plan.id)
            if row is None:
                raise ReleaseLost(f"release {plan.id} has ended: its place in the vault is gone.")
            there = cls(row.nonce, row.shards, row.key.seed)
            there.begin(ctx, plan)
            return there
        scratch = ctx.workspace.scratch(plan.id)
        run = cls.load(scratch)
        # A nonce nobody knows makes the ledger tell a lost scratch from one that lies elsewhere.
        (run or cls(secrets.token_hex(16), 0, "")).begin(ctx, plan)
        if run is None:
            raise ReleaseLost(f"release {plan.id} has no scratch in {scratch}.")
        return run

    def begin(self, ctx: Context, plan: Plan) -> None:
        """Begin or resume the release in the ledger, from this project's scratch or the vault.

        Raises:
            LeaseHeld: This scratch is a copy, and the one it was copied from is still there.
            ReleaseLost: See Releases.begin; its other errors as well.
        """
        vault = vault_of(ctx, ctx.ledger.releases.get(plan.id))
        if vault is not None:
            ctx.ledger.releases.begin(plan.id, vault.place(plan.id, self.nonce), self.nonce)
            return
        scratch = ctx.workspace.scratch(plan.id)
        entry = ctx.ledger.releases.begin(plan.id, str(scratch), self.nonce)
        first = Path(entry.scratch or scratch)
        other = Run.load(first)
        if other is not None and other.nonce == self.nonce and not os.path.samefile(first, scratch):
            raise LeaseHeld(
                f"release {plan.id}: {scratch} is a copy of {first}, where it was begun.",
                hint="Resume it there: of two copies one would draw again what the other has "
                "drawn.",
            )

    @classmethod
    def pin(cls, ctx: Context, plan: Plan, shards: int | None = None) -> Run:
        """The run of a release's place, started with so many shards if it is new, or the plan's.

        Of two processes that start at once one wins, and both get its run.

        Raises:
            ConfigError: It lies in another vault, or under another key.
        """
        vault = vault_of(ctx, ctx.ledger.releases.get(plan.id))
        shards = plan.shards if shards is None else shards
        if vault is not None:
            row = vault.pin(ctx.ledger, plan.id, shards)
            return cls(row.nonce, row.shards, row.key.seed)
        return cls._pinned(ctx.workspace.scratch(plan.id), shards)

    @classmethod
    def _pinned(cls, scratch: Path, shards: int) -> Run:
        run = cls.load(scratch)
        if run is None:
            private_folder(scratch)
            mine = cls(secrets.token_hex(16), shards, secrets.token_hex(32))
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
        ctx.ledger.releases.lose(release_id, reason)
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
    entry = ctx.ledger.releases.find(release_id)
    vault = None if entry is None or entry.state != "BEGUN" else vault_of(ctx, entry)
    here = (ctx.workspace.scratch(release_id) / GIVEN_UP).exists()
    if here or (vault is not None and vault.holds(ctx.ledger, release_id, GIVEN_UP)):
        entry = ctx.ledger.releases.lose(release_id, "given up after a draw")
        raise lost(release_id, entry.reason or "")


def locate(ctx: Context, name: str) -> Path | None:
    """Folder of a finished release, as the store has it and the ledger vouches for it.

    Returns:
        The folder; None where the release is neither here nor stored.

    Raises:
        VerificationError: What is stored is not what was certified and committed.
        StorageError: The store cannot be reached.
    """
    releases = ctx.workspace.store
    if releases is None:
        return ctx.workspace.locate(name)
    entry = ctx.ledger.releases.find(name)

    def check(folder: Path) -> None:
        if not verification.covers_reports(folder, ctx.ledger):
            # Older than the ledger's note, or of a machine that died in between: made anew.
            for report in (*layout.REPORTS, layout.SIGNATURE):
                (folder / report).unlink(missing_ok=True)
        verification.raise_failed(folder, verification.verify(folder, ctx.ledger))

    fetched = releases.fetch(
        name,
        ctx.workspace.root,
        certified=None if entry is None else entry.certificate_sha256,
        check=check,
    )
    return fetched or ctx.workspace.here_in(name)


def store(ctx: Context, folder: Path) -> None:
    """Store a finished folder as it is now.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    releases = ctx.workspace.store
    if releases is None:
        return
    paid = ReleaseFacts.read(folder).plan
    lies = folder.parent.name
    public = layout.passed(folder) is True and not withheld(ctx, paid)
    releases.put(folder, lies, passed=public and folder == ctx.workspace.release(folder.name))


def store_plan(ctx: Context, plan: Plan) -> None:
    """Store the plan of a release that is paid for.

    Raises:
        StorageError: The store cannot be reached or refuses.
    """
    if ctx.workspace.store is not None:
        ctx.workspace.store.put_plan(plan)


def before_commit(ctx: Context, folder: Path) -> None:
    """Have a folder outlive this machine before the ledger is told that it exists.

    Raises:
        StorageError: The store cannot be reached or refuses. Nothing is committed.
    """
    if ctx.workspace.store is not None:
        ctx.workspace.store.put_draft(folder)


_OUTPUTS = "handed on"
"""What a part keeps in its journal once it is finished: which objects it handed on."""

_CACHE = "cache-"


class Place:
    """The release's scratch on this machine, which all of its tasks see.

    Attributes:
        folder: Where a stage finds and puts the files of ``release/scratch.py``.
    """

    def __init__(self, ctx: Context, release_id: str, folder: Path) -> None:
        self._ledger, self._release_id, self.folder = ctx.ledger, release_id, folder

    def finished(self, part: int | str, *names: str) -> bool:
        """Whether a part has handed on what it makes: files and folders of these names."""
        return bool(names) and all((self.folder / name).exists() for name in names)

    def bring(self, part: int | str, *names: str) -> None:
        """Have these files that a part handed on in the folder, all of them where none is named.

        A part that is not finished has none, which whoever reads them will see.
        """

    def hand_on(
        self,
        part: int | str,
        lease: Lease,
        names: Sequence[str],
        *,
        journal: Draws | None = None,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        """Give files of the folder to the other parts, wherever they run: the part is finished.

        Args:
            part: Which part.
            lease: The right to it: an overtaken process hands nothing on.
            names: The files, by name in the folder.
            journal: Of the part; None where it draws nothing.
            header: Of the journal that it gets for this then.
        """

    def create_journal(self, part: int | str, header: Mapping[str, Any]) -> None:
        """Make the journal of a part that was never drawn. Before any draw: see ``Journal``."""
        Journal.create(journal_file(self.folder, part), header)

    def entries(self, part: int | str, header: Mapping[str, Any]) -> int:
        """Number of entries on file of a part's journal.

        Raises:
            ReleaseLost: The journal is gone, and now the release is.
        """
        with self._or_lost(), Journal.open(journal_file(self.folder, part), header) as journal:
            return len(journal)

    def journal(self, part: int | str, header: Mapping[str, Any], lease: Lease) -> Draws:
        """The journal of a part, open.

        Raises:
            ReleaseLost: It is gone and cannot be replayed, and now the release is.
        """
        with self._or_lost():
            return Journal.open(journal_file(self.folder, part), header)

    def give_up(self) -> str | None:
        """Make it unusable, without the ledger: nobody resumes the release from here.

        A rename does it, which a full disk does not stop.

        Returns:
            Who will tell the ledger that the release is lost; None where it could not be marked.
        """
        with suppress(OSError):
            os.replace(self.folder / RUN, self.folder / GIVEN_UP)
            sync_folder(self.folder)
        return "the next run" if (self.folder / GIVEN_UP).exists() else None

    @contextmanager
    def _or_lost(self) -> Iterator[None]:
        try:
            yield
        except ReleaseLost:
            self._ledger.releases.lose(self._release_id, "a journal is gone")
            raise


class VaultPlace(Place):
    """A cache on this machine, before the release's place in the vault and the ledger's draws."""

    def __init__(self, ctx: Context, vault: ReleaseVault, folder: Path) -> None:
        super().__init__(ctx, vault.release_id, folder)
        self._vault, self._here = vault, ctx.workspace.scratch(vault.release_id)

    def finished(self, part: int | str, *names: str) -> bool:
        """See Place."""
        return kept(self._ledger, self._vault, part_name(part), _OUTPUTS) is not None

    def bring(self, part: int | str, *names: str) -> None:
        """See Place."""
        noted = kept(self._ledger, self._vault, part_name(part), _OUTPUTS)
        objects: dict[str, str] = json.loads(noted) if noted is not None else {}
        for name in names or objects:
            if name in objects and not (self.folder / name).exists():
                private_folder((self.folder / name).parent)
                self._vault.get(objects[name], self.folder / name)

    def hand_on(
        self,
        part: int | str,
        lease: Lease,
        names: Sequence[str],
        *,
        journal: Draws | None = None,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        """See Place. Objects lie under the lease's token: who was overtaken replaces none."""
        if journal is None:
            self.create_journal(part, header or {})
            with self.journal(part, header or {}, lease) as draws:
                return self.hand_on(part, lease, names, journal=draws)

        def stored() -> bytes:
            objects = {}
            for number, name in enumerate(names):
                lease.check()
                objects[name] = f"{part_name(part)}-{lease.token}/{number}"
                self._vault.put(objects[name], self.folder / name)
            return json.dumps(objects).encode()

        journal.keep(_OUTPUTS, stored)

    def create_journal(self, part: int | str, header: Mapping[str, Any]) -> None:
        """See Place."""
        LedgerJournal.create(self._ledger, self._vault, part_name(part), header)

    def entries(self, part: int | str, header: Mapping[str, Any]) -> int:
        """See Place."""
        return entries(self._ledger, self._vault, part_name(part))

    def journal(self, part: int | str, header: Mapping[str, Any], lease: Lease) -> Draws:
        """See Place."""
        with self._or_lost():
            return LedgerJournal.open(self._ledger, self._vault, lease, header)

    def give_up(self) -> str | None:
        """See Place. A mark in the vault, for every machine, and one here."""
        teller = None
        with suppress(OSError, StorageError):
            write_json_atomic(self._here / GIVEN_UP, {}, mode=0o600)
            teller = "the next run on this machine, which has to be before one on any other"
        with suppress(PrivsynError):
            self._vault.put_bytes(GIVEN_UP, b"")
            teller = "the next run"
        return teller


@contextmanager
def at(ctx: Context, release_id: str) -> Iterator[Place]:
    """The place of a begun release, while a stage works in it.

    Raises:
        ConfigError: It lies in a vault that the settings do not name, or under another key.
    """
    scratch = ctx.workspace.scratch(release_id)
    vault = vault_of(ctx, ctx.ledger.releases.get(release_id))
    if vault is None:
        yield Place(ctx, release_id, scratch)
        return
    row = vault.find(ctx.ledger, release_id)
    if row is None:
        raise ReleaseLost(f"release {release_id} has ended: its place in the vault is gone.")
    with _cache(ctx, scratch) as folder:
        yield VaultPlace(ctx, row, folder)


def vault_of(ctx: Context, entry: Entry) -> Vault | None:
    """The vault a release lies in, or will: None where it is this machine.

    Raises:
        ConfigError: It is not the one of the settings.
    """
    if entry.scratch is None:
        return ctx.vault
    if "://" not in entry.scratch:
        return None
    vault = ctx.vault
    if vault is None or not entry.scratch.startswith(f"{vault.where}/"):
        named = "not set" if vault is None else vault.where
        raise ConfigError(
            f"services.vault is {named}, and release {entry.release_id} lies in {entry.scratch}.",
            hint="Give this machine the setting that the others have.",
        )
    return vault


def wipe_place(ctx: Context, entry: Entry) -> None:
    """Delete the private intermediates of an ended release, here and in the vault.

    Raises:
        StorageError: Something cannot be deleted. Without the release's key, which went with its
            end, nobody can read it.
    """
    wipe(ctx.workspace.scratch(entry.release_id))
    vault = ctx.vault
    if vault is not None and (entry.scratch or "").startswith(f"{vault.where}/"):
        vault.wipe(entry.release_id)


@contextmanager
def _cache(ctx: Context, scratch: Path) -> Iterator[Path]:
    """A folder of this process alone, wiped at the end; first those of processes that were killed.

    Who lives holds a lock, and the kernel lets go of a dead one's.
    """
    folder = scratch / f"{_CACHE}{secrets.token_hex(8)}"
    one_at_a_time = file_lock(ctx.workspace.state / "caches.lock", timeout=600)
    with one_at_a_time:
        private_folder(scratch)
        wipe_dead(scratch.parent)
        mine = file_lock(folder.with_suffix(".lock"), timeout=0)
        mine.acquire()
    try:
        private_folder(folder)
        yield folder
    finally:
        with suppress(StorageError, TimeoutError), one_at_a_time:  # else the next does it
            wipe(folder)
            wipe(folder.with_suffix(".lock"))
            with suppress(OSError):  # another task's cache is in it
                scratch.rmdir()
        mine.release()


def wipe_dead(scratches: Path) -> None:
    """Wipe the caches of processes that were killed on this machine."""
    for lock in scratches.glob(f"*/{_CACHE}*.lock"):
        with suppress(TimeoutError), file_lock(lock, timeout=0):
            wipe(lock.with_suffix(""))
            lock.unlink(missing_ok=True)
