"""What can still go back of a transaction: read under the locks of its accounts, so that nobody reverses meanwhile."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.errors import AlreadyReversed, NotReversible, ReversalExceedsOriginal
from ledger.holdings import find_holding
from ledger.models import JournalTransaction

REVERSIBLE = (JournalTransaction.Type.TRANSFER, JournalTransaction.Type.CAPTURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A transaction as somebody who would reverse it sees it; amounts in minor units."""

    transaction_id: UUID
    type: str
    debited_account_ids: tuple[int, ...]
    credited_account_ids: tuple[int, ...]
    amount: int
    reversed_amount: int
    reversal_ids: tuple[UUID, ...]

    @property
    def account_ids(self) -> tuple[int, ...]:
        return self.debited_account_ids + self.credited_account_ids

    @property
    def left(self) -> int:
        """What has not gone back yet."""
        return self.amount - self.reversed_amount

    def check(self, amount: int | None) -> int:
        """The amount to be reversed: what was asked for, or all that is left.

        Raises:
            NotReversible: the kind of transaction does not allow it.
            AlreadyReversed: nothing is left; names the reversals.
            ReversalExceedsOriginal: less is left than was asked for.
        """
        if self.type not in REVERSIBLE or len(self.account_ids) != 2:
            raise NotReversible(f"A {self.type} cannot be reversed.")
        if self.left == 0:
            names = ", ".join(str(id_) for id_ in self.reversal_ids)
            raise AlreadyReversed(f"Nothing is left to reverse; reversed by {names}.")
        if amount is not None and amount > self.left:
            raise ReversalExceedsOriginal(f"Only {self.left} is left to reverse.")
        return self.left if amount is None else amount


def find_original(transaction_id: UUID) -> Original | None:
    """The transaction, its legs and what went back of it so far; None if there is no such transaction.

    What a capture took goes back to the wallet from which it was set aside.
    """
    journal = JournalTransaction.objects.select_related("reversal_budget").filter(pk=transaction_id).first()
    if journal is None:
        return None
    legs: list[tuple[Any, ...]] = list(
        journal.entries.filter(created_at=journal.created_at).order_by("id").values_list("account_id", "amount")
    )
    holding = find_holding(journal.continues_id) if journal.continues_id is not None else None
    budget = getattr(journal, "reversal_budget", None)
    return Original(
        transaction_id=journal.pk,
        type=journal.type,
        debited_account_ids=(
            (holding.account_id,) if holding else tuple(account_id for account_id, amount in legs if amount < 0)
        ),
        credited_account_ids=tuple(account_id for account_id, amount in legs if amount > 0),
        amount=sum(amount for _, amount in legs if amount > 0),
        reversed_amount=budget.reversed if budget else 0,
        reversal_ids=tuple(journal.reversals.order_by("created_at", "pk").values_list("pk", flat=True)),
    )
