"""Damage that no role of the service can do: for tests of what notices it. They carry the mark `corrupts_books`."""

from typing import Any

import psycopg


def damage(superuser: psycopg.Connection[Any], statement: str, *parameters: object) -> None:
    """Change rows behind the guards' back, for which replica mode silences them in this one transaction."""
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        assert superuser.execute(statement, parameters).rowcount > 0
