"""The budget ledger: accounts, what every release costs, and who is drawing.

A release is RESERVED by its cost, BEGUN durably before the first record is opened, and ends
COMMITTED or LOST; only an untouched reservation becomes VOID and is given back.
"""

from privsyn.ledger.accounts import (
    Account,
    AccountSpec,
    Audit,
    Balance,
    Change,
    DatasetSource,
    Entry,
    Preview,
    Refusal,
    Source,
    State,
    Statement,
    Window,
)
from privsyn.ledger.leases import Lease
from privsyn.ledger.store import Ledger, open_ledger

__all__ = [
    "Account",
    "AccountSpec",
    "Audit",
    "Balance",
    "Change",
    "DatasetSource",
    "Entry",
    "Lease",
    "Ledger",
    "Preview",
    "Refusal",
    "Source",
    "State",
    "Statement",
    "Window",
    "open_ledger",
]
