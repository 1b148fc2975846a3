"""A project from Python: what `privsyn init`, check, plan and run do, by the same stages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date as Date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from privsyn.address import is_address
from privsyn.api import frames, new_project
from privsyn.api.guard import guard, refuse_unknown
from privsyn.api.released import Release
from privsyn.config import Config, as_overrides, environment_overrides
from privsyn.data.columns import in_file
from privsyn.display.accounts import Statements
from privsyn.display.plans import Planned
from privsyn.display.progress import show_progress
from privsyn.display.tables import Displayable, Table
from privsyn.errors import ConfigError
from privsyn.ledger.audit import LedgerAudit
from privsyn.ledger.balances import Statement
from privsyn.ledger.entries import Entry, describe_requester
from privsyn.release.advice import of_cap, of_each
from privsyn.stages.base import PARAMS_FILE, Context, open_context, os_user
from privsyn.stages.plan import methods_of, sized

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.api.frames import Frame, Rows
    from privsyn.display.plans import RecordCounts

log = logging.getLogger(__name__)


class LedgerTables(Displayable):
    """The ledger of a project, read only: releases are made by their stages."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @guard
    def accounts(self) -> pd.DataFrame:
        """An account a row: its terms, the share spent, and the room for one more release.

        ``spent_epsilon`` is the epsilon that all charges together are proved to cost, at the
        account's delta; it is not the sum of the releases' epsilons.
        """
        return _frame(_ACCOUNTS, self._ctx.ledger.accounts.statements())

    @guard
    def entries(self, account: str | None = None) -> pd.DataFrame:
        """A release a row, oldest first.

        Args:
            account: Of this one only.
        """
        return _frame(_ENTRIES, self._ctx.ledger.releases.all(account))

    @guard
    def verify(self) -> LedgerAudit:
        """Check the hash chain of the whole ledger, and that it knows the releases that are here.

        Raises:
            VerificationError: The ledger was edited, or does not know a release.
        """
        self._ctx.check_releases()
        return self._ctx.ledger.verify()

    def as_json(self) -> list[dict[str, Any]]:
        """What ``privsyn ledger show --json`` prints."""
        return Statements(self._ctx.ledger.accounts.statements()).as_json()

    def _tables(self) -> Sequence[Table]:
        """What ``privsyn ledger show`` prints."""
        return Statements(self._ctx.ledger.accounts.statements())._tables()


def _frame(columns: Mapping[str, Callable[[Any], Any]], items: Iterable[Any]) -> pd.DataFrame:
    import pandas as pd

    rows = [{name: value(item) for name, value in columns.items()} for item in items]
    return pd.DataFrame(rows, columns=list(columns))


_ACCOUNTS: Mapping[str, Callable[[Statement], Any]] = {
    "account": lambda one: one.spec.name,
    "unit": lambda one: one.spec.unit,
    "adjacency": lambda one: str(one.spec.adjacency),
    "epsilon": lambda one: one.spec.epsilon,
    "delta": lambda one: one.spec.delta,
    "spent_share": lambda one: one.balance.share,
    "spent_epsilon": lambda one: one.balance.spent_epsilon,
    "left_epsilon": lambda one: one.balance.left_epsilon,
    "releases": lambda one: one.balance.entries,
    "refused": lambda one: len(one.refusals),
}
_ENTRIES: Mapping[str, Callable[[Entry], Any]] = {
    "number": lambda entry: entry.number,
    "release": lambda entry: entry.release_id,
    "account": lambda entry: entry.account,
    "method": lambda entry: entry.method,
    "state": lambda entry: entry.state.value,
    "epsilon": lambda entry: entry.epsilon,
    "delta": lambda entry: entry.delta,
    "reserved_at": lambda entry: entry.reserved_at,
    "by": lambda entry: describe_requester(entry.reserved_by),
    "reason": lambda entry: entry.reason or "",
}


