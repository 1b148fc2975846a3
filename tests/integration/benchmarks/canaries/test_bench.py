"""Throw-away projects: made anew, of invented records, and never in the place of another one."""

from __future__ import annotations

import json

import pytest
import yaml
from canaries.bench import MARKER, METHODS, Bench, canaries, opened, project, words

from privsyn.errors import ConfigError
from privsyn.methods.registry import COLUMNS_ALONE
from privsyn.methods.registry import METHODS as KNOWN

BENCH = Bench("invisible_ink", units=16, records=2)


def test_every_method_that_reads_texts_has_an_audit():
    assert set(METHODS) == set(KNOWN) - {COLUMNS_ALONE}


def test_canaries_are_alike_within_a_unit_and_end_in_random_words():
    rows = canaries(BENCH)
    assert len(rows) == 32
    assert rows[::2] == rows[1::2]
    assert len({row["text"] for row in rows}) == 16
    for row in rows:
        assert set(row["text"].split()[-8:]) <= set(words())


def test_a_folder_that_no_audit_made_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="will not be touched"):
        project(tmp_path, BENCH)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_throw_away_project_has_a_ledger_of_its_own_whatever_the_environment_says(
    tmp_path, monkeypatch
):
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setenv("PRIVSYN_OVERRIDES", json.dumps([f"services.ledger={elsewhere}"]))
    params = project(tmp_path / "audit", BENCH)
    ctx = opened(params)
    assert ctx.config.services.ledger is None
    ctx.open_account()
    assert (tmp_path / "audit" / ".privsyn" / "ledger.db").is_file()
    assert not (tmp_path / "other.db").exists()
    project(tmp_path / "audit", BENCH)  # a second time: from nothing
    assert not (tmp_path / "audit" / ".privsyn").exists()


@pytest.mark.parametrize(
    ("section", "change"),
    [("account", {"name": "portal"}), ("services", {"ledger": "sqlite:///elsewhere.db"})],
)
def test_an_account_that_is_no_throw_away_is_refused(tmp_path, section, change):
    params = project(tmp_path / "audit", BENCH)
    said = yaml.safe_load(params.read_text())
    said[section] = said.get(section, {}) | change
    params.write_text(yaml.safe_dump(said))
    with pytest.raises(ConfigError, match="is not a throw-away"):
        opened(params)


def test_a_project_without_the_mark_is_refused(tmp_path):
    params = project(tmp_path / "audit", BENCH)
    (tmp_path / "audit" / MARKER).unlink()
    with pytest.raises(ConfigError, match="is not a throw-away"):
        opened(params)


@pytest.mark.parametrize(
    "asked", [{"method": "no_such"}, {"units": 8}, {"units": 5000}, {"suffix": 0}, {"suffix": 999}]
)
def test_what_cannot_be_audited_is_refused(asked):
    with pytest.raises(ConfigError):
        Bench(**{"method": "invisible_ink"} | asked)
