"""params.yaml as frozen models: the only config file, and every driver's ``-S a.b.c=value``.

Privacy settings (``account``, ``privacy``, ``methods``, and the parts of ``dataset`` and ``models``
that shape the output) enter the release id. ``performance`` settings never change an output.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import date as Date
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.errors import ConfigError
from privsyn.spelling import explain

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
"""A column in a form over several."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class Section(BaseModel):
    """A frozen part of the config that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class ImageConfig(Section):
    """Records are images: the one form all of them are brought to."""

    size: int = Field(ge=1, le=1024, description="Side in pixels; images are stretched to squares.")
    mode: Literal["L", "RGB"] = Field(default="RGB", description="L: grey. RGB: colour.")
    column: str = Field(
        default="image",
        min_length=1,
        description="Column (Parquet) or array (.npz) of the images. An .npz without an array "
        "image may call it images, train_images, x_train, data or x.",
    )


class DatasetConfig(Section):
    """The private file and what its columns mean."""

    name: str = Field(pattern=NAME, description="Lineage: the dataset over all its versions.")
    path: Path = Field(
        description="JSONL, CSV or Parquet, plain or .gz, .zst, .bz2, .xz. Of images: a folder "
        "with a sub-folder per label, .npz or Parquet."
    )
    version: str = Field(
        default="v1",
        pattern=r"^[A-Za-z0-9{][A-Za-z0-9_.:%{}-]{0,63}$",
        description="Opaque version, set on a public schedule, never read from the data. "
        "{date:%Y-%m} stands for the run's logical date.",
    )
    text: str = Field(
        default="text",
        min_length=1,
        description="Column of the text, or a form over several, such as "
        '\'Phrase: "{answer}" Text: "{text}"\'.',
    )
    images: ImageConfig | None = Field(
        default=None, description="Records are images of this form. Null: texts."
    )
    label: str | None = Field(
        default=None,
        description="Column of the label. In a folder of images the label is the sub-folder's "
        "name, whatever this says.",
    )
    labels: tuple[str, ...] = Field(
        default=(), description="The public list of labels; records with any other are dropped."
    )
    unit: str | None = Field(
        default=None,
        description="Column of the stable unit id. Null: every row is its own unit. In a folder of "
        "images every file is a unit, named by its path: write file.",
    )
    max_records_per_unit: int = Field(
        default=1, ge=1, le=10_000, description="Records of a unit that are used (m)."
    )
    holdout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="Share of units, by keyed hash, held out for internal evaluation.",
    )
    test_path: Path | None = Field(
        default=None, description="A separate file of held-out real records, same columns."
    )

    @model_validator(mode="after")
    def _labels_go_with_a_column(self) -> DatasetConfig:
        if (self.label is None) != (not self.labels):
            raise ValueError(
                "label and labels go together: the label set is public and is never read from data"
            )
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"labels={list(self.labels)} holds a label twice")
        return self

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns a text is made of, in the order they are first named."""
        return tuple(dict.fromkeys(PLACEHOLDER.findall(self.text))) or (self.text,)

    def resolved(self, day: Date) -> DatasetConfig:
        """This config with ``{date:...}`` in the version filled in from a run's logical date."""
        try:
            version = self.version.format(date=day)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"dataset.version={self.version!r} is not a valid pattern ({error}).",
                hint="Use a literal such as v1, or {date:%Y-%m}.",
            ) from None
        if not re.match(NAME, version):
            raise ConfigError(
                f"dataset.version={version!r} must match {NAME}.", hint="Use letters and digits."
            )
        return self.model_copy(update={"version": version})


class PeriodConfig(Section):
    """A second filter over a sliding window; it renews nothing of the lifetime cap."""

    days: int = Field(ge=1, le=3660, description="Length of the window in days.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Cap within the window.")


