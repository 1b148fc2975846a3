"""The file that says that a partition is whole, and of what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privsyn.data.artifacts import storage_error
from privsyn.data.records import Cell
from privsyn.errors import VerificationError

MARKER = "complete.json"
"""Written last."""

FORMAT = 2

RESTORE_HINT = "Restore the file, or give the release up: it is never partitioned a second time."


def finished(out: Path, marker: dict[str, Any]) -> bool:
    """Whether the partition is whole and there, by the marker it must have.

    Raises:
        VerificationError: It is another one, or a file of it is gone.
    """
    occupied = out.is_dir() and any(out.iterdir())
    on_disk = read_marker(out)
    if on_disk is None:
        if occupied:  # it came there whole, marker and all
            raise gone(out / MARKER)
        return False
    # Draws may have been made from it: another layout under the same release would redraw them.
    refuse_other(out, on_disk, marker)
    for shard in range(marker["shards"]):
        path = out / shard_name(shard)
        if not path.is_file():
            raise gone(path)
    return True


def gone(path: Path) -> VerificationError:
    """The error for a file of a partition that is no longer there."""
    return VerificationError(f"{path} is gone.", hint=RESTORE_HINT)


def read_marker(out: Path) -> dict[str, Any] | None:
    """What the marker says; None where there is none.

    Raises:
        VerificationError: It is damaged.
    """
    path = out / MARKER
    try:
        marker = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error("read", path, error) from error
    except ValueError:
        raise VerificationError(f"{path} is damaged.") from None
    return marker if isinstance(marker, dict) else {}


def refuse_other(out: Path, marker: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse a partition that was made with other settings.

    Raises:
        VerificationError: Names what differs.
    """
    differing = sorted(name for name, value in expected.items() if marker.get(name) != value)
    if differing:
        raise VerificationError(
            f"the partition in {out} was made with another value of {', '.join(differing)}.",
            hint="Keep the settings of a release until it is finished.",
        )


def cells_digest(cells: Sequence[Cell]) -> str:
    """Of the cells of a release, in their order."""
    rows = [[cell.index, cell.label, cell.bucket] for cell in cells]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def shard_name(shard: int) -> str:
    """File of a shard's records."""
    return f"shard-{shard:05d}.jsonl"
