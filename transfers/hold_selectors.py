"""Readers of holds, for the API: values in its own words."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.errors import AccountNotFound
from accounts.models import Account
from ledger.models import JournalTransaction
from transfers.errors import HoldNotFound
from transfers.models import Hold
from wallet_project.kernel import clock
from wallet_project.kernel.errors import InvalidCursor
from wallet_project.kernel.query import decode_cursor, encode_cursor, page

_LAST = UUID(int=2**128 - 1)

# Each wallet's and each side's newest, from an index, so that the largest merchant's page costs what everybody's does.
_NEWEST = """
    SELECT DISTINCT newest.transaction_id
      FROM unnest(%(own)s::bigint[]) AS own (id)
     CROSS JOIN LATERAL (
               (SELECT transaction_id FROM hold WHERE account_id = own.id AND transaction_id < %(before)s
                 ORDER BY transaction_id DESC LIMIT %(count)s)
                UNION ALL
               (SELECT transaction_id FROM hold WHERE to_account_id = own.id AND transaction_id < %(before)s
                 ORDER BY transaction_id DESC LIMIT %(count)s)) AS newest
     ORDER BY 1 DESC LIMIT %(count)s
"""


def hold_of(hold_id: UUID, *, user_id: int) -> dict[str, Any]:
    """A hold as it is now, for its payer or its payee.

    Raises:
        HoldNotFound: there is none, or it is somebody else's.
    """
    hold = Hold.objects.seen_by(user_id).select_related("transaction__held_money").filter(pk=hold_id).first()
    if hold is None:
        raise HoldNotFound(f"There is no hold {hold_id}.")
    return hold_body(hold)


def holds_page(
    *, owner_id: int, limit: int, account_id: int | None = None, cursor: str | None = None
) -> dict[str, Any]:
    """A page of what the owner's wallets have set aside and are promised, newest first; of one wallet, if it is named.

    Raises:
        AccountNotFound: there is no such wallet of the owner's.
        InvalidCursor: not of this list.
    """
    wallets = Account.objects.owned_by(owner_id)
    if account_id is not None:
        wallets = wallets.filter(pk=account_id)
    ids = list(wallets.values_list("pk", flat=True))
    if account_id is not None and not ids:
        raise AccountNotFound(f"There is no account {account_id}.")
    of = f"holds/{account_id or 'all'}"
    with connection.cursor() as cursor_:
        cursor_.execute(_NEWEST, {"own": ids, "before": _position(cursor, of=of), "count": limit + 1})
        found = [hold_id for (hold_id,) in cursor_.fetchall()]
    holds = Hold.objects.select_related("transaction__held_money").in_bulk(found[:limit])
    next_cursor = encode_cursor(of, *found[limit - 1].fields) if len(found) > limit else None
    return page([hold_body(holds[hold_id]) for hold_id in found[:limit]], next_cursor=next_cursor)


def _position(cursor: str | None, *, of: str) -> UUID:
    """Below which id the page begins; ids go with time."""
    numbers = decode_cursor(cursor, of=of, length=6)
    if numbers is None:
        return _LAST
    try:
        time_low, time_mid, time_high, clock_high, clock_low, node = numbers
        return UUID(fields=(time_low, time_mid, time_high, clock_high, clock_low, node))
    except ValueError as error:
        raise InvalidCursor("This list issued no such cursor.") from error


def payees_of_holds(transaction_ids: Iterable[UUID]) -> dict[UUID, int]:
    """The wallet for which each of these HOLD transactions set money aside, where one was named."""
    named = Hold.objects.filter(pk__in=list(transaction_ids), to_account__isnull=False)
    return {pk: payee_id for pk, payee_id in named.values_list("pk", "to_account_id") if payee_id is not None}


def hold_body(hold: Hold) -> dict[str, Any]:
    """A hold as the API shows it, amounts in minor units."""
    held = hold.transaction.held_money
    return _body(hold, amount=held.amount, status=hold.status, captured=held.spent, released=held.released)


def reserved_body(hold_id: UUID) -> dict[str, Any]:
    """A hold as it was when it was made, so that a replay tells the very same."""
    hold = Hold.objects.select_related("transaction__held_money").get(pk=hold_id)
    return _body(hold, amount=hold.transaction.held_money.amount, status=Hold.Status.ACTIVE, captured=0, released=0)


def _body(hold: Hold, *, amount: int, status: str, captured: int, released: int) -> dict[str, Any]:
    return {
        "holdId": str(hold.pk),
        "status": str(status),
        "accountId": hold.account_id,
        "toAccountId": hold.to_account_id,
        "amount": amount,
        "capturedAmount": captured,
        "releasedAmount": released,
        "expiresAt": clock.rfc3339(hold.expires_at),
        "createdAt": clock.rfc3339(hold.created_at),
    }


def captured_body(transaction_id: UUID) -> dict[str, Any]:
    """What a capture was answered: the hold's status is the one right after it, whatever came later."""
    continued = JournalTransaction.objects.filter(pk=transaction_id).values("continues")
    hold = Hold.objects.get(pk__in=continued)
    status = Hold.Status.CAPTURED if hold.ended_by_id == transaction_id else Hold.Status.ACTIVE
    return {"transactionId": str(transaction_id), "holdId": str(hold.pk), "status": str(status)}
