"""The files of a model folder: are they all there and whole, and what is their digest."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

from privsyn.errors import ModelError

TOKENIZERS = (
    "tokenizer.json",
    "*.model",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
    "tekken.json",
)
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
READ = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py", *WEIGHTS)


def check_folder(folder: Path, where: str) -> None:
    """Refuse a folder that lacks a part or holds a cut-off file; reads a few kilobytes.

    ``where`` names the setting in messages: ``models.language=builtin``.
    """
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
    weights = matching(folder, WEIGHTS)
    if not weights:
        raise ModelError(
            f"{where}: no weights in the directory (model.safetensors).",
            hint="Copy them there, or use builtin.",
        )
    for path in weights:
        if path.suffix == ".safetensors" and not is_whole(path):
            raise ModelError(
                f"{where}: {path.name} is truncated or damaged ({path.stat().st_size} bytes).",
                hint="Copy or download it again.",
            )


def is_whole(path: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > size:
                return False
            header = json.loads(file.read(length))
        ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
        return bool(8 + length + max(ends, default=0) == size)
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


def matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files of a folder that match any pattern, sorted."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def read_json(path: Path, where: str) -> dict[str, Any]:
    """A JSON object from a file of a model.

    Raises:
        ModelError: The file is missing or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError
    except FileNotFoundError:
        raise ModelError(
            f"{where}: {path.name} is missing.",
            hint="Name a directory with config.json, weights and tokenizer, or use builtin.",
        ) from None
    except (OSError, ValueError):
        raise ModelError(
            f"{where}: {path.name} cannot be read as JSON.",
            hint="Copy or download it again.",
        ) from None
    return value


def digest(folder: Path, cache_dir: Path | None, patterns: tuple[str, ...] = READ) -> str:
    """SHA-256 over names and contents of every file that loading may read."""
    store = cache_dir / "model-digests.json" if cache_dir else None
    try:
        known: dict[str, Any] = json.loads(store.read_text(encoding="utf-8")) if store else {}
    except (OSError, ValueError):
        known = {}
    whole = hashlib.sha256()
    fresh = {}
    for path in matching(folder, patterns):
        stat = path.stat()
        key = str(path.resolve())
        kept = known.get(key)
        if not (isinstance(kept, list) and kept[:2] == [stat.st_size, stat.st_mtime_ns]):
            with path.open("rb") as file:
                sha = hashlib.file_digest(file, "sha256").hexdigest()
            fresh[key] = kept = [stat.st_size, stat.st_mtime_ns, sha]
        whole.update(f"{path.relative_to(folder).as_posix()}\0{kept[2]}\n".encode())
    if store and fresh:
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
            part = store.with_name(f"{store.name}.{os.getpid()}")
            part.write_text(json.dumps({**known, **fresh}), encoding="utf-8")
            part.replace(store)
        except OSError:
            pass  # a cache that cannot be kept costs time, nothing else
    return whole.hexdigest()
