"""Whether the private file is one that another account has paid for. Internal."""

from __future__ import annotations

import logging

from privsyn.data.address import Source
from privsyn.ledger.checks import paid_elsewhere
from privsyn.stages.base import Context

log = logging.getLogger(__name__)


def warn_paid_elsewhere(ctx: Context, path: Source) -> None:
    """Warn where the same people may be charged to two budgets, as ``account.strict`` is off.

    A guarantee holds for all releases of one account together. The same file under another dataset
    and account opens a fresh budget, and what both give out adds up, which no account says.

    Args:
        ctx: Its account must be open.
        path: The private file.
    """
    account = ctx.config.account
    known = ctx.ledger.sources(fingerprint=ctx.fingerprint(path))
    others = [held for held in known if held.account != account.name]
    if others and not account.strict:
        said = paid_elsewhere(account.name, others)
        log.warning("%s. Without account.strict=false this is refused.", said)
