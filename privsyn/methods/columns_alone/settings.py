"""Settings of a table without texts."""

from __future__ import annotations

from pydantic import Field

from privsyn.section import Section


class ColumnsAloneConfig(Section):
    """A table of the declared columns alone; ``columns`` says how they are counted."""

    rows_per_label: int = Field(default=200, ge=1, le=1_000_000)
    """Rows of each label; without labels, in all."""
