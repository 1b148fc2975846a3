"""Suites of Great Expectations, and their run on the synthetic file and public settings alone.

Results of Great Expectations contain offending values; ours contain line numbers and counts.

What the shipped suite of texts forbids (e-mail addresses, phone numbers, record numbers) is masked
before: a language model invents them, and nobody can distinguish an invented number from a
person's. The rules are public and read one released text alone, so they are post-processing at no
cost.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from privsyn.data.columns import OTHER, Column
from privsyn.data.public_files import PublicFiles
from privsyn.errors import ConfigError
from privsyn.files import parse_json
from privsyn.modalities.registry import MODALITIES, Modality
from privsyn.modalities.text import TEXTS
from privsyn.validation.settings import PATTERNS, ValidationConfig, whole_pattern

SHIPPED = Path(__file__).with_name("suites")
FIELDS = ("type", "kwargs", "meta", "notes", "description", "severity")
_PATTERN = "record_number_pattern"
STRUCTURE = 2
"""Row count and row shape, the first expectations of a shipped suite, are added to every suite."""


@dataclass(frozen=True)
class Suite:
    """A suite that is ready to run.

    Attributes:
        name: The suite's own name.
        expectations: Configurations of expectations, with placeholders.
        parameters: Values of the placeholders.
        left_out: Descriptions of the expectations that the config does not enable.
    """

    name: str
    expectations: tuple[Mapping[str, Any], ...]
    parameters: Mapping[str, Any]
    left_out: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Digest of what is checked: types and arguments, with values in place of placeholders."""
        filled = [
            [
                expectation["type"],
                {name: self._value(value) for name, value in expectation["kwargs"].items()},
            ]
            for expectation in self.expectations
        ]
        # Without names and notes: two suites that check the same have the same digest.
        canonical = json.dumps(filled, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def _value(self, value: Any) -> Any:
        return self.parameters.get(_parameter(value) or "", value)


def load_suite(
    cfg: ValidationConfig,
    labels: Sequence[str],
    rows: tuple[int, int],
    files: PublicFiles | None = None,
    modality: Modality = TEXTS,
    columns: Mapping[str, Column] = MappingProxyType({}),
    schema: Mapping[str, Any] | None = None,
) -> Suite:
    """The suite in the config, with the values of its placeholders.

    Args:
        cfg: The ``validation`` section.
        labels: The declared labels; empty for a dataset without labels.
        rows: Fewest and most rows of the plan.
        files: Opens a suite that the config names.
        modality: Of the file's records.
        columns: The declared columns: each has its expectations in every suite.
        schema: JSON schema that every text is to satisfy, as the method draws it.

    Raises:
        ConfigError: The suite is missing, malformed or for another kind of records, or a
            placeholder has no value.
    """
    shipped = modality.suite
    named = cfg.suite or shipped
    if named != shipped and named in {one.suite for one in MODALITIES.values()}:
        raise ConfigError(
            f"validation.suite={named} does not fit records that are {shipped}.",
            hint="Leave validation.suite out.",
        )
    files = files or PublicFiles()
    values: dict[str, Any] = {
        "min_rows": max(1, rows[0]),
        "max_rows": rows[1],
        "labels": list(labels) or None,
        "max_chars": cfg.max_chars,
        "min_share": cfg.min_share,
        _PATTERN: list(cfg.record_numbers) or None,
        "json_schema": schema,
        **modality.placeholders(cfg),
    }
    enabled: dict[str | None, bool] = {
        None: True,
        "labels": bool(labels),
        "json_schema": schema is not None,
        **{name: cfg.forbids(name) for name in PATTERNS},
    }
    raw = _read_suite(named, files)
    chosen, left_out = [], []
    for number, expectation in enumerate(raw["expectations"], start=1):
        where = f"validation.suite={named}: expectation {number}"
        config = _expectation(expectation, where)
        when = _when(config)
        if when not in enabled:
            known = ", ".join(filter(None, enabled))
            raise ConfigError(f"{where}: meta.privsyn.when={when!r} is not known; known: {known}.")
        if not enabled[when]:
            left_out.append(str(config.get("description") or config["type"]))
            continue
        for name in map(_parameter, config["kwargs"].values()):
            # Great Expectations evaluates expressions itself.
            if name is not None and name.isidentifier() and values.get(name) is None:
                raise ConfigError(
                    f"{where} needs the parameter {name!r}, which the config does not set; "
                    f"known: {', '.join(values)}."
                )
        chosen += _by_pattern(config, cfg.record_numbers)
    if not chosen:
        raise ConfigError(f"validation.suite={named} checks nothing.", hint="Add expectations.")
    # A user's suite cannot leave out how many rows there are and what a row is.
    structure = [
        {key: item[key] for key in FIELDS if key in item}
        for item in _read_suite(shipped, files)["expectations"][:STRUCTURE]
    ]
    same = [(item["type"], item["kwargs"]) for item in chosen]
    chosen = [item for item in structure if (item["type"], item["kwargs"]) not in same] + chosen
    chosen += list(_of_columns(columns))
    return Suite(str(raw["name"]), tuple(chosen), values, tuple(left_out))


HAS_COLUMNS = "row_has_columns"
"""Column of a suite: whether a row has a field for each declared column."""


def _of_columns(columns: Mapping[str, Column]) -> Iterator[dict[str, Any]]:
    """What the declarations promise. A missing value is null, which every one of them allows."""

    def expects(kind: str, column: str, description: str, **kwargs: Any) -> dict[str, Any]:
        kwargs |= {"column": column}
        return {"type": kind, "description": description, "kwargs": kwargs, "severity": "critical"}

    if columns:
        title = f"Every row has {', '.join(columns)}"
        yield expects(_IN_SET, HAS_COLUMNS, title, value_set=[True])
    for name, one in columns.items():
        title = f"{name} is as declared: {one.domain}"
        if one.values is not None:
            yield expects(_IN_SET, name, title, value_set=[*one.values, OTHER])
            continue
        if one.range is not None:
            bounds = dict(zip(("min_value", "max_value"), one.range, strict=True))
            yield expects("expect_column_values_to_be_between", name, title, **bounds)
        else:  # Great Expectations compares no texts with bounds
            shown = slice(4 if one.by == "year" else 7)
            cells = "|".join(first.isoformat()[shown] for first, _ in one.spans)
            form = rf"^(?:{cells})(?:-\d\d){{{2 if one.by == 'year' else 1}}}$"
            yield expects("expect_column_values_to_match_regex", name, title, regex=form)


_IN_SET = "expect_column_values_to_be_in_set"


def _read_suite(name: str, files: PublicFiles) -> dict[str, Any]:
    shipped = {file.stem: file for file in SHIPPED.glob("*.json")}
    if name in shipped:
        raw = json.loads(shipped[name].read_bytes())
    else:
        if not files.path(name).exists():
            raise ConfigError(
                f"validation.suite: no file {files.path(name)}.",
                hint=f"Shipped suites: {', '.join(sorted(shipped))}.",
            )
        raw = _parse(files.read("validation.suite", name), f"validation.suite={name}")
    if not isinstance(raw, dict) or not isinstance(raw.get("expectations"), list):
        raise ConfigError(
            f"validation.suite={name} is not a Great Expectations suite: it must be an object "
            'with "name" and "expectations".'
        )
    return {"name": raw.get("name") or Path(name).stem, "expectations": raw["expectations"]}


def _parse(data: bytes, where: str) -> Any:
    try:
        return parse_json(data)
    except ValueError:
        raise ConfigError(f"{where} is not JSON.") from None


def _expectation(raw: Any, where: str) -> dict[str, Any]:
    """The defining parts of a configuration, without ids and results of an earlier run."""
    if not (
        isinstance(raw, dict)
        and isinstance(raw.get("type"), str)
        and isinstance(raw.get("kwargs"), dict)
        and isinstance(raw.get("meta") or {}, dict)
    ):
        raise ConfigError(f'{where} must be an object with "type" and "kwargs".')
    return {key: raw[key] for key in FIELDS if raw.get(key) is not None}


def _by_pattern(config: dict[str, Any], patterns: Sequence[str]) -> list[dict[str, Any]]:
    """An expectation for each pattern: in one, flags and groups would reach into the others."""
    named = [name for name, value in config["kwargs"].items() if _parameter(value) == _PATTERN]
    if not named:
        return [config]
    return [
        config | {"kwargs": config["kwargs"] | dict.fromkeys(named, pattern)}
        for pattern in patterns
    ]


def _when(config: Mapping[str, Any]) -> str | None:
    """The setting that an expectation waits for; None for one that is always checked."""
    ours = config.get("meta", {}).get("privsyn")
    return ours.get("when") if isinstance(ours, dict) else None


def _parameter(value: Any) -> str | None:
    """Name in a placeholder; None for another value."""
    name = value.get("$PARAMETER") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


SCHEMA = "privsyn-validation/1"
NAMED_LINES = 5


@dataclass(frozen=True)
class Expectation:
    """Outcome of one expectation.

    Attributes:
        name: Great Expectations' type, such as ``expect_column_values_to_not_be_null``.
        column: The checked column; None for the whole table.
        title: Description for people.
        success: Whether it holds; None where it could not be looked at.
        detail: Counts or the observed value, and the lines of the first offending rows.
    """

    name: str
    column: str | None
    title: str
    success: bool | None
    detail: str


@dataclass(frozen=True)
class ValidationResult:
    """Outcome of a suite on a synthetic file.

    Attributes:
        success: Whether every expectation holds.
        rows: Lines of the file.
        expectations: One check per expectation, in the suite's order.
        left_out: Expectations of the suite that the config does not enable.
        suite: Name of the suite.
        suite_sha256: Digest of what was checked, with values in place of placeholders.
        gx_version: Version of Great Expectations.
    """

    success: bool
    rows: int
    expectations: tuple[Expectation, ...]
    left_out: tuple[str, ...]
    suite: str
    suite_sha256: str
    gx_version: str

    @property
    def failures(self) -> tuple[Expectation, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.expectations if not check.success)

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {"schema": SCHEMA, **asdict(self)}


def validate_file(
    artifact: Path,
    cfg: ValidationConfig,
    labels: Sequence[str],
    expected_rows: tuple[int, int],
    *,
    files: PublicFiles | None = None,
    modality: Modality = TEXTS,
    columns: Mapping[str, Column] = MappingProxyType({}),
    schema: Mapping[str, Any] | None = None,
) -> ValidationResult:
    """Run the configured suite on a synthetic file.

    An empty or malformed file is a failed result, not an error.

    Args:
        artifact: JSONL with ``id``, ``text`` and, if the dataset has labels, ``label``. For images
            with ``file`` and ``sha256`` instead of ``text``, and the files beside it.
        cfg: The ``validation`` section.
        labels: The declared labels; empty for a dataset without labels.
        expected_rows: Fewest and most rows of the plan; an empty file always fails.
        files: Opens a suite that the config names.
        modality: Of the file's records.
        columns: The declared columns.
        schema: JSON schema that every text is to satisfy.

    Raises:
        DataError: The file is missing or cannot be read.
        ConfigError: The suite is missing or malformed.
    """
    suite = load_suite(cfg, labels, expected_rows, files, modality, columns, schema)
    rows = modality.rows(artifact)
    table = {
        column: [getattr(row, name) for row in rows]
        for column, name in modality.suite_columns.items()
    }
    if columns:
        table[HAS_COLUMNS] = [columns.keys() <= row.values.keys() for row in rows]
        table |= {name: [row.values.get(name) for row in rows] for name in columns}
    checks, version = _run(suite, table)
    return ValidationResult(
        success=all(check.success for check in checks),
        rows=len(rows),
        expectations=checks,
        left_out=suite.left_out,
        suite=suite.name,
        suite_sha256=suite.sha256,
        gx_version=version,
    )


def _run(suite: Suite, table: Mapping[str, list[Any]]) -> tuple[tuple[Expectation, ...], str]:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")  # older 1.x reads it at import
    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # hundreds of lines otherwise
    with warnings.catch_warnings():
        # From modules that Great Expectations imports, and from old idioms in a user's suite.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "This pattern is interpreted as a regular expression")
        import great_expectations as gx
        import pandas as pd
        from great_expectations.exceptions import GreatExpectationsError

        expectations = [_build(config, suite.name) for config in suite.expectations]
        # dtype=object: values stay as they are in the file, missing ones included.
        frame = pd.DataFrame(table, dtype=object)
        # Python strings: Arrow matches with another dialect of regular expressions than the one
        # that the config was checked with.
        with pd.option_context("mode.string_storage", "python"):
            try:
                results = _results(gx, suite, expectations, frame)
            except GreatExpectationsError as error:
                reason = " ".join(str(error).split())
                raise ConfigError(f"validation.suite={suite.name}: {reason}.") from None
    return tuple(_check(result.to_json_dict()) for result in results), str(gx.__version__)


def _results(gx: Any, suite: Suite, expectations: Sequence[Any], frame: Any) -> list[Any]:
    """Result objects of Great Expectations, in the suite's order."""
    # Nothing on disk: other modes write a project folder, with samples of values in it.
    context = gx.get_context(mode="ephemeral")
    # Great Expectations otherwise reports usage to its makers.
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    asset = context.data_sources.add_pandas("synthetic").add_dataframe_asset("file")
    added = context.suites.add(gx.ExpectationSuite(name=suite.name, expectations=expectations))
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(
            name=suite.name,
            data=asset.add_batch_definition_whole_dataframe("all"),
            suite=added,
        )
    )
    outcome = definition.run(
        batch_parameters={"dataframe": frame},
        expectation_parameters={k: v for k, v in suite.parameters.items() if v is not None},
        result_format={"result_format": "SUMMARY", "partial_unexpected_count": NAMED_LINES},
    )
    by_id = {result.expectation_config.id: result for result in outcome.results}
    # Great Expectations groups its results by column.
    return [by_id[expectation.id] for expectation in added.expectations]


