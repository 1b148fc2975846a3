"""distill: a small language model from a finished release's texts, at no cost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from privsyn import layout
from privsyn.data.artifacts import private_folder
from privsyn.data.profile import read_rows
from privsyn.errors import (
    ConfigError,
    DataError,
    LeaseHeld,
    ModelError,
    ValidationFailed,
    require_generate,
)
from privsyn.evaluation.metrics import metrics_of
from privsyn.files import file_lock
from privsyn.methods.base import as_teacher
from privsyn.methods.registry import METHODS, load_method
from privsyn.methods.shared.distill import STUDENTS, DistillConfig
from privsyn.modalities.registry import modality_of
from privsyn.modalities.text import Texts
from privsyn.models.model_identity import describe, fingerprint, locate, open_model
from privsyn.models.references import ModelReference
from privsyn.models.rows import SyntheticRows, with_row
from privsyn.models.torch_runtime import ready
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import ModelUse, Plan, identity_digest
from privsyn.report import verification
from privsyn.section import Section
from privsyn.stages import lineage
from privsyn.stages.audit import refuse_to_hand_out
from privsyn.stages.base import Context, open_plan
from privsyn.stages.folder import copy_release, write_model
from privsyn.stages.plan import plan
from privsyn.stages.validate import copy_reports, note_checks, place
from privsyn.students.parent import Parent, derive, open_parent, publish_folder
from privsyn.students.train import Student, start_folder, train_student
from privsyn.validation.suite import Expectation

if TYPE_CHECKING:
    from privsyn.config import Config
    from privsyn.models.protocols import PromptTemplate

VALIDATION_SCHEMA = "privsyn-model-validation/1"
PARENT_TAG = "privsyn.parent"


class StudentPlan(Section):
    """Plan of a student: a small model that will be trained on a release's texts. All public.

    Attributes:
        plan_schema: Distinguishes the plan file of a student from that of a release.
        method: The section of ``methods``.
        parent: The release.
        settings: Settings of ``methods.distill`` that shape the model.
        models: ``base``: the language model whose tokenizer the student uses. ``init``: the model
            that it starts from, if any.
    """

    plan_schema: Literal["privsyn-student/1"] = "privsyn-student/1"
    method: Literal["distill"] = STUDENTS
    parent: Plan
    settings: dict[str, Any]
    models: dict[Literal["base", "init"], ModelUse]

    @property
    def id(self) -> str:
        """Name of the student: its parent's id, and 32 bits of its settings' SHA-256."""
        identity = self.model_dump(mode="json", include={"settings", "models"})
        return f"{self.parent.id}.student-{identity_digest(identity)[:8]}"

    @classmethod
    def from_facts(cls, facts: ReleaseFacts) -> StudentPlan:
        """The plan of a certified student."""
        made = facts.derived[STUDENTS]
        return cls(parent=facts.plan, settings=made["settings"], models=made["models"])


def student_of(facts: ReleaseFacts) -> Mapping[str, Any]:
    """Facts of a student in its certificate: parameters, tokens, steps, loss."""
    student: Mapping[str, Any] = facts.derived[STUDENTS]["student"]
    return student


_PLAN_FILE: TypeAdapter[Plan | StudentPlan] = TypeAdapter(
    Annotated[Plan | StudentPlan, Field(discriminator="plan_schema")]
)


def read_plan(content: bytes) -> Plan | StudentPlan:
    """The plan in a file that ``privsyn stage plan`` wrote.

    Raises:
        ValidationError: It is not a plan.
    """
    return _PLAN_FILE.validate_json(content)


def plan_student(ctx: Context, parent: Plan) -> StudentPlan:
    """Plan the student that the config describes. Opens no data and loads no weights.

    Raises:
        ConfigError: The release holds images.
        ModelError: A model cannot be found.
    """
    config: DistillConfig = ctx.settings(STUDENTS)
    kind = modality_of(parent.dataset)
    if kind.name != Texts.name:
        raise ConfigError(
            f"release {parent.release_id} holds {kind.things}, but a student is trained on texts.",
            hint="Name a release of texts.",
        )
    ctx.check_files(STUDENTS)
    models, folder = ctx.config.models, start_folder(config)
    settings = config.model_dump(mode="json")
    used: dict[Any, ModelUse] = {}
    if folder is None:
        base = describe(models, ctx.cache, reads_private=False)
        used["base"] = ModelUse(source=base.source, revision=base.revision, dtype=models.dtype)
    else:
        place = locate(ModelReference("methods.distill.init", str(folder)))
        settings["init"] = place.source  # not the path, which may differ between machines
        used["init"] = ModelUse(
            source=place.source, revision=fingerprint(place, ctx.cache), dtype="float32"
        )
    return StudentPlan(parent=parent, settings=settings, models=used)


def distill(ctx: Context, release_id: str, *, published: bool = True) -> Path:
    """Train a student on a release's texts, certify it, check it and publish it.

    Guarantee: that of the parent. Only the release's own texts and model, public models and public
    randomness are used, so it is post-processing without a charge. The certificate contains the
    parent's, and the ledger records both.

    Args:
        ctx: Config and ledger.
        release_id: A finished release of texts.
        published: Version and push the student with DVC.

    Returns:
        The folder ``releases/<release id>.student-<digest of the settings>``. An existing one is
        returned unchanged.

    Raises:
        DataError: The release is not here, or holds fewer than 2 texts.
        VerificationError: It differs from its certificate.
        ConfigError: It holds images, or is itself made from a release.
        ModelError: A model cannot be loaded, or training diverged.
        ValidationFailed: The student does not load or predict; it is in quarantine/.
        LeaseHeld: Another process is training this student.
    """
    require_generate()
    planned = plan_student(ctx, open_parent(ctx, release_id).plan)
    make_student(ctx, planned)
    folder = validate_student(ctx, planned)
    if published:
        publish_student(ctx, planned)
    return folder


def plan_with_teacher(ctx: Context) -> StudentPlan:
    """Plan a student of the release that the teacher's settings describe; it need not exist yet.

    Raises:
        ConfigError: As for ``plan`` and ``plan_student``.
    """
    return plan_student(ctx, plan(ctx, teacher_of(ctx.config), open_account=True))


def teacher_of(config: Config) -> str:
    """The default method for the parent of a student.

    It is the first in the pipeline, in the sections of ``methods`` or among all methods whose
    releases contain the model that wrote them.

    Raises:
        ConfigError: There is no such method.
    """
    known = [name for name in METHODS if as_teacher(load_method(name))]
    for name in (*config.pipeline, *config.methods, *known):
        if name in known:
            return name
    raise ConfigError(
        f"pipeline={list(config.pipeline)}: no method makes students.",
        hint="Name a finished release: privsyn distill RELEASE",
    )


def make_and_check(ctx: Context, planned: StudentPlan) -> Path:
    """Make the student of a parent that is drawn, check it, and copy it where it is as filed.

    Raises:
        PrivsynError: From the stage that failed.
    """
    make_student(ctx, planned)
    folder = validate_student(ctx, planned)
    if ctx.as_filed:
        copy_release(folder, ctx.workspace.synthetic(planned.method))
    return folder


def make_student(ctx: Context, planned: StudentPlan) -> Path:
    """Train and certify a planned student, unless it exists."""
    stored = verification.locate(ctx.workspace, ctx.ledger, planned.id)
    folder = stored or ctx.workspace.release(planned.id)
    with lock_student(ctx, planned.id):
        if (folder / layout.CERTIFICATE).is_file():
            verification.raise_on_failure(folder, verification.verify(folder, ctx.ledger))
        else:
            _make(ctx, planned, folder)
    trace_student(ctx, planned, folder)
    return folder


def publish_student(ctx: Context, planned: StudentPlan) -> dict[str, Any]:
    """Version a checked student with DVC and push it. It can be repeated.

    Returns:
        Public facts for consumers.

    Raises:
        ValidationFailed: It does not load or predict.
        PublishError: DVC or its remote refused.
    """
    folder = validate_student(ctx, planned)
    revision = publish_folder(ctx, planned.parent, folder)
    facts = ReleaseFacts.read(folder)
    lineage.log_revision(ctx, planned.id, revision)
    return {
        "release_id": planned.id,
        "parent": planned.parent.id,
        "certificate_sha256": facts.certificate_sha256,
        "class": facts.kind,
        "dvc_revision": revision.md5,
        "parameters": student_of(facts)["parameters"],
    }


def _make(ctx: Context, planned: StudentPlan, folder: Path) -> None:
    """Train and certify a student into its folder."""
    if ctx.workspace.pointer(planned.id).is_file():
        raise DataError(
            f"student {planned.id} is published, but its folder is not here.",
            hint=f"Restore it with: privsyn restore {planned.id}",
        )
    parent = open_parent(ctx, planned.parent.id)
    refuse_to_hand_out(ctx, planned.parent.id)
    student, files = _train(ctx, planned, parent)
    how = planned.model_dump(mode="json", include={"settings", "models"})
    how = {STUDENTS: how | {"student": asdict(student)}}
    derive(ctx, parent, folder, how, lambda building: write_model(building, files))


def read_first(ctx: Context) -> Path:
    """The directory that a student starts from, else that of the config's language model.

    The latter, whose tokenizer the student takes, is downloaded if necessary.
    """
    if (start := start_folder(ctx.settings(STUDENTS))) is not None:
        return start
    reference = ModelReference("models.language", ctx.config.models.language)
    return open_model(reference)[1]


def _template(ctx: Context, planned: StudentPlan) -> PromptTemplate | None:
    """The prompt before the teacher's texts. None: the base model's, or the student's own."""
    release = open_plan(ctx, planned.parent)
    wrote = as_teacher(release.method)
    if wrote is None or "base" not in planned.models:
        return None
    return wrote.writes_behind(release.settings, planned.parent.dataset.labels)


