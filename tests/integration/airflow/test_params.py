"""The trigger form against the config models it is made from."""

import dataclasses
import json
import math
import re
from pathlib import Path
from statistics import NormalDist

import pytest

from privsyn.config import load_config
from privsyn.dp.accountant import Guarantee
from privsyn.dp.events import Gaussian
from privsyn.dp.filters import gaussian_budget
from privsyn.errors import ConfigError
from privsyn.files import marks
from privsyn.ledger.ledger import Ledger
from privsyn.methods.registry import METHODS
from tests.unit.ledger.conftest import url
from tests.unit.ledger.ledger_cases import RENYI

__all__ = ["url"]
pytestmark = pytest.mark.airflow
PARAMS = Path(__file__).parents[3] / "params.yaml"
METHOD = "invisible_ink"


@pytest.fixture
def config():
    return load_config(PARAMS)


@pytest.fixture
def form(config):
    from privsyn.airflow.params import form

    return form(config, METHOD)


def test_every_setting_of_a_release_is_on_the_form(config, form):
    wanted = {f"privacy.{name}" for name in ("epsilon", "delta", "draw", "again")} | {
        "dataset.version"
    }
    wanted |= {f"methods.{METHOD}.{name}" for name in type(config.method(METHOD)).model_fields}
    assert set(form) == wanted | {f"methods.{METHOD}.settings"}


def test_fields_are_typed_described_bounded_and_in_sections(form):
    sections = set()
    for key, field in form.items():
        assert field.description, key
        assert field.schema["title"], key
        assert field.schema["type"], key
        sections.add(field.schema["section"])
        if {"integer", "number"} & set(_types(field)):
            assert {"minimum", "exclusiveMinimum"} & set(field.schema), key
    assert sections == {"Privacy", "Dataset", "InvisibleInk", "InvisibleInk: other settings"}
    by_place = [field.schema["section"] for field in form.values()]
    assert by_place == sorted(by_place, key=by_place.index), "a section is in one piece"
    assert form[f"methods.{METHOD}.texts_per_label"].schema["section"] == "InvisibleInk"


def test_defaults_are_the_settings_of_params_yaml(config, form):
    assert form["privacy.epsilon"].value == config.privacy.epsilon
    assert form[f"methods.{METHOD}.batch_size"].value == config.method(METHOD).batch_size
    for field in form.values():
        field.resolve()


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_epsilon_says_in_words_what_its_default_means(config, epsilon):
    """Of Gaussian noise by its mu, found here by search; of any mechanism by the closed form."""
    from privsyn.airflow.params import form

    privacy = config.privacy.model_copy(update={"epsilon": epsilon, "delta": 1e-6})
    changed = config.model_copy(update={"privacy": privacy})
    said = form(changed, METHOD)["privacy.epsilon"].description
    curve = NormalDist().cdf

    def delta(mu):
        return curve(mu / 2 - epsilon / mu) - math.exp(epsilon) * curve(-mu / 2 - epsilon / mu)

    mu = max(m / 1e4 for m in range(1, 40_000) if delta(m / 1e4) <= 1e-6)
    right = math.exp(epsilon) / (1 + math.exp(epsilon)) + 1e-6
    assert f"for Gaussian noise of epsilon {epsilon:g} and delta 1e-06" in said
    assert f"at most {math.ceil(100 * curve(mu / 2))} times in 100 from this one" in said
    assert f"guessed right {math.ceil(100 * right)} times in 100 at worst" in said
    assert "Browse > Privacy budget" in said


def test_a_field_that_may_be_null_can_be_left_empty(form):
    empty = {key for key, field in form.items() if "null" in _types(field)}
    nullable = ("settings", "guidance", "prompt", "top_k")
    assert empty == {f"methods.{METHOD}.{name}" for name in nullable} | {"privacy.again"}
    for key in empty:
        assert form[key].resolve(None) is None