def _build(config: Mapping[str, Any], suite: str) -> Any:
    """The expectation object. ExpectationSuite itself would only log an invalid one and drop it."""
    from great_expectations.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    try:
        # Unknown types and arguments fail here, before a release is made, not in validation.
        return ExpectationConfiguration(**config).to_domain_obj()
    except (GreatExpectationsError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"validation.suite={suite}: {config['type']}: {reason}.") from None


def _check(outcome: Mapping[str, Any]) -> Expectation:
    config = outcome["expectation_config"]
    name, kwargs = config["type"], config["kwargs"]
    return Expectation(
        name=name,
        column=kwargs.get("column"),
        title=config.get("description")
        or name.removeprefix("expect_").replace("_", " ").capitalize(),
        success=bool(outcome["success"]),
        detail=_failure_text(outcome.get("exception_info") or {})
        or _detail(outcome.get("result") or {}, kwargs, share="proportion" in name),
    )


def _failure_text(info: Mapping[str, Any]) -> str:
    """Why an expectation could not be evaluated; empty if it was."""
    for entry in (info, *(value for value in info.values() if isinstance(value, dict))):
        if entry.get("raised_exception"):
            message = " ".join(str(entry.get("exception_message")).split())
            return f"not evaluated: {message[:200]}"
    return ""