def _train(ctx: Context, planned: StudentPlan, parent: Parent) -> tuple[Student, dict[str, bytes]]:
    """Train on the release's texts; returns the student and its files.

    Raises:
        DataError: There are fewer than two texts.
        ModelError: A model is no longer the planned one.
    """
    rows = read_rows(parent.folder / layout.ARTIFACT)
    words_of = SyntheticRows(planned.parent.dataset.columns).words_of
    texts = [(with_row(row.label, words_of(row.values)), row.text) for row in rows if row.text]
    if len(texts) < 2:
        raise DataError(
            f"release {planned.parent.id} holds {len(texts)} text(s), but a student needs at "
            "least 2.",
            hint="Make more with: privsyn more",
        )
    if plan_student(ctx, planned.parent).id != planned.id:
        raise ModelError(
            f"student {planned.id} was planned with other settings or models than the config has "
            "now.",
            hint="Plan it again, or restore settings and models.",
        )
    place = ctx.workspace.scratch(planned.id)
    shutil.rmtree(place, ignore_errors=True)
    try:
        student = train_student(
            ctx.settings(STUDENTS),
            texts,
            read_first(ctx),
            place,
            template=_template(ctx, planned),
            on_progress=partial(ctx.progress, STUDENTS),
        )
        files = {file.name: file.read_bytes() for file in place.iterdir() if file.is_file()}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return student, files


