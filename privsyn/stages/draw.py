"""Draw: one shard's synthetic records from its buckets, with the journal, the noise and the lease.

Also trains what a method trains before it draws, and draws the accuracy that a release pays for
once its records are final.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from privsyn.data.artifacts import atomic_file, private_folder, sync_folder, write_json_atomic
from privsyn.data.journal import Draws
from privsyn.data.partition import held_units, load_shard
from privsyn.dp.events import dump
from privsyn.dp.noise import NoiseSource
from privsyn.errors import (
    ModelError,
    PrivsynError,
    ReleaseLost,
    VerificationError,
    kind_and_place,
    require_generate,
)
from privsyn.ledger.leases import Lease
from privsyn.methods.base import Backends, Draw, DrawsSamples, Exhibit, Sample, TrainsModel
from privsyn.models.language.likelihood import Readable
from privsyn.models.language.questions import Answerer
from privsyn.models.loading import ROLES, load_role
from privsyn.models.rows import NO_ROWS, SyntheticRows
from privsyn.release.certificate import accuracy_figures
from privsyn.release.plan import ModelUse, Plan
from privsyn.release.workdir import (
    ACCURACY,
    BUCKETS,
    COLUMNS,
    EXHIBITS,
    HELD_OUT,
    MODEL,
    PARTITION,
    TRAIN,
    TRAINED_BY,
    Workdir,
    bucket_files,
    noise_of_training,
    part_name,
    rows_of,
    samples,
)
from privsyn.stages.base import (
    Context,
    OpenPlan,
    again_if_finished,
    find_workdir,
    open_plan,
    trace_stage,
)


@again_if_finished
def open_begun(ctx: Context, plan: Plan | OpenPlan) -> Workdir | None:
    """The workdir of a begun release, resumed; None where the release is already committed.

    Raises:
        ReleaseLost: It is neither.
        VerificationError: The plan was edited; or it was charged for another event than this
            version would run.
    """
    release = open_plan(ctx, plan)
    plan, entry = release.plan, ctx.ledger.releases.get(release.id)
    if entry.state == "COMMITTED":
        return None
    if entry.state != "BEGUN":
        raise ReleaseLost(f"release {plan.id} is {entry.state}, not BEGUN: nothing may be drawn.")
    # The id is a hash of the settings, so an edited plan has another id.
    if not plan.is_its_name:
        raise VerificationError(
            f"the plan of release {plan.id} was edited: it is not what the release is named after.",
            hint="Plan again: privsyn stage plan. Nothing was drawn.",
        )
    work = find_workdir(ctx, entry)
    work.resume()
    # privacy: what the plan says, what will draw and what is paid for are one event
    if not plan.event == dump(release.event) == dict(entry.event):
        raise VerificationError(
            f"release {plan.id} is charged for another event than this version would run.",
            hint="Resume with the version that began it: its cost is paid. Only where that is gone "
            f"for good: privsyn ledger lose {plan.id}",
        )
    return work


def refuse_drawn(ctx: Context, plan: Plan | OpenPlan) -> None:
    """Refuse a begun release that this process cannot go on with, before models are loaded for it.

    It looks and holds nothing: whoever draws a part asks for its lease.

    Raises:
        LeaseHeld: Another process draws a part of it; or its scratch is another one.
        ReleaseLost: Its scratch was here and is gone, or it was given up.
        VerificationError: See ``open_begun``.
    """
    open_begun(ctx, plan)
    ctx.ledger.leases.check_idle(plan.id)


@dataclass(frozen=True)
class Drawing:
    """What a part of a release is drawn with, while it is drawn.

    Attributes:
        lease: Fails its check once another process has taken the part over.
        journal: Of the part.
        noise: Where private randomness comes from.
    """

    lease: Lease
    journal: Draws
    noise: NoiseSource


@contextmanager
def session(release: OpenPlan, part: int | str, work: Workdir) -> Iterator[Drawing]:
    """Hold a part of a begun release (a shard's number, or such as ``train``) while it is drawn.

    An exception of our own after a private draw makes the release LOST.

    Raises:
        LeaseHeld: Another process draws this part.
        ReleaseLost: See above; or the journal is gone.
    """
    ctx, plan = release.ctx, release.plan
    with (
        ctx.ledger.leases.acquire(plan.id, part_name(part)) as lease,
        _journal(release, part, lease, work) as journal,
    ):
        try:
            yield Drawing(lease, journal, ctx.noise())
        except Exception as error:
            # Before a draw, or after a failure of the machine, the same draws can be replayed.
            if not journal.has_drawn or _from_outside(error):
                raise
            again = work.give_up(f"{type(error).__name__} after a draw")
            # A foreign exception's message may hold record text: only its type and place go on.
            raise ReleaseLost(
                f"release {plan.id} is LOST: {kind_and_place(error)}, after private draws.",
                hint=f"{again}Its cost stays charged; a fresh draw needs "
                f"privacy.draw={plan.draw + 1}.",
            ) from None


def load_models(ctx: Context, plan: Plan | OpenPlan) -> Backends:
    """The models a release reads, loaded.

    Raises:
        ModelError: One is missing, incomplete or of a kind that cannot be used.
    """
    require_generate()
    release, models = open_plan(ctx, plan), {}
    for role in release.method.roles(release.settings):
        # As planned: ``more`` may read a params.yaml whose numbers are of another size.
        planned = {"dtype": release.plan.models[role].dtype}
        config = ctx.config.models.model_copy(update=planned)
        models[role] = load_role(config, role, ctx.config.performance)
    return Backends(models)


def load_planned_models(release: OpenPlan, backends: Backends | None = None) -> Backends:
    """The models a release was planned with: those that are loaded already, or its own.

    Raises:
        ModelError: One cannot be loaded, or is not the planned one.
    """
    backends = load_models(release.ctx, release) if backends is None else backends
    for role, use in release.plan.models.items():
        if role != "answers":  # load_answerer
            _refuse_other(release.plan, role, use, backends.models[role])
    return backends


def _refuse_other(plan: Plan, role: str, use: ModelUse, model: Any) -> None:
    if model.revision != use.revision:
        setting = ROLES[role].setting
        raise ModelError(
            f"the {role} model is not the one release {plan.id} was planned with, which is "
            f"{use.source}: {setting} names another, or its files changed.",
            hint=f"Set {setting}={use.source} (-S), or put its files back, and run again; or plan "
            "a new release.",
        )


def load_answerer(release: OpenPlan, backends: Backends | None = None) -> Answerer | None:
    """The planned model that answers columns; None where none is asked.

    Raises:
        ModelError: As ``load_planned_models``.
    """
    use, config = release.plan.models.get("answers"), release.ctx.config
    if use is None:
        return None
    loaded = () if backends is None else backends.models.values()
    shared = next((model for model in loaded if isinstance(model, Readable)), None)
    if shared is None:
        model: Answerer = load_role(config.models, "answers", config.performance)
    else:  # the method's own language model: no second copy of its weights
        model = Answerer(shared.network, shared.tokenizer, config.models.language, shared.revision)
    _refuse_other(release.plan, "answers", use, model)
    return model


def _journal(release: OpenPlan, part: int | str, lease: Lease, work: Workdir) -> Draws:
    """The part's journal, counted in the ledger from now on.

    Raises:
        VerificationError: The ledger has counted more than it holds: it is an older copy, and what
            was drawn since would be drawn again.
        ReleaseLost: It is gone.
    """
    # privacy: from an older copy the same steps would be drawn again, with other outcomes.
    counted = release.ctx.ledger.leases.parts(release.id).get(lease.part, 0)
    journal = work.journal(part, release.journal_header | {"shard": part}, lease)
    if len(journal) < counted:
        journal.close()
        raise VerificationError(
            f"release {release.id}, {lease.part}: the ledger has counted {counted} draws and "
            f"{journal.where} holds {len(journal)}: this scratch is an older copy.",
            hint="Put the newest one back: its cost is paid. Only where that is gone for good: "
            f"privsyn ledger lose {release.id}",
        )
    # The ledger learns with each renewal how many draws are on disk; an older copy has fewer.
    lease.count(lambda: journal.durable)
    return journal


def _from_outside(error: Exception) -> bool:
    """Whether a failure cannot depend on what was drawn, so that the release may be resumed."""
    if isinstance(error, PrivsynError):
        return error.retryable
    # By name: torch.OutOfMemoryError must not be imported only to be compared.
    return isinstance(error, MemoryError | OSError) or type(error).__name__ == "OutOfMemoryError"


@again_if_finished
def generate(
    ctx: Context, plan: Plan | OpenPlan, shard: int, backends: Backends | None = None
) -> Path | None:
    """Draw the samples of one shard, resuming from its journal.

    Every private draw is on disk before it is used. A killed run is resumed and spends nothing
    more; an exception of our own after a draw makes the release LOST.

    Args:
        ctx: Config and ledger.
        plan: The release; its account must hold a BEGUN entry.
        shard: Which part, 0-based.
        backends: Models already loaded; None loads what the config names.

    Returns:
        The shard's file, which is no longer here where it lies in the vault; None where the release
        is already committed.
    """
    release = open_plan(ctx, plan)
    with trace_stage(ctx, release.id, "generate", shard):
        work = open_begun(ctx, release)
        if work is None:
            return None
        name = samples(shard)
        with work:
            target = work.folder / name
            if work.is_finished(shard, name):
                return target
            # Before the lease: models may take longer to load than it lives.
            backends = load_planned_models(release, backends)
            with session(release, shard, work) as drawn:
                noise, rows = _rows(release, work)
                kind, written = _draw(release, shard, backends, drawn, work, rows)
                made, shown = _collect(release, written, drawn.lease, work.folder)
                # every draw is counted before its text is handed on
                ctx.ledger.leases.renew(drawn.lease)
                kind = "+".join(sorted({kind, noise or kind}))
                write_json_atomic(target, {"noise": kind, "rows": made}, mode=0o600)
                work.hand_on(shard, drawn.lease, [*shown, name], journal=drawn.journal)
        return target


def public_file(ctx: Context, plan: Plan) -> Path:
    """Where texts are kept that a release's method had the public model write, for its baseline."""
    return ctx.workspace.cache / "alone" / f"{plan.id}.json"


def _keep_public(
    ctx: Context, plan: Plan, written: Sequence[tuple[str | None, str | bytes]]
) -> None:
    """Keep public texts, since the scratch they lie in is wiped with the records."""
    file = public_file(ctx, plan)
    texts = [[label, content] for label, content in written if isinstance(content, str)]
    # A baseline that cannot be kept is written anew; it must not stop a draw.
    with suppress(OSError, PrivsynError):
        if texts and not file.exists():
            private_folder(file.parent)
            write_json_atomic(file, texts, mode=0o600)


def _rows(release: OpenPlan, work: Workdir) -> tuple[str, SyntheticRows]:
    """Kind of the noise behind the rows of a release, and these; nothing without columns."""
    columns = release.plan.dataset.columns
    if not columns:
        return "", NO_ROWS
    work.bring(COLUMNS)
    kind, by_label = rows_of(work.folder)
    return kind, SyntheticRows(columns, by_label)


def _draw(
    release: OpenPlan,
    shard: int,
    backends: Backends,
    drawn: Drawing,
    work: Workdir,
    rows: SyntheticRows,
) -> tuple[str, Iterator[Sample | Exhibit]]:
    """Kind of the noise behind the samples of a shard, and these as the method makes them."""
    ctx, plan, method, settings = release.ctx, release.plan, release.method, release.settings
    part, on_file = f"generate {shard + 1}/{work.shards}", len(drawn.journal)
    again = f" again, at no cost: {on_file} steps of it are on file" if on_file else ""

    def progress(done: int, total: int) -> None:
        drawn.lease.check()
        ctx.progress(part, done, total, method.counts)

    def reading(done: int, total: int, what: str) -> None:
        drawn.lease.check()
        ctx.progress(f"{part}, reading{again}", done, total, f"parts of {what}")

    if isinstance(method, TrainsModel):
        work.bring(TRAIN)
        labels, parts = plan.dataset.labels, (shard, work.shards)
        folder = work.folder / MODEL
        written = method.write(
            settings, plan.privacy_unit, labels, backends, folder, parts, progress, rows
        )
        # The texts are post-processing: what counts is the noise of the training.
        return noise_of_training(work.folder), written
    assert isinstance(method, DrawsSamples)  # noqa: S101  every method is one of the two
    work.bring(PARTITION, *bucket_files(shard))
    buckets = load_shard(work.folder / BUCKETS, shard, release.cells, work.shards)
    # A public number: the true size of a bucket must not decide how many are read together.
    units = (ctx.config.account.public_size or 0) * (1 - plan.dataset.holdout)
    draw = Draw(
        backends,
        drawn.noise,
        drawn.journal,
        ctx.config.performance,
        progress,
        expected_records=units / len(release.cells),
        reading=reading,
        on_public=partial(_keep_public, ctx, plan),
        rows=rows,
    )
    return drawn.noise.kind, method.run(settings, release.mechanism, buckets, draw)


def _collect(
    release: OpenPlan, written: Iterator[Sample | Exhibit], lease: Lease, folder: Path
) -> tuple[list[dict[str, Any]], list[str]]:
    """Draw the samples of a shard; returns their rows, and names of the exhibits it wrote."""
    rows: list[dict[str, Any]] = []
    shown: list[str] = []
    columns, rng = release.plan.dataset.columns, np.random.default_rng()  # public randomness
    for sample in written:
        if isinstance(sample, Exhibit):
            shown.append(f"{EXHIBITS}/{sample.name}")
            with atomic_file(folder / shown[-1]) as stream:
                stream.write(sample.content)
            continue
        lease.check()  # an overtaken process stops before its next draw
        row: dict[str, Any] = {"cell": sample.cell.index} | release.modality.entry(sample.content)
        if sample.counts:
            row["counts"] = dict(sample.counts)
        if sample.cell.label is not None:
            row["label"] = sample.cell.label
        if columns:
            cells = zip(columns.items(), sample.row, strict=True)
            row["columns"] = {name: column.draw(cell, rng) for (name, column), cell in cells}
        rows.append(row)
    return rows, shown


@again_if_finished
def train(ctx: Context, plan: Plan | OpenPlan, *, backends: Backends | None = None) -> Path | None:
    """Train the release's model, resuming from its last checkpoint.

    A checkpoint is on disk before anything is computed from it; steps after the last one, of which
    nothing has left the process, are made again at no cost. An exception of our own after a step
    makes the release LOST.

    Args:
        ctx: Config and ledger.
        plan: The release; its account must hold a BEGUN entry.
        backends: Models already loaded; None loads what the config names.

    Returns:
        The folder of the model, which is no longer here where it lies in the vault; None where the
        method trains none or the release is committed.
    """
    release = open_plan(ctx, plan)
    with trace_stage(ctx, release.id, "train"):
        if not isinstance(release.method, TrainsModel):
            return None
        work = open_begun(ctx, release)
        if work is None:
            return None
        with work:
            folder = work.folder / MODEL
            if not work.is_finished(TRAIN, TRAINED_BY, MODEL):
                _train(release, release.method, backends, work)
        return folder


def _train(
    release: OpenPlan, method: TrainsModel, backends: Backends | None, work: Workdir
) -> None:
    ctx = release.ctx
    # Before anything is drawn: that a model cannot be loaded costs nothing.
    backends = load_planned_models(release, backends)
    with session(release, TRAIN, work) as drawn:

        def progress(step: int, total: int) -> None:
            drawn.lease.check()
            ctx.progress("train", step, total, "steps")

        work.bring(PARTITION, *bucket_files(0))
        buckets = load_shard(work.folder / BUCKETS, 0, release.cells, 1)
        files = method.train(
            release.settings,
            release.mechanism,
            buckets,
            Draw(
                backends,
                drawn.noise,
                drawn.journal,
                ctx.config.performance,
                progress,
                rows=SyntheticRows(release.plan.dataset.columns),
            ),
        )
        ctx.ledger.leases.renew(drawn.lease)  # every draw is counted before the model is handed on
        folder = work.folder / MODEL
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            with atomic_file(folder / name) as stream:
                stream.write(content)
        sync_folder(folder)
        write_json_atomic(work.folder / TRAINED_BY, {"noise": drawn.noise.kind}, mode=0o600)
        names = [*(f"{MODEL}/{name}" for name in files), TRAINED_BY]
        work.hand_on(TRAIN, drawn.lease, names, journal=drawn.journal)


Answer = Callable[[str], str]
"""The label a classifier gives a record's content."""
_DRAW = "right and wrong"


def draw_accuracy(
    release: OpenPlan, artifact: Path, work: Workdir
) -> tuple[str, dict[str, Any]] | None:
    """Draw the accuracy of a classifier trained on the release, on units held out of it.

    Guarantee: plan.accuracy, which is in the release's event. The classifier is a function of the
    release alone; a record's answer is one of the classifier and that record.

    The draw is in a journal of its own before anybody sees it, so that a killed run draws no second
    one. Records are read where it is not there yet.

    Args:
        release: The release; begun, and all of it drawn.
        artifact: Its records, as they will be published.
        work: Its private intermediates.

    Returns:
        Kind of the noise source, and the certificate's figures; None where it pays for none.

    Raises:
        ReleaseLost: The release is not one that may be drawn from.
        LeaseHeld: Another process draws it.
    """
    ctx, plan = release.ctx, release.plan
    mechanism = plan.accuracy
    if mechanism is None:
        return None
    if open_begun(ctx, release) is None:
        raise ReleaseLost(f"release {plan.id} is committed: nothing more may be drawn for it.")
    file = work.folder / HELD_OUT
    with session(release, ACCURACY, work) as part:
        lease, journal, noise = part.lease, part.journal, part.noise
        if not journal.has(_DRAW):
            work.bring(PARTITION, HELD_OUT)
        # Before the draw begins, since an exception within it would lose the release.
        answers = [] if journal.has(_DRAW) else list(_answers(release, artifact, file))
        lease.check()
        drawn = journal.draw_array(_DRAW, lambda: mechanism.draw(answers, noise), 2)
        ctx.ledger.leases.renew(lease)  # counted before it is handed on
        right, wrong = map(int, drawn)
        return noise.kind, accuracy_figures(mechanism, right, wrong)


def _answers(release: OpenPlan, artifact: Path, file: Path) -> Iterator[list[bool]]:
    """Of each held-out unit, whether each of its records is answered right."""
    answer = release.modality.classifier(artifact)
    for unit in held_units(file, release.plan.max_records_per_unit):
        yield [_is_right(answer, record.content, record.label) for record in unit.reveal()]


def _is_right(answer: Answer, content: str, label: str | None) -> bool:
    """Whether one record is answered right, whatever is in it: one that raises is answered wrong.

    privacy: a record that could end the run would decide whether there is a release.
    """
    try:
        # privacy: a record that a classifier cannot read counts as wrong; it must not stop the run.
        return answer(content) == label
    except MemoryError:
        raise
    except Exception:
        return False
