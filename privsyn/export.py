"""Export a release as Parquet, CSV, JSON Lines or WebDataset, with its card and certificate."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import storage_errors, sync_folder
from privsyn.errors import ConfigError
from privsyn.release.facts import ReleaseFacts
from privsyn.release.metadata import card
from privsyn.release.release_store import set_times
from privsyn.report import verification
from privsyn.section import nearest
from privsyn.stages.base import Context
from privsyn.stages.folder import copy_release
from privsyn.stages.validate import refuse_unreleased

Rows = Sequence[Mapping[str, Any]]

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet would compute."""
SHARD = 1000
"""Records per shard of WebDataset."""


def parquet(rows: Rows, folder: Path, release: Path) -> None:
    """``data/train.parquet``, with images as bytes and path, as the datasets library reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir()
    columns = {name: [row[name] for row in rows] for name in _names(rows) if name != "sha256"}
    for name, column in ReleaseFacts.read(release).plan.dataset.columns.items():
        days = column.dates is not None
        values = [date.fromisoformat(v) if v and days else v for v in columns.get(name, ())]
        columns[name] = pa.array(values, column.dtype)
    if "file" in columns:
        columns["image"] = [
            {"bytes": (release / name).read_bytes(), "path": Path(name).name}
            for name in columns.pop("file")
        ]
    pq.write_table(pa.table(columns), folder / "data" / "train.parquet")


def comma_separated(rows: Rows, folder: Path, release: Path) -> None:
    """``train.csv``, all cells in quotes, formulas behind an apostrophe.

    security: a language model's text may begin with ``=``, and a spreadsheet would compute it. The
    apostrophe marks it as text.
    """
    names = _names(rows)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as stream:
        # Quotes around everything: a text with line ends or commas stays one cell everywhere.
        lines = csv.writer(stream, quoting=csv.QUOTE_ALL)
        lines.writerow(names)
        lines.writerows([_cell(row[name]) for name in names] for row in rows)
    _images(folder, release)


def json_lines(rows: Rows, folder: Path, release: Path) -> None:
    """``train.jsonl``, a copy of the release's file."""
    shutil.copyfile(release / layout.ARTIFACT, folder / "train.jsonl")
    _images(folder, release)


def web_dataset(rows: Rows, folder: Path, release: Path) -> None:
    """``train-000000.tar`` and following: a .json and a .txt or .png per record."""
    for first in range(0, len(rows), SHARD):
        name = folder / f"train-{first // SHARD:06d}.tar"
        with tarfile.open(name, "w", format=tarfile.USTAR_FORMAT) as shard:
            for place, row in enumerate(rows[first : first + SHARD], first):
                key = f"{place:08d}"
                if "file" in row:
                    _add(shard, f"{key}.png", (release / row["file"]).read_bytes())
                elif "text" in row:
                    _add(shard, f"{key}.txt", str(row["text"]).encode())
                content = ("text", "file", "sha256")
                facts = {part: value for part, value in row.items() if part not in content}
                _add(shard, f"{key}.json", json.dumps(facts, ensure_ascii=False).encode())


FORMATS: Mapping[str, tuple[Callable[[Rows, Path, Path], None], str]] = {
    "hf": (parquet, "data/train.parquet"),
    "parquet": (parquet, "data/train.parquet"),
    "csv": (comma_separated, "train.csv"),
    "jsonl": (json_lines, "train.jsonl"),
    "webdataset": (web_dataset, "train-*.tar"),
}
"""What writes each form, and where its records are. ``hf``: for ``datasets.load_dataset``."""


def _names(rows: Rows) -> list[str]:
    return list(rows[0]) if rows else ["id"]


def _cell(value: Any) -> str:
    """A cell that no spreadsheet computes, also behind leading blanks; empty for nothing."""
    if isinstance(value, int | float):  # a column's: -5 is a number, and no formula
        return str(value)
    cell = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value or "")
    # Spreadsheets run a cell that begins like a formula, even one from a CSV.
    return f"'{cell}" if cell.lstrip(" \n\u00a0").startswith(FORMULA) else cell


def _images(folder: Path, release: Path) -> None:
    if (release / layout.IMAGES).is_dir():
        shutil.copytree(release / layout.IMAGES, folder / layout.IMAGES)


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a member without owner and time, which would show the machine and when it was made."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    shard.addfile(member, io.BytesIO(content))


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def dataset_card(facts: ReleaseFacts, form: str, license: str | None) -> str:
    """The card of a release, for README.md of an export.

    Args:
        facts: The release.
        form: Format of the export, a key of FORMATS.
        license: Identifier of a license, such as cc-by-4.0. None: the card has none.
    """
    return card(replace(facts, words=_in_a_table), _front(facts, form, license), form)


