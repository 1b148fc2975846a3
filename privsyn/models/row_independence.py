"""Which models may see private rows: those whose rows do not mix."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from privsyn.errors import ModelError, installed
from privsyn.models import packaged
from privsyn.models.model_files import read_json
from privsyn.models.references import ModelReference


def refuse_row_mixing(config: Mapping[str, Any], where: str, layers: Collection[str] = ()) -> None:
    """Refuse models where a row's logits depend on the other rows of its batch.

    Args:
        config: All settings of the model, its class's defaults among them.
        where: The setting that names it, for messages.
        layers: Class names of the layers of a loaded model: remote code may name its settings
            otherwise.

    Raises:
        ModelError: Mixture of experts (capacity limits, grouped kernels), or weights quantised with
            scales shared by all rows.
    """
    counts: list[Any] = []
    signs = [layer for layer in layers if re.search(r"MoE|Moe|MOE|Expert|Router", layer)]
    for key, value in _walk(config):
        if re.fullmatch(r"(n|num|moe_num)_(\w+_)?experts", key):
            counts.append(value)
        elif re.search(r"(^|_)(moe|router|experts?)(_|$)", key) and value:
            signs.append(key)
    many = [n for n in counts if (max(n, default=0) if isinstance(n, list) else n or 0) > 1]
    if many or (signs and not counts):
        raise ModelError(
            f"{where} is a mixture of experts: a row's logits depend on the "
            "other rows of its batch, which breaks the privacy guarantee.",
            hint="Name a dense model.",
        )
    if config.get("quantization_config"):
        raise ModelError(
            f"{where} is quantised: rows of a batch may share scales, which "
            "breaks the privacy guarantee.",
            hint="Name the model in float32 or bfloat16.",
        )


def refuse_mixing_folder(folder: Path, reference: ModelReference) -> None:
    """``refuse_row_mixing`` for a folder: its ``config.json``, with the defaults of its class.

    The file may name an architecture with experts and nothing else. What the class cannot read is
    found when the model is loaded; so is all of it where transformers is not installed, as where
    releases are planned and none is made.
    """
    config = read_json(folder / "config.json", str(reference))
    refuse_row_mixing(config, str(reference))
    kind = config.get("model_type")
    pinned_names = (reference.shipped, *packaged.PACKAGED)  # their configs leave nothing out
    if reference.name in pinned_names or not isinstance(kind, str):
        return
    if not installed("transformers"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import logging  # late: takes seconds, and the pinned models need none
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        logging.set_verbosity_error()
        try:
            whole = CONFIG_MAPPING[kind].from_dict(dict(config)).to_dict()
        except Exception:  # transformers raises whatever its parsers raise
            return
    refuse_row_mixing(whole, str(reference))


def _walk(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        yield str(key), value
        if isinstance(value, Mapping):
            yield from _walk(value)


def layer_names(model: Any) -> set[str]:
    """Class names of all the layers of a network."""
    return {type(layer).__name__ for layer in model.modules()}
