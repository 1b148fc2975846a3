"""tune: which settings write the better texts, tried on public records in place of private ones.

The private file is never opened, so the choice costs nothing: what is tried on are records of a
declared public file, or of a finished release (post-processing of what it gave out). Every trial is
a release of its own, with the project's cost and sensitivity, in a folder under the state folder
that has an account and a lineage of its own; nothing of it is published.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privsyn.config import Config, parse_config
from privsyn.data.artifacts import atomic_file, private_folder, write_json_atomic
from privsyn.data.readers.streams import split_suffix
from privsyn.display.progress import under_way
from privsyn.dp.adjacency import Adjacency
from privsyn.errors import ConfigError, DataError, ModelError
from privsyn.evaluation.classifiers import FEWEST
from privsyn.files import open_file, read_json, values
from privsyn.methods.base import Steps, TriedOnPublic
from privsyn.methods.registry import load_method, settings_model
from privsyn.modalities.registry import modality_of
from privsyn.modalities.text import Texts
from privsyn.release import layout, verification
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan
from privsyn.release.workspace import Workspace
from privsyn.section import explain
from privsyn.stages.audit import held_out
from privsyn.stages.base import Context
from privsyn.stages.evaluate import evaluate, failure_reason
from privsyn.stages.plan import plan
from privsyn.stages.run import draw
from privsyn.stages.validate import refuse_unreleased
from privsyn.tracking import NullTracker

HELD_OUT = 0.3
"""Share of the public records that trials are tested on."""

_SCORES = ("vectors.accuracy", "words.accuracy")
"""The first that was measured: by an encoder that took no part, else by words."""
_RESULTS = "trials.json"


@dataclass(frozen=True)
class Trial:
    """One release on the public records.

    Attributes:
        settings: Of the method, over those of params.yaml.
        metrics: Its evaluation, by name. Empty where it was refused.
        refused: Why it could not be made; None where it was.
        seconds: CPU time from plan to evaluation.
    """

    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    refused: str | None = None
    seconds: float = 0.0

    @property
    def score(self) -> float:
        """Accuracy on public records that were held out."""
        return next((self.metrics[name] for name in _SCORES if name in self.metrics), -1.0)

    @property
    def worth_its_epsilon(self) -> bool:
        """Whether it is above the best of what is free by more than the interval."""
        return self.metrics.get("vectors.gain_low", self.metrics.get("words.gain_low", 0.0)) > 0


def tune(
    ctx: Context,
    method: str,
    records: str,
    tries: Mapping[str, Sequence[Any]] | None = None,
    *,
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Try settings of a method in turn, each with the best of those before it.

    A search that was cut off goes on where it was; finished trials are kept.

    Args:
        ctx: Config. The account of its own ledger is not touched.
        method: The method.
        records: Name of a file under ``files`` in params.yaml, or id or folder of a release.
        tries: Settings of the method and their values. None: the method's own list.
        on_trial: Hears of every trial that ended.

    Returns:
        The trials, the best one first.

    Raises:
        ConfigError: Nothing to try, no such setting or a value that it cannot have, said before the
            first trial; or records that are not texts with labels.
        DataError: ``records`` is no declared file and no release that verifies, or holds too few
            records; said before the first trial.
        VerificationError: The release is not what was certified, or not differentially private.
        ValidationFailed: The release has not passed its suite, or is held back by its audit.
    """
    offered = load_method(method)
    if tries is not None:
        _refuse_unsettable(method, tries)
    else:
        tries = offered.tries if isinstance(offered, TriedOnPublic) else {}
    if not tries:
        raise ConfigError(
            f"nothing is tried of {method} by itself.", hint="Name settings: --try rounds=[4,8]"
        )
    if not isinstance(modality_of(ctx.config.dataset), Texts) or len(ctx.config.dataset.labels) < 2:
        raise ConfigError(
            "dataset: trials are judged by what texts teach about their labels.",
            hint="Set dataset.label and two dataset.labels or more; of images compare releases "
            "instead.",
        )
    with under_way(ctx.on_progress, "public records"):
        project = _Project.of(ctx, method, records)
    steps = Steps(
        lambda done, total: ctx.progress("tune", done, total, "trials"),
        1 + sum(map(len, tries.values())),
    )
    steps.next()
    best = project.trial({}, on_trial)
    trials = [best]
    for setting, options in tries.items():
        for value in options:
            tried = {**best.settings, setting: value}
            steps.next()
            if not any(dict(trial.settings) == tried for trial in trials):
                trials.append(project.trial(tried, on_trial))
        best = max(trials, key=lambda trial: trial.score)
    return sorted(trials, key=lambda trial: -trial.score)


