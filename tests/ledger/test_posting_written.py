"""What posting writes: one time, one event, ids that grow; and the transaction that it demands."""

from collections.abc import Callable
from typing import Any
from uuid import uuid5

import psycopg
import pytest
from django.db import transaction

from ledger.commands import Command, Leg
from ledger.services import post
from outbox.models import OutboxEvent
from outbox.services import EVENT_NAMESPACE
from tests.books import value
from tests.ledger.kit import move, written_at
from tests.world import World
from transfers.services import fund
from wallet_project.kernel.clock import rfc3339

Snapshot = Callable[[], dict[str, Any]]


def test_one_time_for_the_journal_its_entries_and_its_event(world: World, superuser: psycopg.Connection[Any]) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    before = value(superuser, "SELECT clock_timestamp()")
    posted = world.pay(payer, payee, 10)
    after = value(superuser, "SELECT clock_timestamp()")
    assert written_at(posted.transaction_id) == {posted.created_at}
    assert before <= posted.created_at <= after


def test_the_event_says_what_the_contract_says(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    posted = world.pay(payer, payee, 10)
    event = OutboxEvent.objects.get(payload__transactionId=str(posted.transaction_id))
    assert event.payload == {
        "transactionId": str(posted.transaction_id),
        "from": payer.account_id,
        "to": payee.account_id,
        "amount": 10,
        "currency": "VND",
        "type": "TRANSFER",
        "occurredAt": rfc3339(posted.created_at),
    }
    assert (event.topic, event.key, event.published) == ("wallet.transfers", str(payer.account_id), False)
    assert event.event_id == uuid5(EVENT_NAMESPACE, str(posted.transaction_id))


def test_a_deposits_event_is_about_the_wallet_credited(world: World) -> None:
    payer = world.person("payer")
    posted = fund(account_id=payer.account_id, amount=100, key="top-up")
    event = OutboxEvent.objects.get(payload__transactionId=str(posted.transaction_id))
    assert (event.topic, event.key) == ("wallet.deposits", str(payer.account_id))
    assert (event.payload["from"], event.payload["to"]) == (None, payer.account_id)
    assert event.payload["type"] == "DEPOSIT"


def test_ids_grow_with_time(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    made = [world.pay(payer, payee, 1).transaction_id for _ in range(5)]
    assert made == sorted(made)
    assert {id_.version for id_ in made} == {7}


@pytest.mark.parametrize("amounts", [(), (10,), (-10, 11), (-10, 0, 10), (0, 0)])
def test_legs_that_cannot_balance_are_a_fault_of_the_caller(amounts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not balance"):
        Command(
            initiator_id=1,
            key="k",
            fingerprint=b"",
            type="TRANSFER",
            legs=tuple(Leg(account_id=number, amount=amount) for number, amount in enumerate(amounts)),
            event=None,
        )


# --- Transactions ---------------------------------------------------------------------------------------------------


def test_post_demands_an_open_transaction(world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    before = snapshot()
    with pytest.raises(transaction.TransactionManagementError):
        post([move(payer, payee, 10)])
    assert snapshot() == before


def test_a_use_case_refuses_to_run_inside_another(world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    before = snapshot()
    with pytest.raises(RuntimeError), transaction.atomic():
        world.pay(payer, payee, 10)
    assert snapshot() == before
