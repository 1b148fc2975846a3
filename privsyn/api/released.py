"""A finished release from Python: its records, its certificate, what can be made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from privsyn import layout
from privsyn.api.guard import guard
from privsyn.config import as_overrides
from privsyn.data.columns import Column
from privsyn.display.progress import show_progress
from privsyn.display.tables import Displayable, Table, note
from privsyn.dp.accountant import format_epsilon
from privsyn.errors import ConfigError, DataError, VerificationError
from privsyn.ledger.ledger import Ledger, open_existing
from privsyn.release import certificate, signature
from privsyn.release.advice import of_each
from privsyn.release.facts import ReleaseFacts, one_line
from privsyn.release.plan import Plan
from privsyn.report import verification
from privsyn.stages.base import Context
from privsyn.stages.validate import refuse_unreleased

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image

ContextOf = Callable[[Sequence[str]], Context]
"""The context of a project with settings on top."""


class Release(Displayable):
    """A finished release: a folder with a certificate.

    Its records are differentially private and may be shown; all that is read of it is checked
    against its certificate first. By ``open`` it needs no project, no ledger and no network: what
    then is not known is who made it. From ``Project.release`` it knows its project, which can
    report on it and make more of it.
    """

    def __init__(self, folder: Path, context: ContextOf | None = None) -> None:
        self._folder = folder
        self._of = context
        self._facts = ReleaseFacts.read(folder, words=one_line)
        try:
            # Read now: a forged or newer certificate fails here, and not in a notebook's display.
            _ = self.name, self._tables(), self._facts.is_images
        except (LookupError, TypeError, ValueError, AttributeError):
            newer = certificate.made_by_newer(self._facts.certificate)
            raise VerificationError(
                f"{folder / layout.CERTIFICATE} is not a certificate that this privsyn reads.",
                hint="Another version or build made it: use that one."
                if newer is None
                else f"It was made by privsyn {newer}: upgrade.",
            ) from None

    @classmethod
    @guard
    def open(cls, folder: str | Path) -> Release:
        """The release in a folder, as it was handed out.

        Raises:
            VerificationError: The folder holds no certificate, or it cannot be read.
        """
        return cls(Path(folder))

    @property
    def name(self) -> str:
        """Its id; of what was made from a release, its own name."""
        return self._facts.name

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    @property
    def certificate(self) -> dict[str, Any]:
        """Its certificate: public facts of what was spent, on what, and how to check it."""
        # A copy: whoever changes it must not change what this object tells of the release.
        copied: dict[str, Any] = json.loads(certificate.canonical(self._facts.certificate))
        return copied

    @guard
    def verify(self, ledger: str | None = None) -> Verification:
        """Check it against its certificate and, where there is one, the ledger.

        Args:
            ledger: URL of a ledger to ask; by default the project's.

        Returns:
            All checks. ``authentic`` says whether a ledger confirms who made it.

        Raises:
            VerificationError: Something does not agree, or is no part of the release.
            LedgerUnavailable: The ledger cannot be asked.
        """
        book = self._of(()).ledger_at_hand if self._of is not None else None
        if ledger is not None:
            book = open_existing(ledger)
        verified = Verification.of(self._folder, book)
        verified.refuse_failed()
        return verified

    @guard
    def frame(self) -> pd.DataFrame:
        """Its records, one a row: id, label where there are labels, columns, and text or file.

        Raises:
            VerificationError: It is not what was certified.
            ValidationFailed: It has not passed its suite, or waits for its disclosure audit.
            ConfigError: It is a model, not records.
        """
        import pandas as pd

        frame = pd.DataFrame(self._verified_rows())
        kinds = {"int64": "Int64", "date32": "datetime64[s]"}  # pandas has no missing int64
        types = {n: kinds.get(one.dtype, one.dtype) for n, one in self._columns.items()}
        return frame.astype({n: kind for n, kind in types.items() if n in frame})

    @guard
    def images(self) -> list[tuple[str | None, Image]]:
        """Label and picture of every record of a release of images.

        Raises:
            ConfigError: It holds texts, or see ``frame``.
        """
        from PIL import Image

        if not self._facts.is_images:
            raise ConfigError(f"{self.name} holds no images.", hint="Its records: release.frame()")
        pictures = []
        for row in self._verified_rows():
            with Image.open(self._folder / row["file"]) as picture:
                # PIL reads pixels late, and the file is closed at the end of the block.
                pictures.append((row.get("label"), picture.copy()))
        return pictures

    @guard
    def report(self, *, internal: bool = False) -> Report:
        """The outward report, which may be handed out; a notebook shows it inline.

        Args:
            internal: The internal page in its place, which holds what was measured on held-out real
                records: a notebook travels further than its author thinks.

        Raises:
            DataError: There is no such page.
        """
        page = layout.page_of(self._folder)
        if internal:
            page = self._project(()).workspace.internal(self.name) / layout.INSIDE_PAGE
        if not page.is_file():
            raise DataError(
                f"{self.name} has no {'internal ' * internal}report here.",
                hint="Run in its project: privsyn stage "
                f"{'evaluate' if internal else 'validate'} --plan {self.name}",
            )
        return Report(page, internal)

    @guard
    def export(self, form: str, target: str | Path, *, license: str | None = None) -> Path:
        """Write it as a folder for others' tools, with a dataset card and its certificate.

        Args:
            form: hf (a folder for ``datasets.load_dataset``), parquet, csv, jsonl or webdataset.
            target: The folder to make. Nothing is pushed anywhere.
            license: Identifier of a license for the card, such as cc-by-4.0.

        Raises:
            ConfigError: No such form, the folder exists, or it is a model.
            VerificationError: It is not what was certified.
            ValidationFailed: It has not passed its suite, or waits for its disclosure audit.
        """
        from privsyn.export import export

        ctx = None if self._of is None else self._of(())
        return export(self._folder, form, Path(target), ctx=ctx, license=license)

    @guard
    def more(self, n: int, *, publish: bool = True) -> Release:
        """Make further records of it, at no cost.

        Guarantee: its own. The release, public models and public randomness are all that is read.

        Args:
            n: New records.
            publish: Version them with DVC.

        Raises:
            ConfigError: Its method makes no more, or it was opened without its project.
        """
        from privsyn.students.more import more

        with show_progress(Console(stderr=True)) as progress:
            ctx = self._project(())
            ctx.on_progress = progress
            folder = more(ctx, self.name, n, published=publish)
        return Release(folder, self._of)

    @guard
    def distill(self, *, publish: bool = True, evaluate: bool = True, **settings: Any) -> Release:
        """Train a small language model on its texts, at no cost.

        Guarantee: its own, as ``more``.

        Args:
            publish: Version the student with DVC.
            evaluate: Measure it on held-out real texts: internal.
            settings: Of ``methods.distill`` by name, others by their dotted names.

        Returns:
            The student: a release whose ``folder / "model"`` is a model of transformers.

        Raises:
            ConfigError: It holds images, or was opened without its project.
        """
        from privsyn.students.evaluate import measure_published
        from privsyn.students.release import distill

        changes = {
            key if "." in key else f"methods.distill.{key}": v for key, v in settings.items()
        }
        console, notes = Console(stderr=True), list[str]()
        with show_progress(console) as progress:
            ctx = self._project(as_overrides(changes))
            ctx.on_progress = progress
            folder = distill(ctx, self.name, published=publish)
            if evaluate:
                measure_published(ctx, folder.name, notes.append)
        for words in notes:
            note(console, words)
        return Release(folder, self._of)

    def _project(self, settings: Sequence[str]) -> Context:
        if self._of is None:
            raise ConfigError(
                f"{self.name} was opened without its project.",
                hint="privsyn.Project.open(folder).open_release(name)",
            )
        return self._of(settings)

    def _verified_rows(self) -> list[dict[str, Any]]:
        """The rows of its artifact, which is that of the certificate."""
        if self._facts.is_model:
            raise ConfigError(
                f"{self.name} is a model, not records.",
                hint=f"transformers reads it: {self._folder / layout.MODEL}",
            )
        verification.raise_on_failure(self._folder, verification.verify(self._folder, None))
        # privacy: a release that waits for its audit is on disk, and no row of it may be read by
        # this.
        refuse_unreleased(self._folder, None if self._of is None else self._of(()))
        with (self._folder / layout.ARTIFACT).open(encoding="utf-8") as stream:
            return [json.loads(line) for line in stream]

    @property
    @guard
    def plan(self) -> Plan:
        """What was planned and paid for."""
        return self._facts.plan

    @property
    def _columns(self) -> Mapping[str, Column]:
        return self._facts.plan.dataset.columns

    def _tables(self) -> tuple[Table, ...]:
        """One table: the public facts of its certificate."""
        facts, plan = self._facts, self.plan
        used = of_each(plan.dataset, plan.max_records_per_unit)
        rows = {
            "class": facts.kind,
            "method": facts.method_title,
            "rows": str(facts.rows),
            "guarantee": f"epsilon {format_epsilon(plan.epsilon)}, delta {plan.delta:g}",
            "protects": f"{plan.unit}, {used}, adjacency {plan.adjacency.value}",
            "dataset": f"{plan.dataset.name}, version {plan.dataset.version}",
        }
        if facts.is_derived:
            rows["made from"] = f"{facts.release_id}, at no cost"
        if (newer := certificate.made_by_newer(facts.certificate)) is not None:
            rows["note"] = f"made by privsyn {newer}, which is newer than this one: upgrade"
        return (Table.of(f"Release {self.name}", rows),)


@dataclass(frozen=True, repr=False)
class Verification(Displayable):
    """What was looked at when a release was verified, and what came of it.

    Attributes:
        folder: The release.
        checks: One of each thing; ``passed`` is None where it could not be checked.
    """

    folder: Path
    checks: tuple[verification.Check, ...]

    @classmethod
    def of(cls, folder: Path, ledger: Ledger | None, key: Path | None = None) -> Verification:
        """Check a release.

        Args:
            folder: The release.
            ledger: To look its row up in, if there is one.
            key: Public key of the expected signer, if one is expected.

        Raises:
            LedgerUnavailable: The ledger cannot be asked.
            ConfigError: The key cannot be read.
        """
        signer = None if key is None else signature.public_key(key)
        return cls(folder, tuple(verification.verify(folder, ledger, signer)))

    @property
    def authentic(self) -> bool:
        """Whether a ledger confirms it. Without one it only agrees with itself."""
        return verification.authentic(self.checks)

    @property
    def signature(self) -> str:
        """What was found of its signature."""
        details = (one.detail for one in self.checks if one.name == verification.SIGNED)
        return next(details, signature.UNSIGNED)

    @property
    def signed(self) -> bool:
        """Whether its signature was checked and holds."""
        return any(one.name == verification.SIGNED and one.passed for one in self.checks)

    def refuse_failed(self) -> None:
        """Refuse a release of which a check failed.

        Raises:
            VerificationError: There is one.
        """
        verification.raise_on_failure(self.folder, list(self.checks))

    def as_json(self) -> list[dict[str, Any]]:
        """The checks as one JSON-able answer."""
        return [vars(check) for check in (*self.checks, *self._advice)]

    @property
    def _advice(self) -> tuple[verification.Check, ...]:
        reason = layout.held_back(self.folder)
        return (verification.Check("handed out", None, reason),) if reason else ()

    def _tables(self) -> tuple[Table, ...]:
        """One table: a check a row; below it what was promised, if all of them passed."""
        confirmed = ["the ledger"] * self.authentic + ["the signature"] * self.signed
        title = "Consistent, but not authenticated: no ledger or signature confirms who made it"
        if confirmed:
            title = f"Authentic: confirmed by {' and '.join(confirmed)}"
        notes: tuple[str, ...] = ()
        if any(check.passed is False for check in self.checks):
            title = "FAILED"
        else:
            known = ReleaseFacts.read(self.folder)
            plan = known.plan
            notes = (
                f"{known.kind}: epsilon {format_epsilon(plan.epsilon)}, delta {plan.delta:g}, per "
                f"{plan.unit}, {plan.adjacency}",
            )
        marks = {True: "ok", False: "FAILED", None: "not checked"}
        rows = [
            (marks[check.passed], check.name, check.detail)
            for check in (*self.checks, *self._advice)
        ]
        return (Table(title, ("result", "check", "detail"), tuple(rows), notes),)


@dataclass(frozen=True)
class Report:
    """A page about a release.

    Attributes:
        page: The file.
        internal: Whether it stays inside; else it may be handed out with the release.
    """

    page: Path
    internal: bool

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which runs no script."""
        whole = escape(self.page.read_text(encoding="utf-8"), quote=True)
        # An empty sandbox runs no script and sends no form, whoever wrote the page.
        frame = (
            f'<iframe sandbox="" srcdoc="{whole}" style="width:100%;height:480px;border:1px solid '
            '#ccc"></iframe>'
        )
        return f"<p>internal: do not share</p>{frame}" if self.internal else frame
