"""The kit for those who consume: once per transaction, poison aside, nothing lost at a stop or a kill."""

import json
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from django.db import OperationalError, connection

from outbox.consumer import Consumer, Incoming, PoisonMessage, parse
from outbox.inbox import receive_once
from outbox.models import InboxMessage, OutboxEvent, ParkedMessage

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "wallet.transfers"
Connect = Callable[[str], psycopg.Connection[Any]]


class Notebook:
    """A handler that writes down what it has seen; `fails` says on what it fails, and how."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails: dict[str, BaseException] = {}

    def __call__(self, message: Incoming) -> None:
        if message.message_id in self.fails:
            raise self.fails[message.message_id]
        self.seen.append(message.message_id)


def test_a_message_that_comes_twice_is_dealt_with_once() -> None:
    once, twice = str(uuid4()), str(uuid4())
    notebook = Notebook()
    offsets = _consumer(notebook).work_through(_messages(twice, once, twice))
    assert notebook.seen == [twice, once]
    assert InboxMessage.objects.filter(consumer="test").count() == 2
    assert [(place.topic, place.partition, place.offset) for place in offsets] == [(TOPIC, 0, 3)]


def test_where_no_money_moved_the_event_itself_is_what_counts() -> None:
    event_id = str(uuid4())
    notebook = Notebook()
    headers: dict[str, str | bytes | None] = {"ce_id": event_id, "ce_type": "wallet.alerts.alert"}
    alert = Message(topic="wallet.alerts", partition=0, offset=0, value=b'{"transactionId": null}', headers=headers)
    _consumer(notebook).work_through([alert, alert])
    assert notebook.seen == [event_id]


def test_two_consumers_of_different_names_both_see_it() -> None:
    done = [receive_once(consumer=name, message_id="m", work=lambda: None) for name in ("one", "two", "one")]
    assert done == [True, True, False]


def test_the_work_and_the_note_of_it_are_one_transaction() -> None:
    def fails() -> None:
        OutboxEvent.objects.create(topic=TOPIC, payload={})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        receive_once(consumer="test", message_id="m", work=fails)
    assert not InboxMessage.objects.exists()
    assert not OutboxEvent.objects.exists()
    assert receive_once(consumer="test", message_id="m", work=lambda: None)


def test_the_same_message_in_two_hands_at_once(connect: Connect) -> None:
    """The second waits for the first, and does nothing if that went well."""
    other = connect("app")
    other.execute("INSERT INTO inbox_message (consumer, message_id) VALUES ('test', 'm')")
    threading.Timer(0.3, other.commit).start()
    assert not receive_once(consumer="test", message_id="m", work=lambda: pytest.fail("it was done already"))


@pytest.mark.parametrize(
    ("value", "headers", "why"),
    [
        (b"{", {}, "not JSON"),
        (b"\xff", {}, "not JSON"),
        (None, {}, "not JSON"),
        (b"[]", {}, "no JSON object"),
        (b"{}", {}, "headers are missing: ce_id, ce_type"),
        (b'{"transactionId": 5}', {"ce_id": "a", "ce_type": "b"}, "transactionId"),
        (json.dumps({"transactionId": "x" * 65}).encode(), {"ce_id": "a", "ce_type": "b"}, "transactionId"),
    ],
)
def test_what_is_no_event_is_poison(value: bytes | None, headers: dict[str, str], why: str) -> None:
    with pytest.raises(PoisonMessage, match=why):
        parse(topic=TOPIC, key=None, value=value, headers=headers)


def test_poison_is_parked_whole_and_those_behind_it_are_dealt_with() -> None:
    """At once what is no event; after three attempts what the handler fails on. Staff are told."""
    bad, good = str(uuid4()), str(uuid4())
    notebook = Notebook()
    notebook.fails[bad] = ZeroDivisionError("of the handler")
    consumer = _consumer(notebook)
    odd = Message(topic=TOPIC, partition=2, offset=7, value=b"\0 no JSON", headers=[("odd\0", b"\0\xff")])

    for _ in range(2):  # the second time without the offsets of the first
        consumer.work_through([odd, *_messages(bad, good)])

    assert notebook.seen == [good]
    parked = list(ParkedMessage.objects.order_by("pk"))
    assert [(row.partition, row.offset, row.resolved_at) for row in parked] == [(2, 7, None), (0, 0, None)]
    assert bytes(parked[0].value or b"") == b"\0 no JSON"
    assert "not JSON" in parked[0].error
    assert "ZeroDivisionError: of the handler" in parked[1].error
    codes = [event.payload["code"] for event in OutboxEvent.objects.filter(topic="wallet.alerts")]
    assert codes == ["MESSAGE_PARKED", "MESSAGE_PARKED"]

    notebook.fails.clear()
    assert consumer.retry_parked() == 1
    assert notebook.seen == [good, bad]
    assert ParkedMessage.objects.filter(resolved_at=None).count() == 1
    assert consumer.retry_parked() == 0


def test_a_handler_that_fails_for_a_moment_is_called_again() -> None:
    calls = 0

    def falters(incoming: Incoming) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ZeroDivisionError

    _consumer(falters).work_through(_messages(str(uuid4())))
    assert calls == 3
    assert InboxMessage.objects.count() == 1
    assert not ParkedMessage.objects.exists()


def test_a_database_that_goes_away_parks_nothing(superuser: psycopg.Connection[Any]) -> None:
    calls = 0

    def loses_the_database(incoming: Incoming) -> None:
        nonlocal calls
        calls += 1
        if calls <= 4:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                superuser.execute("SELECT pg_terminate_backend(%s)", cursor.fetchone())
            InboxMessage.objects.count()

    _consumer(loses_the_database).work_through(_messages(str(uuid4())))
    assert calls == 5
    assert InboxMessage.objects.count() == 1
    assert not ParkedMessage.objects.exists()


def test_a_stop_is_heard_between_messages_and_while_the_database_is_away() -> None:
    notebook = Notebook()
    consumer = _consumer(notebook)
    first, second = str(uuid4()), str(uuid4())

    def stops(incoming: Incoming) -> None:
        notebook(incoming)
        consumer.stop.set()
        if incoming.message_id == second:
            raise OperationalError

    consumer.handle = stops
    (place,) = consumer.work_through(_messages(first, second))
    assert place.offset == 1
    consumer.stop.clear()
    assert consumer.work_through(_messages(second)) == []
    assert InboxMessage.objects.count() == 1


def _consumer(handle: Any) -> Consumer:
    return Consumer(name="test", topics=[TOPIC], handle=handle)


def _messages(*transaction_ids: str) -> list[Message]:
    """Messages as they come out of a topic's first partition."""
    return [
        Message(
            topic=TOPIC,
            partition=0,
            offset=offset,
            key=b"1001",
            value=json.dumps({"transactionId": transaction_id}).encode(),
            headers=[("ce_id", str(uuid4()).encode()), ("ce_type", b"wallet.transfers.transfer")],
        )
        for offset, transaction_id in enumerate(transaction_ids)
    ]
