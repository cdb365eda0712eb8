"""`python -m tests.outbox.doomed_relay PLACE`: a relay that dies by SIGKILL at one place of its first batch.

produced       the batch is handed to the client, and nothing is acknowledged yet
acknowledged   the broker has all of it, and nothing is marked yet
"""

import os
import signal
import sys
from collections.abc import Callable, Collection
from typing import Any

import confluent_kafka
import django

django.setup()

from outbox.models import OutboxEvent  # noqa: E402
from outbox.producer import Producer  # noqa: E402
from outbox.relay import Relay  # noqa: E402


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeTheReport(Producer):
    def _wait(self, client: confluent_kafka.Producer, *, seconds: float, stopping: Callable[[], bool]) -> None:
        die()


class DiesBeforeTheMark(Relay):
    def mark(self, published: Collection[OutboxEvent]) -> None:
        die()


def relay(place: str, options: dict[str, Any]) -> Relay:
    match place:
        case "produced":
            return Relay(producer=DiesBeforeTheReport(options))
        case "acknowledged":
            return DiesBeforeTheMark(producer=Producer(options))
    raise ValueError(place)


if __name__ == "__main__":
    relay(sys.argv[1], {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}).run()
