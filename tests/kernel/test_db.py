"""Database helpers: what an error means, tried on errors that the server really throws, and who opens transactions."""

import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.backends.postgresql.base import DatabaseWrapper

from accounts.models import Account, User
from tests.races import meanwhile, wait_for_lock
from tests.world import World
from wallet_project.kernel.db import (
    demand_transaction,
    is_unavailable,
    lock_rows,
    run_in_transaction,
    sqlstate,
    violated_constraint,
)

Superuser = psycopg.Connection[Any]


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _lock_timeout(superuser: Superuser) -> None:
    with superuser.transaction():
        superuser.execute("LOCK TABLE account_thaw IN ACCESS EXCLUSIVE MODE")
        _execute("SET lock_timeout = '20ms'", "SELECT count(*) FROM account_thaw")


def _statement_timeout(superuser: Superuser) -> None:
    _execute("SET statement_timeout = '20ms'", "SELECT pg_sleep(10)")


def _canceled(superuser: Superuser) -> None:
    _execute("SELECT 1")
    pid = connection.connection.info.backend_pid

    def cancel() -> None:
        while not superuser.execute("SELECT FROM pg_stat_activity WHERE pid = %s AND state = 'active'", [pid]).rowcount:
            time.sleep(0.01)
        superuser.execute("SELECT pg_cancel_backend(%s)", [pid])

    with meanwhile(cancel):
        _execute("SELECT pg_sleep(10)")


def _idle_in_transaction(superuser: Superuser) -> None:
    _execute("SET idle_in_transaction_session_timeout = '20ms'")
    pid = connection.connection.info.backend_pid
    with transaction.atomic():
        _execute("SELECT 1")
        while superuser.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).rowcount:
            time.sleep(0.01)
        _execute("SELECT 1")


def _terminated(superuser: Superuser) -> None:
    _execute("SELECT 1")
    superuser.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])
    _execute("SELECT 1")


def _read_only(superuser: Superuser) -> None:
    _execute("SET default_transaction_read_only = on", "INSERT INTO django_session VALUES ('k', '', now())")


def _changed_meanwhile(superuser: Superuser) -> None:
    with transaction.atomic():
        _execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM wallet_user")
        superuser.execute("UPDATE wallet_user SET last_name = last_name WHERE username = 'system'")
        _execute("UPDATE wallet_user SET last_name = '' WHERE username = 'system'")


def _too_many(superuser: Superuser) -> None:
    connection.close()
    superuser.execute(f"ALTER DATABASE {superuser.info.dbname} CONNECTION LIMIT 0")
    try:
        _execute("SELECT 1")
    finally:
        superuser.execute(f"ALTER DATABASE {superuser.info.dbname} CONNECTION LIMIT -1")


def _unreachable(superuser: Superuser) -> None:
    elsewhere = deepcopy(connection.settings_dict) | {"HOST": "127.0.0.1", "PORT": "1"}
    DatabaseWrapper(elsewhere, alias="elsewhere").ensure_connection()


def _closed_underneath(superuser: Superuser) -> None:
    with connection.cursor() as cursor:
        connection.connection.close()
        cursor.execute("SELECT 1")


# What the server throws, and the SQLSTATE that arrives; None when nothing did.
WORTH_ANOTHER_TRY: dict[str, tuple[Callable[[Superuser], None], str | None]] = {
    "a lock not had in time": (_lock_timeout, "55P03"),
    "a statement that took too long": (_statement_timeout, "57014"),
    "a statement that was canceled": (_canceled, "57014"),
    "idle in a transaction": (_idle_in_transaction, "25P03"),
    "the session terminated": (_terminated, "57P01"),
    "a server that only reads": (_read_only, "25006"),
    "a row changed since the snapshot": (_changed_meanwhile, "40001"),
    "too many connections": (_too_many, None),
    "no server there": (_unreachable, None),
    "a connection closed underneath": (_closed_underneath, None),
}