def test_an_empty_object_from_the_form_is_nothing_set(form):
    from privsyn.airflow.params import overrides

    key = f"methods.{METHOD}.prompt"
    assert overrides({key: form[key].resolve({})}, form) == [f"{key}=null"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privacy.epsilon", 0),
        ("privacy.epsilon", "ten"),
        ("privacy.delta", 1),
        ("privacy.draw", -1),
        ("privacy.draw", 0.5),
        ("dataset.version", ""),
        (f"methods.{METHOD}.batch_size", 0),
        (f"methods.{METHOD}.max_tokens", 0),
        (f"methods.{METHOD}.guidance", 0.5),
        (f"methods.{METHOD}.prompt", {"private": "x", "public": "y", "secret": "z"}),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_the_form(form, key, value):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        form[key].resolve(value)


def test_more_than_the_lifetime_cap_cannot_be_asked(config, form):
    from airflow.sdk.exceptions import ParamValidationError

    form["privacy.epsilon"].resolve(config.account.epsilon)
    with pytest.raises(ParamValidationError):
        form["privacy.epsilon"].resolve(config.account.epsilon + 1)


@pytest.fixture
def charged(config, url, monkeypatch):
    """The config of an account that paid for releases of given epsilons, by Gaussian noise."""
    from privsyn.airflow import params

    monkeypatch.setattr(params, "_silent", set())

    def pay(*epsilons):
        ledger = Ledger(url)
        ledger.accounts.open(dataclasses.replace(RENYI, epsilon=10.0))
        for number, epsilon in enumerate(epsilons):
            noise = Gaussian(1 / math.sqrt(gaussian_budget(epsilon, 1e-6)))
            cost = Guarantee(epsilon, 1e-6)
            ledger.releases.reserve("clinic", f"r{number}", noise, method="toy", guarantee=cost)
        return load_config(
            PARAMS, ["account.name=clinic", "account.epsilon=10", f"services.ledger={url}"]
        )

    return pay


def test_the_most_of_epsilon_is_what_is_left(charged, tmp_path):
    from airflow.sdk.exceptions import ParamValidationError

    from privsyn.airflow.params import form, room_of

    config = charged(5.0, 5.0)
    room = room_of(config, tmp_path)
    left = Ledger(config.services.ledger).accounts.balance("clinic").left_epsilon
    assert 5.0 < left < 10.0
    assert room.left == left
    field = form(config, METHOD, room)["privacy.epsilon"]
    assert left <= field.schema["maximum"] < left * 1.01
    assert f"Gaussian noise up to epsilon {left:.4g}" in field.description
    with pytest.raises(ParamValidationError):
        field.resolve(left * 1.01)


def test_a_full_account_leaves_what_exists_on_the_form(charged, tmp_path):
    """Another run of a release costs nothing; and a schedule's default must parse."""
    from privsyn.airflow.params import form, room_of

    config = charged(9.99)
    room = room_of(config, tmp_path)
    assert room.left < config.privacy.epsilon < 9.99
    field = form(config, METHOD, room)["privacy.epsilon"]
    assert field.resolve() == config.privacy.epsilon
    assert field.resolve(9.99) == 9.99
    assert "less than the default" in field.description


def test_a_form_says_that_its_ledger_lost_the_releases_here(charged, tmp_path):
    from privsyn.airflow.params import form, room_of

    config = charged(5.0)
    folder = tmp_path / "releases" / "made-before"
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps({"plan": {"account": "clinic"}}))
    room = room_of(config, tmp_path)
    assert "the ledger does not know release made-before" in room.refused
    field = form(config, METHOD, room)["privacy.epsilon"]
    assert "Every run is refused" in field.description
    assert field.resolve() == config.privacy.epsilon


def test_a_task_does_not_ask_what_its_own_run_has_left(charged, tmp_path, monkeypatch):
    """Its form would refuse, after the charge, the epsilon that was paid for."""
    from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID

    from privsyn.airflow.params import room_of

    config = charged(5.0)
    assert room_of(config, tmp_path) is not None
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, "privsyn_invisible_ink")
    assert room_of(config, tmp_path) is None


