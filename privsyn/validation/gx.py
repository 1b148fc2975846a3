"""Great Expectations on the synthetic file. It reads only that file and public settings.

Results of Great Expectations contain offending values; ours contain line numbers and counts.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privsyn.data.public_files import PublicFiles
from privsyn.errors import ConfigError
from privsyn.modalities.base import Modality
from privsyn.modalities.text import TEXTS
from privsyn.validation.image_profile import ImageProfile
from privsyn.validation.profile import Profile
from privsyn.validation.settings import ValidationConfig
from privsyn.validation.suite import Suite, load_suite

SCHEMA = "privsyn-validation/1"
NAMED_LINES = 5
SET_COUNTS = ("unexpected_count", "missing_count")


@dataclass(frozen=True)
class Expectation:
    """Outcome of one expectation.

    Attributes:
        name: Great Expectations' type, such as ``expect_column_values_to_not_be_null``.
        column: The checked column; None for the whole table.
        title: Description for people.
        success: Whether it holds.
        detail: Counts or the observed value, and the lines of the first offending rows.
    """

    name: str
    column: str | None
    title: str
    success: bool
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
        profile: Lengths or brightness, label counts and samples, for the page.
    """

    success: bool
    rows: int
    expectations: tuple[Expectation, ...]
    left_out: tuple[str, ...]
    suite: str
    suite_sha256: str
    gx_version: str
    profile: Profile | ImageProfile

    @property
    def failed(self) -> tuple[Expectation, ...]:
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
) -> ValidationResult:
    """Run the configured suite on a synthetic file.

    An empty or malformed file is a failed result, not an error.

    Args:
        artifact: JSONL with ``id``, ``text`` and, if the dataset has labels, ``label``. For images
            with ``file`` and ``sha256`` instead of ``text``, and the files beside it.
        cfg: The ``validation`` section.
        labels: The declared labels; empty for a dataset without labels.
        expected_rows: Fewest and most rows of the plan; an empty file always fails.
        files: Opens a suite and a JSON schema that the config names.
        modality: Of the file's records.

    Raises:
        DataError: The file is missing or cannot be read.
        ConfigError: The suite or the JSON schema is missing or malformed.
    """
    suite = load_suite(cfg, labels, expected_rows, files, modality)
    rows = modality.rows(artifact)
    checks, version = _run(suite, _table(rows, modality.suite_columns))
    return ValidationResult(
        success=all(check.success for check in checks),
        rows=len(rows),
        expectations=checks,
        left_out=suite.left_out,
        suite=suite.name,
        suite_sha256=suite.sha256,
        gx_version=version,
        profile=modality.profile(rows, labels),
    )


def _table(rows: Sequence[Any], columns: Mapping[str, str]) -> dict[str, list[Any]]:
    return {column: [getattr(row, name) for row in rows] for column, name in columns.items()}


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
        detail=_raised(outcome.get("exception_info") or {})
        or _detail(outcome.get("result") or {}, kwargs, share="proportion" in name),
    )


def _raised(info: Mapping[str, Any]) -> str:
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
        counts = (
            f"{result[key]:,} {key.removesuffix('_count')}" for key in SET_COUNTS if key in result
        )
        observed = result.get("observed_value")
        seen = ", ".join(counts) if observed is None else _number(observed, share)
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
