"""The trigger form of a method: Airflow Params made from the schema of the config models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from privsyn.config import Config
from privsyn.data.settings import DatasetConfig
from privsyn.dp.risk import gaussian_risk, odds
from privsyn.errors import ConfigError
from privsyn.files import marks
from privsyn.ledger.settings import PrivacyConfig
from privsyn.methods.base import as_teacher
from privsyn.methods.registry import load_method, settings_model
from privsyn.methods.shared.distill import STUDENTS
from privsyn.release.advice import SCALE, of_unit, several
from privsyn.section import PRESET, SMALL, Section, descriptions, nearest

DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
"""Airflow checks every schema anew, several times a task: half the time of the newest draft."""


def form(config: Config, method: str) -> dict[str, Param]:
    """Fields of the trigger form, named as in params.yaml, with its values as defaults.

    Only what a release may choose for itself is on the form: its cost, its dataset version and the
    settings of its method. Dataset, account and services stay with params.yaml, and so does every
    path: a setting that may be one offers words such as builtin, or is not on the form.

    Args:
        config: Of the project.
        method: Of the DAG.
    """
    implementation = load_method(method)
    privacy = _fields(PrivacyConfig, "privacy", "Privacy", config.privacy.model_dump(mode="json"))
    # More than the lifetime cap can never be paid, so the form need not offer it.
    privacy["privacy.epsilon"].schema["maximum"] = config.account.epsilon
    for key, caution in _cautions(config).items():
        privacy[key].description = f"{privacy[key].description} {caution}"
    values = config.method(method).model_dump(mode="json")
    # What depends on the model and on the number of texts comes first, in params.yaml too.
    usual = implementation.Config.presets.get(SMALL, values)
    ordered = {name: values[name] for name in sorted(values, key=lambda name: name not in usual)}
    fields = {
        **privacy,
        **_fields(DatasetConfig, "dataset", "Dataset", {"version": config.dataset.version}),
    }
    if presets := implementation.Config.presets:
        fields[f"methods.{method}.{PRESET}"] = Param(
            None,
            description=f"A set of values ({', '.join(presets)}) in place of all lines below that "
            "are left as they are. Empty: the lines below.",
            title="Settings",
            section=implementation.title,
            type=["null", "string"],
            enum=[*presets, None],
            **DRAFT,
        )
    fields |= _fields(implementation.Config, f"methods.{method}", implementation.title, ordered)
    if as_teacher(implementation) is not None:
        values = config.method(STUDENTS).model_dump(mode="json")
        fields |= _fields(settings_model(STUDENTS), f"methods.{STUDENTS}", "Student", values)
    return fields


def _cautions(config: Config) -> dict[str, str]:
    """What a form says of epsilon and delta besides what they are."""
    size, nobody = config.account.public_size, " ".join(of_unit(config.dataset))
    units = several(config.account.unit, config.dataset.unit)
    privacy, guess = config.privacy, ""
    if privacy.delta:
        right = odds(gaussian_risk(privacy.epsilon, privacy.delta).right)
        guess = f"By Gaussian noise a guess if its data was used is right {right}, by chance 50. "
    return {
        "privacy.epsilon": f"Of the protection it gives one {config.account.unit}: {SCALE}. {guess}"
        f"What is left of the account: Browse > Privacy budget. {nobody}".rstrip(),
        "privacy.delta": f"Below {1 / (10 * size):.2g}, one over ten times account.public_size."
        if size is not None
        else f"Below one over ten times the number of {units}.",
    }


def overrides(values: Mapping[str, Any], known: Mapping[str, Param]) -> list[str]:
    """The form's values as ``a.b.c=value`` settings, as the command line takes them.

    Raises:
        ConfigError: A value is not on the form. A run's conf may hold anything, and a setting that
            reached past the form could point the run at another account or ledger.
    """
    for key in values:
        if key not in known:
            near = nearest(key, list(known))
            raise ConfigError(
                f"{key} is not a field of this DAG's trigger form.",
                hint=f"Did you mean {near}?" if near else "Set it in params.yaml.",
            )
    # A preset comes first, and what is as the form showed it gives way to its values.
    given = {
        key.removesuffix(f".{PRESET}"): preset
        for key, preset in values.items()
        if key.endswith(f".{PRESET}") and preset
    }
    presets = set(given)
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        if name == PRESET or (section in presets and value == known[key].value):
            continue
        # The form shows an empty object where nothing is set, and sends it once it was touched.
        empty = value == {} and "null" in known[key].schema.get("type", ())
        given[key] = None if empty else value
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items()]


def _fields(
    model: type[Section], prefix: str, section: str, values: Mapping[str, Any]
) -> dict[str, Param]:
    schema, words = model.model_json_schema(), descriptions(model)
    definitions = schema.get("$defs", {})
    properties = dict(schema["properties"])
    # privacy: a path on the form would let whoever may start a run read any file of the worker.
    for name, _ in marks(model):
        properties.pop(name.partition(".")[0], None)
    return {
        f"{prefix}.{name}": Param(
            value,
            **DRAFT,
            **_json_schema(properties[name], definitions),
            description=words[name],
            title=name.replace("_", " ").capitalize(),
            section=section,
        )
        for name, value in values.items()
        if name in properties
    }


def _json_schema(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One field's schema without references, and ``anyOf [X, null]`` as a nullable X.

    Airflow's form knows a field that may be left empty by ``type: [null, X]``, not by anyOf.
    """
    if "$ref" in field:
        field = definitions[field["$ref"].rsplit("/", 1)[1]]
    if "anyOf" not in field:
        return {key: field[key] for key in field if key not in ("title", "description", "default")}
    kinds = [_json_schema(kind, definitions) for kind in field["anyOf"]]
    present = [kind for kind in kinds if kind.get("type") != "null"]
    if len(present) > 1:
        raise TypeError(f"a form cannot show a field of several kinds: {field}")
    (inner,) = present
    if len(kinds) > 1:
        if "enum" in inner:
            inner["enum"] = [*inner["enum"], None]
        inner.pop("required", None)  # an object that may be null may be empty in the form
        inner["type"] = ["null", inner["type"]]
    return inner
