"""The records of a release in one form each: Parquet, CSV, JSON Lines, WebDataset."""

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
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import storage_error, sync_folder
from privsyn.errors import ConfigError
from privsyn.ledger.ledger import Ledger
from privsyn.release import layout, verification
from privsyn.release.facts import ReleaseFacts
from privsyn.release.metadata import card
from privsyn.release.release_store import set_times
from privsyn.spelling import nearest
from privsyn.stages.base import Context
from privsyn.stages.certify import copy_release
from privsyn.stages.validate import refuse_unreleased

Rows = Sequence[Mapping[str, Any]]

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes a cell that begins so for: something to be computed."""
SHARD = 1000
"""Records a shard of WebDataset holds."""


def parquet(rows: Rows, folder: Path, release: Path) -> None:
    """``data/train.parquet``; images as the datasets library reads them, bytes and path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir()
    columns = {name: [row[name] for row in rows] for name in _names(rows) if name != "sha256"}
    if "file" in columns:
        columns["image"] = [
            {"bytes": (release / name).read_bytes(), "path": Path(name).name}
            for name in columns.pop("file")
        ]
    pq.write_table(pa.table(columns), folder / "data" / "train.parquet")


def comma_separated(rows: Rows, folder: Path, release: Path) -> None:
    """``train.csv``, all cells in quotes; one that a spreadsheet would compute after an apostrophe.

    What a language model wrote may begin with ``=``: a spreadsheet that opens the file would run
    it. The apostrophe says that it is text.
    """
    names = _names(rows)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, quoting=csv.QUOTE_ALL)
        lines.writerow(names)
        lines.writerows([_as_text(str(row[name])) for name in names] for row in rows)
    _images(folder, release)


def json_lines(rows: Rows, folder: Path, release: Path) -> None:
    """``train.jsonl``, as the release has it."""
    shutil.copyfile(release / layout.ARTIFACT, folder / "train.jsonl")
    _images(folder, release)


def web_dataset(rows: Rows, folder: Path, release: Path) -> None:
    """``train-000000.tar`` and on: of every record a .json, and a .txt or a .png."""
    for first in range(0, len(rows), SHARD):
        name = folder / f"train-{first // SHARD:06d}.tar"
        with tarfile.open(name, "w", format=tarfile.USTAR_FORMAT) as shard:
            for place, row in enumerate(rows[first : first + SHARD], first):
                key = f"{place:08d}"
                if "file" in row:
                    _add(shard, f"{key}.png", (release / row["file"]).read_bytes())
                else:
                    _add(shard, f"{key}.txt", str(row["text"]).encode())
                facts = {part: row[part] for part in ("id", "label") if part in row}
                _add(shard, f"{key}.json", json.dumps(facts, ensure_ascii=False).encode())


FORMATS: Mapping[str, Callable[[Rows, Path, Path], None]] = {
    "hf": parquet,
    "parquet": parquet,
    "csv": comma_separated,
    "jsonl": json_lines,
    "webdataset": web_dataset,
}
"""What a release may be written as. ``hf`` is a folder that ``datasets.load_dataset`` reads."""

DATA_FILES = {
    "hf": "data/train.parquet",
    "parquet": "data/train.parquet",
    "csv": "train.csv",
    "jsonl": "train.jsonl",
    "webdataset": "train-*.tar",
}
"""Where the records of each lie."""


def _names(rows: Rows) -> list[str]:
    return list(rows[0]) if rows else ["id"]


def _as_text(cell: str) -> str:
    """A cell that is no formula. Blanks before one hide it from no spreadsheet."""
    return f"'{cell}" if cell.lstrip(" \n\u00a0").startswith(FORMULA) else cell


