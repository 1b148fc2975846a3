"""Files of a model folder, checked for completeness."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from privsyn import files
from privsyn.errors import ModelError
from privsyn.files import WEIGHTS, matching

TOKENIZERS = (
    "tokenizer.json",
    "*.model",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
    "tekken.json",
)
_POINTER = b"version https://git-lfs.github.com/spec/"


def check_folder(folder: Path, where: str) -> None:
    """Refuse a folder with missing or truncated files; reads a few kilobytes.

    ``where`` names the setting in messages: ``models.language=tiny``.
    """
    refuse_adapter(folder, where)
    read_json(folder / "config.json", where)
    if not any(matching(folder, TOKENIZERS)):
        raise ModelError(
            f"{where}: no tokenizer in the directory.",
            hint="Save one there with tokenizer.save_pretrained(directory).",
        )
    for index in matching(folder, ("*.safetensors.index.json", "*.bin.index.json")):
        for part in sorted(set(read_json(index, where).get("weight_map", {}).values())):
            if not (folder / part).is_file():
                raise ModelError(
                    f"{where}: {part}, named by {index.name}, is missing.",
                    hint="Copy or download the model again.",
                )
    for path in matching(folder, TOKENIZERS):
        refuse_pointer(path, where)
    check_weights(folder, where)


def check_weights(folder: Path, where: str, patterns: tuple[str, ...] = WEIGHTS) -> None:
    """Refuse a folder without weights, or with truncated ones; reads a few kilobytes.

    Raises:
        ModelError: Names the file and the next step.
    """
    weights = matching(folder, patterns)
    if not weights:
        raise ModelError(
            f"{where}: no weights in the directory ({patterns[0]}).",
            hint="Copy or save them there, or use the shipped model.",
        )
    for path in weights:
        refuse_pointer(path, where)
        if path.suffix == ".safetensors" and not is_whole(path):
            raise ModelError(
                f"{where}: {path.name} is truncated or damaged ({path.stat().st_size} bytes).",
                hint="Copy or download it again.",
            )


ADAPTERS = ("adapter_config.json",)


def refuse_adapter(folder: Path, where: str, names: tuple[str, ...] = ADAPTERS) -> None:
    """Refuse a folder that holds an adapter.

    privacy: transformers applies an adapter silently. Then two sets of weights must be public, and
    an adapter may have been trained on private records without privacy.

    Raises:
        ModelError: Names the file and the next step.
    """
    for path in matching(folder, names):
        try:
            base = str(files.read_json(path).get("base_model_name_or_path") or "")
        except (OSError, ValueError, AttributeError):
            base = ""
        # The text comes from a foreign file and goes into a message.
        base = base if base.isprintable() and len(base) <= 200 else ""
        if not (path.parent / "config.json").is_file():
            raise ModelError(
                f"{where} is an adapter{f' of {base}' if base else ''}, not a whole model.",
                hint="If its training data is public, merge it "
                "(PeftModel.from_pretrained(base, adapter).merge_and_unload()) and name a folder "
                "of the merged model.",
            )
        raise ModelError(
            f"{where}: {path.relative_to(folder)} is beside the weights, and loading the model "
            "would apply that adapter.",
            hint="If its training data is public and you want it, merge it and save the merged "
            "model in another folder; otherwise move its files away.",
        )


def refuse_pointer(path: Path, where: str) -> None:
    """Refuse a pointer of Git LFS in place of a model's file.

    Raises:
        ModelError: Names the file and the command that fetches it.
    """
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise ModelError(
                f"{where}: {path.name} is a pointer of Git LFS, not the file itself.",
                hint="Run `git lfs pull` in the folder of the model.",
            )


def is_whole(path: Path) -> bool:
    """Whether a safetensors file has the length that its header requires."""
    size = path.stat().st_size
    try:
        with files.open_file(path) as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > size:
                return False
            header = files.parse_json(file.read(length))
        ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
        return bool(8 + length + max(ends, default=0) == size)
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


def read_json(path: Path, where: str) -> dict[str, Any]:
    """A JSON object from a file of a model.

    Raises:
        ModelError: The file is missing or is not a JSON object.
    """
    try:
        value = files.read_json(path)
        if not isinstance(value, dict):
            raise ValueError
    except FileNotFoundError:
        raise ModelError(
            f"{where}: {path.name} is missing.",
            hint="Name one with config.json, weights and tokenizer, or use the shipped one.",
        ) from None
    except (OSError, ValueError):
        raise ModelError(
            f"{where}: {path.name} cannot be read as JSON.",
            hint="Copy or download it again.",
        ) from None
    return value
