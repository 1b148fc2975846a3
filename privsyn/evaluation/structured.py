"""How many synthetic texts are records: JSON, and of the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from privsyn.evaluation.metrics import Metric


def structure(texts: Sequence[str], schema: Mapping[str, Any]) -> list[Metric]:
    """Share of texts that parse, and that satisfy the schema: ``dp-release``.

    Both are shares of all texts. Empty where there are none.
    """
    if not texts:
        return []
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema)
    parsed = valid = 0
    for text in texts:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        parsed += 1
        valid += validator.is_valid(record)
    count = len(texts)
    return [
        Metric("json_parse_rate", parsed / count, "dp-release", "share of texts that are JSON"),
        Metric(
            "json_valid_rate",
            valid / count,
            "dp-release",
            "share of texts that satisfy validation.json_schema",
        ),
    ]
