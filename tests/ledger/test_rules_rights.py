"""Rule 8: the application's login owns nothing, and can neither switch a guard off nor walk around it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from accounts.models import Account
from tests.attacks import NO_RIGHT, Deed, Refusal, Scene, entries_sql, journal_sql, posting_sql, statements
from tests.world import World
from wallet_project.kernel.db import sqlstate

Attempt = Callable[[str, Deed], Refusal]

OWNER = settings.DATABASES["owner"]["USER"]
SUPERUSER = conninfo_to_dict(settings.SUPERUSER_DATABASE_URL)["user"]
PART = f"ledger_parts.entry_{datetime.now(UTC):%Y_%m}"
LIFT = "UPDATE account SET balance = balance + 1 WHERE id = %(payer)s"
WALLET = {"owner_id": "%(payer_user)s", "currency": "'VND'"}

# What the application's login tries. Each is refused for want of a right, before any rule is asked.
SWITCHING_OFF = {
    "disable all triggers": f"ALTER TABLE account DISABLE TRIGGER ALL; {LIFT}",
    "disable one trigger": f"ALTER TABLE account DISABLE TRIGGER account_balance_by_entry; {LIFT}",
    "drop a trigger": f"DROP TRIGGER account_balance_by_entry ON account; {LIFT}",
    "drop a rule's function": "DROP FUNCTION refuse_change() CASCADE",
    "replace a rule's function": "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN NEW; END'",
    "replace the posting function": "CREATE OR REPLACE FUNCTION ledger_entry_posts() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN NEW; END'",
    "take the posting function's rights away": "ALTER FUNCTION ledger_entry_posts() SECURITY INVOKER",
    "drop a constraint": "ALTER TABLE account DROP CONSTRAINT account_balance_not_negative",
    "be a replica": f"SET session_replication_role = replica; {LIFT}",
    "be a replica, by a function": "SELECT set_config('session_replication_role', 'replica', true)",
    "make a rule": "CREATE RULE r AS ON INSERT TO ledger_entry DO INSTEAD NOTHING",
    "make a trigger": "CREATE TRIGGER t BEFORE INSERT ON ledger_entry FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "make an event trigger": "CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION refuse_change()",
}
BECOMING_MORE = {
    "be wallet_book": f"SET ROLE wallet_book; {LIFT}",
    "be the owner": f"SET ROLE {OWNER}",
    "be a superuser": f"SET ROLE {SUPERUSER}",
    "be wallet_book from the start": "SET SESSION AUTHORIZATION wallet_book",
    "make itself a superuser": "ALTER ROLE CURRENT_USER SUPERUSER",
    "make itself a member of wallet_book": "GRANT wallet_book TO CURRENT_USER",
    "make a role": "CREATE ROLE thief SUPERUSER",
    "grant itself the balance": f"GRANT UPDATE ON account TO CURRENT_USER; {LIFT}",
    "grant itself a partition": f"GRANT ALL ON {PART} TO CURRENT_USER",
    "grant itself the partitions' schema": f"GRANT USAGE ON SCHEMA ledger_parts TO CURRENT_USER; TABLE {PART}",
    "own a table": "ALTER TABLE account OWNER TO CURRENT_USER",
    "read the passwords": "TABLE pg_authid",
    "read a file": "SELECT pg_read_file('postgresql.conf')",
    "run a program": "COPY account TO PROGRAM 'cat'",
    "write a file": "COPY account TO '/dev/null'",
}
MAKING = {
    "make a table": "CREATE TABLE fake (id bigint)",
    "make a temporary table": "CREATE TEMP TABLE account (id bigint)",
    "make a temporary table from a query": "SELECT * INTO TEMP fake FROM account",
    "make a function": "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "make a temporary function": "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "make a view": "CREATE VIEW v AS TABLE account",
    "make a schema": "CREATE SCHEMA s",
    "make an extension": "CREATE EXTENSION dblink",
    "make a partition": "CREATE TABLE p PARTITION OF ledger_entry FOR VALUES FROM ('2010-01-01') TO ('2010-02-01')",
    "detach a partition": f"ALTER TABLE ledger_entry DETACH PARTITION {PART}",
    "drop a partition": f"DROP TABLE {PART}",
    "read a partition": f"TABLE {PART}",
    "write into a partition": journal_sql() + entries_sql("payer -1, payee 1").replace("ledger_entry", PART),
    "guard a partition": f"SELECT ledger_guard_partition('{PART}'::text::regclass)",
    "open system accounts": "SELECT account_open_system_families('CHF')",
    "set the entries' numbers back": "SELECT setval('ledger_entry_id_seq', 1)",
    "lock the accounts away": "LOCK TABLE account IN ACCESS EXCLUSIVE MODE",
}
NAMING = {
    f"open an account that names its {column}": (
        f"INSERT INTO account ({', '.join(WALLET)}, {column}) VALUES ({', '.join(WALLET.values())}, {value})"
    )
    for column, value in {
        "id": "-1",
        "balance": "0",
        "allow_negative": "true",
        "kind": "'BANK_CLEARING'",
        "status": "'ACTIVE'",
        "parent_id": "%(payer)s",
        "shard_no": "0",
        "last_entry_at": "NULL",
        "created_at": "now()",
    }.items()
}
BEYOND_ITS_RIGHTS = {**SWITCHING_OFF, **BECOMING_MORE, **MAKING, **NAMING}


@pytest.mark.parametrize("sql", BEYOND_ITS_RIGHTS.values(), ids=BEYOND_ITS_RIGHTS.keys())
def test_the_application_may_not(attempt: Attempt, scene: Scene, sql: str) -> None:
    assert attempt("app", statements(sql, scene.names)).by == NO_RIGHT


@pytest.mark.parametrize("setting", ["pgtrigger.ignore", "wallet.bypass", "session.bypass"])
def test_no_setting_that_anybody_may_set_opens_the_book(attempt: Attempt, scene: Scene, setting: str) -> None:
    """django-pgtrigger's functions begin by asking such a setting; these ask none."""
    on = f"SELECT set_config('{setting}', '{{ledger_entry:ledger_entry_balanced,account:account_is_kept}}', false);"
    one_leg = journal_sql() + entries_sql("payer -1000")
    assert attempt("app", statements(on + one_leg, scene.names)).by == "ledger_entry_balanced"


