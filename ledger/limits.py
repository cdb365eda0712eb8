"""Limits of a wallet's tier, and what is left of them. The ledger's triggers keep the count and have the last word."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from accounts.models import Account
from ledger.errors import LimitExceeded
from wallet_project.kernel.errors import FieldError

# A count of another date is no count of today's, and a wallet that has paid nothing out yet has none.
LIMITS = """
    SELECT a.id, t.single_limit, t.daily_limit, CASE WHEN o.business_date = today.date THEN o.spent
                                                     ELSE account_outflow_of(a.id, today.date) END
      FROM account a
      JOIN tier t ON t.id = a.tier_id
     CROSS JOIN LATERAL (SELECT business_date(greatest(clock_timestamp(), a.last_entry_at)) AS date) AS today
      LEFT JOIN account_outflow o ON o.account_id = a.id
     WHERE a.id = ANY(%s)
"""


@dataclass(slots=True, kw_only=True)
class Allowance:
    """What a wallet may pay out at once and in a business day, and what it has paid out today; minor units."""

    single_limit: int | None
    daily_limit: int | None
    spent: int

    def check(self, amount: int) -> None:
        """Raises LimitExceeded, naming the limit and what is left of it, if it does not allow the amount."""
        if self.single_limit is not None and amount > self.single_limit:
            _refuse("single_limit", f"At most {self.single_limit} may be paid out at once.")
        if self.daily_limit is not None and amount > self.daily_limit - self.spent:
            left = max(self.daily_limit - self.spent, 0)
            _refuse("daily_limit", f"At most {self.daily_limit} may be paid out in a day; {left} is left today.")


def _refuse(limit: str, detail: str) -> None:
    raise LimitExceeded(detail, fields=[FieldError(field="amount", code=limit, detail=detail)])


def limited_accounts(accounts: Iterable[Account]) -> list[int]:
    """The ids of those that have a tier."""
    return sorted(account.pk for account in accounts if account.tier_id is not None)


def allowances(rows: Iterable[tuple[Any, ...]]) -> dict[int, Allowance]:
    """The rows of LIMITS as values, by account."""
    return {
        account_id: Allowance(single_limit=single_limit, daily_limit=daily_limit, spent=spent)
        for account_id, single_limit, daily_limit, spent in rows
    }
