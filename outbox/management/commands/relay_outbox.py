"""The relay as a process of its own, where beat and a worker are not wanted."""

import logging
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, InterfaceError, connection

from outbox.relay import Relay
from outbox.stopping import stop_requested
from wallet_project.kernel.db import is_unavailable

logger = logging.getLogger(__name__)

_LONGEST_PAUSE = 5.0  # seconds, while the database is away


class Command(BaseCommand):
    help = "Publishes the outbox to Kafka until SIGTERM or Ctrl-C. Several may run side by side."
    requires_system_checks = []

    relay_class = Relay

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="end when nothing more can be sent")
        parser.add_argument("--batch-size", type=int, default=settings.OUTBOX_BATCH_SIZE, help="events per transaction")

    def handle(self, *args: Any, once: bool, batch_size: int, **options: Any) -> None:
        relay = self.relay_class(batch_size=batch_size)
        pause = settings.OUTBOX_RELAY_SECONDS
        with stop_requested() as stop:
            while not stop.is_set():
                try:
                    run = relay.run(stopping=stop.is_set)
                except (DatabaseError, InterfaceError) as error:
                    if not is_unavailable(error):
                        raise
                    logger.warning("the database is away, so events wait: %s", error)
                    connection.close()
                    pause = min(2 * pause, _LONGEST_PAUSE)
                else:
                    pause = settings.OUTBOX_RELAY_SECONDS
                    if once and not run.published:
                        return
                stop.wait(pause)