def _detail(result: Mapping[str, Any], kwargs: Mapping[str, Any], share: bool) -> str:
    if "element_count" not in result:
        words = {"value": "expected", "min_value": "at least", "max_value": "at most"}
        if kwargs.get("min_value") == kwargs.get("max_value"):
            words = {"value": "expected", "min_value": "expected"}
        bounds = [
            f"{word} {_number(kwargs[key], share)}"
            for key, word in words.items()
            if kwargs.get(key) is not None
        ]
        seen = _number(result.get("observed_value", ""), share)
        return f"{seen} ({', '.join(bounds)})" if bounds else seen
    count = result["unexpected_count"]
    checked = result["element_count"] - (result.get("missing_count") or 0)
    if not checked:
        return "no values to check"
    if not count:
        return f"all {checked:,} rows"
    mostly = kwargs.get("mostly", 1)
    allowed = f", allowed {_number(1 - mostly, share=True)}" if mostly < 1 else ""
    lines = [str(i + 1) for i in result.get("partial_unexpected_index_list") or ()]
    more = f" and {count - len(lines):,} more" if count > len(lines) else ""
    return (
        f"{count:,} of {checked:,} rows ({_number(count / checked, share=True)}{allowed}): "
        f"line{'s' if count > 1 else ''} {', '.join(lines)}{more}"
    )


