"""Readers for the API and the admin: values in the API's own words."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from accounts.errors import AccountNotFound
from accounts.models import Account, AccountQuerySet
from ledger.errors import TransactionNotFound
from ledger.holdings import held_balance
from ledger.keys import find_key
from ledger.models import JournalTransaction
from ledger.selectors import HistoryItem, Movement, Position, balance_at, history, movement, reversals_of
from transfers.bank_selectors import withdrawal_body
from transfers.hold_selectors import captured_body, payees_of_holds, reserved_body
from wallet_project.kernel import clock
from wallet_project.kernel.errors import FieldError, InvalidCursor, InvalidRequest
from wallet_project.kernel.query import decode_cursor, encode_cursor, page

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def wallets_of(owner_id: int) -> AccountQuerySet:
    """The owner's wallets, with `frozen` and `held`."""
    return Account.objects.owned_by(owner_id).with_frozen().annotate(held=held_balance())


def wallet(account_id: int, *, owner_id: int) -> Account:
    """A wallet of this owner's, with `frozen` and `held`.

    Raises:
        AccountNotFound: there is none; somebody else's, a system account and a shard answer the same.
    """
    account = wallets_of(owner_id).filter(pk=account_id).first()
    if account is None:
        raise AccountNotFound(f"There is no account {account_id}.")
    return account


def account_body(account: Account) -> dict[str, Any]:
    """An account as the API shows it, of `wallets_of` or opened or closed just now; amounts in minor units."""
    frozen = getattr(account, "frozen", False)
    return {
        "accountId": account.pk,
        "name": account.name or None,
        "currency": account.currency,
        "balance": account.balance,
        "heldBalance": getattr(account, "held", 0),
        "availableBalance": 0 if frozen else account.balance,
        "status": "FROZEN" if frozen else account.status,
        "createdAt": clock.rfc3339(account.created_at),
    }


