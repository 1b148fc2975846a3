"""The budget ledger: accounts, what every release costs, and who is drawing.

A release is RESERVED by its cost, BEGUN durably before the first record is opened, and ends
COMMITTED or LOST; only an untouched reservation becomes VOID and is given back.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy as sa
else:

    class _Late:
        """A module that is imported where it is used: SQLAlchemy takes .3 CPU seconds."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self._name), name)

    sa, schema = _Late("sqlalchemy"), _Late("privsyn.ledger.schema")

__all__ = ["sa"]