def _number(value: Any, share: bool) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if share:
        return f"{100 * value:.3g}%"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


PLACEHOLDERS: Mapping[str, str] = {
    "record_number": "[record number]",
    "email": "[email]",
    "phone": "[phone]",
}
_BEFORE = {"phone": r"(?:\+?\d[\d ().-]{0,12})?\(?"}
_AFTER = r"(?:[\w-]|\.(?=\w))*"
_BEHIND = {"email": _AFTER, "phone": r"(?:[ ().-]?\d)*", "record_number": r"(?a:\w*)"}
"""Characters around the suite's pattern that belong to the same address or number."""
_PASSES = 3


def masked(text: str, cfg: ValidationConfig) -> str:
    """The text with placeholders for everything in ``validation.forbid``; JSON stays JSON.

    >>> masked("Call 555-0123-4567 or ann@example.org.", ValidationConfig())
    'Call [phone] or [email].'
    """
    patterns = dict.fromkeys(cfg.record_numbers, "record_number")
    patterns |= {form: kind for kind, form in _shipped_patterns().items() if cfg.forbids(kind)}
    matches = [
        (PLACEHOLDERS[kind], whole_pattern(form, _BEFORE.get(kind, ""), _BEHIND[kind]))
        for form, kind in patterns.items()
    ]

    def replaced(part: str) -> str:
        for placeholder, pattern in matches:
            for _ in range(_PASSES):  # adjacent matches hide each other in one pass
                part, count = pattern.subn(placeholder, part)
                if not count:
                    break
        return part

    # Masking the raw JSON could cut a key or an escape, and the text would no longer parse.
    if text.lstrip().startswith(("{", "[{")):
        with suppress(ValueError, RecursionError):
            # Values alone: a key that looks like a number is part of the schema.
            return json.dumps(_walk(json.loads(text), replaced), ensure_ascii=False)
    return replaced(text)


def mask_rows(rows: Sequence[Mapping[str, Any]], cfg: ValidationConfig) -> list[dict[str, Any]]:
    """Rows of a synthetic file with masked texts; rows without a text do not change."""
    return [
        {**row, "text": masked(row["text"], cfg)} if isinstance(row.get("text"), str) else {**row}
        for row in rows
    ]


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_walk(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _walk(item, change) for key, item in value.items()}
    return value


@cache
def _shipped_patterns() -> Mapping[str, str]:
    """Kind -> regular expression of the shipped suite: email, phone."""
    suite = json.loads((SHIPPED / "text.json").read_bytes())
    return {
        str(_when(one)): one["kwargs"]["regex"]
        for one in suite["expectations"]
        if _when(one) in ("email", "phone")
    }
