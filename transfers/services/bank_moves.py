"""The moves of an order: each is a row, whose insert moves the order, and an event. Building blocks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from accounts.selectors import system_user_id
from ledger.commands import Command, Leg, MoneyEvent, fingerprint_of
from outbox.alerts import raise_alert
from outbox.services import EVENT_NAMESPACE, Event, add_events
from transfers.bank_selectors import ID_NAMES
from transfers.models import BankOrder, BankOrderChange
from wallet_project.kernel import clock
from wallet_project.kernel.db import demand_transaction

Kind = BankOrder.Kind
Status = BankOrder.Status

TOPICS: Mapping[str, str] = {Kind.DEPOSIT: "wallet.deposits", Kind.WITHDRAWAL: "wallet.withdrawals"}


def facts_of(kind: str, order_id: UUID) -> dict[str, Any]:
    """How an event says which order it is about."""
    return {ID_NAMES[kind]: str(order_id)}


def move(
    order: BankOrder,
    to_status: str,
    *,
    cause: str,
    detail: str = "",
    transaction_id: UUID | None = None,
    happened_at: datetime | None = None,
) -> None:
    """Move an order whose row is locked, and leave the event of it. `order` has its new status then.

    Args:
        to_status: where to; a `BankOrder.Status`, legal from where it is.
        cause: a `Cause`.
        transaction_id: what moved its money, if this move does.
        happened_at: the bank's time.

    Raises:
        IntegrityError: the move is illegal, or its money did not move with it.
    """
    demand_transaction()
    change = BankOrderChange.objects.create(
        order=order,
        from_status=order.status,
        to_status=to_status,
        cause=cause,
        detail=detail,
        transaction_id=transaction_id,
        happened_at=happened_at,
        created_at=clock.now(),
    )
    _tell(order, change)
    order.refresh_from_db(fields=["status", "next_step_at"])


def begin(order: BankOrder, *, cause: str) -> None:
    """Write an order down, with its first move. Its wallet is locked and, if it is a withdrawal, its money posted.

    Raises:
        IntegrityError: the wallet is closed, or the money is not where it should be.
    """
    demand_transaction()
    order.save(force_insert=True)
    change = BankOrderChange.objects.create(
        order=order,
        from_status=None,
        to_status=Status.PENDING,
        cause=cause,
        transaction_id=order.opening_id,
        created_at=clock.now(),
    )
    _tell(order, change)


def _tell(order: BankOrder, change: BankOrderChange) -> None:
    comes = order.kind == Kind.DEPOSIT
    payload = {
        "transactionId": None,
        "from": None if comes else order.account_id,
        "to": order.account_id if comes else None,
        "amount": order.amount,
        "currency": order.account.currency,
        "type": f"{order.kind}_{change.to_status}",
        "occurredAt": clock.rfc3339(change.created_at),
        **facts_of(order.kind, order.pk),
        "status": change.to_status,
    }
    event_id = uuid5(EVENT_NAMESPACE, f"bank_order_change:{change.pk}")
    add_events([Event(event_id=event_id, topic=TOPICS[order.kind], key=str(order.account_id), payload=payload)])


def alert(order: BankOrder, code: str, detail: str) -> None:
    """Tell staff of an order, in the open transaction."""
    raise_alert(code=code, detail=detail, subject=facts_of(order.kind, order.pk), account_id=order.account_id)


def alert_stuck(order: BankOrder, detail: str) -> None:
    """Tell staff, once per order, that what the bank says of it cannot be booked. The order's row is locked."""
    if order.stuck_at is None:
        order.stuck_at = clock.now()
        order.save(update_fields=["stuck_at"])
        alert(order, "BANK_OUTCOME_NOT_BOOKED", detail)


def command_of(
    order: BankOrder,
    type_: str,
    *legs: Leg,
    key: str,
    from_account_id: int | None = None,
    to_account_id: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Command:
    """A transaction that the service itself makes for an order.

    Args:
        type_: a `JournalTransaction.Type`.
        key: the user system's, the same at every try.
        from_account_id, to_account_id: the wallet that money leaves or reaches, as the event tells it.
        facts: more keys of the event.
    """
    continues = type_ in ("SETTLEMENT", "RELEASE")
    return Command(
        initiator_id=system_user_id(),
        key=key,
        fingerprint=fingerprint_of(f"bank_order:{order.pk}", {"key": key}),
        type=type_,
        legs=legs,
        event=MoneyEvent(
            topic=TOPICS[order.kind],
            key_account_id=order.account_id,
            from_account_id=from_account_id,
            to_account_id=to_account_id,
            facts={**facts_of(order.kind, order.pk), **(facts or {})},
        ),
        reference=order.reference,
        continues_id=order.opening_id if continues else None,
    )
