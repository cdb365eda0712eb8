"""The kit for those who consume: each message's work is done once, whatever dies, and a poison message blocks nobody.

Kafka delivers at least once. A consumer's work and the note that it was done are one database transaction, and offsets
are committed after it: a message that comes again finds the note.
"""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from outbox.inbox import mark_resolved, park_message, receive_once
from outbox.models import ParkedMessage
from wallet_project.kernel.db import is_unavailable

logger = logging.getLogger(__name__)

_ATTEMPTS = 3  # before a message is parked that its handler fails on
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between attempts, and while the database is away
_BATCH = 100
_POLL_SECONDS = 0.5  # how soon a request to stop is noticed


class PoisonMessage(Exception):
    """This message can never be dealt with: it is parked without another attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message as its handler sees it.

    Args:
        topic: where it came from.
        key: the wallet that orders it, as text; None without one.
        event_id: CloudEvents' id, the same in every delivery.
        type: CloudEvents' type; names the payload's schema.
        payload: the value.
    """

    topic: str
    key: str | None
    event_id: str
    type: str
    payload: Mapping[str, Any]

    @property
    def message_id(self) -> str:
        """What deduplicates: the transaction, or the event where no money moved."""
        return self.payload.get("transactionId") or self.event_id


Handler = Callable[[Incoming], None]


def parse(*, topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, str]) -> Incoming:
    """A message's parts as an event.

    Raises:
        PoisonMessage: it is none.
    """
    try:
        payload = json.loads(value or b"")
        text = None if key is None else key.decode()
    except ValueError as error:  # of JSON, and of UTF-8
        raise PoisonMessage(f"not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise PoisonMessage("the value is no JSON object")
    missing = {"ce_id", "ce_type"} - headers.keys()
    if missing:
        raise PoisonMessage(f"headers are missing: {', '.join(sorted(missing))}")
    transaction_id = payload.get("transactionId")
    if transaction_id is not None and not (isinstance(transaction_id, str) and 0 < len(transaction_id) <= 64):
        raise PoisonMessage("transactionId is no text of 1 to 64 characters")
    return Incoming(topic=topic, key=text, event_id=headers["ce_id"], type=headers["ce_type"], payload=payload)


@dataclass(slots=True, kw_only=True)
class Consumer:
    """A member of a consumer group. Any number may run side by side; Kafka shares the partitions out.

    Args:
        name: whose inbox it is, and the group's name.
        topics: what to subscribe to.
        handle: does one message's work with the database, in a transaction that is open already. It may be called
            again for a message whose transaction was rolled back, so it must touch nothing else.
        stop: set it, and the consumer ends after the message that it is at.
    """

    name: str
    topics: Collection[str]
    handle: Handler
    stop: threading.Event = field(default_factory=threading.Event)
    options: Mapping[str, Any] = field(default_factory=lambda: settings.KAFKA_CLIENT)

    def run(self) -> None:
        """Consume until `stop` is set.

        Raises:
            KafkaException: the client is beyond repair.
        """
        client = confluent_kafka.Consumer(
            {
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 1_000,
                "topic.metadata.refresh.interval.ms": 10_000,  # how soon a topic is read that was made after us
                "session.timeout.ms": 10_000,  # after which the others take over the partitions of one that died
                **self.options,
            },
            logger=logger,
        )
        client.subscribe(list(self.topics))
        try:
            while not self.stop.is_set():
                self._commit(client, self.work_through(_fetch(client)))
        finally:
            client.close()

    def work_through(self, messages: Iterable[confluent_kafka.Message]) -> list[TopicPartition]:
        """Deal with messages in their order; returns from where each partition is to be read on."""
        offsets: dict[tuple[str, int], int] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                _note_error(error)
                continue
            if self.stop.is_set() or not self._deal_with(message):
                break
            topic, partition, offset = _place(message)
            offsets[topic, partition] = offset + 1
        return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]

    def _deal_with(self, message: confluent_kafka.Message) -> bool:
        """Do a message's work, or park it. False if neither was possible before the stop."""
        failures, reason, pause = 0, "", _SHORTEST_PAUSE
        while True:
            try:
                if failures < _ATTEMPTS:
                    self.receive(**_parts(message))
                else:
                    self._park(message, reason)
                return True
            except PoisonMessage as poison:
                failures, reason = _ATTEMPTS, str(poison)
            except Exception as error:  # Handlers are strangers here, and none may hold up all who come after.
                if isinstance(error, (DatabaseError, InterfaceError)) and is_unavailable(error):
                    logger.warning("the database is away, so messages wait: %s", error)
                    connection.close()
                else:
                    failures, reason = failures + 1, f"{type(error).__name__}: {error}"
                    logger.exception("%s failed on a message, attempt %d", self.name, failures)
                if self.stop.wait(pause):
                    return False
                pause = min(2 * pause, _LONGEST_PAUSE)

    def receive(self, *, topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, str]) -> bool:
        """Do a message's work if it was not done before. Returns whether it was done now.

        Raises:
            PoisonMessage: it is no event, or the handler says so.
        """
        incoming = parse(topic=topic, key=key, value=value, headers=headers)
        return receive_once(consumer=self.name, message_id=incoming.message_id, work=lambda: self.handle(incoming))

    def retry_parked(self) -> int:
        """Try all parked messages of this consumer's once more; returns how many went well. What fails raises."""
        waiting = ParkedMessage.objects.filter(consumer=self.name, resolved_at=None).order_by("pk")
        return sum(self._retry(parked) for parked in waiting)

    def _retry(self, parked: ParkedMessage) -> bool:
        key, value = (None if part is None else bytes(part) for part in (parked.key, parked.value))
        try:
            self.receive(topic=parked.topic, key=key, value=value, headers=parked.headers)
        except PoisonMessage as poison:
            logger.warning("message %s is still poison: %s", parked, poison)
            return False
        mark_resolved(parked)
        return True

    def _park(self, message: confluent_kafka.Message, reason: str) -> None:
        _, partition, offset = _place(message)
        park_message(consumer=self.name, partition=partition, offset=offset, error=reason, **_parts(message))

    def _commit(self, client: confluent_kafka.Consumer, offsets: list[TopicPartition]) -> None:
        if not offsets:
            return
        try:
            client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # They come again, and the inbox knows them.
            logger.warning("offsets of %s could not be committed: %s", self.name, error)


def _fetch(client: confluent_kafka.Consumer) -> list[confluent_kafka.Message]:
    """Wait for a message, and take with it what is there already."""
    first = client.poll(_POLL_SECONDS)
    return [] if first is None else [first, *client.consume(_BATCH - 1, timeout=0)]


def _parts(message: confluent_kafka.Message) -> dict[str, Any]:
    pairs = message.headers() or []
    headers = {name: _text(value) for name, value in (pairs.items() if isinstance(pairs, dict) else pairs)}
    return {"topic": message.topic(), "key": message.key(), "value": message.value(), "headers": headers}


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _place(message: confluent_kafka.Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise ValueError("a message that came from nowhere")
    return topic, partition, offset


def _note_error(error: KafkaError) -> None:
    if error.fatal():
        raise KafkaException(error)
    logger.warning("the broker says: %s", error.str())
