"""Settings of the private file: ``dataset``."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from datetime import date as Date
from pathlib import Path
from typing import Annotated, Any, Literal
from unicodedata import normalize

from pydantic import Field, field_validator, model_validator

from privsyn.address import Address, Source, Stream
from privsyn.data.columns import MOST_COLUMNS, Columns
from privsyn.data.unit_key import label_id
from privsyn.errors import ConfigError
from privsyn.files import OnDisk, SourcePath
from privsyn.section import CONNECTION, NAME, ROLE, VERSION, Section

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
"""A column name in a form that joins several columns."""


def text_columns(text: str | None) -> tuple[str, ...]:
    """The columns of a text, each once: of a form, or its own; none of a table alone."""
    return () if text is None else tuple(dict.fromkeys(PLACEHOLDER.findall(text))) or (text,)


_RELEASED = frozenset(
    ("id", "label", "text", "messages", "row_well_formed", "row_has_columns", "text_is_json")
)
"""Fields of a released row, and columns of suites."""
LONGEST_DOCUMENT = 200
"""Most characters of ``dataset.document``."""


class ImageConfig(Section):
    """Records are images, all converted to one size and mode."""

    size: int = Field(ge=1, le=1024)
    """Side in pixels; images are stretched to squares."""
    mode: Literal["L", "RGB"] = "RGB"
    """L: gray. RGB: color."""
    column: str = Field(default="image", min_length=1)
    """Column (Parquet) or array (.npz) of the images. An .npz without an array image may call it
    images, train_images, x_train, data or x."""


class TextExample(Section):
    """A text that somebody invented, as an example of the records: public."""

    text: str = Field(min_length=1, max_length=4000)
    """The text. Never a real record."""
    label: str | None = None
    """Its label, one of dataset.labels."""


class Query(Section, Stream):
    """A query of a database, whose rows are the records."""

    connection: str
    """Environment variable with the database's URL, connection of Airflow, or URL without a
    password."""
    sql: str = Field(min_length=1)
    """One SELECT. {date:%Y-%m} as in version."""

    @model_validator(mode="before")
    @classmethod
    def _holds_no_secret(cls, value: Any) -> Any:
        # No message quotes the value: a password may stand anywhere in what is pasted here.
        if isinstance(value, Query):
            return value
        name = value.get("connection", "x") if isinstance(value, dict) else None
        if not isinstance(name, str) or not re.match(rf"[a-z0-9+]+://\S+$|{CONNECTION}", name):
            raise ValueError("connection must be a name, or a URL without a password")
        rest = name.partition("://")[2]
        if ":" in rest.rpartition("@")[0] or _SECRET.search(rest.partition("?")[2]):
            raise ValueError(
                "connection holds a password, and params.yaml is shared: put the URL into an "
                "environment variable, such as CLINIC_DB, and name that"
            )
        return value

    def __str__(self) -> str:
        return f"the query on {self.connection}"


_SECRET = re.compile("(pass|pwd|token|secret|credential|key|auth)[a-z_]*=", re.IGNORECASE)


def examples(value: Any) -> Iterator[TextExample]:
    """All examples in sections of settings."""
    if isinstance(value, TextExample):
        yield value
    elif isinstance(value, Section | tuple):
        for part in value:  # a section yields pairs (field, value)
            yield from examples(part)


class DatasetConfig(Section):
    """The private file and what its columns mean."""

    name: str = Field(pattern=NAME)
    """Lineage: the dataset over all its versions."""
    path: Annotated[SourcePath, OnDisk("private")] | None = None
    """JSONL, CSV or TSV in UTF-8, or Parquet, plain or .gz, .zst, .bz2, .xz, or a folder of such
    files. Or an address: s3://bucket/folder, s3://bucket/part-*.parquet, gs://, az://. Or a table
    of Delta or Iceberg: its folder, or iceberg://catalog/a.b. Of images: a folder with a sub-folder
    per label, .npz or Parquet. {date:%Y-%m} as in version, {version} for it."""
    query: Query | None = None
    """A query, in place of path."""
    snapshot: str | None = Field(default=None, pattern=NAME, coerce_numbers_to_str=True)
    """Of a table what is read. Null: the newest."""
    version: str = Field(default="v1", pattern=VERSION)
    """Opaque version, set on a public schedule, never read from the data. {date:%Y-%m} stands for
    the run's logical date, {table} for the snapshot of a table."""
    text: Annotated[str, Field(min_length=1)] | None = "text"
    """Column of the text, or a form over several, such as 'Phrase: "{answer}" Text: "{text}"'.
    Null: a table of the columns alone."""
    roles: tuple[Annotated[str, Field(pattern=ROLE)], ...] = Field(default=(), max_length=4)
    """Roles of a conversation, the first one first: [user, assistant]. dataset.text is then a
    column of turns, {role, content}, as a list or JSON text."""
    images: ImageConfig | None = None
    """Records are images of this form. Null: texts."""
    label: str | None = None
    """Column of the label. In a folder of images the label is the sub-folder's name, whatever this
    says."""
    labels: tuple[str, ...] = ()
    """The public list of labels; records with any other are dropped."""
    document: str | None = Field(default=None, min_length=1, max_length=LONGEST_DOCUMENT)
    """What a record is, in a few public words with their article, for the default prompts: a
    message from a patient to a clinic."""
    words: int | None = Field(default=None, ge=1)
    """About how many words a text has, by what is known without the file: public. plan judges
    lengths by it."""
    label_descriptions: dict[str, str] = Field(default={})
    """What prompts say for a label, where its own name says little: public."""
    examples: tuple[TextExample, ...] = Field(default=(), max_length=20)
    """A few texts as you imagine them, with their labels, for prompts: public. Invent them; never
    copy a record."""
    columns: Columns = Field(default={})
    """Columns that stand beside the text and come back: name -> values, range or date. Public;
    never read from the data."""
    unit: str | None = Field(default=None, min_length=1)
    """Column of the stable unit id. Null: every row is its own unit. In a folder of images every
    file is a unit, named by its path: write file."""
    max_records_per_unit: int = Field(default=1, ge=1, le=10_000)
    """Records of a unit that are used (m)."""
    holdout: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Share of units, by keyed hash, held out for internal evaluation."""
    test_path: Annotated[SourcePath, OnDisk("private")] | None = None
    """A separate file of held-out real records, same columns. {date:...} as in version."""

    @field_validator("labels", "label_descriptions")
    @classmethod
    def _normalize_labels(cls, value: Any) -> Any:
        """Labels in Unicode's composed form (NFC), in which they are compared; macOS writes NFD."""
        if isinstance(value, dict):
            return {normalize("NFC", label): text for label, text in value.items()}
        return tuple(normalize("NFC", label) for label in value)

    @model_validator(mode="after")
    def _has_one_source(self) -> DatasetConfig:
        if (self.path is None) == (self.query is None):
            raise ValueError("name the private file (path) or a query, and not both")
        if self.query is not None and self.unit is None:
            raise ValueError(NO_UNIT)
        if self.version == TABLE and (self.query or VERSION_MARK in str(self.path)):
            raise ValueError(f"version={TABLE} is that of a table at a path of its own")
        return self

    @model_validator(mode="after")
    def _labels_go_with_a_column(self) -> DatasetConfig:
        if (self.label is None) != (not self.labels):
            raise ValueError(
                "label and labels go together: the label set is public and is never read from data"
            )
        spelled: dict[str, str] = {}
        for label in self.labels:
            key = label_id(label)
            if key is None:
                raise ValueError(f"labels holds {label!r}, which no record can have: write a text")
            if key in spelled:
                one = "" if label == spelled[key] else f": {spelled[key]!r} and {label!r} are one"
                raise ValueError(f"labels={list(self.labels)} holds a label twice{one}")
            spelled[key] = label
        return self

    @model_validator(mode="after")
    def _columns_stand_beside_the_text(self) -> DatasetConfig:
        if self.roles and (self.images or not self.text or PLACEHOLDER.search(self.text)):
            raise ValueError("roles are of a conversation: dataset.text names one column of turns")
        if self.text is None and not (self.images or self.columns):
            raise ValueError("text is null, a table alone: declare its columns in dataset.columns")
        if len(set(self.roles)) != len(self.roles) or len(self.roles) == 1:
            raise ValueError(f"roles={list(self.roles)} must be two or more, each once")
        if len(self.columns) > MOST_COLUMNS:
            raise ValueError(
                f"columns holds {len(self.columns)}, and at most {MOST_COLUMNS} are drawn well: "
                "leave out those that nobody needs"
            )
        if self.columns and self.images is not None:
            raise ValueError("columns stand beside texts, and images is set: leave one out")
        if self.questions and self.text is None:
            raise ValueError(
                f"columns asks for {self.questions[0]!r}, and text is null: a question needs a text"
            )
        used = dict.fromkeys(text_columns(self.text), "text")
        used |= {column: name for name in ("label", "unit") if (column := getattr(self, name))}
        for name in self.columns:
            if name in used:
                raise ValueError(
                    f"columns holds {name!r}, which is dataset.{used[name]} already: leave it out"
                )
            if name in _RELEASED:
                raise ValueError(
                    f"columns holds {name!r}, and a released row has a field {name!r} already: "
                    "rename the column in the file"
                )
            if set(name) & set("{}\n\r") or name != name.strip() or not name:
                raise ValueError(f"columns holds {name!r}: no braces, outer spaces or line breaks")
        return self

    @model_validator(mode="after")
    def _prompts_can_hold_them(self) -> DatasetConfig:
        if unknown := set(self.label_descriptions) - set(self.labels):
            raise ValueError(
                f"label_descriptions describes {min(unknown)!r}, which is none of the labels"
            )
        for example in self.examples:
            if not (example.label is None or example.label in self.labels):
                raise ValueError(
                    f"examples has the label {example.label!r}, which is none of the labels"
                )
        prompt_texts = {"document": self.document or ""} | {
            f"label_descriptions[{label!r}]": text
            for label, text in self.label_descriptions.items()
        }
        for name, text in prompt_texts.items():
            # Braces are placeholders of prompts, and a line break could end an instruction early.
            if set(text) & set("{}\n\r") or text != text.strip():
                raise ValueError(f"{name}={text!r} must be one line without braces or outer spaces")
            if not text and name != "document":
                raise ValueError(f"{name} is empty")
        return self

    @property
    def questions(self) -> tuple[str, ...]:
        """Columns that a model answers; the file has the others."""
        return tuple(name for name, column in self.columns.items() if column.ask is not None)

    @property
    def source(self) -> Source | Query:
        """Where the records are: the file, folder or address, or the query."""
        return self.query or self.path or Path()

    @property
    def has_holdout(self) -> bool:
        """Whether the settings hold units out, or name a file of held-out records."""
        return bool(self.holdout) or self.test_path is not None

    def resolved(self, day: Date) -> DatasetConfig:
        """This config with ``{date:...}`` in version and paths filled in for a logical date."""
        return self.model_copy(update={"version": self.version_on(day)}).with_dates(self.dates(day))

    def version_on(self, day: Date) -> str:
        """The version with ``{date:...}`` filled in for a logical date."""
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
        return version

    def dates(self, day: Date) -> tuple[str, ...]:
        """Value of each ``{date:...}`` and ``{version}`` in the paths on a logical date."""
        paths = f"{self.path if self.query is None else self.query.sql}\0{self.test_path or ''}"
        return tuple(
            self.version_on(day) if match[0] == VERSION_MARK else format(day, match[1] or "")
            for match in DATE.finditer(paths)
        )

    def with_dates(self, dates: Sequence[str]) -> DatasetConfig:
        """This config with the values of ``dates`` filled into its paths."""
        remaining = iter(dates)
        update: dict[str, Any] = {}
        if self.query is not None:
            sql = DATE.sub(lambda _: next(remaining), self.query.sql)
            update["query"] = self.query.model_copy(update={"sql": sql})
        if self.path is not None:
            update["path"] = _fill_dates(self.path, remaining)
        if self.test_path is not None:
            update["test_path"] = _fill_dates(self.test_path, remaining)
        return self.model_copy(update=update)


TABLE = "{table}"
"""A version that is the table's own."""
NO_UNIT = "unit is missing: the rows of a query or a table have no order, so no number names one"
VERSION_MARK = "{version}"
DATE = re.compile(r"\{date(?::([^{}]*))?\}|\{version\}")
"""Placeholders for a run's date and version in a path; other braces belong to the file name."""


def _fill_dates(path: Source, dates: Iterator[str]) -> Source:
    return type(path)(DATE.sub(lambda _: next(dates), str(path)))


def of_any_day(path: Source) -> list[Source]:
    """Existing paths of all dates for a path with ``{date:...}``; else the path itself."""
    if isinstance(path, Address) or not DATE.search(str(path)):
        return [path]
    pieces = [glob.escape(piece) for piece in DATE.sub("\0", str(path)).split("\0")]
    return [Path(name) for name in sorted(glob.glob("*".join(pieces)))]
