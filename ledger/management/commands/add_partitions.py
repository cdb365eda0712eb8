"""The upkeep of partitions, by hand."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connections

from ledger.partitions import DefaultPartitionHoldsEntries, add_partitions, move_entries


class Command(BaseCommand):
    help = "Makes the partitions of ledger_entry for this month and the next three, as beat does every hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--move-entries",
            action="store_true",
            help="instead give the entries in the default partition partitions of their own, as the owner of the"
            " tables (MIGRATION_DATABASE_URL); no transfer is posted meanwhile",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["move_entries"] and "owner" not in connections:
            raise CommandError("MIGRATION_DATABASE_URL is not set: it names the role that owns the tables.")
        work = move_entries if options["move_entries"] else add_partitions
        try:
            made = work()
        except DefaultPartitionHoldsEntries as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"not now, try again: {error}") from error
        self.stdout.write(f"made {', '.join(made)}" if made else "nothing to do")