def test_the_orm_cannot_open_an_account_since_it_names_all_columns(world: World) -> None:
    user = world.person("payer").user
    with pytest.raises(ProgrammingError) as refusal:
        Account.objects.create(owner=user, currency="VND")
    assert sqlstate(refusal.value) == NO_RIGHT


def test_the_orm_cannot_save_a_balance(world: World) -> None:
    account = Account.objects.get(pk=world.person("payer").account_id)
    account.balance = 1_000_000
    with pytest.raises(ProgrammingError) as refusal:
        account.save()
    assert sqlstate(refusal.value) == NO_RIGHT


ROLES = """
    SELECT rolname, rolsuper, rolcreaterole, rolreplication, rolbypassrls, rolcanlogin
      FROM pg_roles WHERE rolname IN (%s, %s, 'wallet_book')
"""


def test_the_roles_are_what_they_should_be(superuser: psycopg.Connection[Any]) -> None:
    app, owner = settings.DATABASES["default"]["USER"], OWNER
    roles = {name: tuple(rest) for name, *rest in superuser.execute(ROLES, [app, owner]).fetchall()}
    login, no_login = (False, False, False, False, True), (False, False, False, False, False)
    assert roles == {app: login, owner: login, "wallet_book": no_login}
    member = superuser.execute(
        "SELECT r.role, g.granted, m.mode, pg_has_role(r.role, g.granted, m.mode)"
        "  FROM unnest(%s::text[]) AS r (role), unnest(%s::text[]) AS g (granted),"
        "       unnest(ARRAY['MEMBER', 'USAGE', 'SET']) AS m (mode) WHERE r.role <> g.granted",
        [[app, owner, "wallet_book"], [app, owner, "wallet_book"]],
    ).fetchall()
    # The owner may give functions to wallet_book, and inherits nothing from it; nobody else is anybody.
    assert {(role, granted, mode) for role, granted, mode, holds in member if holds} == {
        (owner, "wallet_book", "MEMBER"),
        (owner, "wallet_book", "SET"),
    }


def test_the_roles_bring_their_timeouts(connect: Callable[[str], psycopg.Connection[Any]]) -> None:
    """A statement that waits for ever holds locks for ever; the bounds are the role's, not a matter of code."""
    app = connect("app")
    bounds = {
        name: app.execute("SELECT setting::int FROM pg_settings WHERE name = %s", [name]).fetchone()
        for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    }
    assert all(row is not None and 0 < row[0] <= 10_000 for row in bounds.values()), bounds


def test_the_application_owns_nothing(superuser: psycopg.Connection[Any]) -> None:
    owned = superuser.execute(
        "SELECT classid::regclass::text, objid FROM pg_shdepend WHERE refobjid = %s::regrole AND deptype = 'o'",
        [settings.DATABASES["default"]["USER"]],
    ).fetchall()
    assert owned == []


def test_what_the_application_is_for_it_may(attempt: Attempt, scene: Scene) -> None:
    """The control: of all those refusals, none is for want of a login."""
    assert not attempt("app", statements(posting_sql("payer -1, payee 1"), scene.names)).is_refused
