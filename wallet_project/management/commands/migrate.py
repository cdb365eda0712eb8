"""Django's `migrate`, as the owner of the tables, followed by the application's rights and the system accounts."""

from typing import Any

from django.core.management.base import CommandParser
from django.core.management.commands import migrate
from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from wallet_project.grants import apply_grants, open_system_families, set_business_zone


class Command(migrate.Command):
    help = "Migrates as the owner (MIGRATION_DATABASE_URL), then grants the application its rights."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        if "owner" in connections:
            parser.set_defaults(database="owner")

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        if options["plan"] or options["check_unapplied"]:
            return
        connection = connections[options["database"]]
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return  # Stopped half way on purpose: the tables that the rights name are not all there.
        with transaction.atomic(using=connection.alias):
            set_business_zone(connection)
            apply_grants(connection)
            open_system_families(connection)