@dataclass(frozen=True)
class _Project:
    """The folder of a search: public records, and the config its trials begin from."""

    ctx: Context
    method: str
    config: Config

    @classmethod
    def of(cls, ctx: Context, method: str, records: str) -> _Project:
        name, content, own_columns = _records(ctx, records)
        config = _throw_away(ctx, method, own_columns)
        inputs = (
            json.dumps(config, sort_keys=True, default=str) + hashlib.sha256(content).hexdigest()
        )
        folder = ctx.workspace.state / "tune" / hashlib.sha256(inputs.encode()).hexdigest()[:16]
        private_folder(folder)
        path = folder / name
        if not path.exists():
            with atomic_file(path) as stream:
                stream.write(content)
        config["dataset"]["path"] = str(path)
        options = replace(
            ctx,
            workspace=Workspace(folder),
            as_filed=False,
            # privacy: a setting of a trial may name the private file as a public one.
            also_private=ctx.private_places,
        )
        return cls(options, method, parse_config(config))

    def trial(self, settings: Mapping[str, Any], on_trial: Callable[[Trial], None] | None) -> Trial:
        """One release and its evaluation, or what is on file of it."""
        file = self.ctx.workspace.root / _RESULTS
        on_file: dict[str, Any] = read_json(file) if file.exists() else {}
        key = json.dumps(dict(settings), sort_keys=True)
        if key in on_file:
            trial = Trial(dict(settings), **on_file[key])
        else:
            trial = self._make_trial(settings)
            on_file[key] = {
                name: value for name, value in vars(trial).items() if name != "settings"
            }
            write_json_atomic(file, on_file, mode=0o600)
        if on_trial is not None:
            on_trial(trial)
        return trial

    def _make_trial(self, settings: Mapping[str, Any]) -> Trial:
        options = {**(self.config.methods.get(self.method) or {}), **settings}
        began = time.process_time()
        try:
            raw = self.config.model_dump(mode="json") | {"methods": {self.method: options}}
            ctx = replace(self.ctx, config=parse_config(raw))
            ctx.tracker = NullTracker()
            with under_way(ctx.on_progress, "plan"):
                planned = plan(ctx, self.method, open_account=True)
                _refuse_too_few(ctx, planned)
            draw(ctx, planned)
        except (ConfigError, ModelError) as error:
            return Trial(settings, {}, error.message)
        with under_way(ctx.on_progress, "evaluate"):
            folder = evaluate(ctx, planned)
        if folder is None:  # pragma: no cover - evaluation is on by the config of a search
            raise ConfigError("evaluate.enabled is off.")
        if reason := failure_reason(folder):
            return Trial(settings, {}, f"not measured: {reason}")
        measured = json.loads((folder / layout.EVALUATION).read_bytes())["metrics"]
        metrics = {metric["name"]: float(metric["value"]) for metric in measured}
        if not metrics.keys() & set(_SCORES):
            raise DataError("the texts of the trial have too few labels to tell settings apart.")
        return Trial(settings, metrics, None, round(time.process_time() - began, 1))


def _refuse_unsettable(method: str, tries: Mapping[str, Sequence[Any]]) -> None:
    """Refuse, before anything is drawn, a setting that no trial could have.

    Values that only do not go together are reported by the trial that has them.

    Raises:
        ConfigError: A method has no such setting, or the setting cannot have a value.
    """
    model = settings_model(method)
    for setting, options in tries.items():
        for value in options:
            try:
                model.model_validate({setting: value})
            except ValidationError as error:
                if all(one["loc"] == () for one in error.errors()):
                    continue  # a check of several settings, which others of a trial may pass
                raise ConfigError(
                    explain(model, error, f"methods.{method}.", {}),
                    hint=f"Correct --try {setting}: it takes settings of {method} alone; set "
                    "others for all trials by -S. Nothing was drawn.",
                ) from None


