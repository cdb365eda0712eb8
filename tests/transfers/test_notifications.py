"""The example consumer: what a transfer's event becomes for the people at both ends, and how they read it."""

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from django.db import IntegrityError
from django.test import Client

from outbox.models import OutboxEvent, ParkedMessage
from outbox.relay import outgoing
from tests.bank.sandbox import Sandbox
from tests.transfers.bank_kit import a_deposit, a_withdrawal, again, completed, work_off
from tests.transfers.till import Till
from tests.world import PASSWORD, Person, World
from transfers.events import event_schemas
from transfers.models import Notification
from transfers.notifications import notifications_consumer
from transfers.services import reverse

pytestmark = pytest.mark.django_db(transaction=True)


def test_both_ends_of_a_transfer_are_told(world: World) -> None:
    payer, payee = world.person("payer", balance=500), world.person("payee")
    paid = world.pay(payer, payee, 200)
    _consume_all()

    assert _read(payee)["items"] == [
        {
            "notificationId": Notification.objects.get(account_id=payee.account_id).pk,
            "type": "TRANSFER",
            "transactionId": str(paid.transaction_id),
            "accountId": payee.account_id,
            "amount": 200,
            "currency": "VND",
            "text": "You received ₫200.",
            "occurredAt": paid.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "createdAt": _read(payee)["items"][0]["createdAt"],
        }
    ]
    sent, funded = _read(payer)["items"]
    assert (sent["amount"], sent["text"], funded["type"], funded["amount"]) == (-200, "You sent ₫200.", "DEPOSIT", 500)


def test_events_that_come_again_tell_nobody_twice(world: World) -> None:
    payer, payee, staff = world.person("payer", balance=500), world.person("payee"), world.person("staff")
    paid = world.pay(payer, payee, 200)
    reverse(caller=staff.caller, key="r", transaction_id=paid.transaction_id, reason="a mistake")
    for _ in range(3):
        _consume_all()

    assert [item["amount"] for item in _read(payee)["items"]] == [-200, 200]
    assert [item["amount"] for item in _read(payer)["items"]] == [200, -200, 500]
    assert _read(staff)["items"] == []


def test_the_database_tells_nobody_twice_either(world: World) -> None:
    payee = world.person("payee", balance=5)
    _consume_all()
    told = Notification.objects.get(account_id=payee.account_id)
    told.pk = None
    with pytest.raises(IntegrityError, match="notification_once"):
        told.save(force_insert=True)


def test_pages_of_notifications(world: World) -> None:
    payer, payee = world.person("payer", balance=500), world.person("payee")
    for amount in range(1, 6):
        world.pay(payer, payee, amount)
    _consume_all()

    first = _read(payee, limit=2)
    second = _read(payee, limit=2, cursor=first["nextCursor"])
    third = _read(payee, limit=2, cursor=second["nextCursor"])
    amounts = [item["amount"] for page in (first, second, third) for item in page["items"]]
    assert amounts == [5, 4, 3, 2, 1]
    assert third["nextCursor"] is None


@pytest.mark.parametrize(
    "change",
    [{"from": 999_999_999}, {"amount": "much"}, {"occurredAt": "noon"}, {"currency": None, "type": None, "to": "1"}],
)
def test_an_event_about_nothing_we_know_is_parked(world: World, change: dict[str, Any]) -> None:
    payer, payee = world.person("payer", balance=500), world.person("payee")
    event = {"transactionId": str(uuid4()), "from": payer.account_id, "to": payee.account_id, "amount": 1}
    payload = {**event, "currency": "VND", "type": "TRANSFER", "occurredAt": "2026-11-30T12:00:00.000000Z", **change}
    notifications_consumer().work_through([_message("wallet.transfers", json.dumps(payload).encode(), offset=0)])
    assert ParkedMessage.objects.count() == 1
    assert not Notification.objects.exists()


