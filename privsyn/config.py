"""params.yaml as frozen models: the only config file, with overrides ``-S a.b.c=value``.

Privacy settings (``account``, ``privacy``, ``methods``, and the parts of ``dataset`` and ``models``
that shape the output) enter the release id. ``performance`` settings do not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import (
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from privsyn.address import Address, is_address, overlap
from privsyn.columns.settings import ColumnsConfig
from privsyn.data.object_store import check_url
from privsyn.data.settings import DatasetConfig
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.errors import ConfigError
from privsyn.evaluation.settings import EvaluateConfig
from privsyn.files import LocalPath, OnDisk, parse_json, parse_yaml, read_file
from privsyn.ledger.settings import AccountConfig, PrivacyConfig
from privsyn.methods.registry import FIRST, METHODS, settings_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.release.settings import Card, SigningConfig
from privsyn.section import ASSET, CONNECTION, EVENT, OVERRIDES, PRESET, Section, explain
from privsyn.validation.settings import ValidationConfig


class ServicesConfig(Section):
    """Where the ledger, the lineage and the published artifacts live."""

    ledger: Annotated[str, OnDisk("place")] | None = None
    """SQLAlchemy URL. Null: .privsyn/ledger.db in the project."""
    vault: Annotated[str, OnDisk("place")] | None = None
    """Store of encrypted private intermediates while a release is made: file:///, s3://, gs:// or
    az://. Null: the project's state folder, unencrypted."""
    vault_key: Annotated[LocalPath, OnDisk("place")] | None = None
    """File with the vault's key, written by `privsyn keys new --vault`. The environment variable
    PRIVSYN_VAULT_KEY, which holds the key itself, takes precedence."""
    mlflow: Annotated[str, OnDisk("place")] | None = None
    """Tracking URI. Null: .privsyn/mlflow.db in the project."""
    mlflow_ui: str = "http://127.0.0.1:5000"
    """Address of the MLflow UI, for links."""
    releases: Annotated[str, OnDisk("place")] | None = None
    """Store of finished releases for all machines: file:///folder, s3://bucket/prefix, gs:// or
    az://. Null: only the project's folder."""
    connections: dict[
        Literal["stores", "ledger", "vault_key", "model_server"],
        Annotated[str, Field(pattern=CONNECTION)],
    ] = Field(default={})
    """Airflow connections with the credentials of Airflow's tasks: stores (aws,
    google_cloud_platform, wasb), ledger (postgres), vault_key and model_server (the password).
    Outside of Airflow, and of the others: the environment's."""

    @field_validator("vault", "releases")
    @classmethod
    def _is_a_store(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            # Refused here, before anything is spent, and not when the first file is to be stored.
            check_url(value, f"services.{info.field_name}")
        return value


def _url(place: Path | Address | str) -> str:
    """An address itself, or a path of this machine as a URL, to compare them."""
    return str(place) if is_address(str(place)) else f"file://{place}"


PARTITION_KEY = "partition_key"
"""Value of ``schedule.<method>.version`` for the key of the run's partition."""


Task = Literal[
    "plan", "wait", "approve_spend", "reserve", "preflight", "partition", "train", "generate",
    "certify", "validate", "evaluate", "approve_publish", "publish", "settle", "distill",
    "evaluate_student", "approve_student", "publish_student",
]  # fmt: skip
"""Tasks of a method's DAG. Which of them exist depends on the method and its approvals."""


TaskArgument = Literal["queue", "pool", "executor", "executor_config", "execution_timeout"]
DagArgument = Literal[
    "timezone", "retries", "dagrun_timeout", "max_active_runs", "max_consecutive_failed_dag_runs",
    "owner_links", "execution_timeout", "owner", "priority_weight", "weight_rule", "deadline",
]  # fmt: skip
_TIMES = {"dagrun_timeout", "execution_timeout", "deadline"}


def _with_times(arguments: Mapping[Any, Any]) -> dict[Any, Any]:
    """Airflow's arguments, times as such and the number of retries checked."""
    time: TypeAdapter[Any] = TypeAdapter(Annotated[timedelta, Field(gt=timedelta())])
    read = dict.fromkeys(_TIMES, time)
    read["retries"] = TypeAdapter(Annotated[int, Field(strict=True, ge=0, le=20)])
    return {
        key: read[key].validate_python(value) if key in read else value
        for key, value in arguments.items()
    }


class ScheduleConfig(Section):
    """Schedule of a method's DAG."""

    cron: str | None = None
    """Airflow schedule; null: only by hand."""
    asset: str | None = Field(default=None, pattern=ASSET)
    """Address of an upstream asset whose update starts a run, in place of cron."""
    version: Annotated[str, Field(pattern=EVENT)] | None = None
    """Source of dataset.version in a run that the asset starts: partition_key (one run per
    partition), or extra.KEY of the event. It is published. Null: dataset.version."""
    wait: float | None = Field(default=None, gt=0)
    """Hours that a run waits for the file, or for a row of the query or table, before it fails.
    Null: it does not wait."""
    dag: dict[DagArgument, Any] = Field(default={})
    """Airflow's arguments of the DAG (timezone, dagrun_timeout, max_active_runs,
    max_consecutive_failed_dag_runs, owner_links), of all its tasks (retries, execution_timeout,
    owner, priority_weight, weight_rule), and the deadline of a run, which alerts tell of. Times as
    PT6H. Errors that a retry cannot repair fail at once; attempts that the platform kills are not
    counted."""
    tasks: dict[Task, dict[TaskArgument, Any]] = Field(default={})
    """Airflow's arguments of single tasks, by name: generate on machines with a GPU, partition and
    evaluate on those that may see private data."""

    @field_validator("dag", "tasks")
    @classmethod
    def _read_times(cls, value: dict[Any, Any], info: ValidationInfo) -> dict[Any, Any]:
        try:
            if info.field_name == "tasks":
                return {task: _with_times(arguments) for task, arguments in value.items()}
            ZoneInfo(str(value.get("timezone", "UTC")))
            return _with_times(value)
        except (ValidationError, ZoneInfoNotFoundError):
            raise ValueError(
                "timezone is a name such as Europe/Berlin, times are above 0, such as PT6H, and "
                "retries a number from 0 to 20"
            ) from None

    @model_validator(mode="after")
    def _by_time_or_by_asset(self) -> ScheduleConfig:
        if self.cron is not None and self.asset is not None:
            raise ValueError("cron and asset exclude each other: set one of them to null")
        if self.version is not None and self.asset is None:
            raise ValueError(f"version={self.version} needs asset: its events carry the version")
        return self


EVENTS = ("refused", "failed_validation", "lost", "few_left", "published", "late")
"""What alerts tell of."""


class Config(Section):
    """The whole of params.yaml."""

    dataset: DatasetConfig
    account: AccountConfig
    privacy: PrivacyConfig
    columns: ColumnsConfig = ColumnsConfig()
    models: ModelsConfig = ModelsConfig()
    methods: dict[str, Any] = Field(default_factory=dict)
    pipeline: tuple[str, ...] = ()
    """Methods that `dvc repro` runs, each with a release and a charge. The first is the default of
    --method. distill: students, at no charge."""
    validation: ValidationConfig = ValidationConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    performance: PerformanceConfig = PerformanceConfig()
    services: ServicesConfig = ServicesConfig()
    signing: SigningConfig = SigningConfig()
    deployment: dict[Card, Annotated[str, Field(min_length=1, max_length=4000)]] = Field(default={})
    """What records of a release say and no certificate can know, by field: a text."""
    schedule: dict[str, ScheduleConfig] = Field(default_factory=dict)
    """By method. Beside them `tasks`: those of every method, under a method's own."""
    alerts: tuple[dict[str, Any], ...] = Field(
        default=(),
        description="Notifiers of Airflow: the `class` of each, the `events` that it hears of "
        f"({', '.join(EVENTS)}; by default all), and its arguments.",
    )

    @field_validator("schedule", mode="before")
    @classmethod
    def _tasks_of_all(cls, value: Any) -> Any:
        """Give every method the tasks of ``schedule.tasks``, under what it sets itself."""
        if not isinstance(value, Mapping) or "tasks" not in value:
            return value
        common = _validate(ScheduleConfig, {"tasks": value["tasks"]}, prefix="schedule.").tasks
        sections = {name: value.get(name) or {} for name in {*METHODS, *value} - {"tasks"}}
        for name, section in sections.items():
            own = _validate(ScheduleConfig, section, prefix=f"schedule.{name}.")
            both = {
                task: common.get(task, {}) | own.tasks.get(task, {}) for task in common | own.tasks
            }
            sections[name] = own.model_copy(update={"tasks": both})
        return sections

    @field_validator("alerts")
    @classmethod
    def _name_classes(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for notifier in value:
            if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", str(notifier.get("class"))):
                raise ValueError(
                    "each needs the full name of a class, such as "
                    "{class: airflow.providers.smtp.notifications.smtp.SmtpNotifier, to: a@b.org}"
                )
            if unknown := {*notifier.get("events", ())} - {*EVENTS}:
                raise ValueError(f"events has {min(unknown)}, and knows {', '.join(EVENTS)}")
        return value

    @model_validator(mode="after")
    def _schedules_what_it_can(self) -> Config:
        for name, schedule in self.schedule.items():
            if "deadline" in schedule.dag and not self.alerts:
                raise ValueError(f"schedule.{name}.dag.deadline needs alerts to tell of it")
        return self

    @model_validator(mode="after")
    def _audits_what_was_held_out(self) -> Config:
        if self.evaluate.audit == "block" and not self.dataset.holdout:
            raise ValueError(
                "evaluate.audit=block needs dataset.holdout above 0: without units that are held "
                "out by keyed hash no audit can let a release through"
            )
        return self

    @model_validator(mode="after")
    def _columns_can_be_drawn(self) -> Config:
        if why := self.columns.why_not(list(self.dataset.columns)):
            raise ValueError(f"columns.{why}")
        if self.dataset.text is None and self.evaluate.paid is not None:
            raise ValueError("evaluate.paid is of a classifier of texts, and dataset.text is null")
        return self

    @model_validator(mode="after")
    def _stores_lie_apart(self) -> Config:
        """Readers of releases must not find records, and no store may delete another's objects."""
        places = {
            "dataset.path": self.dataset.path,
            "dataset.test_path": self.dataset.test_path,
            "services.vault": self.services.vault,
            "services.releases": self.services.releases,
        }
        urls = [(name, _url(at)) for name, at in places.items() if at]
        for (name, url), (other, its) in combinations(urls, 2):
            # Two parts of a dataset may lie in one folder; only stores delete, and only stores are
            # shared.
            if other.startswith("services.") and overlap(url, its):
                raise ValueError(
                    f"{other}={its} and {name}={url} overlap: use separate folders, neither of "
                    "which is inside the other"
                )
        return self

    @model_validator(mode="after")
    def _unit_ids_where_rows_shift(self) -> Config:
        if self.account.adjacency is Adjacency.ADD_REMOVE and self.dataset.unit is None:
            raise ValueError(
                "account.adjacency=add_remove needs dataset.unit: without unit ids a removed row "
                "shifts every later one. Name the id column, or use replace_null"
            )
        if self.dataset.unit is None and self.dataset.max_records_per_unit != 1:
            raise ValueError(
                f"dataset.max_records_per_unit={self.dataset.max_records_per_unit} needs "
                "dataset.unit: without it every row is its own unit"
            )
        return self

    @property
    def unit(self) -> PrivacyUnit:
        """The privacy unit: the account's name, and the dataset's bound on records per unit."""
        return PrivacyUnit(self.account.unit, self.dataset.max_records_per_unit)

    @property
    def first_method(self) -> str:
        """Default method: the first of the pipeline that makes releases."""
        # `distill` may come first in a pipeline, but makes no release.
        return next((name for name in self.pipeline if name in METHODS), FIRST)

    def method(self, name: str) -> Any:
        """Settings of one method, or of ``distill``, validated against their own model.

        Raises:
            ConfigError: The method is unknown, or one of its settings is out of bounds.
        """
        model, prefix = settings_model(name), f"methods.{name}."
        return _validate(model, self._values(name, model, prefix), prefix=prefix)

    def preset(self, name: str) -> str | None:
        """The preset that a method's section names; None where it names none."""
        section = self.methods.get(name)
        return section.get(PRESET) if isinstance(section, Mapping) else None

    def changed(self, name: str) -> list[str]:
        """The lines of a method's section that give another value than its preset has."""
        section = self.methods[name]
        bare = {key: section[key] for key in (PRESET, "modality") if key in section}
        its = self.model_copy(update={"methods": {name: bare}}).method(name).model_dump()
        mine = self.method(name).model_dump()
        return [key for key in section if mine.get(key) != its.get(key)]

    def _values(self, name: str, model: type[Section], prefix: str) -> Any:
        """A section, on top of the values of the preset that it names.

        Raises:
            ConfigError: There is no such preset.
        """
        section = self.methods.get(name) or {}
        if not isinstance(section, Mapping) or PRESET not in section:
            return section
        preset = section[PRESET]
        if preset is not None and preset not in model.presets:
            raise ConfigError(
                f"{prefix}{PRESET}={preset!s:.40} is no set of values.",
                hint=f"methods.{name} has {' and '.join(model.presets) or 'none'}.",
            )
        shipped = "text" if self.dataset.images is None else "image"
        images = section.get("modality", shipped) == "image"
        sets = model.image_presets if images and model.image_presets else model.presets
        values = sets[preset] if preset is not None else {}
        lines = {key: section[key] for key in section if key != PRESET}
        if isinstance(inner := lines.get("text"), Mapping):  # a section of its own
            lines["text"] = {**values.get("text", {}), **inner}
        return {**values, **lines}


def environment_overrides() -> tuple[str, ...]:
    """``a.b.c=value`` settings from PRIVSYN_OVERRIDES, a JSON list.

    They belong to the operator of the machine, such as the ledger of a deployment. Unlike ``-S``
    they do not appear in a list of processes, so they may hold a password.

    Raises:
        ConfigError: The variable is not a JSON list of strings.
    """
    raw = os.environ.get(OVERRIDES)
    if not raw:
        return ()
    try:
        items = parse_json(raw)
    except ValueError:
        items = None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        # Not quoted: the variable may hold a password.
        raise ConfigError(f'{OVERRIDES} must be a JSON list such as ["privacy.epsilon=4"].')
    return tuple(items)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read params.yaml and apply ``a.b.c=value`` overrides (values are YAML).

    Raises:
        ConfigError: The file is missing or not YAML, a key is unknown (with the nearest known one),
            or a value is out of bounds.
    """
    try:
        raw = parse_yaml(read_file(path))
    except FileNotFoundError:
        raise ConfigError(
            f"params file {path} does not exist.",
            hint="Run from the project folder or pass --params.",
        ) from None
    except ValueError as error:
        raise ConfigError(f"params file {path} {error}") from None
    except OSError as error:
        raise ConfigError(f"params file {path} cannot be read: {error.strerror}.") from None
    return parse_config(raw, overrides)


_DEEP = "is nested too deeply for a config."


def parse_config(raw: Any, overrides: Sequence[str] = ()) -> Config:
    """Validate a mapping from YAML, with ``a.b.c=value`` overrides. Raises as load_config."""
    if not isinstance(raw, Mapping):
        raise ConfigError("params.yaml must be a mapping with dataset, account, privacy, methods.")
    try:
        # Overrides write into it, and YAML aliases may make two sections one object.
        merged = _deep_copy(raw)
    except RecursionError:  # also a YAML alias that contains itself
        raise ConfigError(f"params.yaml {_DEEP}") from None
    sections = merged.get("methods")
    for name, section in (sections if isinstance(sections, dict) else {}).items():
        sections[name] = _as_section(section)
    for item in overrides:
        override(merged, item)
    config: Config = _validate(Config, merged, prefix="")
    for name in config.methods:
        config.method(name)  # a wrong section is refused even if another method runs
    for place, name in enumerate(config.pipeline):
        if name not in config.methods:
            config.method(name)  # refuses an unknown name
        if name in config.pipeline[:place]:
            raise ConfigError(f"pipeline={list(config.pipeline)} names {name} twice.")
    return config


def _deep_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _deep_copy(item) for key, item in value.items()}
    return value


def override(raw: dict[str, Any], item: str) -> None:
    """Write one ``a.b.c=value`` into a mapping from YAML. Raises as load_config."""
    key, equals, text = item.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        named = item if re.fullmatch(r"[\w. -]*=?", item) else "..."  # it may hold a password
        raise ConfigError(f"override {named!r} is not of the form a.b.c=value.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        shown = "" if key.strip().startswith("services") else f" {text!r}"  # URLs hold passwords
        raise ConfigError(
            f"override {key}: the value{shown} is not valid YAML.",
            hint="Close its quotes and brackets: {date:%Y-%m} is written "
            f"-S '{key}=\"{{date:%Y-%m}}\"'."
            if "{" in text
            else "Write single quotes around the whole, and double quotes around the value.",
        ) from None
    except RecursionError:
        raise ConfigError(f"override {key}: the value {_DEEP}") from None
    node = raw
    for part in parts[:-1]:
        child = node.get(part)
        # A section that is null or on no line in the file becomes one.
        if not isinstance(child, dict):
            child = node[part] = {}
        node = child
    node[parts[-1]] = _as_section(value) if node is raw.get("methods") else _number(value)


def _as_section(section: Any) -> Any:
    """The section of a method; a word in its place is the name of a preset."""
    return {PRESET: section} if isinstance(section, str) else section


def _number(value: Any) -> Any:
    """A number for texts such as 1e-6, which YAML 1.1 reads as strings."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def _validate(model: type[BaseModel], raw: Any, prefix: str) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        # Methods are plain mappings in Config, so a misspelled name is looked for in each of them.
        methods = {f"methods.{name}.": settings_model(name) for name in METHODS}
        raise ConfigError(explain(model, error, prefix, {} if prefix else methods)) from None
    except RecursionError:
        raise ConfigError(f"{prefix or 'params.yaml '}{_DEEP}") from None


def as_overrides(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings by dotted name as ``a.b.c=value``.

    Raises:
        ConfigError: No setting can have such a value. The value is not shown.
    """
    return tuple(f"{key}={_plain(key, value)}" for key, value in settings.items())


def _plain(key: str, value: Any) -> str:
    try:
        # JSON is YAML, which the overrides are read as, and it quotes what YAML would read as
        # another type.
        return json.dumps(str(value) if isinstance(value, Path) else value)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{key} is a {type(value).__name__}, which is no setting.",
            hint="Give a word, a number, true or false, or a list or dict of such.",
        ) from None
