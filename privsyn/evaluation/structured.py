"""Structured records: the share that is valid JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from privsyn.evaluation.metrics import Metric, metrics_of


def structure(texts: Sequence[str], schema: Mapping[str, Any]) -> list[Metric]:
    """Share of texts that parse, and that satisfy the schema: ``dp-release``.

    Both are shares of all texts. Empty if there are no texts.
    """
    if not texts:
        return []
    from jsonschema.validators import validator_for

    validator = validator_for(schema)(schema)
    parsed = valid = 0
    for text in texts:
        try:
            record = json.loads(text)
        # RecursionError: a model may write thousands of opening brackets
        except (ValueError, RecursionError):
            continue
        parsed += 1
        valid += validator.is_valid(record)
    numbers = {"json_parse_rate": parsed / len(texts), "json_valid_rate": valid / len(texts)}
    return metrics_of(numbers, "dp-release")