def _refuse_too_few(ctx: Context, planned: Plan) -> None:
    """Refuse, before anything is drawn, what could not be judged.

    Raises:
        DataError: Too few public records are held out, or too few texts are asked for.
    """
    labeled = sum(bool(record.label) for record in held_out(ctx, planned))
    if labeled < FEWEST:
        raise DataError(
            f"of the public records {labeled} with a label of dataset.labels are held out: too few "
            f"to tell settings apart; {FEWEST} are the least.",
            hint=f"Bring some hundred; {HELD_OUT:.0%} of them are held out.",
        )
    if planned.rows < FEWEST:
        raise DataError(
            f"a trial writes {planned.rows} texts: too few to tell settings apart; {FEWEST} are "
            "the least.",
            hint="Ask for more of the method, such as texts_per_label.",
        )


def _records(ctx: Context, named: str) -> tuple[str, bytes, bool]:
    """File name and bytes of the public records; whether they have the columns of a release.

    Raises:
        ConfigError: A declared file lies in a private place or cannot be read.
        DataError: See ``tune``.
    """
    declared = ctx.config.files.get(named)
    if declared is not None:
        path = ctx.files.path(named)
        ctx.files.check("tune", named)
        try:
            open_file(path).close()
        except OSError as error:
            if declared.kind == "file":  # `read` refuses the kind model
                raise ConfigError(
                    f"files.{named}.path={declared.path}: {path} cannot be read: {error.strerror}.",
                    hint="Check the path, which begins at the folder of params.yaml.",
                ) from None
        suffix = "".join(split_suffix(Path(declared.path.name)))
        return f"records{suffix}", ctx.files.read("tune", named), False
    folder = ctx.workspace.folder(named)
    if not (folder / layout.CERTIFICATE).is_file():
        raise DataError(
            f"{named} is neither a name under files in params.yaml nor a release.",
            hint="Declare the public records: files: {reviews: {path: reviews.jsonl, digest: ...}}",
        )
    verification.raise_on_failure(folder, verification.verify(folder, None))
    verification.refuse_predictable(folder, ReleaseFacts.read(folder).certificate)
    refuse_unreleased(folder, ctx)
    rows = [json.loads(line) for line in (folder / layout.ARTIFACT).read_bytes().splitlines()]
    most = ctx.config.dataset.max_records_per_unit
    lines = [
        json.dumps(
            {"text": row.get("text"), "label": row.get("label"), "unit": str(number // most)}
        )
        for number, row in enumerate(rows)
    ]
    return "records.jsonl", ("\n".join(lines) + "\n").encode(), True


def _throw_away(ctx: Context, method: str, own_columns: bool) -> dict[str, Any]:
    """The config of a search: this method and its cost, in an account of its own."""
    config = ctx.config
    raw: dict[str, Any] = config.model_dump(
        mode="json",
        exclude_unset=True,
        include={"dataset", "privacy", "models", "performance", "files"},
    )
    dataset = raw["dataset"]
    dataset.update(name="tune", version="v1", holdout=HELD_OUT, test_path=None, check=False)
    for file in raw.get("files", {}).values():
        file["path"] = str(ctx.path(Path(file["path"]).expanduser()))
    models = raw.setdefault("models", {})
    for setting, value, _ in values(config.models):
        if setting in models and value not in config.files and ctx.path(Path(value)).exists():
            models[setting] = str(ctx.path(Path(value)))
    adjacency = config.account.adjacency
    if own_columns:
        columns = {"text": "text", "label": "label", "unit": "unit", "encoding": "utf-8"}
        dataset.update(columns, delimiter=None, escape=None)
    elif config.dataset.max_records_per_unit == 1:
        dataset["unit"] = None
        if adjacency is Adjacency.ADD_REMOVE:
            adjacency = Adjacency.REPLACE_NULL  # moves as many records, and needs no ids
    return raw | {
        "account": {
            "name": "tune",
            "unit": "record",
            "adjacency": adjacency.value,
            "epsilon": 1e6,
            "delta": 0.5,
        },
        "methods": {method: config.methods.get(method) or {}},
        "validation": {"min_share": 0.0, "max_duplicate_share": 1.0},
    }