@contextmanager
def lock_student(ctx: Context, name: str) -> Iterator[None]:
    """Lock the scratch folder of a student for one process.

    Raises:
        LeaseHeld: Another process uses it.
    """
    private_folder(ctx.workspace.state)
    try:
        with file_lock(ctx.workspace.state / STUDENTS / f"{name}.lock", timeout=0):
            yield
    except TimeoutError:
        raise LeaseHeld(
            f"another process is training student {name}.", hint="Wait for it to end."
        ) from None


def validate_student(ctx: Context, planned: StudentPlan, *, filed: bool = False) -> Path:
    """Check a student, unless it has passed before; move it to quarantine if it fails.

    Args:
        ctx: Config and ledger.
        planned: The student.
        filed: Copy the reports to reports/distill/, which dvc.yaml tracks.

    Returns:
        Its folder with the report, validation.json and quality.json.

    Raises:
        DataError: The student is not here.
        ValidationFailed: Names the failed checks.
    """
    folder = ctx.workspace.locate(planned.id)
    if folder is None:
        raise DataError(
            f"student {planned.id} is not here.",
            hint=f"Make it with: privsyn distill {planned.parent.id}",
        )
    if not (layout.suite_passed(folder) and verification.covers_reports(folder, ctx.ledger)):
        _examine(ctx, folder)
    holds = layout.suite_passed(folder) is True
    folder = place(ctx, planned.id, folder, released=holds)
    if filed and holds:
        copy_reports(ctx, planned.method, folder)
    run = ctx.tracker.release_run(planned.id)
    ctx.tracker.set_tags(run, {lineage.VALIDATION_TAG: "passed" if holds else "failed"})
    ctx.tracker.finish(run, "FINISHED" if holds else "FAILED")
    if not holds:
        raise ValidationFailed(
            f"student {planned.id} fails its checks.", hint=f"See {layout.page_of(folder)}."
        )
    return folder


