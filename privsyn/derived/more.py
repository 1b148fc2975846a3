"""more: further records from a finished release, at no cost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count as count_from
from pathlib import Path
from typing import Any, ClassVar

from privsyn.data.artifacts import private_folder
from privsyn.derived.base import DerivedPlan, derive, versioned
from privsyn.derived.kinds import MORE
from privsyn.derived.parent import open_parent, records
from privsyn.errors import ConfigError, DataError, LeaseHeld, ValidationFailed
from privsyn.filelock import file_lock
from privsyn.methods.base import MakesMore, Method
from privsyn.methods.registry import METHODS, load_method
from privsyn.modalities.registry import modality_of
from privsyn.release import certificate, layout
from privsyn.release.plan import Plan
from privsyn.stages.audit import refuse_to_hand_out
from privsyn.stages.base import Context
from privsyn.stages.certify import seal
from privsyn.stages.drawing import check_models, load_models
from privsyn.stages.validate import examine, place, said


class MorePlan(DerivedPlan):
    """Further records of a release: how many, and which lot of such records they are."""

    plan_schema: str = "privsyn-more/1"
    method: str = MORE
    count: int
    number: int

    @property
    def id(self) -> str:
        """Name of the lot: its parent's, and its number."""
        return f"{self.parent.id}.{MORE}-{self.number}"


class NumberTaken(LeaseHeld):
    """Another process took the number of a lot since it was planned."""


def more(ctx: Context, release_id: str, count: int, *, published: bool = True) -> Path:
    """Make ``count`` further records from a release, with a certificate that names its parent.

    Guarantee: the parent's. The release's own records and public models are all that is read, so
    this is post-processing and charges nothing.

    Args:
        ctx: Config and ledger.
        release_id: A finished release of a method that can do so.
        count: New records.
        published: Version and push them with DVC.

    Returns:
        The folder ``releases/<release id>.more-<number>``.

    Raises:
        DataError: The release is not here.
        VerificationError: It is not what was certified.
        ConfigError: Its method makes no more.
        ValidationFailed: The new records fail the suite; they lie in quarantine/.
    """
    while True:
        try:
            return derive(ctx, More(), release_id, published=published, count=count)
        except NumberTaken:
            continue


class More:
    """Further records from a release. See derived.base.Derived."""

    name: ClassVar[str] = MORE
    Planned: ClassVar[type[MorePlan]] = MorePlan
    own_run: ClassVar[bool] = False

    def plan(self, ctx: Context, parent: Plan, *, count: int = 1, **asked: Any) -> MorePlan:
        """See Derived. The number is the first that is free; one whose holder was killed is.

        Args:
            ctx: Config and ledger.
            parent: The release.
            count: New records.
            asked: Nothing else.
        """
        if count < 1:
            raise ConfigError(f"--n={count} must be at least 1.")
        _able(parent)
        for number in count_from(1):
            planned = MorePlan(parent=parent, count=count, number=number)
            try:
                with _held(ctx, planned):
                    return planned
            except NumberTaken:
                continue
        raise AssertionError("numbers do not end")

    def make(self, ctx: Context, planned: MorePlan) -> Path:
        """See Derived.

        Raises:
            NumberTaken: Another process makes or has made a lot of this number.
            ValidationFailed: The disclosure audit of the release has not let it through.
        """
        opened = open_parent(ctx, planned.parent.id)
        refuse_to_hand_out(ctx, planned.parent.id)
        parent, sealed, plan = opened.folder, opened.sealed, opened.plan
        method = _able(plan)
        _, settings = ctx.planned(plan)
        backends = load_models(ctx, plan)
        check_models(plan, backends)
        name, rows = planned.id, list[dict[str, Any]]()
        kind = modality_of(plan.dataset)
        with _held(ctx, planned):
            for label, content in method.more(
                settings,
                backends,
                records(opened),
                planned.count,
                trained if (trained := parent / layout.MODEL).is_dir() else None,
                lambda done, total: ctx.progress(MORE, done, total),
            ):
                row = {"id": f"{name}-{len(rows):06d}"}
                row |= {} if label is None else {"label": label}
                rows.append(row | kind.entry(content))
            folder = ctx.workspace.release(name)
            building = folder.with_name(f".{name}.new")
            shutil.rmtree(building, ignore_errors=True)
            artifact = kind.write(building, rows)
            derived = certificate.derive(
                sealed, artifact, name=name, how={MORE: planned.count}, root=ctx.workspace.root
            )
            seal(building, derived, folder)
        ctx.ledger.derive(plan.id, artifact.sha256, certificate.digest(derived))
        return folder

    def check(self, ctx: Context, planned: MorePlan) -> Path:
        """See Derived. The suite of the parent's dataset, for as many rows as were asked for."""
        folder, name = _here(ctx, planned), planned.id
        result, _ = examine(ctx, planned.parent, folder, (planned.count, planned.count))
        run = ctx.lineage.release_run(planned.parent.id)
        ctx.lineage.log_artifact(run, folder / layout.CERTIFICATE, f"{MORE}/{name}")
        folder = place(ctx, name, folder, released=result.success)
        if not result.success:
            raise ValidationFailed(
                f"{name} fails its suite: {said(result)}.", hint=f"See {layout.page_of(folder)}."
            )
        return folder

    def publish(self, ctx: Context, planned: MorePlan) -> dict[str, Any]:
        """See Derived."""
        _, sealed, facts = versioned(ctx, planned, _here(ctx, planned))
        return facts | {"rows": sealed["artifact"]["rows"]}

    def trace(self, ctx: Context, folder: Path, sealed: Mapping[str, Any]) -> None:
        """See Derived. Nothing: its certificate was put beside its parent's as it was made."""


def _able(parent: Plan) -> MakesMore:
    """The method of a release, which must make more.

    Raises:
        ConfigError: It does not.
    """
    method: Method = load_method(parent.method)
    if isinstance(method, MakesMore):
        return method
    able = [name for name in METHODS if isinstance(load_method(name), MakesMore)]
    raise ConfigError(
        f"release {parent.id} is of {parent.method}, which makes no more without the data.",
        hint=f"Methods that do: {', '.join(able)}. Here a fresh draw is a new charge: "
        f"privacy.draw={parent.draw + 1}.",
    )


def _here(ctx: Context, planned: MorePlan) -> Path:
    folder = ctx.workspace.locate(planned.id)
    if folder is None:
        raise DataError(
            f"{planned.id} is not here.",
            hint=f"Make it with: privsyn more {planned.parent.id} -n {planned.count}",
        )
    return folder


@contextmanager
def _held(ctx: Context, planned: MorePlan) -> Iterator[None]:
    """The name of a lot, which is free, and no other process's while the block lasts.

    Raises:
        NumberTaken: It is another process's, or a lot's that is there.
    """
    private_folder(ctx.workspace.state)
    lock = ctx.workspace.state / MORE / f"{planned.id}.lock"
    taken = NumberTaken(f"{planned.id} is another process's.", hint="Plan it anew.")
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(lock, timeout=0))
        except TimeoutError:
            raise taken from None
        if _taken(ctx, planned.id):
            raise taken
        yield


def _taken(ctx: Context, name: str) -> bool:
    workspace = ctx.workspace
    places = (workspace.release(name), workspace.quarantine(name), workspace.pointer(name))
    return any(place.exists() for place in places)
