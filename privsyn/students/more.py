"""more: further records from a finished release, at no cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np

from privsyn import layout
from privsyn.data.artifacts import private_folder
from privsyn.data.conversations import add_messages
from privsyn.errors import ConfigError, ValidationFailed
from privsyn.files import file_lock
from privsyn.methods.base import Finished, MakesMore, Method
from privsyn.methods.registry import METHODS, load_method
from privsyn.methods.shared.distill import MORE
from privsyn.release.plan import Plan
from privsyn.stages.audit import refuse_to_hand_out
from privsyn.stages.base import Context, open_plan
from privsyn.stages.columns import further_rows
from privsyn.stages.draw import load_planned_models
from privsyn.stages.validate import examine, failed_checks, place
from privsyn.students.parent import Parent, derive, open_parent, publish_folder, read_rows
from privsyn.validation.suite import mask_rows


def more(
    ctx: Context,
    release_id: str,
    count: int,
    *,
    published: bool = True,
) -> Path:
    """Make ``count`` further records from a release, with a certificate that names its parent.

    Guarantee: that of the parent. Only the release's own records and public models are read, so it
    is post-processing without a charge. The certificate contains the parent's, and the ledger
    records both.

    Args:
        ctx: Config and ledger.
        release_id: A finished release of a method that can make more.
        count: Number of new records.
        published: Version and push them with DVC.

    Returns:
        The folder ``releases/<release id>.more-<number>`` with the first free number. The number of
        a killed process is free.

    Raises:
        DataError: The release is not here.
        VerificationError: It differs from its certificate.
        ConfigError: Its method cannot make more, or it is itself made from a release.
        ValidationFailed: The new records fail the suite and are in quarantine/, or the disclosure
            audit withholds the release.
    """
    parent = open_parent(ctx, release_id)
    if count < 1:
        raise ConfigError(f"--n={count} must be at least 1.")
    refuse_to_hand_out(ctx, release_id)
    _method(parent.plan)
    with _new_name(ctx, parent.plan) as name:
        folder = _make(ctx, parent, name, count)
    folder = check_more(ctx, parent.plan, folder, count)
    if published:
        publish_folder(ctx, parent.plan, folder)
    return folder


def _method(parent: Plan) -> MakesMore:
    """The method of a release, checked to make further records.

    Raises:
        ConfigError: It cannot.
    """
    method: Method[Any] = load_method(parent.method)
    if isinstance(method, MakesMore):
        return method
    able = [name for name in METHODS if isinstance(load_method(name), MakesMore)]
    raise ConfigError(
        f"release {parent.id} is of {parent.method}, which cannot make more without the data.",
        hint=f"Methods that can: {', '.join(able)}. Here a new draw is a new charge: "
        f"privacy.draw={parent.draw + 1}.",
    )


@contextmanager
def _new_name(ctx: Context, parent: Plan) -> Iterator[str]:
    """The first free name, locked against other processes during the block."""
    private_folder(ctx.workspace.state)
    for number in count_from(1):
        name = f"{parent.id}.{MORE}-{number}"
        with ExitStack() as locks:
            try:
                lock = ctx.workspace.state / MORE / f"{name}.lock"
                locks.enter_context(file_lock(lock, timeout=0))
            except TimeoutError:
                continue
            # Checked under the lock: another process may just have finished under this name.
            place = ctx.workspace
            paths = (place.release(name), place.quarantine(name), place.pointer(name))
            if any(path.exists() for path in paths):
                continue
            yield name
            return


def _make(ctx: Context, parent: Parent, name: str, count: int) -> Path:
    """Generate, certify and write the records."""
    release = open_plan(ctx, parent.plan)
    rows: list[dict[str, Any]] = []
    columns, rng = parent.plan.dataset.columns, np.random.default_rng()  # public randomness
    further, seen = further_rows(parent.plan, parent.folder, count), Counter[str | None]()
    finished = Finished(read_rows(parent), parent.folder, partial(ctx.progress, MORE), further)
    for label, content in _method(parent.plan).more(
        release.settings, load_planned_models(release), finished, count
    ):
        row: dict[str, Any] = {"id": f"{name}-{len(rows):06d}"}
        row |= {} if label is None else {"label": label}
        cells = zip(columns.items(), further.row(label, seen[label]), strict=True)
        row |= {name: column.draw(cell, rng) for (name, column), cell in cells}
        seen[label] += 1
        rows.append(row | release.modality.entry(content))
    rows, folder = mask_rows(rows, ctx.config.validation), ctx.workspace.release(name)
    rows = add_messages(rows, parent.plan.dataset.roles)
    derive(ctx, parent, folder, {MORE: count}, lambda new: release.modality.write(new, rows))
    return folder


def check_more(ctx: Context, parent: Plan, folder: Path, count: int) -> Path:
    """Run the suite of the parent's dataset on further records.

    Returns:
        The folder, which is in quarantine if they fail.

    Raises:
        ValidationFailed: They fail.
    """
    name = folder.name
    result = examine(ctx, parent, folder, (count, count))
    run = ctx.tracker.release_run(parent.id)
    ctx.tracker.log_artifact(run, folder / layout.CERTIFICATE, f"{MORE}/{name}")
    folder = place(ctx, name, folder, released=result.success)
    if not result.success:
        raise ValidationFailed(
            f"{name} fails its suite: {failed_checks(result)}.",
            hint=f"See {layout.page_of(folder)}.",
        )
    return folder
