"""Suites of Great Expectations: shipped or the user's, with values for their placeholders."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.data.public_files import PublicFiles
from privsyn.errors import ConfigError
from privsyn.files import parse_json
from privsyn.modalities.base import Modality
from privsyn.modalities.registry import MODALITIES
from privsyn.modalities.text import TEXTS
from privsyn.spelling import nearest
from privsyn.validation.settings import PATTERNS, ValidationConfig

SHIPPED = Path(__file__).with_name("suites")
FIELDS = ("type", "kwargs", "meta", "notes", "description", "severity")
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
) -> Suite:
    """The suite in the config, with the values of its placeholders.

    Args:
        cfg: The ``validation`` section.
        labels: The declared labels; empty for a dataset without labels.
        rows: Fewest and most rows of the plan.
        files: Opens a suite and a JSON schema that the config names.
        modality: Of the file's records.

    Raises:
        ConfigError: The suite or the JSON schema is missing or malformed, the suite is for another
            kind of records, or a placeholder has no value.
    """
    shipped = modality.suite
    named = cfg.suite or shipped
    if named != shipped and named in {one.suite for one in MODALITIES.values()}:
        raise ConfigError(
            f"validation.suite={named} does not fit records that are {shipped}.",
            hint="Leave validation.suite out.",
        )
    files = files or PublicFiles()
    schema = None if cfg.json_schema is None else read_schema(cfg, files)
    values: dict[str, Any] = {
        "min_rows": max(1, rows[0]),
        "max_rows": rows[1],
        "labels": list(labels) or None,
        "min_chars": cfg.min_chars,
        "max_chars": cfg.max_chars,
        "min_share": cfg.min_share,
        "min_unique_share": round(1 - cfg.max_duplicate_share, 12),
        "record_number_pattern": cfg.record_number_pattern,
        "min_json_share": cfg.min_json_share,
        "json_schema": schema,
        **modality.placeholders(cfg),
    }
    enabled = {
        "labels": bool(labels),
        "json_schema": schema is not None,
        "rows_per_label": bool(labels) and cfg.min_rows_per_label > 0,
    } | {name: name in cfg.forbid for name in PATTERNS}
    raw = _read_suite(named, cfg.suite_digest, files)
    chosen, left_out = [], []
    for number, expectation in enumerate(raw["expectations"], start=1):
        where = f"validation.suite={named}: expectation {number}"
        config = _expectation(expectation, where)
        if _applies(config, enabled, where):
            _check_parameters(config, values, where)
            chosen.append(config)
        else:
            left_out.append(str(config.get("description") or config["type"]))
    if not chosen:
        raise ConfigError(f"validation.suite={named} checks nothing.", hint="Add expectations.")
    # A user's suite cannot leave out how many rows there are and what a row is.
    structure = [
        {key: item[key] for key in FIELDS if key in item}
        for item in _read_suite(shipped, None, files)["expectations"][:STRUCTURE]
    ]
    same = [(item["type"], item["kwargs"]) for item in chosen]
    chosen = [item for item in structure if (item["type"], item["kwargs"]) not in same] + chosen
    return Suite(str(raw["name"]), tuple(chosen), values, tuple(left_out))


def _read_suite(name: str, digest: str | None, files: PublicFiles) -> dict[str, Any]:
    shipped = {file.stem: file for file in SHIPPED.glob("*.json")}
    if name in shipped:
        raw = json.loads(shipped[name].read_bytes())
    else:
        if not files.path(name).exists():
            raise ConfigError(
                f"validation.suite: no file {files.path(name)}.",
                hint=f"Shipped suites: {', '.join(sorted(shipped))}.",
            )
        raw = _parsed(files.read("validation.suite", name, digest), f"validation.suite={name}")
    if not isinstance(raw, dict) or not isinstance(raw.get("expectations"), list):
        raise ConfigError(
            f"validation.suite={name} is not a Great Expectations suite: it must be an object "
            'with "name" and "expectations".'
        )
    return {"name": raw.get("name") or Path(name).stem, "expectations": raw["expectations"]}


def _parsed(data: bytes, where: str) -> Any:
    try:
        return parse_json(data)
    except ValueError:
        raise ConfigError(f"{where} is not JSON.") from None


def read_schema(cfg: ValidationConfig, files: PublicFiles) -> Any:
    """The config's JSON schema, checked to be valid and without external references."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    file = files.path(str(cfg.json_schema))
    if not file.exists():
        raise ConfigError(f"validation.json_schema: no file {file}.")
    data = files.read("validation.json_schema", str(cfg.json_schema), cfg.json_schema_digest)
    schema = _parsed(data, f"validation.json_schema={cfg.json_schema}")
    if not isinstance(schema, dict):
        raise ConfigError(f"validation.json_schema: {file} must hold an object.")
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise ConfigError(
            f"validation.json_schema: {file} is not a JSON schema: {error.message}."
        ) from None
    # privacy and safety: resolving a reference would open a file or a connection.
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ConfigError(
                f"validation.json_schema: {file} refers to {reference}, outside the file.",
                hint="Put the definition under $defs.",
            )
    return schema


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [reference for item in node for reference in _references(item)]
    if not isinstance(node, dict):
        return []
    references = [node[key] for key in ("$ref", "$dynamicRef") if isinstance(node.get(key), str)]
    return references + [reference for item in node.values() for reference in _references(item)]


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


def _applies(config: Mapping[str, Any], enabled: Mapping[str, bool], where: str) -> bool:
    references = config.get("meta", {}).get("privsyn", {})
    when = references.get("when") if isinstance(references, dict) else None
    if when is None:
        return True
    if when not in enabled:
        raise ConfigError(
            f"{where}: meta.privsyn.when={when!r} is not known; known: {', '.join(enabled)}."
        )
    return enabled[when]


def _check_parameters(config: Mapping[str, Any], values: Mapping[str, Any], where: str) -> None:
    for key, value in config["kwargs"].items():
        name = _parameter(value)
        if name is None or not re.fullmatch(r"\w+", name):  # GX evaluates expressions itself
            continue
        if name not in values:
            near = nearest(name, list(values))
            raise ConfigError(
                f"{where}: {key} needs the parameter {name!r}; known: {', '.join(values)}.",
                hint=f"Did you mean {near}?" if near else "",
            )
        if values[name] is None:
            raise ConfigError(
                f"{where}: {key} needs the parameter {name!r}, which the config does not set.",
                hint=f'Set it, or add "meta": {{"privsyn": {{"when": "{name}"}}}}.',
            )


def _parameter(value: Any) -> str | None:
    """Name in a placeholder; None for another value."""
    name = value.get("$PARAMETER") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None
