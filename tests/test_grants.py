"""The dictionary of rights, compared with the live catalog: the application may what it says, and nothing more."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from wallet_project.grants import FUNCTIONS, TABLES

Right = tuple[str, str | None, str]  # table, column, privilege

# Rights on relations and on columns, by grant to the application or to everybody.
LIVE_RIGHTS = """
    WITH granted AS (
        SELECT c.oid, NULL::name AS attname, acl.*
          FROM pg_class c, aclexplode(c.relacl) AS acl
         UNION ALL
        SELECT a.attrelid, a.attname, acl.*
          FROM pg_attribute a, aclexplode(a.attacl) AS acl
    )
    SELECT c.relname, g.attname, g.privilege_type, g.is_grantable, c.relkind, c.relnamespace::regnamespace::text
      FROM granted g JOIN pg_class c USING (oid)
     WHERE c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
       AND g.grantee IN (0, %s::regrole)
"""
SEQUENCE = "S"


@pytest.fixture
def app() -> str:
    return str(settings.DATABASES["default"]["USER"])


def _named_rights() -> Iterator[Right]:
    """The dictionary's words, one by one: `SELECT, UPDATE (status, name)` is three rights."""
    for table, words in TABLES.items():
        for privilege, columns in re.findall(r"([A-Z]+)(?: \(([^)]+)\))?", words):
            for column in columns.split(", ") if columns else [None]:
                yield table, column, privilege


def test_every_table_is_named(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        assert set(connection.introspection.table_names(cursor)) == set(TABLES)


def test_the_application_may_what_the_dictionary_says_and_no_more(superuser: psycopg.Connection[Any], app: str) -> None:
    rows = superuser.execute(LIVE_RIGHTS, [app]).fetchall()
    tables = {(table, column, privilege) for table, column, privilege, _, kind, _ in rows if kind != SEQUENCE}
    assert tables == set(_named_rights())
    assert {privilege for *_, privilege, _, kind, _ in rows if kind == SEQUENCE} == {"USAGE"}
    assert {schema for *_, schema in rows} == {"public"}
    assert not any(grantable for *_, grantable, _, _ in rows)


def test_the_application_may_execute_the_named_functions_alone(superuser: psycopg.Connection[Any], app: str) -> None:
    rows = superuser.execute(
        "SELECT oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace::regnamespace::text IN ('public', 'ledger_parts')"
        " AND has_function_privilege(%s, oid, 'EXECUTE')",
        [app],
    ).fetchall()
    assert sorted(name for (name,) in rows) == FUNCTIONS


def test_the_application_makes_nothing(superuser: psycopg.Connection[Any], app: str) -> None:
    rights = superuser.execute(
        "SELECT has_schema_privilege(%(app)s, 'public', 'CREATE'),"
        " has_schema_privilege(%(app)s, 'ledger_parts', 'USAGE'),"
        " has_database_privilege(%(app)s, current_database(), 'CREATE'),"
        " has_database_privilege(%(app)s, current_database(), 'TEMPORARY')",
        {"app": app},
    ).fetchone()
    assert rights == (False, False, False, False)


def test_only_wallet_book_writes_balances_and_budgets(superuser: psycopg.Connection[Any]) -> None:
    """Beside the owner, whose right is inherent; the guard on account asks for wallet_book by name."""
    rows = superuser.execute(
        "SELECT a.attrelid::regclass::text, a.attname, acl.grantee::regrole::text FROM pg_attribute a,"
        " aclexplode(a.attacl) AS acl WHERE acl.privilege_type = 'UPDATE'"
        " AND (a.attrelid::regclass::text, a.attname::text) IN"
        " (('account', 'balance'), ('account', 'last_entry_at'), ('reversal_budget', 'reversed'))"
    ).fetchall()
    assert set(rows) == {
        ("account", "balance", "wallet_book"),
        ("account", "last_entry_at", "wallet_book"),
        ("reversal_budget", "reversed", "wallet_book"),
    }
