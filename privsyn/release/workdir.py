"""The private intermediates of a release that is being drawn: on this machine, or in a vault.

What lies in them, by name; what a resumed release must match.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from privsyn.data.artifacts import atomic_file, private_folder, sync_folder, wipe, write_json_atomic
from privsyn.data.journal import Draws, Journal
from privsyn.data.partition import MARKER, shard_name
from privsyn.data.records import Row
from privsyn.errors import DataError, LeaseHeld, PrivsynError, ReleaseLost, StorageError
from privsyn.files import file_lock
from privsyn.ledger.draws import SealedDraws
from privsyn.ledger.entries import Entry, State, lost
from privsyn.ledger.leases import Lease
from privsyn.ledger.releases import Releases
from privsyn.vault import LedgerJournal, ReleaseVault, Vault, entries, public_file


def samples(shard: int) -> str:
    """Where the finished samples of a shard lie until certify merges them."""
    return f"samples/shard-{shard:05d}.json"


EXHIBITS = "exhibits"
"""Where the pictures and tables of a draw lie until certify takes them along."""

MODEL = "model"
"""Where the files of a model lie that the release is drawn from, until certify takes them.

Public like the samples: only what a private mechanism gave out may be put there.
"""

TRAINED_BY = "trained.json"
"""Says that the model is whole, and by which noise it was trained."""


def noise_of_training(scratch: Path) -> str:
    """Kind of the noise source a release's model was trained with.

    Raises:
        DataError: It is not trained yet.
    """
    try:
        return str(json.loads((scratch / TRAINED_BY).read_bytes())["noise"])
    except FileNotFoundError:
        raise DataError(
            "the release's model is not trained yet.",
            hint="Run the stage train first; where it was killed it resumes at no cost.",
        ) from None


BUCKETS = "buckets"
"""Folder of the records, in their buckets."""


def bucket_files(shard: int) -> tuple[str, str]:
    """Names of the files that a shard's records are read from."""
    return f"{BUCKETS}/{MARKER}", f"{BUCKETS}/{shard_name(shard)}"


RUN = "run.json"
"""What is pinned when the release begins, such as how many shards it has."""

TRAIN = "train"
"""The part of a release that is neither shard nor partition: its model's training."""

GIVEN_UP = "given-up.json"
"""In the place of RUN once the release is lost: the ledger may still have to be told."""


COLUMNS = "columns"
"""The part in which the marginals of declared columns are drawn, before all others."""

ROWS = "rows.json"
"""The synthetic rows that texts are written for, and the noise behind them. Public."""


def rows_of(scratch: Path) -> tuple[str, dict[str | None, list[Row]]]:
    """Kind of the noise source behind a release's rows, and the rows of each label.

    Raises:
        DataError: They are not drawn yet.
    """
    try:
        made = json.loads((scratch / ROWS).read_bytes())
    except FileNotFoundError:
        raise DataError(
            "the columns of the release are not drawn yet.",
            hint="Run the stage partition again; where it was killed it resumes at no cost.",
        ) from None
    return made["noise"], {label: [tuple(row) for row in rows] for label, rows in made["rows"]}


ACCURACY = "accuracy"
"""The part in which the accuracy is drawn that a release pays for."""

HELD_OUT = "held-out"
"""Records of the held-out units, for that; beside the buckets."""


PARTITION = "partition"
"""The part that sorts the records; it draws nothing."""

CERTIFICATE = "certificate"
"""The part that merges the others into the release's folder and ends with its commit."""


def part_name(part: int | str) -> str:
    """What the ledger calls a part of a release."""
    return str(part) if part in (PARTITION, CERTIFICATE) else f"shard-{part}"


def journal_file(scratch: Path, part: int | str) -> Path:
    """The journal of a part: made before any draw, so that a missing one is never a new one."""
    return scratch / (f"journal-{part:05d}" if isinstance(part, int) else f"journal-{part}")


