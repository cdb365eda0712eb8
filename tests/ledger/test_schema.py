"""The database as it is, against the models and the migrations as they are written."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connection, models
from psycopg import sql

from ledger.models import LedgerEntry

Connect = Callable[[str], psycopg.Connection[Any]]

OURS = ("accounts", "ledger", "outbox", "transfers")
# What SQL knows and the models need not.
BESIDE_THE_MODELS = {"journal_transaction": {"xact"}}
# Where finance may insert with plain SQL.
OF_THE_BOOK = ("account", "journal_transaction", "ledger_entry", "outbox_event", "idempotency_record")

COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
      FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
     WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1
"""
INDEXES = """
    SELECT c.relname, regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', '')
      FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
     WHERE i.indrelid = %s::regclass AND NOT i.indisprimary ORDER BY 1
"""
CHECKS = """
    SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c' ORDER BY 1
"""
REFERENCES = """
    SELECT confrelid::regclass::text, conkey FROM pg_constraint
     WHERE conrelid = %s::regclass AND contype = 'f' AND conparentid = 0 ORDER BY 1
"""


def test_migrations_are_complete(transactional_db: None) -> None:
    out = io.StringIO()
    call_command("makemigrations", check_changes=True, dry_run=True, stdout=out, stderr=out)
    assert "No changes detected" in out.getvalue()


def test_the_partitioned_table_is_the_model(connect: Connect, transactional_db: None) -> None:
    """Django never looks at a table that SQL made, so the model is made anew beside it, and the two compared."""
    with connection.schema_editor(collect_sql=True, atomic=False) as editor:
        editor.create_model(LedgerEntry)
    owner = connect("owner")
    with owner.transaction(force_rollback=True):
        owner.execute("CREATE SCHEMA scratch; SET LOCAL search_path = scratch, public")
        owner.execute("\n".join(editor.collected_sql))
        for query in (COLUMNS, INDEXES, CHECKS, REFERENCES):
            as_modelled = owner.execute(query, ["scratch.ledger_entry"]).fetchall()
            as_it_is = owner.execute(query, ["public.ledger_entry"]).fetchall()
            assert as_modelled, query
            assert as_it_is == as_modelled


def _own_models() -> Iterator[type[models.Model]]:
    for app in OURS:
        yield from apps.get_app_config(app).get_models()


def test_every_column_is_a_models_column(superuser: psycopg.Connection[Any]) -> None:
    for model in _own_models():
        table = model._meta.db_table
        columns = {name for name, *_ in superuser.execute(COLUMNS, [table]).fetchall()}
        modelled = {field.column for field in model._meta.local_concrete_fields if field.column}
        assert columns - modelled == BESIDE_THE_MODELS.get(table, set()), table


def test_every_default_is_a_default_of_the_database(superuser: psycopg.Connection[Any]) -> None:
    for model in _own_models():
        if model._meta.db_table not in OF_THE_BOOK:
            continue
        defaults = {name: default for name, _, _, default in superuser.execute(COLUMNS, [model._meta.db_table])}
        for field in model._meta.local_concrete_fields:
            if field.has_default():
                assert defaults[field.column] is not None, field


def test_deleting_is_protected_everywhere() -> None:
    for model in _own_models():
        for field in model._meta.local_fields:
            if isinstance(field, models.ForeignKey):
                assert field.remote_field.on_delete is models.PROTECT, field


def test_no_foreign_key_of_the_database_cascades(superuser: psycopg.Connection[Any]) -> None:
    cascading = superuser.execute(
        "SELECT conname FROM pg_constraint WHERE contype = 'f' AND (confdeltype <> 'a' OR confupdtype <> 'a')"
    )
    assert cascading.fetchall() == []


def test_a_wrong_entry_is_refused_at_its_statement_not_at_commit(superuser: psycopg.Connection[Any]) -> None:
    late = superuser.execute(
        "SELECT conname FROM pg_constraint"
        " WHERE conrelid = 'ledger_entry'::regclass AND contype = 'f' AND condeferrable"
    )
    assert late.fetchall() == []


OWN_TRIGGERS = """
    SELECT tgname, tgfoid::regproc::text, tgtype, tgenabled, tgnewtable FROM pg_trigger
     WHERE tgrelid = %s::regclass AND NOT tgisinternal ORDER BY 1
"""


def test_every_partition_has_the_parents_triggers(superuser: psycopg.Connection[Any]) -> None:
    """Row triggers are inherited; statement triggers are not, and the function that makes partitions copies them."""
    parents = superuser.execute(OWN_TRIGGERS, ["ledger_entry"]).fetchall()
    assert {enabled for *_, enabled, _ in parents} == {"O"}
    assert len(parents) == 4
    partitions = superuser.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'ledger_entry'::regclass"
    ).fetchall()
    assert len(partitions) >= 5
    for (part,) in partitions:
        assert superuser.execute(OWN_TRIGGERS, [part]).fetchall() == parents, part


def test_functions_that_act_for_others_pin_their_search_path(superuser: psycopg.Connection[Any]) -> None:
    loose = superuser.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"
    )
    assert loose.fetchall() == []


# --- Migrations, there and back ---------------------------------------------------------------------------------------


@pytest.fixture
def scratch_url(connect: Connect, django_db_setup: None) -> Iterator[str]:
    """An empty database of the owner's; yields its URL."""
    login = settings.DATABASES["owner"]
    name = f"{settings.DATABASES['default']['NAME']}_scratch"
    superuser = connect("superuser")
    superuser.autocommit = True
    database = sql.Identifier(name)
    superuser.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(database))
    superuser.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, sql.Identifier(login["USER"])))
    yield f"postgresql://{login['USER']}:{login['PASSWORD']}@{login['HOST']}:{login['PORT']}/{name}"
    superuser.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


def _catalog(url: str) -> dict[str, list[Any]]:
    """All that migrations make of the book, in words."""
    queries = {
        "tables": "SELECT c.oid::regclass::text, a.attname, a.atttypid::regtype::text FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relkind IN ('r', 'p') AND c.relnamespace::regnamespace::text IN ('public', 'ledger_parts')",
        "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
        "functions": "SELECT pg_get_functiondef(oid), proowner::regrole::text, proacl::text FROM pg_proc"
        " WHERE pronamespace = 'public'::regnamespace",
        "constraints": "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid <> 0",
        "rights": "SELECT oid::regclass::text, array(SELECT unnest(relacl)::text ORDER BY 1) FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace",
        "accounts": "SELECT kind, currency, count(*) FROM account GROUP BY 1, 2",
    }
    with psycopg.connect(url) as database:
        return {name: sorted(database.execute(query).fetchall(), key=str) for name, query in queries.items()}


def test_migrations_go_back_and_forth_again(scratch_url: str) -> None:
    environment = {
        **os.environ,
        "MIGRATION_DATABASE_URL": scratch_url,
        "DATABASE_URL": scratch_url.replace(settings.DATABASES["owner"]["USER"], settings.DATABASES["default"]["USER"]),
    }

    def migrate(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0", *arguments],
            env=environment,
            cwd=settings.BASE_DIR,
            check=True,
        )

    migrate()
    once = _catalog(scratch_url)
    migrate()  # Again: nothing to do, and nothing twice.
    assert _catalog(scratch_url) == once
    migrate("accounts", "zero")  # And with it all that stands on it.
    migrate()
    assert _catalog(scratch_url) == once
