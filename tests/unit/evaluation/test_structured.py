"""Parse and valid rates against hand-counted ones."""

from privsyn.evaluation.structured import structure

SCHEMA = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}


def test_rates_by_hand():
    texts = ['{"title": "x"}', '{"title": 3}', "{}", "[1]", "{torn", "", "[" * 100_000, "NaN"]
    found = {metric.name: metric.value for metric in structure(texts, SCHEMA)}
    assert found == {"json_parse_rate": 5 / 8, "json_valid_rate": 1 / 8}
    assert all(metric.cls == "dp-release" for metric in structure(texts, SCHEMA))


def test_nothing_to_count():
    assert structure([], SCHEMA) == []
