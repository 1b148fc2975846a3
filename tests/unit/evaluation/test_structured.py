"""Parse and valid rates against hand-counted ones; fields beside those of real records."""

import json
import random

import pytest
from scipy.stats import ks_2samp

from privsyn.evaluation.structured import FEWEST, compare_fields, section, structure

SCHEMA = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}


def test_rates_by_hand() -> None:
    texts = ['{"title": "x"}', '{"title": 3}', "{}", "[1]", "{torn", "", "[" * 100_000, "NaN"]
    found = {metric.name: metric.value for metric in structure(texts, SCHEMA)}
    assert found == {"json_parse_rate": 5 / 8, "json_valid_rate": 1 / 8}
    assert all(metric.cls == "dp-release" for metric in structure(texts, SCHEMA))


def test_nothing_to_count() -> None:
    assert structure([], SCHEMA) == []


RECORD = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["bill", "visit"]},
        "cost": {"type": ["number", "null"]},
        "note": {"type": "string"},
        "inner": {"type": "object"},
        "odd": 3,
    },
}
SECRET = "vermilion-ocelot"


def drawn(
    count: int, seed: int, bills: float = 0.5, shift: float = 0.0, **more: object
) -> list[str]:
    """Records of which some are bills, with a cost that may be shifted."""
    rng = random.Random(seed)
    return [
        json.dumps(
            {
                "kind": "bill" if rng.random() < bills else "visit",
                "cost": rng.gauss(100 + shift, 10),
                "note": f"the {rng.choice(('knee', 'bill', 'doctor'))} was late",
                "inner": {"a": 1},
                "odd": "x",
                **more,
            }
        )
        for _ in range(count)
    ]


def values(metrics: list) -> dict[str, float]:
    assert {metric.cls for metric in metrics} <= {"internal"}
    return {metric.name: metric.value for metric in metrics}


def test_fields_that_are_alike_are_as_near_as_real_ones_are_to_each_other() -> None:
    metrics = compare_fields(drawn(200, 1), drawn(400, 2), RECORD)
    found = values(metrics)
    assert {metric.label for metric in metrics} == {"kind", "cost", "note"}
    for field in ("kind", "cost", "note"):
        assert found[f"fields.{field}.apart"] < found[f"fields.{field}.apart_real"] + 0.15
    shown = section([metric.to_json() for metric in metrics])
    (block,) = shown.blocks
    assert (shown.grade, [item.name for item in block.items]) == (None, ["kind", "cost", "note"])
    assert all("real to other real 0." in item.note for item in block.items)


def test_distances_are_those_of_other_code() -> None:
    ours, theirs = drawn(100, 3, bills=0.9, shift=8), drawn(200, 4, bills=0.2)
    found = values(compare_fields(ours, theirs, RECORD))
    held = [[json.loads(text) for text in side] for side in (ours, theirs)]
    chosen = [held[1][::2][i] for i in range(100)]
    costs = [[record["cost"] for record in side] for side in (held[0], chosen)]
    assert found["fields.cost.apart"] == pytest.approx(ks_2samp(*costs).statistic)
    bills = [sum(r["kind"] == "bill" for r in side) / 100 for side in (held[0], chosen)]
    assert found["fields.kind.apart"] == pytest.approx(abs(bills[0] - bills[1]))


def test_no_name_or_value_that_real_records_alone_have_is_in_any_number() -> None:
    real = drawn(200, 6, kind=SECRET, note=SECRET, **{SECRET: SECRET})
    metrics = compare_fields(drawn(100, 7), real, RECORD)
    assert SECRET not in json.dumps([metric.to_json() for metric in metrics])
    assert values(metrics)["fields.kind.apart"] == 1.0
    assert SECRET not in json.dumps(section([metric.to_json() for metric in metrics]).to_json())


@pytest.mark.parametrize(
    ("ours", "theirs", "schema"),
    [
        ([], drawn(200, 1), RECORD),
        (drawn(200, 1), ["no JSON"] * 200, RECORD),
        (drawn(FEWEST - 1, 1), drawn(200, 1), RECORD),
        (drawn(200, 1), drawn(2 * FEWEST - 1, 1), RECORD),
        (drawn(200, 1), drawn(200, 1), {}),
        (drawn(200, 1), drawn(200, 1), {"properties": {"inner": {"$ref": "#"}}}),
    ],
)
def test_what_cannot_be_compared_is_unavailable(ours, theirs, schema) -> None:
    assert compare_fields(ours, theirs, schema) == []
    (block,) = section([]).blocks
    assert block.kind == "missing"
    assert "UNAVAILABLE" in block.items[0]
    assert (
        "since evaluate.enabled is off."
        in section([], "evaluate.enabled is off").blocks[0].items[0]
    )
