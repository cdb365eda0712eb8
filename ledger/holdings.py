"""What is on hold: set aside by an opening, a HOLD or a WITHDRAWAL, and not spent or released yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import BigIntegerField, F, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from ledger.models import HeldMoney


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What an opening has set aside of a wallet, and what became of it; amounts in minor units."""

    transaction_id: UUID
    account_id: int
    hold_account_id: int
    currency: str
    amount: int
    spent: int
    released: int
    created_at: datetime

    @property
    def left(self) -> int:
        """What is still on hold."""
        return self.amount - self.spent - self.released


def find_holding(transaction_id: UUID) -> Holding | None:
    """What this opening holds, as of now; None if it is no opening. It stays true under the HOLD account's lock."""
    return find_holdings([transaction_id]).get(transaction_id)


def find_holdings(transaction_ids: Iterable[UUID]) -> dict[UUID, Holding]:
    """What each of these openings holds, as of now."""
    rows = HeldMoney.objects.filter(pk__in=list(transaction_ids)).select_related("transaction", "account")
    return {
        row.pk: Holding(
            transaction_id=row.pk,
            account_id=row.account_id,
            hold_account_id=row.hold_account_id,
            currency=row.account.currency,
            amount=row.amount,
            spent=row.spent,
            released=row.released,
            created_at=row.transaction.created_at,
        )
        for row in rows
    }


def held_balance() -> Coalesce:
    """What a wallet has on hold now, in minor units: an expression for a query over accounts, so that it is read in one
    snapshot with the balance that the money has left.
    """
    still_held = HeldMoney.objects.filter(account_id=OuterRef("pk"), amount__gt=F("spent") + F("released"))
    total = still_held.order_by().values("account_id").annotate(total=Sum(F("amount") - F("spent") - F("released")))
    return Coalesce(Subquery(total.values("total")), 0, output_field=BigIntegerField())
