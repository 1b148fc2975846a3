"""Settings at the ends of what their types hold: the answer is a plan or a one-line refusal."""

import json
import math
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from privsyn.config import parse_config
from privsyn.errors import PrivsynError
from privsyn.methods.registry import METHODS, settings_model
from privsyn.release.workspace import Workspace
from privsyn.stages.base import Context
from privsyn.stages.plan import plan, preview, report

FLOATS = [0.0, 5e-324, 1e-300, 1e-12, 0.5, 1.0, 2.0**24, 2.0**53, 1e18, 1e154, 1.7e308]
WHOLE = [0, 1, 2, 255, 2**16, 10**6, 10**7, 2**31, 2**63, 2**64, 10**30]


def numbers(model, inside=()):
    """Every numeric setting of a section, below it too, and the values to try."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for name, field in model.model_fields.items():
        kinds = typing.get_args(field.annotation) or (field.annotation,)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= numbers(kind, (*inside, name))
        if float in kinds:
            found[*inside, name] = FLOATS
        elif int in kinds:
            found[*inside, name] = WHOLE
    return found


def section(values):
    nested: dict[str, Any] = {}
    for path, value in values.items():
        node = nested
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return nested


def answer(root, method, raw):
    try:
        config = parse_config(raw)
        ctx = Context(config, Workspace(root))
        planned = plan(ctx, method)
        shown = report(planned, preview(ctx, planned))
    except PrivsynError as error:
        said = str(error)
    else:
        said = ""
        assert 0 <= planned.epsilon <= config.privacy.epsilon
        assert all(math.isfinite(value) for value in planned.derived.values()), planned.derived
        json.dumps(shown, allow_nan=False)
    assert len(said.splitlines()) <= 1
    assert len(said) < 2000


ACCOUNT = {
    "name": "a",
    "unit": "person",
    "adjacency": "replace_null",
    "epsilon": 1.7e308,
    "delta": 0.999,
}


@pytest.mark.parametrize("method", METHODS)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_extreme_is_a_plan_or_a_refusal(method, data, tmp_path):
    known = numbers(settings_model(method))
    chosen = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True, max_size=3))
    values = {path: data.draw(st.sampled_from(known[path])) for path in chosen}
    target = {
        "epsilon": data.draw(st.sampled_from([8.0, 8.0, *FLOATS])),
        "delta": data.draw(st.sampled_from([1e-6, 1e-6, *FLOATS])),
    }
    raw = {
        "dataset": {
            "name": "d",
            "path": "nowhere.jsonl",
            "label": "label",
            "labels": ["a", "b"],
            "unit": "unit",
            "max_records_per_unit": data.draw(st.sampled_from([1, 3, 10_000])),
        },
        "account": ACCOUNT,
        "privacy": target,
        "methods": {method: section(values)},
        "evaluate": {"by": "nothing"},
    }
    answer(tmp_path, method, raw)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [5e-324, 1e-12, 1e6, 1e18, 1e154, 1.7e308])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-6, 1 - 2**-53])
def test_every_target_is_a_plan_or_a_refusal(method, epsilon, delta, tmp_path):
    raw = {
        "dataset": {"name": "d", "path": "nowhere.jsonl", "unit": "unit"},
        "account": ACCOUNT,
        "privacy": {"epsilon": epsilon, "delta": delta},
        "evaluate": {"by": "nothing"},
    }
    answer(tmp_path, method, raw)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-12, 1e6, 1e18, 1e154, 1.7e308])
@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-300, 1e-6, 1 - 2**-53])
def test_every_cap_is_a_plan_or_a_refusal(epsilon, delta, tmp_path):
    raw = {
        "dataset": {"name": "d", "path": "nowhere.jsonl", "unit": "unit"},
        "account": ACCOUNT
        | {"epsilon": epsilon, "delta": delta, "period": {"days": 3660, "epsilon": epsilon}},
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
        "evaluate": {"by": "nothing"},
    }
    answer(tmp_path, "invisible_ink", raw)
