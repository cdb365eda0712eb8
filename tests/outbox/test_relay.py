"""The relay: what commits leaves the house, in order, at least once; what does not, never."""

import time
from collections.abc import Callable
from datetime import UTC
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest
from django.db import transaction

from accounts.errors import AccountNotFound
from outbox.delivery import retry_parked
from outbox.models import OutboxEvent, RelayState
from outbox.services import EVENT_NAMESPACE, Event, event_insert
from outbox.state import advance_floor
from tests.outbox.kit import PARTITIONS, Listener, add_events, relay_to, waiting
from tests.world import World
from transfers.services import reverse, transfer
from wallet_project.dev.servers import Broker

pytestmark = pytest.mark.django_db(transaction=True)

Connect = Callable[[str], psycopg.Connection[Any]]


def test_an_event_says_what_the_contract_says(world: World, broker: Broker, listener: Listener) -> None:
    payer, payee = world.person("payer", balance=500), world.person("payee")
    paid = world.pay(payer, payee, 200)

    run = relay_to(broker.url).run()

    listener.until(lambda: len(listener.heard) == 2)
    (message,) = [heard for heard in listener.heard if heard.topic == "wallet.transfers"]
    assert run.published == 2
    assert message.value == {
        "transactionId": str(paid.transaction_id),
        "from": payer.account_id,
        "to": payee.account_id,
        "amount": 200,
        "currency": "VND",
        "type": "TRANSFER",
        "occurredAt": paid.created_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    assert message.key == str(payer.account_id)
    assert message.headers == {
        "ce_specversion": "1.0",
        "ce_id": str(uuid5(EVENT_NAMESPACE, str(paid.transaction_id))),
        "ce_source": "/wallet",
        "ce_type": "wallet.transfers.transfer",
        "ce_time": message.value["occurredAt"],
        "content-type": "application/json",
    }
    event = OutboxEvent.objects.get(event_id=message.event_id)
    assert event.published
    assert event.published_at is not None


def test_a_reversal_follows_its_original(world: World, broker: Broker, listener: Listener) -> None:
    payer, payee, staff = world.person("payer", balance=500), world.person("payee"), world.person("staff")
    paid = world.pay(payer, payee, 200)
    reverse(caller=staff.caller, key="r", transaction_id=paid.transaction_id, reason="a mistake")

    relay_to(broker.url).run()

    listener.until(lambda: len(listener.heard) == 3)
    transfers = [heard for heard in listener.heard if heard.topic == "wallet.transfers"]
    assert [(heard.key, heard.value["type"]) for heard in transfers] == [
        (str(payer.account_id), "TRANSFER"),
        (str(payer.account_id), "REVERSAL"),
    ]


def test_a_refused_command_tells_nobody(world: World, broker: Broker) -> None:
    payer = world.person("payer", balance=500)
    relay = relay_to(broker.url)
    relay.run()

    with pytest.raises(AccountNotFound):
        transfer(caller=payer.caller, key="k", from_account_id=payer.account_id, to_account_id=1, amount=1)

    assert relay.run().published == 0


def test_the_second_run_has_nothing_to_do(world: World, broker: Broker, listener: Listener) -> None:
    world.person("payer", balance=500)
    relay = relay_to(broker.url)

    assert [relay.run().published for _ in range(2)] == [1, 0]
    listener.listen(seconds=0.5)
    assert len(listener.heard) == 1


def test_an_id_taken_early_and_committed_late_is_still_sent(
    world: World, broker: Broker, listener: Listener, connect: Connect
) -> None:
    """The floor must not pass by a transaction that is still at work; rolled-back ids must not hold it up."""
    late, rolled_back = connect("app"), connect("app")
    insert, parameters = event_insert([_event("late")])
    for session in (late, rolled_back):
        session.execute("SELECT pg_current_xact_id()")  # A posting has one: its journal row comes first.
    late.execute(insert, parameters)
    rolled_back.execute(*event_insert([_event("rolled-back")]))
    rolled_back.rollback()
    early = add_events(3)
    relay = relay_to(broker.url)

    assert relay.run().published == 3
    for _ in range(3):
        advance_floor()
    late.commit()
    assert relay.run().published == 1

    listener.until(lambda: len(listener.heard) == 4)
    assert [heard.key for heard in listener.heard if heard.event_id not in early] == ["late"]
    for _ in range(2):
        advance_floor()
    assert RelayState.objects.get().floor == OutboxEvent.objects.latest("pk").pk


def test_the_message_bears_the_time_of_publishing(broker: Broker, listener: Listener, superuser: Any) -> None:
    """A record stamped with the time of an old event would be past its retention, and gone, as it arrives."""
    add_events(1)
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '2 days'")

    began = time.time()
    relay_to(broker.url).run()

    listener.until(lambda: len(listener.heard) == 1)
    assert began - 1 <= listener.heard[0].timestamp <= time.time() + 1
    assert listener.heard[0].headers["ce_time"] == "2026-11-30T12:00:00.000000Z"


def test_keys_go_where_kafkas_own_clients_send_them(broker: Broker, listener: Listener) -> None:
    add_events(40, keys=40)
    relay_to(broker.url).run()

    listener.until(lambda: len(listener.heard) == 40)
    places = {str(heard.key): heard.partition for heard in listener.heard}
    assert places == {key: (_murmur2(key.encode()) & 0x7FFFFFFF) % PARTITIONS for key in places}
    assert len(set(places.values())) == PARTITIONS


@pytest.mark.parametrize("bytes_", [1_200_000, 999_990])
def test_an_event_too_large_is_parked_and_the_others_flow_on(broker: Broker, listener: Listener, bytes_: int) -> None:
    before = add_events(5, keys=1)
    (large,) = add_events(1, keys=1, padding=bytes_)
    after = add_events(5, keys=1)
    relay = relay_to(broker.url)

    run = relay.run()

    parked = OutboxEvent.objects.get(event_id=large)
    assert (run.published, run.parked, run.failed) == (10, 1, 0)
    assert (parked.parked, parked.published, parked.attempts) == (True, False, 1)
    assert "MSG_SIZE_TOO_LARGE" in parked.last_error
    assert RelayState.objects.get().parked_total == 1
    listener.until_events([*before, *after])
    assert large not in {heard.event_id for heard in listener.heard}
    assert relay.run().published == 0, "the alert's own topic raises no alert"


def test_a_parked_event_alerts_staff_and_can_be_tried_again(broker: Broker, listener: Listener) -> None:
    (large,) = add_events(1, topic="wallet.deposits", padding=1_200_000)
    relay_to(broker.url).run()
    relay_to(broker.url).run()
    listener.until(lambda: len(listener.heard) == 1)
    (alert,) = listener.heard
    assert (alert.topic, alert.value["code"]) == ("wallet.alerts", "EVENT_PARKED")
    assert alert.value["subject"] == {"eventId": str(large), "topic": "wallet.deposits", "key": "1"}
    for _ in range(3):
        advance_floor()

    event = OutboxEvent.objects.get(event_id=large)
    assert retry_parked(event_ids=[event.pk]) == [event]
    assert retry_parked(event_ids=[event.pk]) == [], "it is parked no more"
    assert relay_to(broker.url, options={"message.max.bytes": 2_000_000}).run().published == 1

    listener.until_events([large])
    assert OutboxEvent.objects.get(event_id=large).published


def test_an_event_without_a_key_is_sent_as_one(broker: Broker, listener: Listener) -> None:
    with transaction.atomic():
        OutboxEvent.objects.create(topic="wallet.alerts", payload={"a": 1})
    relay_to(broker.url).run()
    listener.until(lambda: len(listener.heard) == 1)
    assert listener.heard[0].key is None


def test_a_lane_in_another_relays_hands_is_left_to_it(broker: Broker, connect: Connect) -> None:
    """Every key is in one lane; who holds its lock is the only one to publish from it."""
    add_events(40, keys=40)
    other = connect("app")
    other.execute("SELECT pg_advisory_xact_lock(%s, lane) FROM generate_series(0, 2) AS lane", [0x6F757462])

    assert relay_to(broker.url).run().published == OutboxEvent.objects.filter(lane=3).count() > 0
    assert set(OutboxEvent.objects.filter(published=False).values_list("lane", flat=True)) == {0, 1, 2}
    other.rollback()
    relay_to(broker.url).run()
    assert waiting() == 0


def test_a_run_ends_after_its_time(broker: Broker) -> None:
    add_events(300, keys=300)
    run = relay_to(broker.url, batch_size=10).run(seconds=0.0)
    assert (run.published, waiting()) == (0, 300)
    assert relay_to(broker.url, batch_size=10).run().published == 300


def _event(key: str) -> Event:
    return Event(event_id=UUID(int=abs(hash(key)) % 2**64), topic="wallet.alerts", key=key, payload={"key": key})


def _murmur2(data: bytes) -> int:
    """As org.apache.kafka.common.utils.Utils has it."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hashed = (hashed * multiplier & mask) ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15
