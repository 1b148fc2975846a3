"""The trigger form of a method: Airflow Params made from the schema of the config models."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from airflow.sdk import Param, get_parsing_context

from privsyn.config import Config
from privsyn.data.settings import DatasetConfig, FileConfig
from privsyn.dp.accountant import format_epsilon
from privsyn.dp.events import Gaussian
from privsyn.dp.filters import gaussian_budget
from privsyn.dp.risk import Risk, of_profile, risk
from privsyn.errors import AccountMismatch, ConfigError
from privsyn.files import DIGEST, OnDisk, marks
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.settings import PrivacyConfig
from privsyn.methods.base import Method, as_teacher
from privsyn.methods.registry import load_method, settings_model
from privsyn.methods.shared.distill import STUDENTS
from privsyn.modalities.registry import modality_of
from privsyn.release.advice import SCALE, of_unit, several
from privsyn.release.workspace import Workspace
from privsyn.section import PRESET, SMALL, nearest

JSON_SCHEMA = (
    "type",
    "enum",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "items",
    "properties",
    "required",
    "additionalProperties",
)
"""Schema keywords that travel from the config model to the form."""


DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
"""Airflow checks every schema anew, several times a task: half the time of the newest draft."""


@dataclass(frozen=True)
class Room:
    """What the form of epsilon knows of the account.

    Attributes:
        left: Epsilon of the largest release of Gaussian noise that fits now.
        paid: Largest epsilon of a release that is paid for: another run of it costs nothing.
        refused: Why every run is refused, where the ledger is not that of the releases here.
    """

    left: float
    paid: float
    refused: str = ""


def form(config: Config, method: str, room: Room | None = None) -> dict[str, Param]:
    """Fields of the trigger form, named as in params.yaml, with its values as defaults.

    Only what a release may choose for itself is on the form: its cost, its dataset version and the
    settings of its method. Dataset, account and services stay with params.yaml, and so does every
    path: a setting that may be one offers the names under ``files``, or is not on the form.

    Args:
        config: Of the project.
        method: Of the DAG.
        room: What is left of the account, where the ledger said so.
    """
    implementation = load_method(method)
    teaches = as_teacher(implementation) is not None
    privacy = _fields(PrivacyConfig, "privacy", "Privacy", config.privacy.model_dump(mode="json"))
    # More than the lifetime cap can never be paid, so the form need not offer it.
    limits = config.account.limits
    most = min(config.account.epsilon, limits.epsilon or config.account.epsilon)
    if room is not None:
        # Never below the default, or a schedule could not be parsed: the ledger refuses that run.
        needed = max(room.left, room.paid, config.privacy.epsilon)
        most = min(most, float(format_epsilon(needed, digits=3)))
    privacy["privacy.epsilon"].schema["maximum"] = most
    if limits.delta is not None:
        privacy["privacy.delta"].schema["maximum"] = limits.delta
    for key, caution in _cautions(config, room).items():
        privacy[key] = _with_description(privacy[key], caution)
    version = {"version": config.dataset.version}
    values = config.method(method).model_dump(mode="json")
    # What depends on the model and on the number of texts comes first, in params.yaml too.
    usual = implementation.Config.presets.get(SMALL, values)
    first = {name: value for name, value in values.items() if name in usual}
    rest = {name: value for name, value in values.items() if name not in usual}
    fields = partial(_fields, implementation.Config, f"methods.{method}", files=config.files)
    return {
        **privacy,
        **_fields(DatasetConfig, "dataset", "Dataset", version),
        **_preset(implementation, method),
        **fields(section=implementation.title, values=first),
        **fields(section=f"{implementation.title}: other settings", values=rest),
        **(_student(config) if teaches else {}),
    }


def room_of(config: Config, root: Path) -> Room | None:
    """What is left of the account, for the form that is shown; None where nobody knows.

    A task that parses its DAG gets None: after its own charge the room is smaller, and its form
    would refuse the run's epsilon.

    Args:
        config: Of the project.
        root: Folder of its params.yaml.
    """
    url = config.services.ledger or Workspace(root).ledger_url
    server = url.rpartition("@")[2].partition("/")[0] if "@" in url else url
    if get_parsing_context().dag_id is not None or server in _silent:
        return None
    name = config.account.name
    try:
        accounts = Ledger(url, timeout=1.0).accounts
        if accounts.find(name, known_releases=Workspace(root).known_releases(name)) is None:
            return None  # not opened yet: all of it is left
        (account,) = accounts.statements(name)
    except AccountMismatch as refusal:
        return Room(0.0, 0.0, str(refusal))
    except Exception:
        # Whatever is wrong with the ledger, the DAG must be there, and its tasks say what it is.
        _silent.add(server)
        return None
    paid = [entry.epsilon for entry in account.releases if entry.is_charged]
    return Room(account.balance.left_epsilon, max(paid, default=0.0))


_silent: set[str] = set()
"""Servers that did not answer this process: each project of a file would wait for them anew."""


def _preset(implementation: Method[Any], method: str) -> dict[str, Param]:
    """The line that names a set of values; none for a method without such sets."""
    presets = implementation.Config.presets
    if not presets:
        return {}
    description = (
        f"A set of values ({', '.join(presets)}) in place of all lines below that are left as they "
        "are. Empty: the lines below."
    )
    schema = {"type": ["null", "string"], "enum": [*presets, None]}
    title, key = "Settings", f"methods.{method}.{PRESET}"
    return {
        key: Param(
            None,
            description=description,
            title=title,
            section=implementation.title,
            **DRAFT,
            **schema,
        )
    }


def _cautions(config: Config, room: Room | None) -> dict[str, str]:
    """What a form says of epsilon and delta besides what they are."""
    size = config.account.public_size
    people = several(config.account.unit, config.dataset.unit)
    delta = (
        f"Below {1 / (10 * size):.2g}, one over ten times account.public_size."
        if size is not None
        else f"Below one over ten times the number of {people}."
    )
    nobody = " ".join(of_unit(config.dataset.unit, by_file=modality_of(config.dataset).by_file))
    return {
        "privacy.epsilon": f"Of the protection it gives one {config.account.unit}: {SCALE}. "
        f"{_risk(config)} {_room_left(config, room)} {nobody}".rstrip(),
        "privacy.delta": delta,
    }


@cache  # a folder of projects asks for few targets, and each takes .3 CPU s of a parse
def _of_gaussian_noise(epsilon: float, delta: float) -> Risk:
    return risk(Gaussian(1 / math.sqrt(gaussian_budget(epsilon, delta))))


def _risk(config: Config) -> str:
    """The default target in words: of Gaussian noise, and of the worst mechanism of that cost.

    A form knows no event. The bound for every mechanism excludes nothing at a large epsilon, so
    Gaussian noise, which most methods draw, stands beside it.
    """
    privacy, account = config.privacy, config.account
    words = _of_gaussian_noise(privacy.epsilon, privacy.delta).words(
        account.unit, account.adjacency
    )
    worst = math.ceil(100 * of_profile([(privacy.epsilon, privacy.delta)]).right)
    return (
        f"In words, for Gaussian noise of epsilon {privacy.epsilon:g} and delta "
        f"{privacy.delta:g}: {' '.join(words)} Another mechanism of that cost may be guessed "
        f"right {worst} times in 100 at worst: the plan of a run says it of its own."
    )


def _room_left(config: Config, room: Room | None) -> str:
    page = "Browse > Privacy budget"
    if room is None:
        return f"What is left of the account: {page}."
    if room.refused:
        return f"Every run is refused: {room.refused}"
    left = (
        f"Left of the account: a release of Gaussian noise up to epsilon {room.left:.4g} ({page})."
    )
    if room.left >= config.privacy.epsilon:
        return left
    return f"{left} That is less than the default. A release that exists costs nothing."


def _with_description(param: Param, more: str) -> Param:
    schema = dict(param.schema)
    description = f"{schema.pop('description', None) or param.description} {more}"
    return Param(param.value, description=description, **schema)


def _student(config: Config) -> dict[str, Param]:
    model, values = settings_model(STUDENTS), config.method(STUDENTS).model_dump(mode="json")
    return _fields(model, f"methods.{STUDENTS}", "Student", values, config.files)


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
    presets = {
        key.removesuffix(f".{PRESET}"): values[key]
        for key in values
        if key.endswith(f".{PRESET}") and values[key]
    }
    values = {
        key: value
        for key, value in values.items()
        if not key.endswith(f".{PRESET}")
        and not (key.rpartition(".")[0] in presets and value == known[key].value)
    }
    # The form shows an empty object where nothing is set, and sends it once it was touched.
    given = presets | {
        key: None if value == {} and "null" in known[key].schema.get("type", ()) else value
        for key, value in values.items()
    }
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items()]


def _fields(
    model: type[Any],
    prefix: str,
    section: str,
    values: Mapping[str, Any],
    files: Mapping[str, FileConfig] | None = None,
) -> dict[str, Param]:
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    properties = dict(schema["properties"])
    for name, mark in marks(model):
        field = name.partition(".")[0]
        # A digest belongs to one file: on the form it could be set without the file.
        properties.pop(field + DIGEST, None)
        choices = _choices(mark, files or {}) if field == name else []
        if values.get(name) is None:
            choices.append(None)
        # privacy: a path on the form would let whoever may start a run read any file of the worker.
        if len(choices) > 1 and values.get(name) in choices:
            kinds = ["string", "null"] if None in choices else "string"
            properties[name] = properties[name] | {"type": kinds, "enum": choices}
            properties[name].pop("anyOf", None)
        else:
            properties.pop(field, None)
    return {
        f"{prefix}.{name}": _param(
            name, properties[name], definitions, section=section, value=value
        )
        for name, value in values.items()
        if name in properties
    }


def _choices(mark: OnDisk, files: Mapping[str, FileConfig]) -> list[str | None]:
    """What a form offers for a setting that may be a path: words, and names from params.yaml."""
    if not mark.pinned:
        return []
    return [*mark.words, *(name for name, file in files.items() if file.kind == mark.kind)]


def _param(
    name: str, field: Mapping[str, Any], definitions: Mapping[str, Any], *, section: str, value: Any
) -> Param:
    description = field.get("description", "")
    return Param(
        value,
        description=description,
        title=name.replace("_", " ").capitalize(),
        section=section,
        **DRAFT,
        **_json_schema(field, definitions),
    )


def _json_schema(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One field's schema without references, and ``anyOf [X, null]`` as a nullable X.

    Airflow's form knows a field that may be left empty by ``type: [null, X]``, not by anyOf.
    """
    if "$ref" in field:
        field = definitions[field["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in field:
        kinds = [_json_schema(kind, definitions) for kind in field["anyOf"]]
        present = [kind for kind in kinds if kind.get("type") != "null"]
        if len(present) == 1:
            inner = present[0]
            if len(kinds) == 1:
                return inner
            if "enum" in inner:
                inner["enum"] = [*inner["enum"], None]
            inner.pop("required", None)  # an object that may be null may be empty in the form
            return inner | {"type": ["null", inner["type"]]}
        raise TypeError(f"a form cannot show a field of several kinds: {field}")
    return {key: field[key] for key in JSON_SCHEMA if key in field}
