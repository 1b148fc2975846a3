"""params.yaml: bounds, misspelt keys, overrides, and what a user is told."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml

from privsyn.config import load_config, parse_config
from privsyn.errors import ConfigError

ROOT = Path(__file__).parents[1]


@pytest.fixture
def raw():
    return yaml.safe_load((ROOT / "params.yaml").read_text())


def test_the_shipped_params_are_valid(raw):
    config = load_config(ROOT / "params.yaml")
    assert (
        config.method("invisible_ink").batch_size == raw["methods"]["invisible_ink"]["batch_size"]
    )
    assert config.unit.name == "patient"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("privacy.epsilon=0", "privacy.epsilon=0: "),
        ("privacy.epsilon=-1", "greater than 0"),
        ("privacy.epsilon=.nan", "finite"),
        ("privacy.epsilon=.inf", "finite"),
        ("privacy.delta=0", "privacy.delta=0: "),
        ("privacy.delta=1", "less than 1"),
        ("account.delta=-1e-6", "account.delta"),
        ("methods.invisible_ink.max_tokens=0", "methods.invisible_ink.max_tokens=0: "),
        ("methods.invisible_ink.batch_size=0", "methods.invisible_ink.batch_size=0: "),
        ("methods.invisible_ink.batchsize=4", "Did you mean batch_size?"),
        ("privacy.epsilonn=4", "Did you mean epsilon?"),
        ("methods.private_evolution.max_tokens=4", "mean methods.private_evolution.text.max_tok"),
        ("methods.private_evolution.text.population=4", "mean methods.private_evolution.populat"),
        ("account.days=3", "Did you mean account.period.days?"),
        ("acount.name=x", "Did you mean account?"),
        ("methods.invisible_inc.top_k=4", "Did you mean invisible_ink?"),
        ("account.adjacency=add", "account.adjacency='add'"),
        ("account.period.days=3", "account.period.epsilon is missing"),
        ("dataset.labels=[a, a]", "holds a label twice"),
        ("dataset.label=null", "label and labels go together"),
        ("dataset.unit=null", "needs dataset.unit"),
        ("dataset.version=a b", "dataset.version"),
        ("validation.record_number_pattern=(", "not a regular expression"),
        ("validation.min_chars=5000", "min_chars=5000 is above max_chars=1200"),
        ("performance.shards=0", "performance.shards=0"),
        ("nonsense", "not of the form"),
        ("a..b=1", "not of the form"),
        ("privacy.epsilon=[", "not valid YAML"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(raw, override, message):
    with pytest.raises(ConfigError) as caught:
        parse_config(raw, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_overrides_take_numbers_as_people_write_them(raw):
    config = parse_config(raw, ["privacy.delta=1e-7", "account.period={days: 30, epsilon: 9}"])
    assert config.privacy.delta == 1e-7
    assert config.account.period is not None
    assert config.account.period.days == 30


def test_an_override_may_make_a_section(raw):
    del raw["models"]
    assert parse_config(raw, ["models.language=/models/mine"]).models.language == "/models/mine"


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
    with pytest.raises(ConfigError, match="a folder of its own") as caught:
        parse_config(raw, settings)
    assert refused in str(caught.value)


def test_one_bucket_may_hold_all_side_by_side(raw):
    settings = ["services.vault=s3://b/v", "services.releases=s3://b/vr", "dataset.path=s3://b/r/a"]
    assert parse_config(raw, settings).services.vault == "s3://b/v"
    both = ["dataset.path=s3://b/raw/train.jsonl", "dataset.test_path=s3://b/raw/test.jsonl"]
    assert str(parse_config(raw, both).dataset.test_path) == "s3://b/raw/test.jsonl"
