"""Kafka's producer as the relay needs it: a batch goes in, and what became of each message comes out."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

logger = logging.getLogger("outbox.kafka")

# Seconds within which the broker must have acknowledged a batch. Shorter than librdkafka's own message timeout, so that
# it is we who give up, on all that is unsent at once: a message that times out by itself could be overtaken by the next
# of its key, which has a few microseconds left to live when the broker comes back.
DELIVERY_SECONDS = 15.0
_MESSAGE_TIMEOUT_SECONDS = 20
_FLUSH_SECONDS = 0.2  # how soon a request to stop is noticed

_OPTIONS: dict[str, Any] = {
    "enable.idempotence": True,  # and so acks=all, and no reordering when a request is sent again
    "acks": "all",
    # As Kafka's own clients choose partitions; librdkafka's default (CRC32) would part a key from its other producers.
    "partitioner": "murmur2_random",
    "message.timeout.ms": _MESSAGE_TIMEOUT_SECONDS * 1000,
    "linger.ms": 5,
    # An event larger than this travels alone, so a broker that refuses it refuses none of its batch mates.
    "batch.size": 65_536,
    "message.max.bytes": 1_000_000,
    "compression.type": "lz4",
    "reconnect.backoff.max.ms": 1_000,
    # How long a topic that nobody has made holds up the others.
    "topic.metadata.propagation.max.ms": 5_000,
    "client.id": "wallet-outbox",
    "log_level": 2,  # critical; what else goes wrong is in our own words, once per batch and not once per reconnect
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A Kafka message to be sent; without a key it goes to any partition."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Mapping[str, str]


class Producer:
    """Sends batches. Made anew after a failure, since librdkafka's idempotent producer may be beyond repair then.

    The client is made by the process that uses it: librdkafka's threads do not survive a fork, and a client that came
    through one never sends and cannot be closed. Not for use by several threads.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """
        Args:
            options: librdkafka's settings, at least `bootstrap.servers`; they overrule ours.
        """
        self._options = {**_OPTIONS, **options}
        self._client: confluent_kafka.Producer | None = None
        self._pid = 0
        self._inherited: list[confluent_kafka.Producer] = []
        self._trouble = ""

    def deliver(
        self, messages: Sequence[Outgoing], *, seconds: float = DELIVERY_SECONDS, stopping: Callable[[], bool]
    ) -> list[KafkaError | None]:
        """Send messages in their order and wait for the broker; for each, None if it acknowledged it, or why not.

        What is unsent after `seconds`, or when `stopping`, is given up; the broker may have it all the same.
        """
        client = self._connected()
        reports: list[KafkaError | None] = [_UNREPORTED] * len(messages)
        for position, message in enumerate(messages):
            try:
                client.produce(
                    message.topic,
                    message.value,
                    message.key,
                    headers=dict(message.headers),
                    on_delivery=partial(_note, reports, position),
                )
            except KafkaException as error:  # too large for us, already
                reports[position] = _kafka_error(error)
        self._wait(client, seconds=seconds, stopping=stopping)
        return [self._explained(report) for report in reports]

    def _wait(self, client: confluent_kafka.Producer, *, seconds: float, stopping: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while client.flush(_FLUSH_SECONDS):
            if time.monotonic() > deadline or stopping():
                client.purge(in_queue=True, in_flight=True)
                client.flush(_FLUSH_SECONDS)  # collects the reports of what was given up
                return

    def _explained(self, report: KafkaError | None) -> KafkaError | None:
        """What was given up, with what the client has last heard of the broker."""
        if report is None or report.code() not in _GIVEN_UP:
            return report
        return KafkaError(KafkaError._TIMED_OUT, f"not acknowledged in time. {self._trouble}".strip())

    def _note_trouble(self, error: KafkaError) -> None:
        self._trouble = error.str()

    def discard(self) -> None:
        """Throw the client away; the next batch gets a new one."""
        self._client = None

    def _connected(self) -> confluent_kafka.Producer:
        if self._client is not None and self._pid != os.getpid():
            self._inherited.append(self._client)  # kept, for its destructor would wait for threads that are not here
            self._client = None
        if self._client is None:
            self._trouble = ""
            options = {**self._options, "error_cb": self._note_trouble}
            self._client = confluent_kafka.Producer(options, logger=logger)
            self._pid = os.getpid()
        return self._client


def _kafka_error(error: KafkaException) -> KafkaError:
    (cause, *_) = error.args
    assert isinstance(cause, KafkaError)  # noqa: S101  The client raises no other.
    return cause


_GIVEN_UP = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_UNREPORTED = KafkaError(KafkaError._TIMED_OUT, "no report")


def _note(reports: list[KafkaError | None], position: int, error: KafkaError | None, _message: Any) -> None:
    reports[position] = error
