"""What fields hold, counted by hand; bounded and printable whatever the records are."""

import json

import pytest

from privsyn.data.profile import MOST_CHARS, MOST_FIELDS, MOST_VALUES, fields, objects


def test_values_are_counted_and_numbers_put_into_ranges():
    records = [
        {"kind": "bill" if i % 4 else "visit", "late": i % 2 == 0, "cost": 1.5 * i, "id": f"n{i}"}
        for i in range(40)
    ]
    records[0].pop("cost")
    found = fields(records)
    assert [field.name for field in found.fields] == ["cost", "id", "kind", "late"]
    assert (found.objects, found.more) == (40, 0)
    cost, ids, kind, late = found.fields
    assert (kind.present, kind.different) == (40, 2)
    assert kind.counts == (("bill", 30), ("visit", 10))
    assert dict(late.counts) == {"true": 20, "false": 20}
    assert (ids.different, ids.counts) == (40, ())  # every value is another: nothing to count
    assert (cost.present, cost.different) == (39, 39)
    assert cost.counts[0] == ("0 to 10", sum(0 < 1.5 * i < 10 for i in range(40)))
    assert sum(count for _, count in cost.counts) == 39


def test_rare_values_and_what_is_no_number_are_counted_together():
    values = [i % 15 for i in range(60)]
    (field,) = fields([{"a": f"v{value}"} for value in values]).fields
    assert len(field.counts) == MOST_VALUES + 1
    assert field.counts[-1] == ("other values", 60 - 4 * MOST_VALUES)
    (field,) = fields([{"a": value} for value in (*range(30), "x", None, True)]).fields
    assert field.counts[-1] == ("no number", 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{torn",
        "[1]",
        "3",
        '"a"',
        "NaN",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
        "\ud800",
    ],
)
def test_what_is_no_object_is_left_out(text):
    assert objects([text]) == []


def test_hostile_records_are_bounded_and_can_be_written():
    deep = "[" * 900 + "]" * 900
    texts = [
        '{"a": 1e999, "b": -1e308, "\\ud800": "\\ud800"}',
        f'{{"a": {"9" * 4000}}}',
        f'{{"a": {deep}, "b": null}}',
        json.dumps({f"field {i} {'x' * 500}": "y" * 5000 for i in range(100)}),
    ] * 3 + [json.dumps({"n": 10**i}) for i in range(60)]
    found = fields(objects(texts))
    assert len(found.fields) == MOST_FIELDS
    assert found.more > 80
    for field in found.fields:
        assert len(field.name) <= MOST_CHARS
        for value, _ in field.counts:
            assert len(value) <= MOST_CHARS
            (value + field.name).encode()