@pytest.mark.parametrize(("provoke", "state"), WORTH_ANOTHER_TRY.values(), ids=WORTH_ANOTHER_TRY.keys())
def test_the_database_is_the_reason_and_the_request_may_be_repeated(
    transactional_db: None, superuser: Superuser, provoke: Callable[[Superuser], None], state: str | None
) -> None:
    try:
        with pytest.raises((DatabaseError, InterfaceError)) as error:
            provoke(superuser)
    finally:
        connection.close()  # And with it what was SET.
    assert sqlstate(error.value) == state
    assert isinstance(error.value, (DatabaseError, InterfaceError))
    assert is_unavailable(error.value)


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("UPDATE account SET status = 'FROZEN'", "23514"),
        ("INSERT INTO account (owner_id, currency, name) VALUES (NULL, 'VND', '')", "23502"),
        ("UPDATE account SET balance = 1", "42501"),
        ("TABLE nowhere", "42P01"),
        ("SELECT 1 / 0", "22012"),
        ("SELECT 'x'::jsonb", "22P02"),
    ],
)
def test_the_command_is_the_reason(transactional_db: None, statement: str, state: str) -> None:
    with pytest.raises(DatabaseError) as error:
        _execute(statement)
    assert sqlstate(error.value) == state
    assert not is_unavailable(error.value)


def test_a_violated_constraint_is_known_by_its_name(transactional_db: None) -> None:
    with pytest.raises(DatabaseError) as by_check:
        _execute("UPDATE account SET status = 'FROZEN'")
    assert violated_constraint(by_check.value) == "account_status_known"
    with pytest.raises(DatabaseError) as by_none:
        _execute("TABLE nowhere")
    assert violated_constraint(by_none.value) is None


# --- Transactions -----------------------------------------------------------------------------------------------------


def test_rows_are_locked_inside_a_transaction_only(transactional_db: None) -> None:
    with pytest.raises(transaction.TransactionManagementError):
        lock_rows(User.objects.all())
    with pytest.raises(transaction.TransactionManagementError):
        demand_transaction()
    with transaction.atomic():
        demand_transaction()
        assert [user.username for user in lock_rows(User.objects.all())] == ["system"]


def test_rows_are_locked_at_once_and_in_order(world: World, connect: Callable[[str], psycopg.Connection[Any]]) -> None:
    people = [world.person(name) for name in ("zoe", "adam", "mary")]
    numbers = [person.account_id for person in people]
    rival = connect("app")

    def is_locked(number: int) -> bool:
        found = rival.execute("SELECT FROM account WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED", [number]).rowcount
        rival.rollback()
        return found == 0

    with transaction.atomic():
        locked = lock_rows(Account.objects.filter(pk__in=numbers[::-1]).order_by("-pk"))
        assert [account.pk for account in locked] == sorted(numbers)
        assert all(is_locked(number) for number in numbers)
    assert not any(is_locked(number) for number in numbers)


def test_what_the_lock_waited_for_is_what_it_returns(
    world: World, connect: Callable[[str], psycopg.Connection[Any]], superuser: Superuser
) -> None:
    person = world.person("payer")
    rival = connect("app")
    rival.execute("UPDATE account SET name = 'after' WHERE id = %s", [person.account_id])

    def name_under_lock() -> str:
        with transaction.atomic():
            (account,) = lock_rows(Account.objects.filter(pk=person.account_id))
            return account.name

    with meanwhile(name_under_lock) as name:
        wait_for_lock(superuser)
        rival.commit()
        assert name() == "after"


def test_use_cases_do_not_nest(transactional_db: None) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        run_in_transaction(lambda: None)
    assert run_in_transaction(lambda: "done") == "done"


def test_a_use_case_that_fails_leaves_nothing(transactional_db: None) -> None:
    def half_done() -> None:
        User.objects.create(username="half", password="")
        raise LookupError

    with pytest.raises(LookupError):
        run_in_transaction(half_done)
    assert not User.objects.filter(username="half").exists()
