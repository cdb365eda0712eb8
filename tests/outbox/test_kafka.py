"""Apache Kafka itself: killed and started under load, with rights denied, with retention."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from django.test import override_settings

from outbox.consumer import Consumer, Incoming
from outbox.models import OutboxEvent
from outbox.selectors import read_figures
from outbox.watch import watch
from tests.conftest import wait_until
from tests.outbox.conftest import SOAK
from tests.outbox.kit import Listener, add_events, committed_order, environment, make_topics, process, relay_to, waiting
from tests.world import World, close_connection
from transfers.models import Notification
from wallet_project.dev.kafka import Kafka

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.system]

TOPIC = "wallet.transfers"


@pytest.mark.chaos
@pytest.mark.parametrize("round_", range(5 if SOAK else 1))
def test_a_broker_killed_and_started_again_under_load(
    world: World, kafka: Kafka, kafka_listener: Listener, round_: int
) -> None:
    """Two relays, small batches, transfers all the time. At the end each is there, in order, and none too many."""
    payers = [world.person(name, balance=100_000) for name in ("ann", "bob", "cid")]
    payee = world.person("payee")
    ours = environment(kafka.url, OUTBOX_RELAY_SECONDS="0.02")
    command = ("manage.py", "relay_outbox", "--batch-size", "20")
    with (
        process(*command, environment=ours),
        process(*command, environment=ours),
        _paying(world, payers, payee) as paid,
    ):
        wait_until(lambda: len(paid) > 100, seconds=60)
        _kill(kafka)
        during = len(paid)
        wait_until(lambda: len(paid) > during + 100, seconds=60)
        kafka.start()
        after = len(paid)
        wait_until(lambda: len(paid) > after + 100, seconds=60)
    with process(*command, environment=ours):
        wait_until(lambda: waiting() == 0, seconds=90)

    committed = committed_order(TOPIC)
    kafka_listener.until_events(OutboxEvent.objects.values_list("event_id", flat=True))
    assert sum(map(len, committed.values())) == len(paid)
    assert kafka_listener.first_times(TOPIC) == committed
    assert not OutboxEvent.objects.exclude(attempts=0, parked=False).exists()


@override_settings(OUTBOX_LAG_ALERT_SECONDS=0)
def test_a_right_that_is_missing_holds_up_one_topic_only(kafka: Kafka, kafka_listener: Listener) -> None:
    """Nothing is lost and no attempt burnt; the figures and an alert tell; given the right, it is drained by itself."""
    relay = relay_to(kafka.url)
    with _denied(kafka, "wallet.holds"):
        held = add_events(5, topic="wallet.holds")
        others = add_events(5, topic="wallet.deposits")
        runs = [relay.run() for _ in range(5)]
        kafka_listener.until_events(others)
        assert (sum(run.published for run in runs), waiting()) == (5, 5)
        assert set(OutboxEvent.objects.filter(topic="wallet.holds").values_list("attempts", "parked")) == {(0, False)}
        assert "TOPIC_AUTHORIZATION_FAILED" in read_figures().last_error
        watch()
        assert OutboxEvent.objects.get(topic="wallet.alerts").payload["code"] == "OUTBOX_LAGGING"
    wait_until(lambda: relay.run() is not None and waiting() == 0, seconds=60)
    kafka_listener.until_events(held)
    assert read_figures().failing_since is None


def test_a_topic_that_nobody_has_made_holds_up_itself_only(kafka: Kafka, kafka_listener: Listener) -> None:
    """Kafka takes no such name, so it cannot make the topic by itself."""
    nowhere = add_events(5, topic="no topic of ours")
    others = add_events(5, topic="wallet.deposits")
    relay = relay_to(kafka.url)
    for _ in range(4):
        relay.run()
    kafka_listener.until_events(others)
    assert set(OutboxEvent.objects.filter(published=False).values_list("event_id", flat=True)) == set(nowhere)
    assert not OutboxEvent.objects.filter(parked=True).exists()


def test_an_event_too_large_for_the_broker_alone_is_parked(kafka: Kafka) -> None:
    """The broker's limit is lower than ours here, so it is the broker who refuses; batch mates are no victims."""
    topic = f"narrow-{time.monotonic_ns()}"
    make_topics(kafka.url, [topic], **{"max.message.bytes": "100000"})
    before = add_events(20, topic=topic, keys=1)
    (large,) = add_events(1, topic=topic, keys=1, padding=200_000)
    after = add_events(20, topic=topic, keys=1)

    run = relay_to(kafka.url, options={"compression.type": "none"}).run()

    assert (run.published, run.parked, run.failed) == (40, 1, 0)
    with Listener(kafka.url, topics=[topic]) as listener:
        listener.until_events([*before, *after])
        assert listener.first_times(topic) == {"0": [*before, *after]}
    assert OutboxEvent.objects.get(parked=True).event_id == large


