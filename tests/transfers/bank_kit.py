"""What the tests of bank orders say over and over: an order asked for, the workers' round, a notice of the bank's."""

import itertools
import json
from typing import Any

from django.db.models import Sum

from accounts.models import Account
from ledger.holdings import held_balance
from outbox.models import OutboxEvent
from tests.bank.sandbox import Sandbox
from tests.world import Person
from transfers.models import BankOrder
from transfers.services import advance, ask_again, deposit, due_orders, take_notice, withdraw
from wallet_project.kernel import clock

_numbers = itertools.count(1)


def a_deposit(person: Person, amount: int, *, reference: str | None = None, key: str | None = None) -> BankOrder:
    """A deposit that was just asked for."""
    key = key or f"deposit:{next(_numbers)}"
    answer = deposit(caller=person.caller, key=key, account_id=person.account_id, amount=amount, reference=reference)
    return BankOrder.objects.get(pk=answer.body["depositId"])


def a_withdrawal(
    person: Person, amount: int, *, destination: str = "VCB 0071000123456", key: str | None = None
) -> BankOrder:
    """A withdrawal that was just asked for."""
    key = key or f"withdrawal:{next(_numbers)}"
    answer = withdraw(
        caller=person.caller, key=key, account_id=person.account_id, amount=amount, destination=destination
    )
    return BankOrder.objects.get(pk=answer.body["withdrawalId"])


def work_off() -> None:
    """One round of the workers: the next step of each order that is due."""
    for order_id in due_orders():
        advance(order_id)


def again(*orders: BankOrder) -> None:
    """The next step of these orders, now."""
    ask_again(order_ids=[order.pk for order in orders])
    for order in orders:
        advance(order.pk)


def held(person: Person) -> int:
    """What the person's wallet has on hold."""
    return int(Account.objects.filter(pk=person.account_id).values_list(held_balance(), flat=True).get())


def family(kind: str, *, currency: str = "VND") -> int:
    """The balance of a family of system accounts."""
    total = Account.objects.filter(kind=kind, currency=currency).aggregate(total=Sum("balance"))["total"]
    return int(total)


def completed(bank: Sandbox, order: BankOrder) -> BankOrder:
    """An order, done by the bank."""
    work_off()
    bank.wait_for(order.bank_reference, status="SETTLED")
    again(order)
    assert state(order) == "COMPLETED"
    return order


def state(order: BankOrder) -> str:
    return BankOrder.objects.get(pk=order.pk).status


def history(order: BankOrder) -> list[str]:
    """The states that it went through."""
    return list(order.changes.order_by("pk").values_list("to_status", flat=True))


def alerts() -> list[str]:
    """The codes of what staff were told, in order."""
    events = OutboxEvent.objects.filter(topic="wallet.alerts").order_by("pk")
    return [payload["code"] for payload in events.values_list("payload", flat=True)]


def a_notice(order: BankOrder | None, event: str, *, amount: Any = None, **members: Any) -> bytes:
    """A notice about an order, as the bank would write it; each has an id of its own unless one is given."""
    returned = event == "RETURNED"
    body = {
        "noticeId": f"notice-{next(_numbers)}",
        "reference": "nobody" if order is None else order.bank_reference,
        "event": event,
        "amount": (order.amount if order else 1) if amount is None else amount,
        "currency": order.account.currency if order else "VND",
        "returnId": f"return-{next(_numbers)}" if returned else None,
        "reason": "Account closed" if event == "REFUSED" else None,
        "occurredAt": clock.rfc3339(clock.now()),
        **members,
    }
    return json.dumps(body).encode()


def send(bank: Sandbox, body: bytes) -> str:
    """Take a notice with the bank's signature; what came of it."""
    return take_notice(headers=bank.signed(body), body=body)
