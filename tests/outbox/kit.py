"""What the tests of the outbox share: events, relays in this process and in others, and somebody who listens."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.db import connection

from outbox.models import OutboxEvent
from outbox.producer import Producer
from outbox.relay import Relay
from tests.conftest import database_url

TOPICS = ("wallet.transfers", "wallet.deposits", "wallet.withdrawals", "wallet.holds", "wallet.alerts")
PARTITIONS = 3
_PATIENCE = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Heard:
    """A message as it stands in the topic."""

    topic: str
    partition: int
    offset: int
    timestamp: float  # seconds since 1970
    key: str | None
    value: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def event_id(self) -> UUID:
        return UUID(self.headers["ce_id"])

    @property
    def transaction_id(self) -> str:
        return str(self.value["transactionId"])


def make_topics(servers: str, topics: Sequence[str], **options: str) -> None:
    """Make topics with three partitions, and wait until they are there."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=options) for topic in topics]).values():
        made.result()


class Listener:
    """Reads all partitions of the topics, without a group, and keeps what it has heard."""

    def __init__(self, servers: str, *, topics: Sequence[str] = TOPICS, from_now: bool = False) -> None:
        self._client = Consumer(
            {"bootstrap.servers": servers, "group.id": "listener", "enable.auto.commit": False, "log_level": 0}
        )
        places = [(topic, number) for topic in topics for number in range(PARTITIONS)]
        offsets = [self._end_of(*place) if from_now else OFFSET_BEGINNING for place in places]
        self._client.assign([TopicPartition(*place, offset) for place, offset in zip(places, offsets, strict=True)])
        self.heard: list[Heard] = []

    def _end_of(self, topic: str, partition: int) -> int:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                _, end = self._client.get_watermark_offsets(TopicPartition(topic, partition), timeout=10) or (0, 0)
                return end
            except KafkaException:  # The partition has just been made, and nobody leads it yet.
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def listen(self, *, seconds: float) -> None:
        """Read what comes within this time, and a little more."""
        deadline = time.monotonic() + seconds
        while True:
            messages = self._client.consume(500, timeout=0.1)
            self.heard += [_heard(message) for message in messages if message.error() is None]
            if time.monotonic() > deadline and not messages:
                return

    def until(self, condition: Callable[[], bool], *, seconds: float = _PATIENCE) -> None:
        """Read until the condition holds; fails after the bound."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"still not so after {seconds} s; heard {len(self.heard)}"
            self.listen(seconds=0)

    def until_events(self, event_ids: Collection[UUID], *, seconds: float = _PATIENCE) -> None:
        """Read until each of these events has come at least once."""
        self.until(lambda: set(event_ids) <= {message.event_id for message in self.heard}, seconds=seconds)

    def first_times(self, topic: str) -> dict[str | None, list[UUID]]:
        """The events of a topic by key, in the order in which each came first."""
        order: dict[str | None, list[UUID]] = defaultdict(list)
        for message in sorted(self.heard, key=lambda message: (message.partition, message.offset)):
            if message.topic == topic and message.event_id not in order[message.key]:
                order[message.key].append(message.event_id)
        return dict(order)


def _heard(message: Any) -> Heard:
    return Heard(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1] / 1000,
        key=None if message.key() is None else message.key().decode(),
        value=json.loads(message.value()),
        headers={name: value.decode() for name, value in message.headers()},
    )


def relay_to(servers: str, *, batch_size: int = 1000, options: Mapping[str, Any] = MappingProxyType({})) -> Relay:
    """A relay in this process."""
    return Relay(batch_size=batch_size, producer=Producer({"bootstrap.servers": servers, **options}))


def add_events(count: int, *, topic: str = "wallet.alerts", keys: int = 10, padding: int = 0) -> list[UUID]:
    """Commit events that no money stands behind; returns their ids in order. `padding` is in bytes."""
    event_ids = [uuid4() for _ in range(count)]
    alert = {
        **dict.fromkeys(("transactionId", "from", "to", "amount", "currency")),
        "occurredAt": "2026-11-30T12:00:00.000000Z",
        "code": "TEST",
        "detail": "a test's",
        "subject": {"padding": "x" * padding},
    }
    if topic == "wallet.alerts":
        alert["type"] = "ALERT"
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_event (event_id, topic, key, payload)"
            " SELECT id, %s, (n %% %s)::text, %s FROM unnest(%s::uuid[]) WITH ORDINALITY AS e (id, n) ORDER BY n",
            [topic, keys, json.dumps(alert), event_ids],
        )
    return event_ids


def committed_order(topic: str) -> dict[str | None, list[UUID]]:
    """The events of a topic by key, as they stand in the outbox."""
    order: dict[str | None, list[UUID]] = defaultdict(list)
    for key, event_id in OutboxEvent.objects.filter(topic=topic).order_by("pk").values_list("key", "event_id"):
        order[key or None].append(event_id)
    return dict(order)


def waiting() -> int:
    """How many events have not left the house."""
    return OutboxEvent.objects.filter(published=False).count()


def environment(servers: str, **more: str) -> dict[str, str]:
    """What another process needs to work on the test database and on a broker."""
    ours = {"DATABASE_URL": database_url("default"), "KAFKA_BOOTSTRAP_SERVERS": servers}
    theirs = {name: value for name, value in os.environ.items() if name != "MIGRATION_DATABASE_URL"}
    return {**theirs, **ours, **more}


@contextmanager
def process(*arguments: str, environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`python ARGUMENTS`, killed at the end of the block if it has not ended."""
    child = subprocess.Popen([sys.executable, *arguments], env=dict(environment))
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def is_away(servers: str) -> bool:
    """Whether nobody answers there."""
    try:
        AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=1)
    except KafkaException:
        return True
    return False