def _images(folder: Path, release: Path) -> None:
    if (release / layout.IMAGES).is_dir():
        shutil.copytree(release / layout.IMAGES, folder / layout.IMAGES)


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    """A member that says nothing of this machine or this hour."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    shard.addfile(member, io.BytesIO(content))


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def dataset_card(facts: ReleaseFacts, form: str, licence: str | None) -> str:
    """The card of a release, as README.md of a folder with it in it.

    Args:
        facts: The release.
        form: What it is exported as, a key of FORMATS.
        licence: Identifier of a licence, such as cc-by-4.0; None: the card names none.
    """
    return card(replace(facts, words=_in_a_table), _front(facts, form, licence), form)


def _front(facts: ReleaseFacts, form: str, licence: str | None) -> dict[str, Any]:
    """What the Hugging Face hub reads of a card."""
    labelled = bool(facts.plan.dataset.labels)
    kind = "image" if facts.is_images else "text"
    task = f"{kind}-classification" if labelled else f"unconditional-{kind}-generation"
    if not facts.is_images and not labelled:
        task = "text-generation"
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
                "data_files": [{"split": "train", "path": DATA_FILES[form]}],
            }
        ],
    }
    if licence is not None:
        front = {"license": licence} | front
    if form in ("hf", "parquet"):
        names = ["id", *(["label"] if labelled else []), kind]
        front["dataset_info"] = {
            "features": [
                {"name": name, "dtype": "image" if name == "image" else "string"} for name in names
            ]
        }
    return front


def _in_a_table(text: object) -> str:
    """Words of a setting in a table of Markdown: no mark-up, no new column, one line."""
    words = " ".join(str(text).split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in words)


RELEASE = "release"
"""The release as it was certified, in an export."""


def export(
    folder: Path,
    form: str,
    target: Path,
    *,
    ledger: Ledger | None = None,
    ctx: Context | None = None,
    licence: str | None = None,
) -> Path:
    """Write a release as ``form`` into a new folder, whole or not at all. Pushes nothing.

    Guarantee: the release's own; nothing else is read.

    Args:
        folder: The release.
        form: hf, parquet, csv, jsonl or webdataset.
        target: The folder to make.
        ledger: Asked whether it vouches for the release, and whether that may be published; None:
            nobody is.
        ctx: The project, whose ``evaluate.audit`` may block what lies in it; None: there is none.
        licence: Identifier of a licence for the card.

    Returns:
        The folder: README.md (the card), certificate.json, the records, and ``release/``.

    Raises:
        ConfigError: No such form, the target exists, or the release is a model.
        VerificationError: It is not what was certified, or was drawn with predictable noise.
        ValidationFailed: It has not passed its suite, lies in quarantine, or waits for its audit.
        ApprovalNeeded: Its account asks that somebody approves what is published, and nobody has.
        StorageError: Disk full or no permission.
    """
    if form not in FORMATS:
        near = nearest(form, list(FORMATS))
        raise ConfigError(
            f"--to={form}: no such form.",
            hint=f"Did you mean {near}?" if near else f"There is {', '.join(FORMATS)}.",
        )
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target} exists already.", hint="Name another folder with --out.")
    if folder.absolute().resolve() in target.absolute().resolve().parents:
        raise ConfigError(
            f"{target} lies in the release itself.", hint="Name another folder with --out."
        )
    verification.raise_failed(folder, verification.verify(folder, ledger))
    refuse_unreleased(folder, ctx)
    facts = ReleaseFacts.read(folder)
    verification.refuse_predictable(folder, facts.certificate)
    if facts.is_model:
        raise ConfigError(
            f"{folder} is a model, not records.", hint=f"transformers reads {folder / layout.MODEL}"
        )
    if ledger is not None:
        ledger.approvals.check_published(
            facts.release_id, facts.certificate_sha256, name=facts.name
        )
    building = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
    try:
        building.mkdir(parents=True)
        inside = copy_release(folder, building / RELEASE)
        for name in (*layout.REPORTS, layout.SIGNATURE):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, inside / name)
        # Of the copy: what is exported is what lies beside it.
        verification.raise_failed(inside, verification.verify(inside, ledger))
        with (inside / layout.ARTIFACT).open(encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream]
        FORMATS[form](rows, building, inside)
        shutil.copyfile(inside / layout.CERTIFICATE, building / layout.CERTIFICATE)
        content = dataset_card(facts, form, licence)
        (building / "README.md").write_text(content, encoding="utf-8")
        set_times(building, inside)
        os.rename(building, target)
        sync_folder(target.absolute().parent)
    except OSError as error:
        raise storage_error("write", target, error) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target
