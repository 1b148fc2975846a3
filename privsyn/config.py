"""params.yaml as frozen models: the only config file, and every driver's ``-S a.b.c=value``.

Privacy settings (``account``, ``privacy``, ``methods``, and the parts of ``dataset`` and ``models``
that shape the output) enter the release id. ``performance`` settings never change an output.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date as Date
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.errors import ConfigError
from privsyn.files import parse_json, read_file
from privsyn.on_disk import OnDisk, Sha256
from privsyn.spelling import explain

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
"""A column in a form over several."""

RESERVED = ("builtin", "tiny", "smollm2", "random", "simulator", "text", "images")
"""Words that stand for what ships with privsyn where a file might be named."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class Section(BaseModel):
    """A frozen part of the config that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def _local(value: Any) -> Any:
    """A path on this machine: ``~`` is the home folder, an address of another place is refused."""
    if isinstance(value, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", value):
        scheme = value.partition(":")[0].lower()
        raise ValueError(
            f"{scheme}:// is an address, and privsyn reads files of this machine: copy or mount "
            "it, and name the path it then has"
        )
    try:
        return Path(value).expanduser() if isinstance(value, str | Path) else value
    except RuntimeError:
        raise ValueError(f"{str(value)!r}: no home folder is known of this user") from None


_ENCODINGS = (
    "Use utf-8, latin-1, windows-1252 or the like, or convert the file: iconv -f NAME -t UTF-8"
)

LocalPath = Annotated[Path, BeforeValidator(_local)]
"""A file or folder of this machine, relative to the project folder."""


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
    path: Annotated[LocalPath, OnDisk("private")] = Field(
        description="JSONL, CSV, TSV or Parquet, plain or .gz, .zst, .bz2, .xz. Of images: a "
        "folder with a sub-folder per label, .npz or Parquet. {date:%Y-%m} as in version."
    )
    version: str = Field(
        default="v1",
        pattern=r"^[A-Za-z0-9{][A-Za-z0-9_.:%{}-]{0,63}$",
        description="Opaque version, set on a public schedule, never read from the data. "
        "{date:%Y-%m} stands for the run's logical date.",
    )
    same_source: bool = Field(
        default=False,
        description="Pay for a version whose file has the same content as that of an earlier one.",
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
    document: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="What a record is, in a few public words for the default prompts, such as "
        "message from a patient to a clinic.",
    )
    label_descriptions: dict[str, str] = Field(
        default={},
        description="What prompts say for a label, where its own name says little: public.",
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
    test_path: Annotated[LocalPath, OnDisk("private")] | None = Field(
        default=None,
        description="A separate file of held-out real records, same columns. {date:...} as in "
        "version.",
    )
    encoding: str = Field(
        default="utf-8",
        max_length=40,
        description="Of JSONL, CSV and TSV: utf-8, or one of a byte per character, such as "
        "latin-1 or windows-1252.",
    )
    delimiter: str | None = Field(
        default=None,
        description="Between the columns of a CSV: one character. Null: a comma, in .tsv a tab.",
    )
    check: bool = Field(
        default=True,
        description="Before the budget is spent, look whether the file holds any record that the "
        "release can use; refuse where it does not. That one bit is all that is read.",
    )

    @field_validator("encoding")
    @classmethod
    def _reads_rows_apart(cls, value: str) -> str:
        """A codec with a state, or of several bytes, could let one row change how others read."""
        try:
            known = codecs.lookup(value)
        except (LookupError, UnicodeError, ValueError):
            raise ValueError(f"{value!r} is not known. {_ENCODINGS}") from None
        if known.name in ("utf-8", "utf-8-sig"):  # a mark at the beginning is skipped anyway
            return "utf-8"
        module = sys.modules[getattr(known.incrementaldecoder, "__module__", __name__)]
        table = str(getattr(module, "decoding_table", ""))
        if known.name in ("ascii", "iso8859-1") or table[:128] == bytes(range(128)).decode():
            return known.name
        raise ValueError(f"{value!r} is not of a byte per character. {_ENCODINGS}")

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or value in '"\r\n\0' or not value.isascii()):
            raise ValueError(f'{value!r} must be one ASCII character, such as ";" or "\\t"')
        return value

    @model_validator(mode="after")
    def _labels_go_with_a_column(self) -> DatasetConfig:
        if (self.label is None) != (not self.labels):
            raise ValueError(
                "label and labels go together: the label set is public and is never read from data"
            )
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"labels={list(self.labels)} holds a label twice")
        return self

    @model_validator(mode="after")
    def _prompts_can_hold_them(self) -> DatasetConfig:
        if unknown := set(self.label_descriptions) - set(self.labels):
            raise ValueError(
                f"label_descriptions describes {min(unknown)!r}, which is none of the labels"
            )
        said = {"document": self.document or ""} | {
            f"label_descriptions[{label!r}]": text
            for label, text in self.label_descriptions.items()
        }
        for name, text in said.items():
            if set(text) & set("{}\n\r") or text != text.strip():
                raise ValueError(f"{name}={text!r} must be one line without braces or outer spaces")
            if not text and name != "document":
                raise ValueError(f"{name} is empty")
        return self

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns a text is made of, in the order they are first named."""
        return tuple(dict.fromkeys(PLACEHOLDER.findall(self.text))) or (self.text,)

    def resolved(self, day: Date) -> DatasetConfig:
        """This config with ``{date:...}`` in version and paths filled in from a logical date."""
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
        return self.model_copy(update={"version": version}).dated(self.dates(day))

    def dates(self, day: Date) -> tuple[str, ...]:
        """What each ``{date:...}`` in the paths stands for on a logical date."""
        paths = f"{self.path}\0{self.test_path or ''}"
        return tuple(format(day, found[1] or "") for found in DATE.finditer(paths))

    def dated(self, dates: Sequence[str]) -> DatasetConfig:
        """This config with the paths filled in with what ``dates`` gave."""
        left = iter(dates)
        update = {"path": _filled(self.path, left)}
        if self.test_path is not None:
            update["test_path"] = _filled(self.test_path, left)
        return self.model_copy(update=update)


