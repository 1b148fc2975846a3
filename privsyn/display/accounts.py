"""Accounts with their releases, rules, decisions and refusals, for a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from privsyn.display.tables import facts, show, table
from privsyn.dp.accountant import percent, shown
from privsyn.ledger.balances import Statement
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import describe_requester
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import NONE, Terms


def accounts(console: Console, statements: list[Statement]) -> None:
    """Print accounts and their releases."""
    if not statements:
        show(console, "The ledger holds no account yet.")
    for statement in statements:
        spec, balance = statement.spec, statement.balance
        rows = [
            (
                str(entry.number),
                entry.release_id,
                entry.state.value,
                f"({shown(entry.epsilon)}, {entry.delta:g})",
                f"{entry.reserved_at:%Y-%m-%d %H:%M}",
                describe_requester(entry.reserved_by),
                entry.reason or "",
            )
            for entry in statement.releases
        ]
        # A column that no row fills gets no name either, so that it takes no room.
        why = "why" if any(entry.reason for entry in statement.releases) else ""
        who = "by" if any(entry.reserved_by for entry in statement.releases) else ""
        table(
            console,
            ("#", "release", "state", "guarantee", "reserved (UTC)", who, why),
            rows,
            title=f"{spec.name}: cap ({spec.epsilon:g}, {spec.delta:g}) per {spec.unit}, "
            f"{spec.adjacency}; {percent(balance.share)} spent, room for one more release of "
            f"epsilon {balance.left_epsilon:.4g} (Gaussian noise; of another method: privsyn plan)",
        )
        if spec.terms != NONE:
            facts(console, _terms(spec.terms), title=f"{spec.name}: rules", style="")
        if statement.decisions:
            table(
                console,
                ("decided (UTC)", "what", "approver", "comment", "row"),
                [
                    (
                        f"{decision.at:%Y-%m-%d %H:%M}",
                        f"{'approved' if decision.approved else 'REJECTED'} to {decision.what} "
                        f"{decision.name} ({decision.digest[:12]})",
                        decision.approver + _written(decision),
                        decision.comment,
                        str(decision.seq),
                    )
                    for decision in statement.decisions
                ],
                title=f"{spec.name}: decisions",
            )
        # A schedule that is refused every hour would push everything else off the screen.
        refused = statement.refusals[-REFUSALS_SHOWN:]
        if refused:
            table(
                console,
                ("refused (UTC)", "release", "by", "why"),
                [
                    (
                        f"{refusal.at:%Y-%m-%d %H:%M}",
                        refusal.release_id or "-",
                        describe_requester(refusal.refused_by),
                        f"{refusal.error}: {refusal.message}",
                    )
                    for refusal in refused
                ],
                title=f"{spec.name}: {len(statement.refusals)} refused, at no cost"
                + (f"; the last {len(refused)}" if len(refused) < len(statement.refusals) else ""),
            )


def _terms(terms: Terms) -> dict[str, str]:
    """The rules of an account, by name."""
    values = {key: value for key, value in terms.dump().items() if key != "file"}
    return {
        key: ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"
        for key, value in values.items()
    }


def _written(decision: Decision) -> str:
    """Who wrote a decision down, where that is another name."""
    user = decision.by.get("user")
    return "" if user in (None, decision.approver) else f" (written by {user})"


REFUSALS_SHOWN = 10
"""The newest that ``ledger show`` prints; ``--json`` has all."""


def account_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """Accounts and their releases for JSON."""
    return [statement.as_dict() for statement in ledger.accounts.statements()]