def test_the_schemas_are_served_to_everybody() -> None:
    answer = Client().get("/v1/events/schemas")
    assert answer.status_code == 200
    assert answer.json() == {"schemas": event_schemas()}
    assert set(event_schemas()) >= {"wallet.transfers.transfer", "wallet.transfers.reversal", "wallet.deposits.deposit"}


def test_notifications_are_their_readers_own() -> None:
    assert Client().get("/v1/notifications").status_code == 401


def test_what_the_relay_calls_an_event_names_its_schema(world: World) -> None:
    payer, payee = world.person("payer", balance=500), world.person("payee")
    world.pay(payer, payee, 200)
    types = {outgoing(event).headers["ce_type"] for event in OutboxEvent.objects.all()}
    assert types == {"wallet.transfers.transfer", "wallet.deposits.deposit"} <= set(event_schemas())


def _consume_all() -> None:
    """Hand the consumer all events, as the relay would send them."""
    messages = [outgoing(event) for event in OutboxEvent.objects.order_by("pk")]
    notifications_consumer().work_through(
        [_message(sent.topic, sent.value, offset=offset, **sent.headers) for offset, sent in enumerate(messages)]
    )


def _message(topic: str, value: bytes, *, offset: int, **headers: str) -> Message:
    known: dict[str, str | bytes | None] = {"ce_id": str(uuid4()), "ce_type": "a.type", **headers}
    return Message(topic=topic, partition=0, offset=offset, key=b"1", value=value, headers=known)


def _read(person: Person, **query: Any) -> Any:
    """The person's notifications, by the API."""
    signed_in = Client().post(
        "/v1/auth/token", {"username": person.user.username, "password": PASSWORD}, content_type="application/json"
    )
    token = signed_in.json()["access"]
    answer = Client().get("/v1/notifications", query, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    return answer.json()


def test_holds_tell_the_payer_when_the_balance_moves_and_the_payee_when_money_comes(
    world: World, superuser: psycopg.Connection[Any]
) -> None:
    till = Till(world, superuser)
    hold = till.reserve(100)
    till.capture(hold, amount=20)
    till.capture(hold, amount=30, final=True)
    till.ended("EXPIRED")
    _consume_all()

    def told(person: Person) -> list[tuple[str, int, str]]:
        return [(item["type"], item["amount"], item["text"]) for item in _read(person)["items"][::-1]]

    assert told(till.payer) == [
        ("DEPOSIT", 1_000, "You received ₫1,000."),
        ("HOLD", -100, "₫100 was put on hold."),
        ("RELEASE", 50, "₫50 came back from hold."),
        ("HOLD", -100, "₫100 was put on hold."),
        ("RELEASE", 100, "₫100 came back from hold."),
    ]
    assert told(till.merchant) == [("CAPTURE", 20, "You received ₫20."), ("CAPTURE", 30, "You received ₫30.")]


def test_orders_tell_of_what_the_wallet_gives_and_gets(sandbox_bank: Sandbox, world: World) -> None:
    """Once, when its balance moves: not when the bank has settled what had left it, nor of what is owed."""
    person, shop = world.person("person"), world.person("shop")
    deposit = completed(sandbox_bank, a_deposit(person, 500))
    completed(sandbox_bank, a_withdrawal(person, 200))
    a_withdrawal(person, 40, destination="sandbox:refuse-now")
    work_off()
    world.pay(person, shop, 290)
    sandbox_bank.act(deposit.bank_reference, "return", amount=100)
    again(deposit)
    sandbox_bank.act(deposit.bank_reference, "return", amount=100)
    again(deposit)
    _consume_all()

    told = [(item["type"], item["amount"], item["text"]) for item in _read(person)["items"]]
    assert told == [
        ("CHARGEBACK", -10, "The bank took ₫10 back."),
        ("TRANSFER", -290, "You sent ₫290."),
        ("RELEASE", 40, "₫40 came back from hold."),
        ("WITHDRAWAL", -40, "₫40 is on its way to your bank."),
        ("WITHDRAWAL", -200, "₫200 is on its way to your bank."),
        ("DEPOSIT", 500, "You received ₫500."),
    ]