@pytest.mark.parametrize(
    "ledger",
    [
        None,
        "sqlite:////nowhere/at/all/ledger.db",
        "sqlite:///{folder}/no.db",
        "postgresql+psycopg://privsyn@127.0.0.1:1/ledger",
    ],
)
def test_a_form_is_there_without_its_ledger(config, form, tmp_path, monkeypatch, ledger):
    from privsyn.airflow import params

    monkeypatch.setattr(params, "_silent", set())
    (tmp_path / "no.db").write_text("no database")
    where = ledger and ledger.format(folder=tmp_path)
    services = config.services.model_copy(update={"ledger": where})
    away = config.model_copy(update={"services": services})
    assert params.room_of(away, tmp_path) is None
    shown = params.form(away, METHOD, params.room_of(away, tmp_path))
    assert shown["privacy.epsilon"].schema == form["privacy.epsilon"].schema
    assert not (tmp_path / ".privsyn").exists()


def test_the_untouched_form_is_params_yaml(config, form):
    from privsyn.airflow.params import overrides

    values = {key: field.resolve() for key, field in form.items()}
    settings = overrides(values, form)
    changed = load_config(PARAMS, settings)
    assert changed.privacy == config.privacy
    assert changed.dataset == config.dataset
    assert changed.method(METHOD) == config.method(METHOD)


def test_a_preset_is_in_place_of_all_that_was_left_as_shown(config, form):
    """Of the form as it is sent: all fields, one of them changed."""
    from privsyn.airflow.params import overrides

    values = {key: field.resolve() for key, field in form.items()}
    values |= {f"methods.{METHOD}.settings": "paper", f"methods.{METHOD}.top_k": 50}
    changed = load_config(PARAMS, overrides(values, form)).method(METHOD)
    paper = load_config(PARAMS, [f"methods.{METHOD}=paper"]).method(METHOD)
    assert changed == paper.model_copy(update={"top_k": 50})
    assert paper.guidance != config.method(METHOD).guidance


def test_values_reach_the_config_unchanged(form):
    from privsyn.airflow.params import overrides

    prompt = {"private": 'Note: a \u20ac "b"\n{reference}', "public": "#: yes", "chat": True}
    values = {"privacy.delta": 1e-9, "privacy.epsilon": 7, f"methods.{METHOD}.prompt": prompt}
    changed = load_config(PARAMS, overrides(values, form))
    assert (changed.privacy.epsilon, changed.privacy.delta) == (7.0, 1e-9)
    assert changed.method(METHOD).prompt.model_dump(exclude_unset=True) == prompt


@pytest.mark.parametrize(
    "key", ["services.ledger", "account.name", "account.epsilon", "dataset.path", "dataset.name"]
)
def test_a_run_cannot_reach_past_the_form_to_another_budget(form, key):
    from privsyn.airflow.params import overrides

    with pytest.raises(ConfigError, match=re.escape(f"{key} is not a field")):
        overrides({key: "other"}, form)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_a_whole_form(config, method):
    """All its settings, each with help, type and bounds; untouched, it is params.yaml."""
    from privsyn.airflow.params import form, overrides
    from privsyn.airflow.project import teaches

    fields = form(config, method)
    names = {f"methods.{method}.{name}" for name in type(config.method(method)).model_fields}
    names |= {f"methods.{method}.settings"}
    if teaches(method):
        names |= {f"methods.distill.{name}" for name in type(config.method("distill")).model_fields}
    for section in (method, "distill"):  # paths are chosen among declared names, and none is here
        for name, _ in marks(type(config.method(section))):
            names -= {f"methods.{section}.{name}_digest"}
            if name not in ("init", "student"):  # there is a choice of words
                names -= {f"methods.{section}.{name}"}
    assert {key for key in fields if key.startswith("methods.")} == names
    for key in names:
        assert fields[key].description, key
        assert fields[key].schema["type"], key
        if {"integer", "number"} & set(_types(fields[key])):
            assert {"minimum", "exclusiveMinimum"} & set(fields[key].schema), key
    values = {key: field.resolve() for key, field in fields.items()}
    changed = load_config(PARAMS, overrides(values, fields))
    assert changed.method(method) == config.method(method)


