"""What dvc.yaml and the DVC hash of a folder say about a release."""

from __future__ import annotations

import filecmp
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from privsyn.errors import ConfigError


def folder_md5(folder: Path) -> str:
    """DVC's hash of a folder of files: the MD5 of its sorted listing of file MD5s.

    It addresses content and proves nothing to anybody; certificates carry SHA-256.
    """
    listing = [
        {"md5": _md5(path.read_bytes()), "relpath": path.relative_to(folder).as_posix()}
        for path in folder.rglob("*")
        if path.is_file()
    ]
    listing.sort(key=lambda item: item["relpath"])
    return _md5(json.dumps(listing, sort_keys=True).encode()) + ".dir"


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def current_stages(root: Path, method: str, release_dir: Path) -> list[str]:
    """Stages of dvc.yaml of a method, in order, if their files are those of a release.

    Empty where there is no dvc.yaml, where params.yaml does not have it made, or where
    ``plans/<method>.json``, ``synthetic/<method>`` or ``reports/<method>`` belong to another
    release: committing its stages would publish it unvalidated, or call a plan done that is not.
    """
    if not (root / "dvc.yaml").is_file() or not (root / "synthetic" / method).is_dir():
        return []
    if _load(root / "plans" / f"{method}.json").get("release_id") != release_dir.name:
        return []
    for folder in (root / "synthetic" / method, root / "reports" / method):
        for path in folder.rglob("*"):
            if path.is_dir():
                continue
            twin = release_dir / path.relative_to(folder)
            if not twin.is_file() or not filecmp.cmp(path, twin, shallow=False):
                return []
    params = _load(root / "params.yaml")
    stages = _load(root / "dvc.yaml").get("stages") or {}
    return [
        f"{name}@{method}"
        for name, stage in stages.items()
        if method in _named(params, stage.get("foreach"))
        and all((root / path).exists() for path in _files(stage.get("do") or {}, method))
    ]


def _files(stage: Mapping[str, Any], method: str) -> list[str]:
    """Dependencies and outputs of a stage. An entry is a path or a mapping of one to options."""
    kinds = ("deps", "outs", "metrics", "plots")
    entries = [item for kind in kinds for item in stage.get(kind, ())]
    paths = [next(iter(entry)) if isinstance(entry, Mapping) else str(entry) for entry in entries]
    return [path.replace("${item}", method).replace("${key}", method) for path in paths]


def _named(params: Mapping[str, Any], foreach: object) -> Collection[Any]:
    """What a stage is repeated for: a list, a mapping, or either by its place in params.yaml."""
    if isinstance(foreach, str) and (place := re.fullmatch(r"\$\{([\w.]+)\}", foreach)):
        found: Any = params
        for part in place[1].split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        foreach = found
    return foreach if isinstance(foreach, Mapping | list) else ()


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path} cannot be read as YAML.") from None
    return content if isinstance(content, dict) else {}
