"""Where the private intermediates of a begun release are: on this machine, or in the vault.

A stage works in ``Place.folder``. Without a vault that is the release's scratch, which all of its
tasks see. With one it is a cache of this process alone: what another part has handed on is brought
into it, what this one makes is handed on, and it is wiped at the end, or, where the process was
killed, by the next one on this machine.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import private_folder, sync_folder, wipe, write_json_atomic
from privsyn.data.draws import Draws
from privsyn.data.journal import Journal
from privsyn.errors import ConfigError, PrivsynError, ReleaseLost, StorageError
from privsyn.filelock import file_lock
from privsyn.ledger.entries import Entry
from privsyn.ledger.leases import Lease
from privsyn.release.scratch import GIVEN_UP, RUN, journal_file, part_name
from privsyn.stages.base import Context
from privsyn.vault.journal import LedgerJournal, entries, kept
from privsyn.vault.release import ReleaseVault, Vault

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
            self._ledger.lose(self._release_id, "a journal is gone")
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
            with self.journal(part, header or {}, lease) as own:
                return self.hand_on(part, lease, names, journal=own)

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
    vault = vault_of(ctx, ctx.ledger.entry(release_id))
    if vault is None:
        yield Place(ctx, release_id, scratch)
        return
    found = vault.find(ctx.ledger, release_id)
    if found is None:
        raise ReleaseLost(f"release {release_id} has ended: its place in the vault is gone.")
    with _cache(ctx, scratch) as folder:
        yield VaultPlace(ctx, found, folder)


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
