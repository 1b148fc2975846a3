"""The records of a release in one form each: Parquet, CSV, JSON Lines, WebDataset."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from privsyn.release import layout

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