def test_a_misspelled_field_is_told_its_neighbor(form):
    from privsyn.airflow.params import overrides

    with pytest.raises(ConfigError, match=r"Did you mean privacy\.epsilon\?"):
        overrides({"privacy.epsilom": 1}, form)


def _types(field):
    kind = field.schema["type"]
    return kind if isinstance(kind, list) else [kind]


def test_the_form_of_private_evolution_brings_its_settings_back(config):
    from privsyn.airflow.params import form, overrides

    shown = form(config, "private_evolution")
    values = {key: field.resolve() for key, field in shown.items()}
    changed = load_config(PARAMS, overrides(values, shown))
    assert changed.method("private_evolution") == config.method("private_evolution")
    values["methods.private_evolution.degrees"] = [0.5]
    values["methods.private_evolution.label_split"] = {"Billing": 3}
    changed = load_config(PARAMS, overrides(values, shown))
    assert changed.method("private_evolution").degrees == (0.5,)
    assert changed.method("private_evolution").label_split == {"Billing": 3}


FILES = {
    "terms": {"path": "terms.txt", "digest": "a" * 64},
    "shown": {"path": "shown.jsonl", "digest": "b" * 64},
    "small": {"path": "models/small", "digest": "c" * 64, "kind": "model"},
}
PATHS = ("/etc/passwd", ".privsyn/sample/messages.jsonl", "terms.txt", "../params.yaml", "small")


def test_a_setting_that_may_be_a_path_offers_names_alone():
    """Whoever may trigger a run can have no file of the worker read into a release."""
    from airflow.sdk.exceptions import ParamValidationError

    from privsyn.airflow.params import form, overrides

    declared = [f"files={json.dumps(FILES)}"]
    config = load_config(PARAMS, declared)
    shown = form(config, "keyphrase_seeding") | form(config, "dp_lora")
    words, start = (
        shown[f"methods.{name}"] for name in ("keyphrase_seeding.vocabulary", "distill.init")
    )
    assert words.schema["enum"] == ["builtin", "terms", "shown"]
    assert start.schema["enum"] == ["random", "tiny", "small"]
    for field in (words, start):
        for path in PATHS:
            if path not in field.schema["enum"]:
                with pytest.raises(ParamValidationError):
                    field.resolve(path)
    values = {"methods.keyphrase_seeding.vocabulary": words.resolve("terms")}
    changed = load_config(PARAMS, declared + overrides(values, shown))
    assert changed.method("keyphrase_seeding").vocabulary == "terms"


def test_no_field_of_any_form_takes_a_path(config):
    """What is on a form is a number, a choice, or a text that no mark calls a path."""
    from privsyn.airflow.params import form

    for method in METHODS:
        for key, field in form(config, method).items():
            section = key.split(".")[1]
            if not key.startswith("methods."):
                assert key.split(".")[0] in ("privacy", "dataset")
                continue
            marked = {name.split(".")[0] for name, _ in marks(type(config.method(section)))}
            if key.split(".")[2] in marked:
                assert field.schema["enum"], key


def test_a_path_of_params_yaml_is_not_on_the_form():
    from privsyn.airflow.params import form

    pinned = ["methods.keyphrase_seeding.vocabulary=terms.txt"]
    shown = form(load_config(PARAMS, pinned), "keyphrase_seeding")
    assert "methods.keyphrase_seeding.vocabulary" not in shown


@pytest.mark.parametrize(
    "key",
    [
        "methods.keyphrase_seeding.vocabulary",
        "methods.keyphrase_seeding.vocabulary_digest",
        "methods.keyphrase_seeding",
        "methods",
        "validation.suite",
        "validation.json_schema",
        "models.language",
        "files",
        "files.terms",
        "files.terms.path",
    ],
)
def test_a_conf_cannot_name_a_path_past_the_form(config, key):
    from privsyn.airflow.params import form, overrides

    shown = form(config, "keyphrase_seeding")
    with pytest.raises(ConfigError, match=re.escape(f"{key} is not a field")):
        overrides({key: "/etc/passwd"}, shown)
