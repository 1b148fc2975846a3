"""Files of a model folder: checked for completeness, and digested."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

from privsyn import files
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
SOURCE_FILE = "source.json"
"""Origin of a converted model, and the SHA-256 of each of its files."""
_POINTER = b"version https://git-lfs.github.com/spec/"
READ = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py", *WEIGHTS)


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
    weights = matching(folder, WEIGHTS)
    for path in (*matching(folder, TOKENIZERS), *weights):
        refuse_pointer(path, where)
    if not weights:
        raise ModelError(
            f"{where}: no weights in the directory (model.safetensors).",
            hint="Copy them there, or use the shipped one.",
        )
    for path in weights:
        if path.suffix == ".safetensors" and not is_whole(path):
            raise ModelError(
                f"{where}: {path.name} is truncated or damaged ({path.stat().st_size} bytes).",
                hint="Copy or download it again.",
            )


def refuse_adapter(
    folder: Path, where: str, names: tuple[str, ...] = ("adapter_config.json",)
) -> None:
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


def matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files of a folder that match any pattern, sorted."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


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


def digest(folder: Path, cache_dir: Path | None, patterns: tuple[str, ...] = READ) -> str:
    """SHA-256 over names and contents of every file that loading may read."""
    whole = hashlib.sha256()
    for name, sha in file_digests(folder, cache_dir, patterns).items():
        if name == SOURCE_FILE:  # a model's origin does not change what it computes
            continue
        whole.update(f"{name}\0{sha}\n".encode())
    return whole.hexdigest()


def file_digests(
    folder: Path, cache_dir: Path | None, patterns: tuple[str, ...] = READ
) -> dict[str, str]:
    """SHA-256 of each file that matches a pattern, by its name, sorted.

    ``cache_dir`` caches digests by size and modification time. None: a process reads a file once.
    """
    paths = matching(folder, patterns)
    digests = _digests(paths, cache_dir)
    return {
        path.relative_to(folder).as_posix(): sha for path, sha in zip(paths, digests, strict=True)
    }


def file_digest(path: Path, cache_dir: Path | None) -> str:
    """SHA-256 of one file, with the cache of ``file_digests``."""
    return _digests([path], cache_dir)[0]


def _sha256(path: Path, stat: os.stat_result) -> str:
    """SHA-256 of a file, read once a process unless it has changed since.

    A file that changed in the last two seconds may change again within one tick of its times.
    """
    state = (path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    settled = time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > 2_000_000_000
    return _read(*state) if settled else _read.__wrapped__(*state)


@functools.cache
def _read(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(paths: list[Path], cache_dir: Path | None) -> list[str]:
    store = cache_dir / "model-digests.json" if cache_dir else None
    try:
        cache: dict[str, Any] = files.read_json(store) if store else {}
    except (OSError, ValueError):
        cache = {}
    fresh, digests = {}, []
    for path in paths:
        stat = path.stat()
        key = str(path.resolve())
        entry = cache.get(key)
        if not (isinstance(entry, list) and entry[:2] == [stat.st_size, stat.st_mtime_ns]):
            sha = _sha256(path, stat)
            fresh[key] = entry = [stat.st_size, stat.st_mtime_ns, sha]
        digests.append(str(entry[2]))
    if store and fresh:
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
            # A file per process, then a rename: two processes may write at the same time.
            part = store.with_name(f"{store.name}.{os.getpid()}")
            part.write_text(json.dumps({**cache, **fresh}), encoding="utf-8")
            part.replace(store)
        except OSError:
            pass  # without a cache, the next run only takes longer
    return digests
