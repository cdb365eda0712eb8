"""Readers of bank orders, for the API: values in its own words."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from transfers.errors import BankOrderNotFound
from transfers.models import BankOrder, BankOrderChange, BankReturn
from wallet_project.kernel import clock

# By what name an order's id goes, in answers and in events.
ID_NAMES: Mapping[str, str] = {BankOrder.Kind.DEPOSIT: "depositId", BankOrder.Kind.WITHDRAWAL: "withdrawalId"}


def requested_body(kind: str, order_id: UUID) -> dict[str, Any]:
    """What somebody is answered who has asked for an order."""
    return {ID_NAMES[kind]: str(order_id), "status": BankOrder.Status.PENDING.value}


def withdrawal_body(transaction_id: UUID) -> dict[str, Any]:
    """What somebody was answered who asked for the withdrawal with this opening."""
    return requested_body(BankOrder.Kind.WITHDRAWAL, transaction_id)


def order_body(order_id: UUID, *, kind: str, owner_id: int) -> dict[str, Any]:
    """An order as it is now, with its history, for the owner of its wallet; amounts in minor units.

    Args:
        kind: a `BankOrder.Kind`; an order of the other kind is none.

    Raises:
        BankOrderNotFound: there is none, or it is somebody else's.
    """
    orders = BankOrder.objects.owned_by(owner_id).filter(pk=order_id, kind=kind).select_related("account")
    order = orders.prefetch_related("changes", "returns").first()
    if order is None:
        raise BankOrderNotFound(f"There is no {BankOrder.Kind(kind).label.lower()} {order_id}.")
    destination = {} if order.kind == BankOrder.Kind.DEPOSIT else {"destination": order.destination}
    return {
        ID_NAMES[order.kind]: str(order.pk),
        "status": order.status,
        "accountId": order.account_id,
        "amount": order.amount,
        "currency": order.account.currency,
        **destination,
        "reference": order.reference or None,
        "returnedAmount": order.returned,
        "createdAt": clock.rfc3339(order.created_at),
        "history": [_change_body(order, change) for change in sorted(order.changes.all(), key=lambda row: row.pk)],
        "returns": [_return_body(row) for row in sorted(order.returns.all(), key=lambda row: row.pk)],
    }


def _change_body(order: BankOrder, change: BankOrderChange) -> dict[str, Any]:
    # What settles a withdrawal touches no wallet, so it is no transaction for a client.
    settles = order.kind == BankOrder.Kind.WITHDRAWAL and change.to_status == BankOrder.Status.COMPLETED
    return {
        "status": change.to_status,
        "at": clock.rfc3339(change.created_at),
        "cause": change.cause,
        # The bank's reason, not what our worker noted down.
        "reason": (change.detail or None) if change.to_status == BankOrder.Status.FAILED else None,
        "transactionId": None if settles or change.transaction_id is None else str(change.transaction_id),
    }


def _return_body(row: BankReturn) -> dict[str, Any]:
    return {"amount": row.amount, "at": clock.rfc3339(row.created_at)}
