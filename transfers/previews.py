"""What a reversal would do, for the page on which staff confirm it."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from accounts.models import Account
from ledger.reversals import Original, find_original
from wallet_project.kernel.errors import DomainError


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two wallets, before and after all that is left has gone back; minor units."""

    account_id: int
    owner: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A transaction that somebody would reverse. `obstacle` says why it cannot be; then there are no sides."""

    transaction_id: UUID
    type: str
    currency: str
    amount: int
    left: int
    payer: Side | None = None
    payee: Side | None = None
    obstacle: str = ""


def preview_reversals(transaction_ids: Sequence[UUID]) -> list[Preview]:
    """What it would mean to reverse these, one after the other; it binds nobody, since money goes on moving."""
    originals = [original for id_ in transaction_ids if (original := find_original(id_)) is not None]
    ids = {account_id for original in originals for account_id in original.account_ids}
    accounts = {account.pk: account for account in Account.objects.filter(pk__in=ids).select_related("owner")}
    balances = {account.pk: account.balance for account in accounts.values()}
    return [_preview(original, accounts, balances) for original in originals]


def _preview(original: Original, accounts: dict[int, Account], balances: dict[int, int]) -> Preview:
    first = accounts[original.account_ids[0]]
    obstacle = _obstacle(original, accounts, balances)
    payer = payee = None
    if not obstacle:
        (payer_id,), (payee_id,) = original.debited_account_ids, original.credited_account_ids
        payee = _side(accounts[payee_id], balances[payee_id], -original.left)
        payer = _side(accounts[payer_id], balances[payer_id], original.left)
        if payee.after >= 0:  # What will be refused as it stands takes nothing from the next.
            balances[payee_id], balances[payer_id] = payee.after, payer.after
    return Preview(
        transaction_id=original.transaction_id,
        type=original.type,
        currency=first.currency,
        amount=original.amount,
        left=original.left,
        payer=payer,
        payee=payee,
        obstacle=obstacle,
    )


def _obstacle(original: Original, accounts: dict[int, Account], balances: dict[int, int]) -> str:
    """Why it cannot be reversed, in a sentence; empty if nothing is known to stand in the way."""
    try:
        original.check(None)
    except DomainError as refusal:
        return refusal.detail
    if any(accounts[id_].status == Account.Status.CLOSED for id_ in original.account_ids):
        return "One of the wallets is closed."
    if balances[original.credited_account_ids[0]] <= 0:
        return "The receiver has spent it: the wallet is empty."
    return ""


def _side(account: Account, before: int, change: int) -> Side:
    return Side(account_id=account.pk, owner=account.owner.username, before=before, after=before + change)
