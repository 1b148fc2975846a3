"""Settings of the draw of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from privsyn.section import Section

AUTO: Final = "auto"
"""In place of pairs: they are chosen by noisy scores."""


class ColumnsConfig(Section):
    """The draw of the columns that ``dataset.columns`` declares."""

    share: float = Field(default=0.25, gt=0, lt=1)
    """Share of the release's cost, in zCDP, that pays for noisy counts of columns; the method has
    the rest. A table alone has all."""
    pairs: tuple[tuple[str, str], ...] | Literal["auto"] = ()
    """Pairs of columns that are counted together, so that rows keep what ties them; no circle.
    Public: chosen without the file. auto: noisy scores choose, for a tenth of the share. Every
    column is counted with the label."""

    def why_not(self, names: Sequence[str]) -> str | None:
        """What keeps rows of these columns from following the pairs; None: nothing."""
        if self.pairs == AUTO:
            return None
        joined = {name: name for name in names}  # a name of the group of each column

        for pair in self.pairs:
            if unknown := set(pair) - set(names):
                return f"pairs names {min(unknown)}, which dataset.columns does not declare"
            first, second = (joined[name] for name in pair)
            if first == second:
                return f"pairs={[list(one) for one in self.pairs]} has a circle at {pair[0]}"
            joined = {name: first if of == second else of for name, of in joined.items()}
        return None
