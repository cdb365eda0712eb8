"""The relay: takes events from the outbox to Kafka, in order, and marks what the broker has acknowledged.

Every event is sent at least once. A process that dies after the broker's acknowledgement and before the mark leaves
its events unpublished, and they are sent again, the same in every byte.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError
from django.conf import settings
from django.db import connection, transaction

from outbox.delivery import mark_published, park
from outbox.models import OutboxEvent
from outbox.producer import Outgoing, Producer
from outbox.selectors import lanes_with_work
from outbox.state import advance_floor, count_batch, count_run
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows

logger = logging.getLogger(__name__)

RUN_SECONDS = 5.0
# The first key of our advisory locks, the second is the lane: "outb" in ASCII.
_LOCK_CLASS = 0x6F757462
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds
_TEND_FLOOR_SECONDS = 1.0

# While the broker keeps us waiting, our transaction idles longer than a transaction of the application may. The poll
# walks along its index: a bitmap would visit the whole backlog for each batch.
_TAKE_LANE = """
    SET LOCAL idle_in_transaction_session_timeout = '60s';
    SET LOCAL enable_bitmapscan = off;
    SELECT pg_try_advisory_xact_lock(%s, %s)
"""

# What the broker says of an event that it will refuse for ever.
_NEVER = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG}
# What concerns one topic: nobody has made it, or a right is missing. The other topics go on. Everything else that goes
# wrong concerns the broker.
_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._INVALID_ARG,
}
_BROKER = "the broker"


def outgoing(event: OutboxEvent) -> Outgoing:
    """An event as a Kafka message: JSON, with the attributes of CloudEvents 1.0 as headers."""
    payload = event.payload
    return Outgoing(
        topic=event.topic,
        key=event.key.encode() or None,
        value=json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(),
        headers={
            "ce_specversion": "1.0",
            "ce_id": str(event.event_id),
            "ce_source": settings.EVENT_SOURCE,
            "ce_type": f"{event.topic}.{payload.get('type', 'event')}".lower(),
            "ce_time": payload.get("occurredAt") or clock.rfc3339(event.created_at),
            "content-type": "application/json",
        },
    )


@dataclass(slots=True)
class _Pause:
    """A topic, or the broker, that failed is left alone for a while: each time twice as long, up to a bound."""

    error: str = ""
    seconds: float = _SHORTEST_PAUSE / 2
    until: float = 0.0

    def prolong(self, error: str) -> None:
        self.error = error
        self.seconds = min(2 * self.seconds, _LONGEST_PAUSE)
        self.until = time.monotonic() + self.seconds


@dataclass(slots=True)
class _Batch:
    """Events that were sent together, by what became of them: refused for their own sake, or failed for now."""

    published: list[OutboxEvent] = field(default_factory=list)
    refused: list[tuple[OutboxEvent, KafkaError]] = field(default_factory=list)
    failed: list[tuple[OutboxEvent, KafkaError]] = field(default_factory=list)

    def note(self, event: OutboxEvent, error: KafkaError | None) -> None:
        if error is None:
            self.published.append(event)
        else:
            (self.refused if error.code() in _NEVER else self.failed).append((event, error))

    @property
    def size(self) -> int:
        return len(self.published) + len(self.refused) + len(self.failed)


@dataclass(slots=True, kw_only=True)
class Run:
    """What a run did: how many events the broker has acknowledged, will never take, and has not taken yet."""

    published: int = 0
    parked: int = 0
    failed: int = 0

    def count(self, batch: _Batch) -> None:
        self.published += len(batch.published)
        self.parked += len(batch.refused)
        self.failed += len(batch.failed)


@dataclass(slots=True)
class Relay:
    """Drains the outbox. Any number may work side by side; one per thread.

    Events are parted by their keys into lanes. A relay works on a lane under an advisory lock that ends with its
    transaction, so the events of one key are never in two hands, and reach the broker in the order of their rows' ids.
    Where that order matters, it is the order of commits: who writes an event about a wallet holds the wallet's lock.
    """

    batch_size: int = field(default_factory=lambda: settings.OUTBOX_BATCH_SIZE)
    producer: Producer = field(default_factory=lambda: Producer(settings.KAFKA_CLIENT))
    _pauses: dict[str, _Pause] = field(default_factory=dict)
    _floor_tended: float = float("-inf")

    def run(self, *, seconds: float = RUN_SECONDS, stopping: Callable[[], bool] = lambda: False) -> Run:
        """Publish until nothing waits, or for so many seconds; a batch under way is finished.

        Raises:
            DatabaseError: the database is away; what was not marked is sent again by a later run.
        """
        began = time.monotonic()
        run = Run()
        self._tend_floor()
        lanes = [] if _BROKER in self._paused() else lanes_with_work(without_topics=self._paused())
        if not lanes:
            return run
        random.shuffle(lanes)
        while lanes and time.monotonic() - began < seconds and not stopping() and _BROKER not in self._paused():
            lane = lanes.pop(0)
            batch = self._publish_batch(lane, stopping)
            self._note_health(batch)
            run.count(batch)
            self._tend_floor()
            if batch.size == self.batch_size:
                lanes.append(lane)  # more may wait in it
        if run != Run():
            errors = [pause.error for pause in self._pauses.values()]
            count_run(seconds=time.monotonic() - began, error=errors[0] if errors else "")
        return run

    def _tend_floor(self) -> None:
        if time.monotonic() - self._floor_tended >= _TEND_FLOOR_SECONDS:
            self._floor_tended = time.monotonic()
            advance_floor()

    def _paused(self) -> set[str]:
        now = time.monotonic()
        return {name for name, pause in self._pauses.items() if pause.until > now}

    def _publish_batch(self, lane: int, stopping: Callable[[], bool]) -> _Batch:
        """Publish the next events of a lane, unless another relay is at it."""
        batch = _Batch()
        with transaction.atomic(durable=True):
            if not _take_lane(lane):
                return batch
            waiting = OutboxEvent.objects.waiting().filter(lane=lane).exclude(topic__in=self._paused())
            events = lock_rows(waiting, skip_locked=True, limit=self.batch_size)
            if not events:
                return batch
            self._deliver(events, batch, stopping)
            refused, batch.refused = batch.refused, []
            for event, _ in refused:
                # The broker refuses librdkafka's batches whole, so it may have been a neighbour: once more, alone.
                self._deliver([event], batch, stopping)
            self.mark(batch.published)
            for event, error in batch.refused:
                park(event, reason=f"{error.name()}: {error.str()}")
            count_batch(published=len(batch.published), parked=len(batch.refused))
        return batch

    def _deliver(self, events: Sequence[OutboxEvent], batch: _Batch, stopping: Callable[[], bool]) -> None:
        errors = self.producer.deliver([outgoing(event) for event in events], stopping=stopping)
        for event, error in zip(events, errors, strict=True):
            batch.note(event, error)

    def mark(self, published: Collection[OutboxEvent]) -> None:
        """Note that the broker has these events; the last step before the commit."""
        mark_published(published)

    def _note_health(self, batch: _Batch) -> None:
        for event in batch.published:
            self._pauses.pop(event.topic, None)
            self._pauses.pop(_BROKER, None)
        if not batch.failed:
            return
        errors = {
            event.topic if error.code() in _TOPIC else _BROKER: f"{event.topic}: {error.name()}: {error.str()}"
            for event, error in batch.failed
        }
        for name, error in errors.items():
            self._pauses.setdefault(name, _Pause()).prolong(error)
            logger.warning("events wait, for they were not acknowledged: %s", error)
        self.producer.discard()


def _take_lane(lane: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_LANE, [_LOCK_CLASS, lane])
        cursor.nextset()
        cursor.nextset()
        return bool(cursor.fetchone()[0])