def test_an_old_event_survives_the_topics_retention(kafka: Kafka, superuser: psycopg.Connection[Any]) -> None:
    """An hour's retention, an event two days old: it is stamped with the time of its publishing, so it stays."""
    topic = f"retention-{time.monotonic_ns()}"
    make_topics(kafka.url, [topic], **{"retention.ms": "3600000", "segment.ms": "300"})
    producer = Producer({"bootstrap.servers": kafka.url})
    producer.produce(topic, b"{}", partition=0, timestamp=int((time.time() - 2 * 86_400) * 1000))
    producer.flush(20)
    time.sleep(0.5)  # so that the next record of the partition begins a segment
    event_ids = add_events(10, topic=topic)
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '2 days'")

    relay_to(kafka.url).run()

    # The control: a record with the old time is deleted, once its segment is closed.
    reader = KafkaConsumer({"bootstrap.servers": kafka.url, "group.id": "reader"})
    first = TopicPartition(topic, 0)
    wait_until(lambda: (reader.get_watermark_offsets(first, timeout=10) or (0, 0))[0] == 1, seconds=30)
    reader.close()
    with Listener(kafka.url, topics=[topic]) as late:
        late.until_events(event_ids)


def test_a_group_shares_the_work_and_goes_on_where_it_stopped(kafka: Kafka) -> None:
    """Offsets are committed: who comes later is not told again."""
    name, seen = f"group-{time.monotonic_ns()}", list[str]()
    add_events(30, keys=30)
    relay_to(kafka.url).run()
    with _consuming(kafka, name, lambda message: seen.append(message.event_id)), _consuming(kafka, name, _fails):
        pass
    mine: set[UUID] = set(OutboxEvent.objects.values_list("event_id", flat=True))
    with _consuming(kafka, name, lambda message: seen.append(message.event_id)):
        wait_until(lambda: {str(id_) for id_ in mine} <= set(seen), seconds=60)
    first = len(seen)
    assert len(set(seen)) == first
    (again,) = add_events(1)
    relay_to(kafka.url).run()
    with _consuming(kafka, name, lambda message: seen.append(message.event_id)):
        wait_until(lambda: str(again) in seen, seconds=60)
    assert len(seen) == first + 1


@pytest.mark.chaos
def test_consumers_that_are_killed_and_asked_to_stop_lose_nothing(world: World, kafka: Kafka) -> None:
    """The real command, twice in one group: one is killed at work, one ends when it is asked to."""
    payer, payee = world.person("payer", balance=1000), world.person("payee")
    for _ in range(100):
        world.pay(payer, payee, 1)
    relay_to(kafka.url).run()
    ours = environment(kafka.url, KAFKA_OPTIONS='{"session.timeout.ms": 2000}')
    with process("manage.py", "consume_events", environment=ours) as killed:
        wait_until(lambda: Notification.objects.count() > 20, seconds=60)
        killed.kill()
    with process("manage.py", "consume_events", environment=ours) as stopped:
        wait_until(lambda: Notification.objects.count() == 201, seconds=90)
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(timeout=10) == 0
    assert sum(Notification.objects.filter(account_id=payee.account_id).values_list("amount", flat=True)) == 100


def _fails(message: Incoming) -> None:
    raise AssertionError("it was stopped before it could begin")


def _kill(kafka: Kafka) -> None:
    assert kafka.child is not None
    kafka.child.popen.send_signal(signal.SIGKILL)
    kafka.child.popen.wait()


@contextmanager
def _paying(world: World, payers: list[Any], payee: Any) -> Iterator[list[UUID]]:
    """Transfers, one after the other, for as long as the block runs."""
    paid: list[UUID] = []
    stop = threading.Event()

    def pay() -> None:
        while not stop.is_set():
            paid.append(world.pay(payers[len(paid) % len(payers)], payee, 1).transaction_id)
            stop.wait(0.005)
        close_connection()

    thread = threading.Thread(target=pay)
    thread.start()
    try:
        yield paid
    finally:
        stop.set()
        thread.join()


@contextmanager
def _consuming(kafka: Kafka, name: str, handle: Callable[[Incoming], None]) -> Iterator[None]:
    options = {"bootstrap.servers": kafka.url, "session.timeout.ms": 2000}
    consumer = Consumer(name=name, topics=["wallet.alerts"], handle=handle, options=options)

    def run() -> None:
        consumer.run()
        close_connection()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop.set()
        thread.join()


@contextmanager
def _denied(kafka: Kafka, topic: str) -> Iterator[None]:
    """Nobody may write to this topic."""
    admin = AdminClient({"bootstrap.servers": kafka.url})
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*")
    rule = (AclOperation.WRITE, AclPermissionType.DENY)
    for made in admin.create_acls([AclBinding(*place, *rule)]).values():
        made.result()
    allowed = AclBinding(*place, AclOperation.ALL, AclPermissionType.ALLOW)
    for made in admin.create_acls([allowed]).values():
        made.result()
    try:
        yield
    finally:
        for gone in admin.delete_acls([AclBindingFilter(*place, *rule)]).values():
            gone.result()
