"""The ledger from Python: accounts and entries as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsyn.api.errors import guarded
from privsyn.display.tables import Displayable, Table
from privsyn.dp.accountant import percent
from privsyn.ledger.entries import said_who
from privsyn.ledger.statements import Audit
from privsyn.stages.base import Context

if TYPE_CHECKING:
    import pandas as pd


class LedgerTables(Displayable):
    """The ledger of a project, read only: releases are made by their stages."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @guarded
    def accounts(self) -> pd.DataFrame:
        """An account a row: its terms, the share spent, and the room for one more release."""
        import pandas as pd

        rows = [
            {
                "account": statement.spec.name,
                "unit": statement.spec.unit,
                "adjacency": str(statement.spec.adjacency),
                "epsilon": statement.spec.epsilon,
                "delta": statement.spec.delta,
                "spent_share": statement.balance.share,
                "spent_epsilon": statement.balance.spent_epsilon,
                "left_epsilon": statement.balance.left_epsilon,
                "releases": statement.balance.entries,
                "refused": len(statement.refusals),
            }
            for statement in self._ctx.ledger.statements()
        ]
        return pd.DataFrame(rows, columns=_ACCOUNTS)

    @guarded
    def entries(self, account: str | None = None) -> pd.DataFrame:
        """A release a row, oldest first.

        Args:
            account: Of this one only.
        """
        import pandas as pd

        rows = [
            {
                "number": entry.number,
                "release": entry.release_id,
                "account": entry.account,
                "method": entry.method,
                "state": entry.state.value,
                "epsilon": entry.epsilon,
                "delta": entry.delta,
                "reserved_at": entry.reserved_at,
                "by": said_who(entry.reserved_by),
                "reason": entry.reason or "",
            }
            for entry in self._ctx.ledger.entries(account)
        ]
        return pd.DataFrame(rows, columns=_ENTRIES)

    @guarded
    def verify(self) -> Audit:
        """Check the hash chain of the whole ledger, and that it knows the releases that are here.

        Raises:
            VerificationError: The ledger was edited, or does not know a release.
        """
        self._ctx.check_releases()
        return self._ctx.ledger.verify()

    def _tables(self) -> tuple[Table, ...]:
        """One table: an account a row."""
        rows = {
            statement.spec.name: f"cap ({statement.spec.epsilon:g}, {statement.spec.delta:g}) per "
            f"{statement.spec.unit}; {percent(statement.balance.share)} spent by "
            f"{statement.balance.entries} release(s)"
            for statement in self._ctx.ledger.statements()
        }
        return (Table.of("Ledger", rows or {"accounts": "none yet"}),)


_ACCOUNTS = [
    "account", "unit", "adjacency", "epsilon", "delta", "spent_share", "spent_epsilon",
    "left_epsilon", "releases", "refused",
]  # fmt: skip
_ENTRIES = [
    "number", "release", "account", "method", "state", "epsilon", "delta", "reserved_at", "by",
    "reason",
]  # fmt: skip
