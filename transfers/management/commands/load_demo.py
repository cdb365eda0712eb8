"""The demo data of development."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from transfers.demo import CUSTOMERS, STAFF, load_demo


class Command(BaseCommand):
    help = "Makes customers with money, and staff, whose password everybody knows. Running it again changes nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError("Demo data has a public password; it is not for production.")
        load_demo()
        self.stdout.write(f"customers {', '.join(CUSTOMERS)} and staff {', '.join(STAFF)} are there")