class AccountConfig(Section):
    """The privacy account all versions of the dataset share."""

    name: str = Field(pattern=NAME, description="Account name in the ledger.")
    unit: str = Field(
        default="record", pattern=NAME, description="What is protected: record, patient, user."
    )
    adjacency: Adjacency = Field(description="add_remove, replace_null or replace_one.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Lifetime cap.")
    delta: float = Field(ge=0, lt=1, allow_inf_nan=False, description="Lifetime cap's delta.")
    period: PeriodConfig | None = Field(default=None, description="Optional cap per window.")


class PrivacyConfig(Section):
    """What this release may cost."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Epsilon of this release.")
    delta: float = Field(gt=0, lt=1, allow_inf_nan=False, description="Delta of this release.")
    draw: int = Field(
        default=0,
        ge=0,
        description="Number of the draw. The same draw returns the same release at no cost; "
        "a higher number makes a fresh one and is charged.",
    )


class ServerConfig(Section):
    """An OpenAI-compatible server that completes prompts for a method.

    It is sent public and privatised text only. The address, the model and ``chat`` are part of a
    release's identity; the rest changes how fast and how patiently the server is asked.
    """

    url: str = Field(
        description="Address below which the API lies, such as https://api.openai.com/v1 or "
        "http://localhost:8000/v1. No key in it."
    )
    model: str = Field(min_length=1, max_length=200, description="Model name, as the server knows.")
    key_variable: str | None = Field(
        default="OPENAI_API_KEY",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable that holds the key; the key itself is never in a config. "
        "Null: a server that asks for none.",
    )
    chat: bool = Field(
        default=True, description="Send chat messages; false: plain completions (/completions)."
    )
    concurrency: int = Field(default=8, ge=1, le=256, description="Requests under way at a time.")
    max_requests: int = Field(
        default=10_000,
        ge=1,
        description="Requests a process may send, retries included; the run stops before the next.",
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, le=3600, description="Longest wait for one answer."
    )
    retries: int = Field(
        default=5,
        ge=0,
        le=20,
        description="Further attempts after 429, 5xx, a timeout or an answer that makes no sense.",
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            usable = usable and parts.port != 0
        except ValueError:
            usable = False
        if not usable or "@" in value or "?" in value or "#" in value or not value.isprintable():
            raise ValueError("not an http(s) address without user, password and query")
        return value.rstrip("/")


class ModelsConfig(Section):
    """The models a method reads."""

    language: str = Field(
        default="builtin", min_length=1, description="builtin, a local directory, or a hub id."
    )
    revision: str | None = Field(default=None, description="Commit of a hub model.")
    embedder: str = Field(
        default="builtin",
        min_length=1,
        description="Sentence embedder: builtin, a local directory, or a hub id.",
    )
    embedder_revision: str | None = Field(default=None, description="Commit of a hub embedder.")
    server: ServerConfig | None = Field(
        default=None,
        description="Server that completes prompts. Null: models.language does, on this machine.",
    )
    image: str = Field(
        default="builtin",
        min_length=1,
        description="Generator of images: builtin, simulator, a local directory, or a hub id.",
    )
    image_revision: str | None = Field(default=None, description="Commit of a hub generator.")
    image_steps: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Denoising steps of a fresh image. Null: the model folder's own.",
    )
    image_guidance: float | None = Field(
        default=None,
        ge=1,
        le=100,
        allow_inf_nan=False,
        description="Weight of the class or prompt; 1 is none. Null: the model folder's own.",
    )
    image_prompt: str = Field(
        default="{label}",
        min_length=1,
        description="Prompt of a text-to-image model; {label} stands for the label.",
    )
    image_embedder: str = Field(
        default="builtin",
        min_length=1,
        description="Encoder of images: builtin, a local directory, or a hub id.",
    )
    image_embedder_revision: str | None = Field(
        default=None, description="Commit of a hub encoder of images."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Numeric type of the weights."
    )
    trust_remote_code: bool = Field(
        default=False, description="Run code that a hub model brings. Leave off unless you read it."
    )


class PerformanceConfig(Section):
    """Settings that change speed and memory and never an output."""

    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N.")
    rows_per_pass: int = Field(default=64, ge=1, description="Private rows per forward pass.")
    texts_per_pass: int = Field(default=64, ge=1, description="Texts decoded together at most.")
    cache_gb: float = Field(
        default=8.0,
        gt=0,
        description="Memory for attention keys and values, in GB. Rows beyond it are read anew at "
        "every token.",
    )
    shards: int = Field(default=4, ge=1, le=1000, description="Parts of a release (mapped tasks).")
    threads: int | None = Field(default=None, ge=1, description="CPU threads of the model.")
    checkpoint_steps: int = Field(
        default=10,
        ge=1,
        description="Training steps from one checkpoint to the next; a killed run repeats at most "
        "so many.",
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="Compute activations again in the backward pass: less memory, more time.",
    )
    processes: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that train together (torchrun), one GPU each where there are GPUs.",
    )


class ValidationConfig(Section):
    """The Great Expectations suite of the synthetic file."""

    suite: str | None = Field(
        default=None,
        description="Name of a shipped suite (text, images), or a path to a JSON. Null: text or "
        "images, as the dataset holds.",
    )
    min_chars: int = Field(default=1, ge=0, description="Shortest text allowed, in characters.")
    max_chars: int = Field(default=4000, ge=1, description="Longest text allowed, in characters.")
    min_share: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="Share of rows that must keep the soft bounds (length, duplicates).",
    )
    max_duplicate_share: float = Field(default=0.05, ge=0, le=1, description="Duplicates allowed.")
    forbid: tuple[Literal["email", "phone", "record_number"], ...] = Field(
        default=(), description="Patterns no synthetic text may contain."
    )
    record_number_pattern: str = Field(
        default=r"\b[A-Z]{2,4}-\d{5,8}\b", description="What a record number looks like."
    )
    json_schema: Path | None = Field(
        default=None, description="JSON schema every text must satisfy (structured records)."
    )
    min_json_share: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of texts that must be JSON, and of those that must satisfy the schema.",
    )
    min_spread: int = Field(
        default=8, ge=0, le=255, description="Smallest range of the values of an image, 0 to 255."
    )
    min_rows_per_label: int = Field(
        default=1, ge=0, description="Fewest images of each declared label."
    )

    @model_validator(mode="after")
    def _bounds_in_order(self) -> ValidationConfig:
        if self.min_chars > self.max_chars:
            raise ValueError(f"min_chars={self.min_chars} is above max_chars={self.max_chars}")
        return self

    @field_validator("record_number_pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value


class EvaluateConfig(Section):
    """Internal evaluation against held-out real records."""

    enabled: bool = Field(default=True, description="Train on synthetic, test on held-out real.")
    embeddings: bool = Field(
        default=True, description="Compare texts by sentence embeddings too (models.embedder)."
    )
    embedded_texts: int = Field(
        default=2000, ge=2, description="Texts a side that are embedded at most."
    )
    classifier: bool = Field(
        default=False,
        description="Train a 3-layer network on the synthetic vectors too, with and without Deep "
        "CORAL. Needs embeddings and labels; embeds up to embedded_texts held-out texts however "
        "few the synthetic ones are.",
    )


class ServicesConfig(Section):
    """Where the ledger, the lineage and the published artifacts live."""

    ledger: str | None = Field(
        default=None, description="SQLAlchemy URL. Null: .privsyn/ledger.db in the project."
    )
    mlflow: str | None = Field(
        default=None, description="Tracking URI. Null: .privsyn/mlflow.db in the project."
    )
    experiment: str = Field(default="privsyn", description="MLflow experiment.")
    mlflow_ui: str = Field(
        default="http://127.0.0.1:5000", description="Address of the MLflow UI, for links."
    )
    dvc_remote: str | None = Field(default=None, description="DVC remote. Null: the default one.")
    git_commit: bool = Field(
        default=False, description="Commit the published DVC files to git as a step of publish."
    )


class ScheduleConfig(Section):
    """How the DAG of a method runs."""

    cron: str | None = Field(default=None, description="Airflow schedule; null: by hand only.")
    retries: int = Field(default=2, ge=0, le=20, description="Retries of a task.")
    retry_delay_seconds: int = Field(default=30, ge=0, description="Pause before a retry.")
    gpu_pool: str = Field(default="gpu", description="Airflow pool of the generate tasks.")


class Config(Section):
    """The whole of params.yaml."""

    dataset: DatasetConfig
    account: AccountConfig
    privacy: PrivacyConfig
    models: ModelsConfig = ModelsConfig()
    methods: dict[str, Any] = Field(default_factory=dict)
    validation: ValidationConfig = ValidationConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    performance: PerformanceConfig = PerformanceConfig()
    services: ServicesConfig = ServicesConfig()
    schedule: dict[str, ScheduleConfig] = Field(default_factory=dict)

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
        """The privacy unit: the account's name for it, the dataset's bound on its records."""
        return PrivacyUnit(self.account.unit, self.dataset.max_records_per_unit)

    def method(self, name: str) -> Any:
        """Settings of one method, or of ``distill``, validated against their own model.

        Raises:
            ConfigError: Unknown method, or a setting of it is out of bounds.
        """
        from privsyn.methods.base import settings_model

        model = settings_model(name)
        return _validated(model, self.methods.get(name) or {}, prefix=f"methods.{name}.")


OVERRIDES = "PRIVSYN_OVERRIDES"


def environment_overrides() -> tuple[str, ...]:
    """``a.b.c=value`` settings from PRIVSYN_OVERRIDES, a JSON list.

    They belong to whoever runs the machine: a deployment's ledger, say. Unlike ``-S`` they are not
    seen in a list of processes, so they may hold a password.

    Raises:
        ConfigError: The variable is not a JSON list of strings.
    """
    raw = os.environ.get(OVERRIDES)
    if not raw:
        return ()
    try:
        items = json.loads(raw)
    except ValueError:
        items = None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f'{OVERRIDES} must be a JSON list such as ["privacy.epsilon=4"].')
    return tuple(items)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read params.yaml and apply ``a.b.c=value`` overrides (values are YAML).

    Raises:
        ConfigError: The file is missing or not YAML, a key is unknown (the nearest known one is
            named), or a value is out of bounds.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"params file {path} does not exist.",
            hint="Run from the project folder or pass --params.",
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"params file {path} is not valid YAML{line}.") from None
    except OSError as error:
        raise ConfigError(f"params file {path} cannot be read: {error.strerror}.") from None
    return parse_config(raw, overrides)


def parse_config(raw: Any, overrides: Sequence[str] = ()) -> Config:
    """Validate a mapping as read from YAML. See load_config."""
    if not isinstance(raw, Mapping):
        raise ConfigError("params.yaml must be a mapping with dataset, account, privacy, methods.")
    merged = _deep_copy(raw)
    for item in overrides:
        _override(merged, item)
    config: Config = _validated(Config, merged, prefix="")
    for name in config.methods:
        config.method(name)  # a bad section is refused whichever method is run
    return config


def _deep_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _deep_copy(item) for key, item in value.items()}
    return value


def _override(raw: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override {item!r} is not of the form a.b.c=value.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"override {key}: the value {text!r} is not valid YAML.") from None
    node = raw
    for part in parts[:-1]:
        child = node.get(part)
        if not isinstance(child, dict):
            child = node[part] = {}
        node = child
    node[parts[-1]] = _number(value)


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-6 as a string; a user means a number."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def _validated(model: type[BaseModel], raw: Any, prefix: str) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(explain(model, error, prefix)) from None