def _examine(ctx: Context, folder: Path) -> None:
    """Write the reports of a student into its folder."""
    for report in layout.REPORTS:
        (folder / report).unlink(missing_ok=True)
    # The reports are made anew here, so those that the ledger noted are not missing.
    checks = [c for c in verification.verify(folder, ctx.ledger) if c.name != verification.NOTED]
    if all(check.passed is not False for check in checks):
        checks += _check_model(folder / layout.MODEL)
    made = student_of(ReleaseFacts.read(folder))
    values = {f"student.{name}": value for name, value in made.items()}
    result = {
        "schema": VALIDATION_SCHEMA,
        "success": all(check.passed is not False for check in checks),
        "expectations": [
            vars(Expectation("", None, one.name, one.passed, one.detail)) for one in checks
        ],
    }
    note_checks(ctx, folder, result, metrics_of(values, "dp-release"))


def _check_model(folder: Path) -> list[verification.Check]:
    """Check that a causal language model loads, is finite, and predicts a distribution of tokens.

    Args:
        folder: Weights, config, tokenizer and prompt.
    """
    import torch

    from privsyn.models.training import causal_lm as student

    with ready() as device, torch.inference_mode():
        try:
            tokenizer = student.read_tokenizer(folder)
            model = student.read_model(folder).to(device).eval()
            texts = student.encode(tokenizer, student.prompt_of(folder), [(None, "a")], 2)
        except ModelError as error:
            return [verification.Check("model loads", False, error.message)]
        count = sum(weights.numel() for weights in model.parameters())
        finite = all(bool(torch.isfinite(weights).all()) for weights in model.parameters())
        ids, _ = student.pad(texts, device)
        shares = model(input_ids=ids, use_cache=False).logits.float().softmax(-1)
        known = len(tokenizer) <= shares.shape[-1]
        whole = bool(((shares.sum(-1) - 1).abs() < 1e-3).all())
    return [
        verification.Check("model loads", True, f"{count:,} parameters"),
        verification.Check("weights are finite", finite, "no NaN and no infinity among them"),
        verification.Check("model predicts", whole, "the next token's probabilities add to 1"),
        verification.Check(
            "model knows its tokens", known, f"{len(tokenizer):,} tokens of its tokenizer"
        ),
    ]


def trace_student(ctx: Context, planned: StudentPlan, folder: Path) -> None:
    """Write a certified student to MLflow: its own run, with public facts alone."""
    facts = ReleaseFacts.read(folder)
    run = ctx.tracker.release_run(planned.id)
    models = {f"model.{role}": use.source for role, use in planned.models.items()}
    ctx.tracker.log_params(run, {"method": STUDENTS} | planned.settings | models)
    ctx.tracker.set_tags(run, lineage.digests(facts) | {PARENT_TAG: planned.parent.id})
    lineage.log_synthetic(ctx, facts)
    ctx.tracker.log_metrics(
        run, {f"student.{name}": float(n) for name, n in student_of(facts).items()}
    )
    ctx.tracker.log_artifact(run, folder / layout.CERTIFICATE)