DATE = re.compile(r"\{date(?::([^{}]*))?\}")
"""Where a run's logical date goes in a path; other braces in it are the file system's."""


def _filled(path: Path, dates: Iterator[str]) -> Path:
    return Path(DATE.sub(lambda _: next(dates), str(path)))


def of_any_day(path: Path) -> list[Path]:
    """All that is there of a path with ``{date:...}`` in it; of another one the path itself."""
    if not DATE.search(str(path)):
        return [path]
    pieces = [glob.escape(piece) for piece in DATE.sub("\0", str(path)).split("\0")]
    return [Path(found) for found in sorted(glob.glob("*".join(pieces)))]


class PeriodConfig(Section):
    """A second filter over a sliding window; it renews nothing of the lifetime cap."""

    days: int = Field(ge=1, le=3660, description="Length of the window in days.")
    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Cap within the window.")


class LimitsConfig(Section):
    """The account's policy: what no single release may exceed, however much is left."""

    epsilon: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Largest privacy.epsilon of a release."
    )
    delta: float | None = Field(
        default=None, gt=0, lt=1, description="Largest privacy.delta of a release."
    )


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
    public_size: int | None = Field(
        default=None,
        ge=1,
        description="Public estimate of how many units there are; a delta is judged by it. Never "
        "counted from the data.",
    )
    limits: LimitsConfig = Field(
        default=LimitsConfig(), description="What no single release may exceed."
    )
    strict: bool = Field(
        default=False,
        description="Refuse a private file that another account has paid for, instead of warning.",
    )
    methods: tuple[str, ...] = Field(
        default=(),
        description="Methods the account is opened for, such as [invisible_ink]. They decide how "
        "its delta is shared by its filters; every method may use it. Fixed at opening.",
    )


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

    language: Annotated[str, OnDisk("model", ("smollm2", "tiny", "builtin"))] = Field(
        default="smollm2",
        min_length=1,
        description="smollm2 (fetched once: `privsyn models fetch smollm2`), tiny (shipped, also "
        "called builtin), a local directory, a GGUF file, or a hub id.",
    )
    revision: str | None = Field(default=None, description="Commit of a hub model.")
    embedder: Annotated[str, OnDisk("model", ("builtin",))] = Field(
        default="builtin",
        min_length=1,
        description="Sentence embedder: builtin, a local directory, or a hub id.",
    )
    embedder_revision: str | None = Field(default=None, description="Commit of a hub embedder.")
    server: ServerConfig | None = Field(
        default=None,
        description="Server that completes prompts. Null: models.language does, on this machine.",
    )
    image: Annotated[str, OnDisk("model", ("builtin", "simulator"))] = Field(
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
    image_embedder: Annotated[str, OnDisk("model", ("builtin",))] = Field(
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
    """Settings of speed and memory, which change neither the cost nor the id of a release.

    What is drawn has the same distribution up to rounding. Its bits may differ: rows per pass and
    device change how numbers are rounded, shards which journal draws what.
    """

    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N.")
    rows_per_pass: int = Field(default=64, ge=1, description="Private rows per forward pass.")
    texts_per_pass: int = Field(default=64, ge=1, description="Texts decoded together at most.")
    cache_gb: float = Field(
        default=8.0,
        gt=0,
        description="Memory for attention keys and values, in GB. Rows beyond it are read anew at "
        "every token.",
    )
    shards: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Parts of a release (mapped tasks), each of which loads the model. Null: one a "
        "GPU of the machine that plans, one where there is none.",
    )
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

    suite: Annotated[str, OnDisk("file", ("text", "images"), pinned=True)] | None = Field(
        default=None,
        description="A shipped suite (text, images), a name under files, or a JSON file. Null: "
        "text or images, as the dataset holds.",
    )
    suite_digest: Sha256 | None = Field(default=None, description="SHA-256 a suite file must have.")
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
    json_schema: Annotated[LocalPath, OnDisk("file", pinned=True)] | None = Field(
        default=None,
        description="JSON schema every text must satisfy (structured records): a file, or a name "
        "under files.",
    )
    json_schema_digest: Sha256 | None = Field(
        default=None, description="SHA-256 the schema file must have."
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
    public_alone: bool = Field(
        default=True,
        description="Have the public model write as many texts alone and measure them too: no "
        "private data, no budget; kept once written.",
    )
    classifier: bool = Field(
        default=False,
        description="Train a 3-layer network on the synthetic vectors too, with and without Deep "
        "CORAL. Needs embeddings and labels; embeds up to embedded_texts held-out texts however "
        "few the synthetic ones are.",
    )


class ServicesConfig(Section):
    """Where the ledger, the lineage and the published artifacts live."""

    ledger: Annotated[str, OnDisk("place")] | None = Field(
        default=None, description="SQLAlchemy URL. Null: .privsyn/ledger.db in the project."
    )
    mlflow: Annotated[str, OnDisk("place")] | None = Field(
        default=None, description="Tracking URI. Null: .privsyn/mlflow.db in the project."
    )
    experiment: str = Field(default="privsyn", description="MLflow experiment.")
    mlflow_ui: str = Field(
        default="http://127.0.0.1:5000", description="Address of the MLflow UI, for links."
    )
    dvc_remote: Annotated[str, OnDisk("place")] | None = Field(
        default=None, description="DVC remote. Null: the default one."
    )
    git_commit: bool = Field(
        default=False, description="Commit the published DVC files to git as a step of publish."
    )


class ScheduleConfig(Section):
    """How the DAG of a method runs."""

    cron: str | None = Field(default=None, description="Airflow schedule; null: by hand only.")
    paused: bool = Field(
        default=True,
        description="Whether the DAG is paused when Airflow first sees it, so that a schedule does "
        "not spend before someone has looked.",
    )
    retries: int = Field(
        default=5,
        ge=0,
        le=20,
        description="Failures of a task that are tried again; 0: no retry of any kind. What cannot "
        "be helped fails at once; tries that the platform kills are not counted.",
    )
    retry_delay_seconds: int = Field(
        default=30, ge=0, description="Pause before a retry, doubled with each up to ten minutes."
    )
    reannounce: bool = Field(
        default=False,
        description="Publish and announce a release again when a run finds that it is made.",
    )
    gpu_pool: str = Field(default="gpu", description="Airflow pool of the generate tasks.")


class FileConfig(Section):
    """A public file or model folder that settings and trigger forms may name."""

    path: Annotated[Path, OnDisk("file")] = Field(
        description="Where it lies, from the project folder on."
    )
    digest: Sha256 = Field(description="SHA-256 it must have.")
    kind: Literal["file", "model"] = Field(
        default="file", description="A file, or the folder of a model."
    )


class Config(Section):
    """The whole of params.yaml."""

    dataset: DatasetConfig
    account: AccountConfig
    privacy: PrivacyConfig
    models: ModelsConfig = ModelsConfig()
    methods: dict[str, Any] = Field(default_factory=dict)
    pipeline: tuple[str, ...] = Field(
        default=(),
        description="Methods that `dvc repro` makes, a release and a charge each; the first is "
        "what the command line runs where no --method is given. distill: students, at no charge.",
    )
    validation: ValidationConfig = ValidationConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    performance: PerformanceConfig = PerformanceConfig()
    services: ServicesConfig = ServicesConfig()
    schedule: dict[str, ScheduleConfig] = Field(default_factory=dict)
    files: dict[Annotated[str, Field(pattern=NAME)], FileConfig] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _names_are_free(cls, value: dict[str, FileConfig]) -> dict[str, FileConfig]:
        for name in value:
            if name in RESERVED:
                raise ValueError(f"{name} is a word of its own in settings; choose another name")
        return value

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

    @property
    def first_method(self) -> str:
        """What is run where no method is named: the first of the pipeline that makes releases."""
        from privsyn.methods.base import METHODS

        return next((name for name in self.pipeline if name in METHODS), "invisible_ink")

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
        items = parse_json(raw)
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
        raw = yaml.safe_load(read_file(path).decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"params file {path} does not exist.",
            hint="Run from the project folder or pass --params.",
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"params file {path} is not valid YAML{line}.") from None
    except RecursionError:
        raise ConfigError(f"params file {path} {_DEEP}") from None
    except OSError as error:
        raise ConfigError(f"params file {path} cannot be read: {error.strerror}.") from None
    return parse_config(raw, overrides)


_DEEP = "is nested too deep for a config."


def parse_config(raw: Any, overrides: Sequence[str] = ()) -> Config:
    """Validate a mapping as read from YAML. See load_config."""
    if not isinstance(raw, Mapping):
        raise ConfigError("params.yaml must be a mapping with dataset, account, privacy, methods.")
    try:
        merged = _deep_copy(raw)
    except RecursionError:  # an alias of YAML that holds itself is endless, too
        raise ConfigError(f"params.yaml {_DEEP}") from None
    for item in overrides:
        _override(merged, item)
    config: Config = _validated(Config, merged, prefix="")
    for name in config.methods:
        config.method(name)  # a bad section is refused whichever method is run
    for place, name in enumerate(config.pipeline):
        if name not in config.methods:
            config.method(name)  # refuses a name that is not known
        if name in config.pipeline[:place]:
            raise ConfigError(f"pipeline={list(config.pipeline)} names {name} twice.")
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
    except RecursionError:
        raise ConfigError(f"override {key}: the value {_DEEP}") from None
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
    except RecursionError:
        raise ConfigError(f"{prefix or 'params.yaml '}{_DEEP}") from None