@dataclass(frozen=True)
class Run:
    """What ties a started release to its workdir.

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
        """The run of a scratch; None without one."""
        try:
            return cls(**json.loads((scratch / RUN).read_text()))
        except FileNotFoundError:
            return None


class Workdir:
    """The private intermediates of a release in its scratch on this machine, which all tasks see.

    A stage uses its files within a ``with`` block.

    Args:
        releases: The ledger's.
        entry: The release, as the ledger has it now.
        scratch: Its folder on this machine.

    Attributes:
        folder: Where a stage finds and puts the files that this module names.
        shards: Parts of the release; known after ``begin`` or ``resume``.
        seed: See Run; known after either as well.
    """

    def __init__(self, releases: Releases, entry: Entry, scratch: Path) -> None:
        self._releases, self._entry, self._scratch = releases, entry, scratch
        self._release_id = entry.release_id
        self.folder, self.shards, self.seed = scratch, 0, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, shards: int) -> None:
        """Begin the release in the ledger, or resume it, started with so many shards if it is new.

        Of two processes that start at once one wins, and both get its run.

        Raises:
            ConfigError: It lies in another vault, or under another key.
            LeaseHeld: This scratch is a copy, and the one it was copied from is still there.
            ReleaseLost: See Releases.begin; its other errors as well. Or it was given up.
        """
        self.refuse_given_up()
        self._begin(self._pin(shards))

    def resume(self) -> None:
        """Go on with a started release in the run it was started with.

        Raises:
            ReleaseLost: Its scratch was here and is gone, or was given up: the ledger marks it
                LOST.
            LeaseHeld: It runs elsewhere, or its scratch is another one.
        """
        self.refuse_given_up()
        run = Run.load(self._scratch)
        # A nonce nobody knows makes the ledger tell a lost scratch from one that lies elsewhere.
        self._begin(run or Run(secrets.token_hex(16), 0, ""))
        if run is None:
            raise ReleaseLost(f"release {self._release_id} has no scratch in {self._scratch}.")

    def refuse_given_up(self) -> None:
        """Tell the ledger of a release that was given up while the ledger could not be told.

        Raises:
            ReleaseLost: It was.
            LedgerUnavailable: It cannot be told now either.
        """
        if self._given_up():
            # The mark was left while the ledger was down. It is told now, before anything is drawn.
            entry = self._releases.lose(self._release_id, "given up after a draw")
            raise lost(self._release_id, entry.reason or "")

    def give_up(self, reason: str) -> str:
        """Lose a started release after a draw that must not be followed by another.

        Its workdir is made unusable first, which needs no ledger: the release can no longer be
        resumed, whatever becomes of the ledger.

        Args:
            reason: Why, in words that hold no record text.

        Returns:
            What is left to do where the ledger could not be told, as a sentence; else nothing.
        """
        # crash safety: marked before the ledger is told, or a crash between the two could draw
        # again.
        teller = self._mark_given_up()
        try:
            self._releases.lose(self._release_id, reason)
        except PrivsynError:
            if teller is not None:
                return f"The ledger could not be told and is told by {teller}. "
            return (
                "Neither could the ledger be told nor the release's place be marked: before "
                f"anything else runs, privsyn ledger lose {self._release_id}. "
            )
        return ""

    def is_finished(self, part: int | str, *names: str) -> bool:
        """Whether a part has handed on what it makes: files and folders of these names."""
        return bool(names) and all((self.folder / name).exists() for name in names)

    def bring(self, part: int | str, *names: str) -> None:
        """Fetch these files of a finished part into the folder; without names all its files.

        A part that is not finished has no files; whoever reads them fails.
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
        # A missing journal cannot be told from one that was deleted to draw again, so it ends the
        # release.
        with self._or_lost(), Journal.open(journal_file(self.folder, part), header) as journal:
            return len(journal)

    def journal(self, part: int | str, header: Mapping[str, Any], lease: Lease) -> Draws:
        """The journal of a part, open.

        Raises:
            ReleaseLost: It is gone and cannot be replayed, and now the release is.
        """
        with self._or_lost():
            return Journal.open(journal_file(self.folder, part), header)

    def _pin(self, shards: int) -> Run:
        """The run of this scratch, or a new one with so many shards."""
        run = Run.load(self._scratch)
        if run is None:
            # Mode 0700 before the first file: the run holds the secret of the buckets.
            private_folder(self._scratch)
            mine = Run(secrets.token_hex(16), shards, secrets.token_hex(32))
            # Of two processes that start at once exactly one pins the run.
            place = self._scratch / RUN
            with suppress(FileExistsError), atomic_file(place, replace=False) as stream:
                stream.write(json.dumps(asdict(mine)).encode())
            # The other process may have been first: its run is the one on disk.
            run = Run.load(self._scratch) or mine
        return run

    def _begin(self, run: Run) -> None:
        entry = self._releases.begin(self._release_id, str(self._scratch), run.nonce)
        # privacy: drawing twice from one journal would release two outputs for one charge.
        first = Path(entry.scratch or self._scratch)
        other = Run.load(first)
        if (
            other is not None
            and other.nonce == run.nonce
            and not os.path.samefile(first, self._scratch)
        ):
            raise LeaseHeld(
                f"release {self._release_id}: {self._scratch} is a copy of {first}, where it was "
                "begun.",
                hint="Resume it there: of two copies one would draw again what the other has "
                "drawn.",
            )
        self.shards, self.seed = run.shards, run.seed

    def _given_up(self) -> bool:
        return (self._scratch / GIVEN_UP).exists()

    def _mark_given_up(self) -> str | None:
        """Make it unusable, without the ledger: nobody resumes the release from here.

        A rename does it, which a full disk does not stop.

        Returns:
            Who will tell the ledger that the release is lost; None where it could not be marked.
        """
        with suppress(OSError):
            # One rename, so that there is no moment at which both states, or none, hold.
            os.replace(self._scratch / RUN, self._scratch / GIVEN_UP)
            sync_folder(self._scratch)
        return "the next run" if self._given_up() else None

    @contextmanager
    def _or_lost(self) -> Iterator[None]:
        try:
            yield
        except ReleaseLost:
            self._releases.lose(self._release_id, "a journal is gone")
            raise


