"""The example consumer: tells users of money that came and went. The kit under it: `outbox.consumer`."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from accounts.models import Account
from ledger.models import JournalTransaction
from outbox.consumer import Consumer, Incoming, PoisonMessage
from transfers.events import MONEY_TOPICS
from transfers.models import Notification
from wallet_project.kernel import clock
from wallet_project.kernel.db import demand_transaction
from wallet_project.kernel.money import format_amount
from wallet_project.kernel.query import decode_cursor, encode_cursor, page

CONSUMER = "wallet.notifications"

# What is not simply sent or received.
_TEXTS: dict[str, str] = {
    JournalTransaction.Type.HOLD: "{} was put on hold.",
    JournalTransaction.Type.RELEASE: "{} came back from hold.",
    JournalTransaction.Type.WITHDRAWAL: "{} is on its way to your bank.",
    JournalTransaction.Type.RETURN: "Your bank sent {} back.",
    JournalTransaction.Type.CHARGEBACK: "The bank took {} back.",
}


def notifications_consumer() -> Consumer:
    """The consumer, ready to run."""
    return Consumer(name=CONSUMER, topics=MONEY_TOPICS, handle=notify)


def notify(message: Incoming) -> None:
    """Write a notification for the owner of each wallet that an event names.

    Raises:
        PoisonMessage: it is no money event, or it names a wallet that is not there.
        TransactionManagementError: no transaction is open.
    """
    demand_transaction()
    if message.payload.get("transactionId") is None:
        return  # No money moved.
    Notification.objects.bulk_create(_notifications(message))


def _notifications(message: Incoming) -> Iterable[Notification]:
    payload = message.payload
    try:
        amount, transaction_id = payload["amount"], UUID(payload["transactionId"])
        signed = {payload["from"]: -amount, payload["to"]: amount}
        facts = {"type": str(payload["type"]), "currency": str(payload["currency"])}
        occurred_at = datetime.fromisoformat(payload["occurredAt"])
    except (KeyError, TypeError, ValueError) as error:
        raise PoisonMessage(f"no money event: {error!r}") from error
    signed.pop(None, None)
    if facts["type"] == JournalTransaction.Type.CAPTURE:
        signed.pop(payload["from"], None)  # The payer was told when the money was set aside.
    elif facts["type"] == JournalTransaction.Type.SETTLEMENT:
        signed.clear()  # Likewise.
    elif facts["type"] == JournalTransaction.Type.CHARGEBACK:
        signed = _without_debt(signed, payload)
    owners = dict(Account.objects.wallets().filter(pk__in=signed).values_list("pk", "owner_id"))
    unknown = signed.keys() - owners.keys()
    if unknown:
        raise PoisonMessage(f"no wallet {', '.join(map(str, unknown))}")
    return [
        Notification(
            user_id=owners[account_id],
            account_id=account_id,
            transaction_id=transaction_id,
            amount=amount_seen,
            occurred_at=occurred_at,
            **facts,
        )
        for account_id, amount_seen in signed.items()
    ]


def _without_debt(signed: dict[Any, int], payload: Mapping[str, Any]) -> dict[Any, int]:
    """Of what the bank took back, what the wallet gave; it may have given nothing."""
    owed = payload.get("owed", 0)
    return {account_id: amount + owed for account_id, amount in signed.items() if amount + owed}


def notifications_page(*, user_id: int, limit: int, cursor: str | None = None) -> dict[str, Any]:
    """A page of a user's notifications as the API shows them, newest first.

    Raises:
        InvalidCursor: not of this list.
    """
    rows = Notification.objects.owned_by(user_id)
    position = decode_cursor(cursor, of="notifications", length=1)
    if position is not None:
        rows = rows.filter(pk__lt=position[0])
    found = list(rows.order_by("-pk")[: limit + 1])
    shown = found[:limit]
    next_cursor = encode_cursor("notifications", shown[-1].pk) if len(found) > limit else None
    return page([notification_body(notification) for notification in shown], next_cursor=next_cursor)


def notification_body(notification: Notification) -> dict[str, Any]:
    """A notification as the API shows it; the amount is signed as the wallet's owner sees it, in minor units."""
    money = format_amount(abs(notification.amount), notification.currency)
    text = _TEXTS.get(notification.type, "You received {}." if notification.amount > 0 else "You sent {}.").format(
        money
    )
    return {
        "notificationId": notification.pk,
        "type": notification.type,
        "transactionId": str(notification.transaction_id),
        "accountId": notification.account_id,
        "amount": notification.amount,
        "currency": notification.currency,
        "text": text,
        "occurredAt": clock.rfc3339(notification.occurred_at),
        "createdAt": clock.rfc3339(notification.created_at),
    }