def _front(facts: ReleaseFacts, form: str, license: str | None) -> dict[str, Any]:
    """Metadata of the card for the Hugging Face hub."""
    labeled = bool(facts.plan.dataset.labels)
    kind = "image" if facts.is_images else "text"
    task = f"{kind}-classification" if labeled else f"unconditional-{kind}-generation"
    if not facts.is_images and not labeled:
        task = "text-generation"
    if facts.is_table:
        task = "tabular-classification"
    size = next((name for most, name in _SIZES if facts.rows < most), "n>1M")
    front: dict[str, Any] = {
        "pretty_name": f"Synthetic {facts.plan.dataset.name}",
        "task_categories": [task],
        "size_categories": [size],
        "tags": ["synthetic", "differential-privacy", "privsyn"],
        "annotations_creators": ["machine-generated"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": "train", "path": FORMATS[form][1]}],
            }
        ],
    }
    if license is not None:
        front = {"license": license} | front
    if form in ("hf", "parquet"):
        columns = {n: column.dtype for n, column in facts.plan.dataset.columns.items()}
        types = {"id": "string"} | ({"label": "string"} if labeled else {}) | columns
        if not facts.is_table:
            types[kind] = "image" if facts.is_images else "string"
        features: list[dict[str, Any]] = [{"name": n, "dtype": dtype} for n, dtype in types.items()]
        if facts.plan.dataset.roles:
            turn = [{"name": part, "dtype": "string"} for part in ("role", "content")]
            features.append({"name": "messages", "list": turn})
        front["dataset_info"] = {"features": features}
    return front


def _in_a_table(text: object) -> str:
    """Text of a setting for a Markdown table: one line, without markup and column separators."""
    words = " ".join(str(text).split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in words)


RELEASE = "release"
"""Folder of the certified release in an export."""


def export(
    folder: Path,
    form: str,
    target: Path,
    *,
    ctx: Context | None = None,
    license: str | None = None,
) -> Path:
    """Write a release as ``form`` into a new folder, completely or not at all. Pushes nothing.

    Guarantee: that of the release; no other data is read.

    Args:
        folder: The release.
        form: hf, parquet, csv, jsonl or webdataset.
        target: The folder to make.
        ctx: The project: its ledger confirms the release and its approval to publish, and its
            ``evaluate.audit`` may block it. None: neither is checked.
        license: Identifier of a license for the card.

    Returns:
        The folder: README.md (the card), certificate.json, the records, and ``release/``.

    Raises:
        ConfigError: The format is unknown, the target exists, or the release is a model.
        VerificationError: It differs from its certificate, or was drawn with predictable noise.
        ValidationFailed: It has not passed its suite, is in quarantine, or its audit is missing.
        ApprovalNeeded: Its account requires an approval to publish, and there is none.
        StorageError: Disk full or no permission.
    """
    ledger = None if ctx is None else ctx.ledger_at_hand
    if form not in FORMATS:
        near = nearest(form, list(FORMATS))
        raise ConfigError(
            f"--to={form} is not a known format.",
            hint=f"Did you mean {near}?" if near else f"Known are {', '.join(FORMATS)}.",
        )
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target} already exists.", hint="Name another folder with --out.")
    # Inside the release it would be a foreign file, and the release would no longer verify.
    if folder.absolute().resolve() in target.absolute().resolve().parents:
        raise ConfigError(
            f"{target} is inside the release itself.", hint="Name another folder with --out."
        )
    # What leaves must be the release that was certified, so it is verified first.
    verification.raise_on_failure(folder, verification.verify(folder, ledger))
    refuse_unreleased(folder, ctx)
    facts = ReleaseFacts.read(folder)
    verification.refuse_predictable(folder, facts.certificate)
    if facts.is_model:
        raise ConfigError(
            f"{folder} is a model, not records.", hint=f"transformers reads {folder / layout.MODEL}"
        )
    if ledger is not None:
        ledger.approvals.check_publication(
            facts.release_id, facts.certificate_sha256, name=facts.name
        )
    # Beside the target under a hidden name: nobody hands on half an export.
    building = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
    try:
        with storage_errors("write", target):
            building.mkdir(parents=True)
            inside = copy_release(folder, building / RELEASE)
            for name in (*layout.REPORTS, layout.SIGNATURE):
                if (folder / name).is_file():
                    shutil.copyfile(folder / name, inside / name)
            # The copy is verified again: the original may have changed since the first check.
            verification.raise_on_failure(inside, verification.verify(inside, ledger))
            with (inside / layout.ARTIFACT).open(encoding="utf-8") as stream:
                rows = [json.loads(line) for line in stream]
            FORMATS[form][0](rows, building, inside)
            shutil.copyfile(inside / layout.CERTIFICATE, building / layout.CERTIFICATE)
            content = dataset_card(facts, form, license)
            (building / "README.md").write_text(content, encoding="utf-8")
            set_times(building, inside)
            os.rename(building, target)
            sync_folder(target.absolute().parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target
