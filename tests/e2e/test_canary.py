"""A word planted in every private record is found nowhere after a whole run, by any driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import CANARY, DRIVERS, EMBEDDED

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


def files(root: Path):
    """All a run leaves: logs, databases, caches, artifacts; not the private file itself."""
    for path in root.rglob("*"):
        if path.is_file() and path.name != "private.jsonl":
            yield path


@pytest.mark.parametrize("name", DRIVERS)
def test_no_file_and_no_name_of_a_file_holds_the_canary(driven, name):
    root = driven[name].project.root
    looked = 0
    for path in files(root):
        looked += 1
        content = path.read_bytes()
        for form in (CANARY, CANARY.replace("-", " "), CANARY.upper()):
            assert form.encode() not in content, path
            assert form.encode("utf-16-le") not in content, path
        assert CANARY not in str(path)
    assert looked > 30
    assert CANARY in (root / "private.jsonl").read_text(), "the canary was not planted"


@pytest.mark.parametrize("name", DRIVERS)
def test_the_embedder_of_the_evaluation_was_reached(driven, name):
    """Else what it does with real texts was not searched. Private prediction writes too few."""
    (file,) = driven[name].project.root.glob(".privsyn/internal/*/evaluation.json")
    names = {metric["name"] for metric in json.loads(file.read_text())["metrics"]}
    assert ("mauve" in names) == (driven[name].method in EMBEDDED)


@pytest.mark.parametrize("name", DRIVERS)
def test_nothing_printed_holds_the_canary(driven, name):
    assert CANARY not in driven[name].printed


def test_the_search_would_find_it(driven, tmp_path):
    """The check is not blind: a leak into a SQLite file is seen."""
    import sqlite3

    leak = sqlite3.connect(tmp_path / "leak.db")
    leak.execute("create table xcom (value text)")
    leak.execute("insert into xcom values (?)", (f"the text was {CANARY}",))
    leak.commit()
    leak.close()
    assert any(CANARY.encode() in path.read_bytes() for path in files(tmp_path))
