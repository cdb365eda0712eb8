"""Make the three roles and the database; once per server, with a superuser's URL. Running it again is harmless."""

from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from psycopg import sql

# Milliseconds. A lock not had in time is a 503 that the phone repeats with the same key.
APPLICATION_TIMEOUTS = {
    "lock_timeout": 2_000,
    "statement_timeout": 10_000,
    "idle_in_transaction_session_timeout": 10_000,
}
# A migration that cannot have its lock stops, rather than make the service wait behind it.
OWNER_TIMEOUTS = {
    "lock_timeout": 5_000,
    "statement_timeout": 0,
    "idle_in_transaction_session_timeout": 600_000,
}


class Command(BaseCommand):
    help = "Makes the roles of DATABASE_URL and MIGRATION_DATABASE_URL, wallet_book, and the database."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.SUPERUSER_DATABASE_URL:
            raise CommandError("SUPERUSER_DATABASE_URL is not set: the roles are made by a superuser, once.")
        if "owner" not in settings.DATABASES:
            raise CommandError("MIGRATION_DATABASE_URL is not set: it names the role that owns the tables.")
        application, owner = settings.DATABASES["default"], settings.DATABASES["owner"]
        if application["USER"] == owner["USER"]:
            raise CommandError("DATABASE_URL and MIGRATION_DATABASE_URL must name two roles.")
        with psycopg.connect(settings.SUPERUSER_DATABASE_URL, autocommit=True) as connection:
            _make_role(connection, owner["USER"], password=owner["PASSWORD"], timeouts=OWNER_TIMEOUTS)
            _make_role(
                connection,
                application["USER"],
                password=application["PASSWORD"],
                timeouts=APPLICATION_TIMEOUTS,
            )
            _make_book_role(connection, owner=owner["USER"])
            _make_database(connection, owner["NAME"], owner=owner["USER"])
        self.stdout.write(
            f"roles {owner['USER']}, {application['USER']}, wallet_book and database {owner['NAME']} are there"
        )


def _exists(connection: psycopg.Connection[Any], query: str, name: str) -> bool:
    return connection.execute(query, [name]).fetchone() is not None


def _make_role(connection: psycopg.Connection[Any], name: str, *, password: str, timeouts: dict[str, int]) -> None:
    role = sql.Identifier(name)
    if not _exists(connection, "SELECT FROM pg_roles WHERE rolname = %s", name):
        connection.execute(sql.SQL("CREATE ROLE {}").format(role))
    connection.execute(sql.SQL("ALTER ROLE {} LOGIN NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS").format(role))
    if password:
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, sql.Literal(password)))
    for setting, milliseconds in timeouts.items():
        connection.execute(
            sql.SQL("ALTER ROLE {} SET {} = {}").format(role, sql.Identifier(setting), sql.Literal(milliseconds))
        )


def _make_book_role(connection: psycopg.Connection[Any], *, owner: str) -> None:
    """`wallet_book` alone may write balances. The owner may give it functions, and inherits nothing from it."""
    if not _exists(connection, "SELECT FROM pg_roles WHERE rolname = %s", "wallet_book"):
        connection.execute("CREATE ROLE wallet_book NOLOGIN")
    connection.execute(sql.SQL("GRANT wallet_book TO {} WITH INHERIT FALSE, SET TRUE").format(sql.Identifier(owner)))


def _make_database(connection: psycopg.Connection[Any], name: str, *, owner: str) -> None:
    if not _exists(connection, "SELECT FROM pg_database WHERE datname = %s", name):
        connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(owner)))
