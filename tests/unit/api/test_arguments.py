"""Arguments of the public API that do not fit: one line that names them, and never a defect."""

from datetime import date as Date

import numpy as np
import pandas as pd
import pytest

import privsyn
from privsyn.errors import ConfigError, DataError

CANARY = "vermilion-ocelot-90210 wrote this long text about somebody"
FRAME = pd.DataFrame({"body": [CANARY] * 3, "person": ["a", "b", "c"], "kind": ["Bug"] * 3})
GIVEN = {"text": "body", "unit": "person"}
LABELED = GIVEN | {"label": "kind"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": "body"}, "missing a required argument: 'unit'. unit: Column with the stable"),
        (GIVEN | {"foo": 3}, "Project.create has no argument 'foo'; it has folder, data, unit,"),
        (GIVEN | {"lables": 3}, "Did you mean labels?"),
        (GIVEN | {CANARY: 3}, "Project.create has no argument of that name"),
        (GIVEN | {"account": {3: 20}}, "account=<dict> must be a dict with names for keys"),
        (GIVEN | {"account": {"epsilon": "x"}}, "account.epsilon='x': must be a number"),
        (GIVEN | {"image_size": "28"}, "image_size=<str> must be a whole number or None"),
        (LABELED | {"labels": "Bug"}, "labels='Bug' must be a list of strings."),
        (LABELED | {"labels": CANARY}, "labels=<str> must be a list of strings."),
        (LABELED | {"labels": {"Bug", "B"}}, "labels=<set> must be a list of strings"),
        (GIVEN | {"text": FRAME["body"]}, "text=<Series> must be a string or None."),
        (GIVEN | {"text": "bdy"}, "column 'bdy' (argument text) is not in the frame"),
        (GIVEN | {"method": "ink"}, "method='ink' is not known"),
    ],
)
def test_a_mistake_in_create_is_named_and_leaves_nothing(tmp_path, given, message):
    with pytest.raises((ConfigError, DataError)) as caught:
        privsyn.Project.create(tmp_path / "new", FRAME, **given)
    assert message in str(caught.value)
    assert CANARY not in str(caught.value)
    assert "defect" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    labels = np.array(["Bug", "Praise"])
    root = tmp_path_factory.mktemp("api") / "project"
    return privsyn.Project.create(root, FRAME, **LABELED, labels=labels)


def test_what_fits_is_taken(project):
    assert "Bug, Praise" in repr(project)
    assert privsyn.Project.open(str(project.folder), day=Date(2026, 1, 1)).folder
    assert project.plan(epsilon=np.float64(4), draw=2, **{"models.language": "tiny"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.using(FRAME), "missing a required argument: 'version'. version: Opaque"),
        (lambda p: p.using(FRAME, version=2), "Project.using: version=2 must be a string"),
        (lambda p: p.release("invisible_ink"), "planned='invisible_ink' must be a Planned"),
        (lambda p: p.plan("invisible_ink", 4), "Project.plan: too many positional arguments"),
        (lambda p: p.plan(epsilon="four"), "Project.plan: epsilon='four' must be a number"),
        (lambda p: p.plan(top_k=3, **{"validation.forbid": "email"}), "such as [email]"),
        (lambda p: privsyn.Project.open(p.folder, day="2026-01-01"), "day=<str> must be a datet"),
        (lambda p: privsyn.Project.open(p.folder, folder=3), "multiple values for argument"),
        (lambda p: privsyn.Project.open(p.folder, epsilon=4), "privacy.epsilon"),
        (lambda p: privsyn.Release.open(3), "Release.open: folder=3 must be a string or a path"),
    ],
)
def test_a_mistake_in_a_call_is_named(project, call, message):
    with pytest.raises(ConfigError) as caught:
        call(project)
    assert message in str(caught.value)
    assert "defect" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
