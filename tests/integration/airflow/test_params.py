"""The trigger form against the config models it is made from."""

import math
import re
from pathlib import Path

import pytest

from privsyn.config import load_config
from privsyn.dp.risk import gaussian_risk
from privsyn.errors import ConfigError
from privsyn.files import marks
from privsyn.methods.registry import METHODS

pytestmark = pytest.mark.airflow
PARAMS = Path(__file__).parents[3] / "params.yaml"
METHOD = "invisible_ink"


@pytest.fixture(scope="module")
def config():
    return load_config(PARAMS)


@pytest.fixture(scope="module")
def form(config):
    from privsyn.airflow.params import form

    return form(config, METHOD)


def test_fields_are_in_sections(form):
    assert {field.schema["section"] for field in form.values()} == {
        "Privacy", "Dataset", "InvisibleInk",
    }  # fmt: skip
    by_place = [field.schema["section"] for field in form.values()]
    assert by_place == sorted(by_place, key=by_place.index), "a section is in one piece"
    shown = list(form)
    first = shown.index(f"methods.{METHOD}.texts_per_label")
    assert first < shown.index(f"methods.{METHOD}.prompt"), "what depends on the model comes first"


def test_defaults_are_the_settings_of_params_yaml(config, form):
    assert form["privacy.epsilon"].value == config.privacy.epsilon
    assert form[f"methods.{METHOD}.batch_size"].value == config.method(METHOD).batch_size
    for field in form.values():
        field.resolve()


def test_a_field_that_may_be_null_can_be_left_empty(form):
    empty = {key for key, field in form.items() if "null" in _types(field)}
    nullable = ("settings", "guidance", "prompt", "top_k")
    assert empty == {f"methods.{METHOD}.{name}" for name in nullable}
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


def test_it_says_what_the_epsilon_of_params_yaml_means(config, form):
    right = math.ceil(100 * gaussian_risk(config.privacy.epsilon, config.privacy.delta).right)
    assert f"right at most {right} times in 100" in form["privacy.epsilon"].description


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

    prompt = {"private": 'Note: a \u20ac "b"\n{reference}', "public": "#: yes"}
    values = {"privacy.delta": 1e-9, "privacy.epsilon": 7, f"methods.{METHOD}.prompt": prompt}
    changed = load_config(PARAMS, overrides(values, form))
    assert (changed.privacy.epsilon, changed.privacy.delta) == (7.0, 1e-9)
    assert changed.method(METHOD).prompt.model_dump(exclude_unset=True) == prompt


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_a_whole_form(config, method):
    """All its settings, each with help, type and bounds; untouched, it is params.yaml."""
    from privsyn.airflow.params import form, overrides
    from privsyn.airflow.project import teaches

    fields = form(config, method)
    names = {f"methods.{method}.{name}" for name in type(config.method(method)).model_fields}
    names |= {f"methods.{method}.settings"} if config.method(method).presets else set()
    if teaches(method):
        names |= {f"methods.distill.{name}" for name in type(config.method("distill")).model_fields}
    for section in (method, "distill"):
        names -= {f"methods.{section}.{name}" for name, _ in marks(type(config.method(section)))}
    names |= {f"privacy.{name}" for name in ("epsilon", "delta", "draw")} | {"dataset.version"}
    assert set(fields) == names
    for key, field in fields.items():
        assert field.description, key
        assert field.schema["title"], key
        assert field.schema["type"], key
        if {"integer", "number"} & set(_types(field)):
            assert {"minimum", "exclusiveMinimum"} & set(field.schema), key
    values = {key: field.resolve() for key, field in fields.items()}
    changed = load_config(PARAMS, overrides(values, fields))
    assert changed.method(method) == config.method(method)
    assert (changed.privacy, changed.dataset) == (config.privacy, config.dataset)


def _types(field):
    kind = field.schema["type"]
    return kind if isinstance(kind, list) else [kind]


def test_the_form_of_private_evolution_brings_lists_and_shares_back(config):
    from privsyn.airflow.params import form, overrides

    shown = form(config, "private_evolution")
    values = {key: field.resolve() for key, field in shown.items()}
    values["methods.private_evolution.degrees"] = [0.5]
    values["methods.private_evolution.label_split"] = {"Billing": 3}
    changed = load_config(PARAMS, overrides(values, shown))
    assert changed.method("private_evolution").degrees == (0.5,)
    assert changed.method("private_evolution").label_split == {"Billing": 3}


PATHS = ("/etc/passwd", ".privsyn/sample/messages.jsonl", "terms.txt", "../params.yaml", "small")


def test_a_setting_that_may_be_a_path_is_not_on_the_form():
    """Whoever may trigger a run can have no file of the worker read into a release."""
    from privsyn.airflow.params import form, overrides

    shown = form(load_config(PARAMS, []), "dp_lora")
    assert "methods.distill.seed" in shown
    for key in ("methods.distill.init", "methods.keyphrase_seeding.vocabulary"):
        assert key not in shown
        for path in PATHS:
            with pytest.raises(ConfigError, match="is not a field"):
                overrides({key: path}, shown)
    pinned = ["methods.keyphrase_seeding.vocabulary=terms.txt"]
    shown = form(load_config(PARAMS, pinned), "keyphrase_seeding")
    assert "methods.keyphrase_seeding.vocabulary" not in shown


@pytest.mark.parametrize(
    "key",
    [
        "methods.keyphrase_seeding.vocabulary",
        "methods.keyphrase_seeding",
        "methods",
        "services.ledger",
        "account.name",
        "account.epsilon",
        "dataset.path",
        "dataset.name",
        "validation.suite",
        "models.language",
    ],
)
def test_a_conf_cannot_name_a_path_past_the_form(config, key):
    from privsyn.airflow.params import form, overrides

    shown = form(config, "keyphrase_seeding")
    with pytest.raises(ConfigError, match=re.escape(f"{key} is not a field")):
        overrides({key: "/etc/passwd"}, shown)