def accounts_page(*, owner_id: int, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """A page of the owner's wallets, newest first.

    Raises:
        InvalidCursor: not of this list.
    """
    wallets = wallets_of(owner_id)
    position = decode_cursor(cursor, of="accounts", length=1)
    if position is not None:
        wallets = wallets.filter(pk__lt=position[0])
    rows = list(wallets.order_by("-pk")[: limit + 1])
    shown = rows[:limit]
    more = len(rows) > limit
    return page(
        [account_body(account) for account in shown],
        next_cursor=encode_cursor("accounts", shown[-1].pk) if more else None,
    )


def balance_body(account_id: int, *, owner_id: int, at: datetime | None = None) -> dict[str, Any]:
    """A wallet's balance, now or as it stood at a moment, entries of that very moment included.

    Raises:
        AccountNotFound: there is no such wallet of the owner's.
        InvalidRequest: the moment has not come yet.
    """
    account = wallet(account_id, owner_id=owner_id)
    now = clock.now()
    if at is None:
        body = account_body(account)
        figures = {name: body[name] for name in ("balance", "heldBalance", "availableBalance")}
    elif at <= now:
        figures = {"balance": balance_at(account_id, at=at), "heldBalance": None, "availableBalance": None}
    else:
        fault = FieldError(field="at", code="future", detail="This moment has not come yet.")
        raise InvalidRequest(f"at: {fault.detail}", fields=[fault])
    return {"accountId": account.pk, "currency": account.currency, **figures, "at": clock.rfc3339(at or now)}


def history_page(
    account_id: int,
    *,
    owner_id: int,
    limit: int,
    cursor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    type: str | None = None,
) -> dict[str, Any]:
    """A page of a wallet's history, newest first; the times are half-open.

    Raises:
        AccountNotFound: there is no such wallet of the owner's.
        InvalidCursor: not of this wallet's history.
    """
    account = wallet(account_id, owner_id=owner_id)
    of = f"entries/{account_id}"
    found = history(account, limit=limit, after=_position(cursor, of=of), since=since, until=until, type=type)
    payees = _promised(item.entry.transaction for item in found.items)
    items = [_history_item(item, payees.get(item.entry.transaction_id)) for item in found.items]
    return page(items, next_cursor=_cursor(found.next, of=of))


def _promised(transactions: Iterable[JournalTransaction]) -> dict[UUID, int]:
    """For whom holds set money aside, as far as it was said."""
    return payees_of_holds(each.pk for each in transactions if each.type == JournalTransaction.Type.HOLD)


def _position(cursor: str | None, *, of: str) -> Position | None:
    numbers = decode_cursor(cursor, of=of, length=2)
    if numbers is None:
        return None
    entry_id, microseconds = numbers
    try:
        return Position(entry_id=entry_id, created_at=_EPOCH + timedelta(microseconds=microseconds))
    except OverflowError as error:
        raise InvalidCursor("This list issued no such cursor.") from error


def _cursor(position: Position | None, *, of: str) -> str | None:
    if position is None:
        return None
    return encode_cursor(of, position.entry_id, (position.created_at - _EPOCH) // _MICROSECOND)


def _history_item(item: HistoryItem, payee_id: int | None) -> dict[str, Any]:
    entry = item.entry
    body: dict[str, Any] = {
        "entryId": entry.pk,
        "transactionId": str(entry.transaction_id),
        "type": entry.transaction.type,
        "amount": entry.amount,
        "balanceAfter": entry.balance_after,
        "counterpartyAccountId": item.counterparty_id or payee_id,
        "reference": entry.transaction.reference or None,
        "createdAt": clock.rfc3339(entry.created_at),
    }
    if entry.transaction.reverses_id is not None:
        body["reversesTransactionId"] = str(entry.transaction.reverses_id)
    if item.reversal_ids:
        body["reversalTransactionIds"] = [str(id_) for id_ in item.reversal_ids]
    return body


def payee_body(*, username: str, currency: str) -> dict[str, Any]:
    """Whom a user of this name would be paid through: their first open wallet in a currency.

    Raises:
        AccountNotFound: there is no such user, or no such wallet of theirs.
    """
    open_wallets = Account.objects.wallets().filter(status=Account.Status.ACTIVE, currency=currency)
    payee = open_wallets.filter(owner__username=username, owner__is_active=True).order_by("pk").first()
    if payee is None:
        raise AccountNotFound("There is nobody of that name with an open wallet in that currency.")
    return {"accountId": payee.pk, "name": masked(username)}


def masked(name: str) -> str:
    """A name that only who knows it already recognises: its first and last letter."""
    return f"{name[0]}••{name[-1]}"


def transfer_body(transaction_id: UUID, *, owner_id: int) -> dict[str, Any]:
    """A transaction that touches a wallet of the owner's; accounts of the outside and of the service are null.

    Raises:
        TransactionNotFound: there is none, or it touches none of them.
    """
    moved = movement(transaction_id, owner_id=owner_id)
    budget = getattr(moved.transaction, "reversal_budget", None)
    reversals = reversals_of([transaction_id]).get(transaction_id, [])
    return {
        **_movement_body(moved),
        "reversalTransactionIds": [str(id_) for id_ in reversals],
        "reversedAmount": budget.reversed if budget else 0,
    }


def representation_body(transaction_id: UUID, *, owner_id: int) -> dict[str, Any]:
    """A transfer as it was when it was made, with the payer's balance right after it: a replay tells the very same.

    Raises:
        TransactionNotFound: there is none, or it touches none of the owner's wallets.
    """
    moved = movement(transaction_id, owner_id=owner_id)
    nothing_yet: dict[str, Any] = {"reversalTransactionIds": [], "reversedAmount": 0}
    return {**_movement_body(moved), **nothing_yet, "balanceAfter": moved.balance_after}


def _movement_body(moved: Movement) -> dict[str, Any]:
    transaction = moved.transaction
    return {
        **posted_body(transaction.pk),
        "type": transaction.type,
        "amount": moved.amount,
        "currency": moved.currency,
        "fromAccountId": moved.from_account_id,
        "toAccountId": moved.to_account_id or _promised([transaction]).get(transaction.pk),
        "reference": transaction.reference or None,
        "metadata": transaction.metadata,
        "createdAt": clock.rfc3339(transaction.created_at),
        "reversesTransactionId": str(transaction.reverses_id) if transaction.reverses_id else None,
    }


def posted_body(transaction_id: UUID) -> dict[str, Any]:
    """What a command that posts at once is answered; it follows from the transaction, so it is not stored."""
    return {"transactionId": str(transaction_id), "status": "COMPLETED"}


# What commands were answered that post at once, by the type of their transaction.
_BODIES: dict[str, Callable[[UUID], dict[str, Any]]] = {
    JournalTransaction.Type.HOLD: reserved_body,
    JournalTransaction.Type.CAPTURE: captured_body,
    JournalTransaction.Type.WITHDRAWAL: withdrawal_body,
}
_STATUSES: dict[str, int] = {JournalTransaction.Type.WITHDRAWAL: 202}


def operation_body(*, owner_id: int, key: str) -> dict[str, Any]:
    """The answer that the command with this key was given.

    Raises:
        TransactionNotFound: no command with it has succeeded yet.
    """
    known = find_key(initiator_id=owner_id, key=key)
    if known is None:
        raise TransactionNotFound("No command with this key has succeeded yet; the same command may be sent again.")
    if known.transaction_id is not None and known.response is None:
        body_of = _BODIES.get(known.type or "", posted_body)
        return {"status": _STATUSES.get(known.type or "", 201), "body": body_of(known.transaction_id)}
    return {"status": known.status or 201, "body": known.response}
