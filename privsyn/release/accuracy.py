"""What a certificate says of the accuracy that a release pays for."""

from __future__ import annotations

from dataclasses import asdict
from math import isclose
from typing import Any

from privsyn.dp.accuracy import CONFIDENCE, STEPS, NoisyAccuracy


def accuracy_figures(mechanism: NoisyAccuracy, right: int, wrong: int) -> dict[str, Any]:
    """What a certificate says of a paid accuracy: two draws, and all that follows from them.

    Args:
        mechanism: What drew them.
        right: Noisy weight of the held-out units answered right, in steps.
        wrong: And wrong.
    """
    return {
        "right": right,
        "wrong": wrong,
        "steps": STEPS,
        "noise": {"kind": "discrete laplace", "scale": mechanism.scale},
        "epsilon": mechanism.event.epsilon,
        "delta": 0.0,
        "confidence": CONFIDENCE,
        **asdict(mechanism.read(right, wrong)),
    }


def agree(said: Any, found: Any) -> bool:
    """Whether two JSON values are the same but for the last digits of their numbers."""
    if isinstance(found, dict):
        return (
            isinstance(said, dict)
            and said.keys() == found.keys()
            and all(agree(said[key], value) for key, value in found.items())
        )
    if isinstance(found, float):
        return isinstance(said, int | float) and isclose(said, found, rel_tol=1e-9, abs_tol=1e-9)
    return bool(said == found)