class VaultWorkdir(Workdir):
    """The same in a vault, with the draws in the ledger's database.

    What a process needs of it lies in a cache on its machine, within the ``with`` block.
    """

    def __init__(
        self, releases: Releases, entry: Entry, scratch: Path, vault: Vault, draws: SealedDraws
    ) -> None:
        super().__init__(releases, entry, scratch)
        self._vault, self._draws, self._open = vault, draws, ExitStack()

    def __enter__(self) -> Self:
        self._sealed = self._find()
        self.folder = self._open.enter_context(cache_folder(self._scratch))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def resume(self) -> None:
        """See Workdir."""
        self.refuse_given_up()
        self._begin(_run_of(self._find()))

    def is_finished(self, part: int | str, *names: str) -> bool:
        """See Workdir."""
        return self._outputs(part) is not None

    def bring(self, part: int | str, *names: str) -> None:
        """See Workdir."""
        objects: dict[str, str] = json.loads(self._outputs(part) or b"{}")
        for name in names or objects:
            if name in objects and not (self.folder / name).exists():
                private_folder((self.folder / name).parent)
                self._sealed.get(objects[name], self.folder / name)

    def hand_on(
        self,
        part: int | str,
        lease: Lease,
        names: Sequence[str],
        *,
        journal: Draws | None = None,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        """See Workdir. Objects lie under the lease's token: who was overtaken replaces none."""
        if journal is None:
            self.create_journal(part, header or {})
            with self.journal(part, header or {}, lease) as draws:
                return self.hand_on(part, lease, names, journal=draws)

        def store() -> bytes:
            objects = {}
            for number, name in enumerate(names):
                lease.check()
                # With the lease's token: a process that lost its lease cannot overwrite its
                # successor's objects.
                objects[name] = f"{part_name(part)}-{lease.token}/{number}"
                self._sealed.put(objects[name], self.folder / name)
            return json.dumps(objects).encode()

        journal.public_file(_OUTPUTS, store)

    def create_journal(self, part: int | str, header: Mapping[str, Any]) -> None:
        """See Workdir."""
        LedgerJournal.create(self._draws, self._sealed, part_name(part), header)

    def entries(self, part: int | str, header: Mapping[str, Any]) -> int:
        """See Workdir."""
        return entries(self._draws, self._sealed, part_name(part))

    def journal(self, part: int | str, header: Mapping[str, Any], lease: Lease) -> Draws:
        """See Workdir."""
        with self._or_lost():
            return LedgerJournal.open(self._draws, self._sealed, lease, header)

    def _outputs(self, part: int | str) -> bytes | None:
        return public_file(self._draws, self._sealed, part_name(part), _OUTPUTS)

    def _find(self) -> ReleaseVault:
        sealed = self._vault.find(self._draws, self._release_id)
        if sealed is None:
            raise ReleaseLost(
                f"release {self._release_id} has ended: its place in the vault is gone."
            )
        return sealed

    def _pin(self, shards: int) -> Run:
        return _run_of(self._vault.pin(self._draws, self._release_id, shards))

    def _begin(self, run: Run) -> None:
        # The place says which vault and key: another vault cannot pass for this one.
        place = self._vault.place(self._release_id, run.nonce)
        self._releases.begin(self._release_id, place, run.nonce)
        self.shards, self.seed = run.shards, run.seed

    def _given_up(self) -> bool:
        return super()._given_up() or (
            self._entry.state is State.BEGUN
            and self._vault.holds(self._draws, self._release_id, GIVEN_UP)
        )

    def _mark_given_up(self) -> str | None:
        """See Workdir. A mark in the vault, for every machine, and one here."""
        teller = None
        with suppress(OSError, StorageError):
            write_json_atomic(self._scratch / GIVEN_UP, {}, mode=0o600)
            # The local mark alone binds this machine only; the vault's, tried next, binds all of
            # them.
            teller = "the next run on this machine, which has to be before one on any other"
        with suppress(PrivsynError):
            self._sealed.put_bytes(GIVEN_UP, b"")
            teller = "the next run"
        return teller


def _run_of(sealed: ReleaseVault) -> Run:
    return Run(sealed.nonce, sealed.shards, sealed.key.seed)


_OUTPUTS = "handed on"
"""What a part keeps in its journal once it is finished: which objects it handed on."""

_CACHE = "cache-"


@contextmanager
def cache_folder(scratch: Path) -> Iterator[Path]:
    """A folder of this process alone, wiped at the end; first those of processes that were killed.

    Who lives holds a lock, and the kernel lets go of a dead one's.
    """
    folder = scratch / f"{_CACHE}{secrets.token_hex(8)}"
    one_at_a_time = file_lock(scratch.parent.with_name("caches.lock"), timeout=600)
    with one_at_a_time:
        private_folder(scratch)
        # Kills leave caches behind. A cache whose lock is free belongs to no live process.
        wipe_dead(scratch.parent)
        # Held for the life of the cache: a lock that is free says that its process is dead.
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
