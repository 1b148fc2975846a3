"""Records that are rows of declared columns, without a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from privsyn.data.columns import Column, in_cells
from privsyn.data.profile import read_rows
from privsyn.modalities.text import Texts

if TYPE_CHECKING:
    from privsyn.evaluation.metrics import Metric
    from privsyn.methods.base import Role


@dataclass(frozen=True)
class Tables(Texts):
    """Rows; a record's content is the names of its cells, in which no value of it is left.

    Attributes:
        columns: The declared columns.
    """

    columns: Mapping[str, Column]

    name: ClassVar[str] = "table"
    things: ClassVar[str] = "rows"
    chosen: ClassVar[str] = "dataset.text is null"
    embedder: ClassVar[None] = None
    worded: ClassVar[bool] = False
    suite: ClassVar[str] = "table"
    suite_columns: ClassVar[Mapping[str, str]] = {
        "id": "id", "label": "label", "row_well_formed": "well_formed",
    }  # fmt: skip
    sampled_by: ClassVar[tuple[Role, ...]] = ()

    def entry(self, content: str | bytes) -> dict[str, str]:
        """Nothing beside the columns."""
        return {}

    def read_released(self, folder: Path, row: Mapping[str, Any]) -> str:
        """The names of its cells."""
        return in_cells(
            self.columns, [one.cell(row.get(name)) for name, one in self.columns.items()]
        )

    def rows(self, artifact: Path) -> Sequence[Any]:
        """All lines, which are rows without a text."""
        return read_rows(artifact, worded=False)

    def quality(self, artifact: Path) -> list[Metric]:
        """Nothing: two rows may well be alike."""
        return []
