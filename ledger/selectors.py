"""Readers of the book."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from django.db.models import QuerySet

from accounts.models import Account
from ledger.errors import TransactionNotFound
from ledger.models import HeldMoney, JournalTransaction, LedgerEntry

# It moves nothing between people.
_HIDDEN = JournalTransaction.Type.CONSOLIDATION

# How far back of the newest entry a page of history is looked for, at first; then all the way.
_REACHES = (timedelta(days=31), timedelta(days=366))


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a page of history ended. The time is the entry's own: it spares the look into later months."""

    entry_id: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryItem:
    """What one transaction did to one wallet; the amount is signed as its owner sees it: negative is money out."""

    entry: LedgerEntry
    counterparty_id: int | None
    reversal_ids: Sequence[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of history, newest first."""

    items: Sequence[HistoryItem]
    next: Position | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """A transaction as the owner of a wallet sees it; an account is None where the outside or the service stands.

    `balance_after` is that of the owner's own wallet right after it, the paying one where both are theirs; None for a
    capture, which takes what had left the wallet before.
    """

    transaction: JournalTransaction
    amount: int
    currency: str
    from_account_id: int | None
    to_account_id: int | None
    balance_after: int | None


def draw_system_shard(*, kind: str, currency: str) -> int:
    """The id of a random shard of a system family: the account that a posting uses on the outside's behalf.

    Raises:
        LookupError: the currency has no system accounts; `migrate` makes them for every currency of the settings.
    """
    return random.choice(_system_shards(kind, currency))  # noqa: S311  It spreads load, it guards nothing.


@lru_cache
def _system_shards(kind: str, currency: str) -> tuple[int, ...]:
    """Shards are never deleted, so what was read once stays true."""
    shards = Account.objects.filter(kind=kind, currency=currency, parent__isnull=False)
    ids = tuple(shards.order_by("shard_no").values_list("pk", flat=True))
    if not ids:
        raise LookupError(f"no {kind} accounts in {currency}; run migrate")
    return ids


def history(
    account: Account,
    *,
    limit: int,
    after: Position | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    type: str | None = None,
) -> Page:
    """A page of a wallet's history, newest first: the entries after a position, that is, the older ones.

    An account's entries are numbered in the order of their commits, so pages that begin below a number show each
    entry once, however many are added meanwhile.

    Args:
        since: the earliest time, itself included.
        until: the time before which entries were made.
    """
    entries = LedgerEntry.objects.filter(account=account).exclude(transaction__type=_HIDDEN)
    if type is not None:
        entries = entries.filter(transaction__type=type)
    if after is not None:
        entries = entries.filter(pk__lt=after.entry_id, created_at__lte=after.created_at)
    if until is not None:
        entries = entries.filter(created_at__lt=until)
    newest = min((time for time in (account.last_entry_at, after and after.created_at, until) if time), default=None)
    rows = _newest(entries.select_related("transaction"), newest=newest, since=since, count=limit + 1)
    shown = rows[:limit]
    others, reversals = _counterparties(shown), reversals_of(row.transaction_id for row in shown)
    return Page(
        items=[
            HistoryItem(
                entry=row,
                counterparty_id=others.get(row.transaction_id),
                reversal_ids=reversals.get(row.transaction_id, []),
            )
            for row in shown
        ],
        next=Position(entry_id=shown[-1].pk, created_at=shown[-1].created_at) if len(rows) > limit else None,
    )


def _newest(
    entries: QuerySet[LedgerEntry], *, newest: datetime | None, since: datetime | None, count: int
) -> list[LedgerEntry]:
    """The newest entries. Without a lower bound on the time every month's partition is looked into, so the first look
    reaches back a little, and further only if that does not fill the page.
    """
    if newest is None:
        return []
    floors = [newest - reach for reach in _REACHES]
    for floor in [*(floor for floor in floors if since is None or floor > since), since]:
        within = entries if floor is None else entries.filter(created_at__gte=floor)
        rows = list(within.order_by("-pk")[:count])
        if len(rows) == count:
            break
    return rows


def _counterparties(entries: Iterable[LedgerEntry]) -> dict[UUID, int]:
    """The other wallet of each entry's transaction: the first one on the other side, a shard by its parent's number.

    What a capture took was the payer's, from whose wallet it was set aside.
    """
    sides = {entry.transaction_id: entry for entry in entries}
    captures = {
        entry.transaction_id: entry.transaction.continues_id
        for entry in sides.values()
        if entry.transaction.type == JournalTransaction.Type.CAPTURE
    }
    payers = (
        dict(HeldMoney.objects.filter(pk__in=captures.values()).values_list("pk", "account_id")) if captures else {}
    )
    legs = (
        LedgerEntry.objects.filter(
            transaction_id__in=sides,
            created_at__in={entry.created_at for entry in sides.values()},
            account__kind=Account.Kind.WALLET,
        )
        .order_by("-pk")
        .values_list("transaction_id", "amount", "account_id", "account__parent_id")
    )
    return {
        **{transaction_id: payers[opening_id] for transaction_id, opening_id in captures.items() if opening_id},
        **{
            transaction_id: parent_id or account_id
            for transaction_id, amount, account_id, parent_id in legs
            if (amount < 0) != (sides[transaction_id].amount < 0)
        },
    }


def reversals_of(transaction_ids: Iterable[UUID]) -> dict[UUID, list[UUID]]:
    """The reversals of each of these that was reversed, oldest first."""
    found: dict[UUID, list[UUID]] = {}
    reversals = JournalTransaction.objects.filter(reverses_id__in=list(transaction_ids)).order_by("created_at", "pk")
    for original_id, reversal_id in reversals.values_list("reverses_id", "pk"):
        found.setdefault(original_id, []).append(reversal_id)
    return found


def balance_at(account_id: int, *, at: datetime) -> int:
    """An account's balance as it stood at a moment, entries of that very moment included."""
    entries = LedgerEntry.objects.filter(account_id=account_id, created_at__lte=at)
    return entries.order_by("-created_at", "-pk").values_list("balance_after", flat=True).first() or 0


def movement(transaction_id: UUID, *, owner_id: int) -> Movement:
    """A transaction that touches a wallet of this owner's. A capture also touches the one whose money it takes.

    Raises:
        TransactionNotFound: there is none, or it does not touch any.
    """
    found = JournalTransaction.objects.select_related("reversal_budget", "continues__held_money__account")
    transaction = found.filter(pk=transaction_id).exclude(type=_HIDDEN).first()
    legs = _wallet_legs(transaction) if transaction else []
    own = sorted((leg for leg in legs if leg.account.owner_id == owner_id), key=lambda leg: leg.amount)
    payer = _payer_of_capture(transaction) if transaction else None
    if transaction is None or not (own or (payer and payer.owner_id == owner_id)):
        raise TransactionNotFound(f"There is no transaction {transaction_id}.")
    debits = [leg for leg in legs if leg.amount < 0]
    credits = [leg for leg in legs if leg.amount > 0]
    return Movement(
        transaction=transaction,
        amount=max(-sum(leg.amount for leg in debits), sum(leg.amount for leg in credits)),
        currency=legs[0].account.currency,
        from_account_id=payer.pk if payer else _first_wallet(debits),
        to_account_id=_first_wallet(credits),
        balance_after=own[0].balance_after if own else None,
    )


def _payer_of_capture(transaction: JournalTransaction) -> Account | None:
    """Whose money a capture takes."""
    if transaction.type != JournalTransaction.Type.CAPTURE or transaction.continues is None:
        return None
    return transaction.continues.held_money.account


def _wallet_legs(transaction: JournalTransaction) -> list[LedgerEntry]:
    # Both columns, so that one month's partition answers.
    legs = LedgerEntry.objects.filter(transaction=transaction, created_at=transaction.created_at)
    return list(legs.filter(account__kind=Account.Kind.WALLET).select_related("account").order_by("pk"))


def _first_wallet(legs: Sequence[LedgerEntry]) -> int | None:
    return next((leg.account.parent_id or leg.account_id for leg in legs), None)