class Project(Displayable):
    """A private dataset, its account, and the releases made of it.

    Nothing here goes round the ledger: ``release`` runs the stages that `privsyn run` runs, at the
    same cost, under the same account, to the same certificate. No method returns a record, and no
    representation, message or traceback shows one. Make one by ``create`` or ``open``.
    """

    def __init__(self, folder: Path, settings: Sequence[str] = (), day: Date | None = None) -> None:
        self._folder = folder
        self._settings = tuple(settings)
        self._day = day
        self._context(())  # a project that does not load is none

    @classmethod
    @guard
    def open(
        cls,
        folder: str | Path = ".",
        *,
        day: Date | None = None,
        texts: int | None = None,
        **settings: Any,
    ) -> Project:
        """The project of a folder that holds params.yaml.

        Args:
            folder: The folder.
            day: The logical date, for ``{date:...}`` in settings; None: today.
            texts: How many synthetic records are wanted, as ``create`` takes it.
            settings: Settings on top of params.yaml, by their dotted names:
                ``**{"privacy.epsilon": 4}``.

        Raises:
            ConfigError: There is no params.yaml, or a setting is unknown or out of bounds.
        """
        given = as_overrides(settings)
        project = cls(Path(folder), given, day)
        config = project._context(()).config
        # Settings that are named hold where a number of texts would set the same.
        sizes = sized(config, texts, config.pipeline and methods_of(config))
        return cls(Path(folder), (*sizes, *given), day) if sizes else project

    @classmethod
    @guard
    def create(
        cls,
        folder: str | Path,
        data: str | Path | Frame | Rows | Mapping[str, Any],
        *,
        unit: str | None,
        text: str | None = "text",
        roles: Sequence[str] = (),
        label: str | None = None,
        labels: Sequence[str] = (),
        columns: Mapping[str, Any] | None = None,
        document: str | None = None,
        protects: str | None = None,
        name: str | None = None,
        version: str = "v1",
        image_size: int | None = None,
        image_mode: str | None = None,
        account: Mapping[str, Any] | None = None,
        method: str | None = None,
        texts: int | None = None,
        **settings: Any,
    ) -> Project:
        """Begin a project: params.yaml, dvc.yaml, dags, .gitignore, as `privsyn init` writes them.

        A frame is written to the project's private state folder (mode 0600), the wanted columns of
        it alone, under the names given here. Of a file the header is read. Labels are public and
        are never taken from the data.

        Args:
            folder: Of the project; made if need be.
            data: A file, a folder of images or a table, by path or address; a query, as
                ``{"connection": "CLINIC_DB", "sql": "select ..."}``; or texts as a frame of pandas,
                polars or pyarrow, a list of dicts or a ``datasets.Dataset``.
            unit: Column with the stable id of those who are protected. None: every row is one by
                itself. There is no default: who is protected is for a person to say.
            text: Column of the text, or a form over several. None: a table of ``columns`` alone.
            roles: Of a conversation, the first one first; ``text`` is its column of turns.
            label: Column of the label.
            labels: All labels: public.
            columns: Columns that come back beside the text, each with what it can hold: public, in
                words ("18 to 95", "web, phone", "2024-01-01 to 2026-12-31") or as in
                ``dataset.columns``.
            document: What a text is, in public words for the prompts: a bug report.
            protects: What one of them is called, such as patient.
            name: Of dataset and account; by default the file's, for a frame the folder's.
            version: Opaque and public name of this state of the data.
            image_size: Of images: side in pixels they are brought to.
            image_mode: Of images: L for gray, RGB for color.
            account: Settings of the account other than the proposed ones, such as
                ``{"epsilon": 20, "public_size": 5000}``. A ``unit`` here is ``protects``.
            method: What `privsyn run` makes where none is named.
            texts: How many synthetic records are wanted in all; sizes of the methods go along, by
                the account's public_size. None: some for each label.
            settings: Further settings of params.yaml, by their dotted names:
                ``**{"models.language": "tiny"}``.

        Raises:
            ConfigError: The folder holds a project, a setting is not usable, or the unit is a
                frame's index.
            DataError: A column is missing, or the file cannot be read.
            StorageError: Disk full or no permission.
        """
        root, labels = Path(folder), tuple(map(str, labels))
        new_project.refuse_existing(root)
        slips = [key for key in settings if "." not in key and key not in Config.model_fields]
        refuse_unknown("Project.create", cls.create, slips)
        further = as_overrides(settings)
        # privacy: labels found in the file would be published without noise.
        if (label is None) != (not labels):
            raise ConfigError(
                "label and labels go together: the labels are public and are never read from data.",
                hint="Name the column and list all labels: label='topic', labels=['A', 'B'].",
            )
        changes = {"dataset.version": version}
        changes |= {f"account.{key}": value for key, value in (account or {}).items()}
        given: dict[str, Any] = {
            "text": None if image_size is not None else text,
            "label": label,
            "labels": labels,
            "unit": unit,
            "roles": tuple(roles) or None,
            "columns": columns,
            "document": document,
            "protects": protects,
            "name": name,
            "image_size": image_size,
            "image_mode": image_mode,
            "texts": texts,
        }
        always = ("text", "label", "labels", "unit")
        answered = {
            key: value for key, value in given.items() if key in always or value is not None
        }
        size = (account or {}).get("public_size")
        # Any other value is left to the setting's own check, which names account.public_size.
        if isinstance(size, int) and size > 0:
            answered["public_size"] = size
        path: Any = Path("frame")
        names, write_data = None, None
        if isinstance(data, str | Path | Mapping):
            path = new_project.place_of(data)
        else:
            frame = frames.as_frame(data)
            beside = new_project.in_data(columns or {})
            table = frames.table_of(frame, text, label, unit, beside, prefix=new_project.ARGUMENT)
            names = table.column_names
            answered["name"] = name or new_project.name_of(root.resolve())
            changes["dataset.path"] = frames.place(answered["name"], version)
            target = root.resolve() / changes["dataset.path"]
            write_data = partial(frames.write_version, table, target)
        answers = new_project.ask_for(
            path, answered, None, prefix=new_project.ARGUMENT, columns=names
        )
        # A frame is written after .gitignore and before params.yaml: git never sees it, and a
        # failed call leaves no project behind.
        written = new_project.params(answers, method, changes, further)
        new_project.write(root, written, write_data)
        project = cls(root)
        for caution in project._cautions():
            log.warning("%s", caution)
        return project

    @guard
    def using(
        self, data: str | Path | Frame | Rows | Mapping[str, Any], *, version: str
    ) -> Project:
        """The same project over another state of its data: the next month's, say.

        params.yaml stays as it is; dataset.path and dataset.version are set on top of it. The
        account is the same, so a release of the new version is a new charge to it.

        Args:
            data: As ``create`` takes it, with the columns that params.yaml names.
            version: Opaque and public name of this state; a version's data never change.

        Raises:
            ConfigError: The version holds another frame already, or see ``create``.
            DataError: A column is missing.
        """
        dataset = self._context(()).config.dataset
        source: dict[str, Any] = dict.fromkeys(("path", "query", "snapshot"))
        source["version"] = version
        if isinstance(data, Mapping):
            source["query"] = dict(data)
        elif isinstance(data, str | Path):
            there = is_address(str(data))
            source["path"] = str(data) if there else str(Path(data).expanduser().resolve())
        else:
            frame = frames.as_frame(data)
            table = frames.table_of(
                frame,
                dataset.text,
                dataset.label,
                dataset.unit,
                list(in_file(dataset.columns)),
            )
            source["path"] = frames.place(dataset.name, version)
            # A version that is no name is refused before it names a file.
            self._context(as_overrides({f"dataset.{key}": value for key, value in source.items()}))
            # Only after all checks: a refused call leaves no private file behind.
            frames.write_version(table, self._folder.resolve() / source["path"])
        changes = as_overrides({f"dataset.{key}": value for key, value in source.items()})
        return Project(self._folder, (*self._settings, *changes), self._day)

    @guard
    def check(self) -> RecordCounts:
        """Count what a release could use of the private file. Internal, and costs nothing.

        Exact counts of private records, for the owner's eyes: do not publish what this shows.

        Raises:
            DataError: A file is missing, empty, damaged or lacks a column, or none of its records
                can be used.
        """
        from privsyn.display.plans import RecordCounts

        counted = RecordCounts.of(self._context(()))
        counted.refuse_empty()
        return counted

    @guard
    def plan(
        self,
        method: str | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        draw: int | None = None,
        texts: int | None = None,
        time: bool = False,
        **settings: Any,
    ) -> Planned:
        """What a release would cost, and whether it fits. Opens no data file; writes nothing.

        Args:
            method: By default the first of ``pipeline``.
            epsilon: Cost of this release (privacy.epsilon).
            delta: Its delta (privacy.delta).
            draw: Number of the release under the same settings; another is a new charge.
            texts: How many synthetic records are wanted in all, as ``create`` takes it.
            time: Have the models work for some seconds, and say how long a release takes.
            settings: Settings of the method by name, others by their dotted names:
                ``texts_per_label=40, **{"models.language": "tiny"}``.

        Raises:
            ConfigError: A setting is unknown or out of bounds, or a model cannot be found.
            AccountMismatch: The account exists with other terms.
        """
        name = method or self._context(()).config.first_method
        privacy = {"epsilon": epsilon, "delta": delta, "draw": draw}
        changes = {f"privacy.{key}": value for key, value in privacy.items() if value is not None}
        changes |= {
            key if "." in key else f"methods.{name}.{key}": v for key, v in settings.items()
        }
        overrides = as_overrides(changes)
        overrides = (*sized(self._context(overrides).config, texts, [name]), *overrides)
        return Planned.of(self._context(overrides), name, overrides, time=time)

    @guard
    def release(self, planned: Planned, *, publish: bool = True) -> Release:
        """Make a planned release: draw, certify, validate, evaluate, publish.

        Guarantee: that of the plan, charged once to the account, however often this is called: a
        call that was interrupted goes on from its journal, and one whose release exists finds it.
        It takes one process at a time to draw a part; a second one is told so. One that cannot be
        measured is published all the same, and a warning is logged.

        Args:
            planned: As ``plan`` returned it.
            publish: Version it with DVC at the end.

        Raises:
            ConfigError: What was planned is not what would be drawn now.
            BudgetExceeded: The account cannot pay. Nothing is spent.
            LeaseHeld: Another live process draws this release.
            ValidationFailed: It fails its suite; it stays in quarantine, its cost charged.
        """
        from privsyn.stages.plan import plan
        from privsyn.stages.run import carry_out

        shown = planned.plan
        with show_progress(Console(stderr=True)) as progress:
            # The plan's own day: a notebook that is open past midnight must not make another
            # release.
            ctx = self._context(planned.settings)
            ctx = replace(ctx, day=planned.ctx.day, on_progress=progress)
            made = plan(ctx, shown.method, open_account=True, derived=shown.derived)
            # Before anything is charged: what is spent is what a person was shown.
            _refuse_another(shown.model_dump(), made.model_dump())
            carry_out(ctx, made, published=publish, on_note=log.warning)
        return self._release(made.id, planned.settings)

    @guard
    def releases(self) -> list[Release]:
        """The finished releases of this project, here or stored, those in quarantine left out."""
        workspace = self._context(()).workspace
        folders = [workspace.locate(name) for name in workspace.reachable()]
        return [
            self._release(folder.name)
            for folder in folders
            if folder is not None and folder == workspace.release(folder.name)
        ]

    @guard
    def open_release(self, name: str) -> Release:
        """A finished release of this project, by its id.

        Raises:
            DataError: It is not here.
        """
        return self._release(name)

    @property
    def ledger(self) -> LedgerTables:
        """The accounts and entries of the project's ledger."""
        return LedgerTables(self._context(()))

    @property
    def folder(self) -> Path:
        """The folder of params.yaml."""
        return self._folder

    def _release(self, name: str, settings: Sequence[str] = ()) -> Release:
        """A release; what is made of it is made with the settings it was planned with."""
        ctx = self._context(())
        folder = ctx.workspace.locate(ctx.workspace.release_id(name))
        if folder is None:
            raise ctx.workspace.missing(name)
        return Release(folder, lambda also: self._context((*settings, *also)))

    def _context(self, settings: Sequence[str]) -> Context:
        # The nearest wins: a call's settings over the project's, those over the machine's.
        overrides = [*environment_overrides(), *self._settings, *settings]
        origin = {"driver": "python", "user": os_user()}
        return open_context(self._folder / PARAMS_FILE, overrides, day=self._day, origin=origin)

    def _tables(self) -> tuple[Table, ...]:
        """One table: dataset, unit, account and method."""
        config = self._context(()).config
        dataset, account = config.dataset, config.account
        used = of_each(dataset, dataset.max_records_per_unit)
        rows = {
            "version": dataset.version,
            "labels": ", ".join(dataset.labels) or "none",
            "protects": f"{account.unit}, {used}, adjacency {account.adjacency.value}",
            "account": f"{account.name}: cap epsilon {account.epsilon:g}, delta {account.delta:g}",
            "method": config.first_method,
        }
        return (Table.of(f"Project of {dataset.name}", rows, self._cautions()),)

    def _cautions(self) -> tuple[str, ...]:
        """What keeps every release from being made."""
        config = self._context(()).config
        return of_cap(config.privacy, config.account)


_FREE = ("release_id", "partition_key", "warnings", "shards", "dates")
"""What a plan learns when its account is opened, or what shapes nothing."""


def _refuse_another(shown: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Refuse to spend on something else than was shown: a model's files or params.yaml changed."""
    for key, value in made.items():
        if key not in _FREE and shown[key] != value:
            raise ConfigError(
                f"the plan is stale: {key} changed since it was made.",
                hint="Plan again: project.plan(...).",
            )
