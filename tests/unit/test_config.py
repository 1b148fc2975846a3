"""params.yaml: bounds, misspelled keys, overrides, and what a user is told."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from privsyn.config import Config, load_config, parse_config
from privsyn.errors import ConfigError
from privsyn.methods.registry import METHODS, settings_model
from privsyn.methods.shared.distill import STUDENTS
from privsyn.section import WORDS

ROOT = Path(__file__).parents[2]


JARGON = ("tuple", "dictionary", "instance of", "should match", "^[", "valid string", "parse")
"""Words of the validator, which no user of params.yaml has to know."""


@pytest.fixture
def raw():
    return yaml.safe_load((ROOT / "params.yaml").read_text())


def test_the_shipped_params_are_valid(raw):
    config = load_config(ROOT / "params.yaml")
    written = raw["methods"]["invisible_ink"]
    assert config.method("invisible_ink").texts_per_label == written["texts_per_label"]
    assert config.method("invisible_ink").guidance == 3  # of its preset: small
    assert config.unit.name == "patient"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("privacy.epsilon=0", "privacy.epsilon=0: "),
        ("privacy.epsilon=.nan", "finite"),
        ("privacy.delta=0", "privacy.delta=0: "),
        ("privacy.delta=1", "less than 1"),
        ("account.delta=-1e-6", "account.delta"),
        ("methods.invisible_ink.max_tokens=0", "methods.invisible_ink.max_tokens=0: "),
        ("methods.invisible_ink.batchsize=4", "Did you mean batch_size?"),
        ("methods.private_evolution.max_tokens=4", "mean methods.private_evolution.text.max_tok"),
        ("account.days=3", "Did you mean account.period.days?"),
        ("account.adjacency=add", "account.adjacency='add'"),
        ("account.period.days=3", "account.period.epsilon is missing"),
        ("dataset.labels=[a, a]", "holds a label twice"),
        ("dataset.label=null", "label and labels go together"),
        ("dataset.unit=null", "needs dataset.unit"),
        ("dataset.version=a b", "dataset.version"),
        ("validation.forbid=[email, (]", "not a regular expression"),
        ("validation.forbid=['a(', 'b)']", "not a regular expression"),
        ("validation.forbid=[emial]", "one of email, phone, record_number"),
        ("dataset.labels=[010, B]", "as a number or a date: put it in quotes, as you wrote it."),
        ("dataset.labels=[~, B]", "YAML reads it as nothing: put it in quotes, as you wrote it."),
        ("dataset.labels=yes", "must be a list, such as [A, B]"),
        ("pipeline=private_evolution", "must be a list, such as [private_evolution]"),
        ("evaluate.paid=0.5", "must be a section with the keys epsilon"),
        ("dataset.label_descriptions=3", "must be a section of names, each with a value"),
        ("methods.private_evolution.degrees=[]", "must be a list of at least 1"),
        ("dataset.name=a b", "must be up to 64 letters (A to Z), digits, dots"),
        ("account.amplification=maybe", "must be true or false"),
        ("account.period.days=1.5", "must be a whole number"),
        ("dataset.path=3", "dataset.path: must be a path or an address"),
        ("epsilon=4", "Did you mean account.epsilon, privacy.epsilon, "),
        ("top_k=4", "methods.invisible_ink.top_k or methods.dp_lora.top_k?"),
        ("nonsense", "not of the form"),
        ("privacy.epsilon=[", "not valid YAML"),
        ("dataset.version={date:%Q", "not valid YAML. Close its quotes and brackets"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(raw, override, message):
    with pytest.raises(ConfigError) as caught:
        parse_config(raw, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(word in str(caught.value) for word in JARGON)
    assert caught.value.exit_code == 2


def patterns(schema):
    if isinstance(schema, list):
        return set().union(*map(patterns, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    return own.union(*map(patterns, schema.values()))


def test_every_pattern_of_a_setting_is_said_in_words():
    models = [Config, *map(settings_model, [*METHODS, STUDENTS])]
    used = set().union(*(patterns(model.model_json_schema()) for model in models))
    assert used == set(WORDS)
    assert not any(mark in words for words in WORDS.values() for mark in "^[\\")


def test_overrides_take_numbers_as_people_write_them(raw):
    config = parse_config(raw, ["privacy.delta=1e-7", "account.period={days: 30, epsilon: 9}"])
    assert config.privacy.delta == 1e-7
    assert config.account.period is not None
    assert config.account.period.days == 30


def test_an_override_may_make_a_section(raw):
    del raw["models"]
    assert parse_config(raw, ["models.language=/models/mine"]).models.language == "/models/mine"


def test_every_method_has_the_tasks_of_all_under_its_own(raw):
    own = "schedule.dp_lora={cron: '@daily', tasks: {train: {queue: big}, generate: {pool: p}}}"
    schedule = parse_config(raw, ["schedule.tasks.train.queue=gpu", own]).schedule
    assert schedule.keys() == METHODS.keys()
    assert schedule["invisible_ink"].tasks == {"train": {"queue": "gpu"}}
    assert schedule["dp_lora"].tasks == {"train": {"queue": "big"}, "generate": {"pool": "p"}}
    assert schedule["dp_lora"].cron == "@daily"
    with pytest.raises(ConfigError) as caught:
        parse_config(raw, ["schedule.tasks.trian.queue=gpu"])
    assert str(caught.value).count("schedule.tasks.trian") == 1


def test_exponents_in_the_file_are_numbers_too(raw):
    raw["privacy"]["delta"] = "1e-6"  # what YAML 1.1 makes of 1e-6 without a dot
    assert parse_config(raw).privacy.delta == 1e-6


def test_versions_may_follow_the_calendar(raw):
    config = parse_config(raw, ["dataset.version='{date:%Y-%m}'"])
    assert config.dataset.resolved(date(2026, 11, 20)).version == "2026-11"
    with pytest.raises(ConfigError, match=r"dataset\.version"):
        parse_config(raw, ["dataset.version='{day}'"]).dataset.resolved(date(2026, 11, 20))


@pytest.mark.parametrize("version", ["'{date.__class__}'", "'{date:%d/%m}'"])
def test_a_version_pattern_stays_a_name(raw, version):
    with pytest.raises(ConfigError, match=r"dataset\.version"):
        parse_config(raw, [f"dataset.version={version}"]).dataset.resolved(date(2026, 11, 20))


def test_a_missing_or_broken_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="not valid YAML at line 1"):
        load_config(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_config(tmp_path / "params.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_an_unknown_method_names_the_nearest(raw):
    config = parse_config(raw)
    with pytest.raises(ConfigError, match="Did you mean invisible_ink"):
        config.method("invisible_inkk")


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (["services.vault=s3://b/v", "services.releases=s3://b/v"], "services.vault"),
        (["services.vault=s3://b/r/v", "services.releases=s3://b/r"], "services.vault"),
        (["services.vault=s3://b", "dataset.path=s3://b/raw/part-*.jsonl"], "dataset.path"),
        (["services.releases=s3://b/raw", "dataset.path=s3://b/raw/a.jsonl"], "dataset.path"),
        (["services.releases=S3://b/raw", "dataset.test_path=s3://b/raw/a"], "dataset.test_path"),
        (["services.releases=file:///srv/x", "dataset.path=/srv/x/a.jsonl"], "dataset.path"),
    ],
)
def test_stores_and_records_lie_apart(raw, settings, refused):
    with pytest.raises(ConfigError, match="use separate folders") as caught:
        parse_config(raw, settings)
    assert refused in str(caught.value)


def test_one_bucket_may_hold_all_side_by_side(raw):
    settings = ["services.vault=s3://b/v", "services.releases=s3://b/vr", "dataset.path=s3://b/r/a"]
    assert parse_config(raw, settings).services.vault == "s3://b/v"
    both = ["dataset.path=s3://b/raw/train.jsonl", "dataset.test_path=s3://b/raw/test.jsonl"]
    assert str(parse_config(raw, both).dataset.test_path) == "s3://b/raw/test.jsonl"
