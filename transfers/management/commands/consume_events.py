"""The example consumer as a process: user notifications from money events."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from outbox.stopping import stop_requested
from transfers.notifications import notifications_consumer


class Command(BaseCommand):
    help = "Writes user notifications from Kafka until SIGTERM or Ctrl-C. Several may run side by side."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--retry-parked", action="store_true", help="try the parked messages once more, and end")

    def handle(self, *args: Any, retry_parked: bool, **options: Any) -> None:
        consumer = notifications_consumer()
        if retry_parked:
            self.stdout.write(f"{consumer.retry_parked()} parked messages went well")
            return
        with stop_requested() as consumer.stop:
            consumer.run()
