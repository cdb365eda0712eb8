"""Partitions are made in time, guarded like the book itself, and without a transfer noticing."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from ledger import partitions, tasks
from ledger.guards import faulty_guards
from ledger.models import ReconciliationRun
from ledger.partitions import DefaultPartitionHoldsEntries, add_partitions, months_ahead, wanted_months
from ledger.reconciliation import reconcile
from tests.conftest import database_url
from tests.races import watched
from tests.world import World, close_connection
from wallet_project.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)

Connection = psycopg.Connection[Any]
ROUNDS = 10 if os.environ.get("WALLET_SOAK") else 1


def name_of(month: date) -> str:
    return f"entry_{month:%Y_%m}"


def later(months: int) -> date:
    """The first day of a month that far ahead of this one."""
    this = wanted_months()[0]
    ordinal = this.year * 12 + this.month - 1 + months
    return date(ordinal // 12, ordinal % 12 + 1, 1)


def live_partitions(superuser: Connection) -> set[str]:
    query = "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'ledger_entry'::regclass"
    return {name for (name,) in superuser.execute(query)}


def drop(superuser: Connection, *months: date) -> None:
    for month in months:
        superuser.execute(f"DROP TABLE ledger_parts.{name_of(month)}")


@pytest.fixture(autouse=True)
def same_partitions_afterwards(superuser: Connection) -> Iterator[None]:
    before = live_partitions(superuser)
    yield
    for name in live_partitions(superuser) - before:
        superuser.execute(f"DROP TABLE ledger_parts.{name}")
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute("DELETE FROM ledger_parts.entry_default")
    add_partitions()
    assert before <= live_partitions(superuser)


@pytest.fixture
def alerts(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def put_entry(superuser: Connection, partition: str, month: date) -> None:
    """As no posting could: an entry of a month that has not come."""
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute(
            f"INSERT INTO ledger_parts.{partition} (id, transaction_id, account_id, amount, created_at)"
            " VALUES (1, gen_random_uuid(), 1, 5, %s)",
            [datetime(month.year, month.month, 15, tzinfo=UTC)],
        )


def test_this_month_and_the_next_three_are_there(superuser: Connection) -> None:
    assert add_partitions() == []
    assert {name_of(month) for month in wanted_months()} | {"entry_default"} <= live_partitions(superuser)
    assert months_ahead() == 3


def test_missing_partitions_are_made(superuser: Connection) -> None:
    drop(superuser, later(2), later(3))
    assert months_ahead() == 1

    assert add_partitions() == [name_of(later(2)), name_of(later(3))]

    assert months_ahead() == 3
    assert faulty_guards() == []


@pytest.mark.parametrize(
    ("now", "months"),
    [
        (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), ["2026-12", "2027-01", "2027-02", "2027-03"]),
        (datetime(2027, 1, 1, tzinfo=UTC), ["2027-01", "2027-02", "2027-03", "2027-04"]),
    ],
)
def test_months_turn_in_utc(now: datetime, months: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(clock, "now", lambda: now)
        assert [f"{month:%Y-%m}" for month in wanted_months()] == months


def test_two_callers_at_once_make_one_partition(superuser: Connection) -> None:
    barrier = threading.Barrier(2)

    def work() -> str | None:
        try:
            barrier.wait(10)
            return partitions._add_partition(later(9))
        finally:
            close_connection()

    with ThreadPoolExecutor(2) as pool:
        made = [future.result() for future in [pool.submit(work), pool.submit(work)]]

    assert sorted(made, key=str) == [None, name_of(later(9))]


# --- A partition is as well guarded as the book ----------------------------------------------------------------------

STATEMENTS = {
    "UPDATE": "UPDATE ledger_parts.{part} SET amount = 6",
    "DELETE": "DELETE FROM ledger_parts.{part}",
    "TRUNCATE": "TRUNCATE ledger_parts.{part}",
    "INSERT": "INSERT INTO ledger_parts.{part} (transaction_id, account_id, amount, created_at)"
    " SELECT transaction_id, account_id, amount, created_at FROM ledger_parts.{part}",
}
REFUSALS: dict[str, type[psycopg.Error]] = {
    "app": psycopg.errors.InsufficientPrivilege,
    "owner": psycopg.errors.CheckViolation,
    "superuser": psycopg.errors.CheckViolation,
}


@pytest.mark.corrupts_books
@pytest.mark.parametrize("role", ["app", "owner", "superuser"])
@pytest.mark.parametrize("verb", ["UPDATE", "DELETE", "TRUNCATE", "INSERT"])
def test_a_new_partition_refuses_by_its_own_name_what_the_book_refuses(
    superuser: Connection, connect: Callable[[str], Connection], role: str, verb: str
) -> None:
    name = partitions._add_partition(later(9))
    assert name == name_of(later(9))
    put_entry(superuser, name, later(9))

    with pytest.raises(REFUSALS[role]):
        connect(role).execute(STATEMENTS[verb].format(part=name))

    assert superuser.execute(f"SELECT amount FROM ledger_parts.{name}").fetchall() == [(5,)]
    assert faulty_guards() == []


@pytest.mark.parametrize("role", ["owner", "superuser"])
def test_one_leg_put_straight_into_a_partition_is_refused(
    world: World, connect: Callable[[str], Connection], role: str
) -> None:
    payer = world.person("payer")
    connection = connect(role)
    part = name_of(wanted_months()[0])
    connection.execute(
        "INSERT INTO journal_transaction (idempotency_key, type, created_at) VALUES ('leg', 'DEPOSIT', now())"
    )

    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(
            f"INSERT INTO ledger_parts.{part} (transaction_id, account_id, amount, created_at)"
            " SELECT id, %s, 5, created_at FROM journal_transaction WHERE idempotency_key = 'leg'",
            [payer.account_id],
        )

    assert refused.value.diag.constraint_name == "ledger_entry_balanced"


# --- In the way ------------------------------------------------------------------------------------------------------


def test_locks_that_are_not_had_are_given_up_soon_with_an_alert(
    superuser: Connection, connect: Callable[[str], Connection], alerts: Callable[[], list[str]]
) -> None:
    drop(superuser, later(2), later(3))
    writer = connect("app")
    writer.execute("UPDATE account SET name = name WHERE id = 1")

    with pytest.raises(OperationalError, match="lock timeout"):
        add_partitions()

    assert alerts() == ["partitions of ledger_entry are there for 1 months ahead, not for 3"]
    writer.rollback()
    assert add_partitions() == [name_of(later(2)), name_of(later(3))]


def test_the_task_tries_again_when_locks_are_not_had(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def fail_twice() -> list[str]:
        calls.append(None)
        if len(calls) < 3:
            raise OperationalError("lock timeout")
        return []

    monkeypatch.setattr(partitions, "add_partitions", fail_twice)

    assert tasks.add_partitions.apply().successful()
    assert len(calls) == 3


def test_the_task_gives_up_until_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def fail() -> list[str]:
        calls.append(None)
        raise OperationalError("lock timeout")

    monkeypatch.setattr(partitions, "add_partitions", fail)

    assert isinstance(tasks.add_partitions.apply().result, OperationalError)
    assert len(calls) == 9


@pytest.mark.corrupts_books
def test_entries_in_the_default_partition_are_a_clear_error(
    superuser: Connection, alerts: Callable[[], list[str]]
) -> None:
    drop(superuser, later(1), later(2))
    put_entry(superuser, "entry_default", later(1))

    with pytest.raises(DefaultPartitionHoldsEntries) as refused:
        add_partitions()

    assert refused.value.months == [later(1)]
    assert name_of(later(2)) in live_partitions(superuser), "the other months are made all the same"
    few, why = alerts()
    assert "0 months ahead" in few
    assert f"entries of {later(1):%Y-%m} lie in the default partition" in why
    with pytest.raises(CommandError, match=f"{later(1):%Y-%m}"):
        call_command("add_partitions")


def test_the_command_says_what_it_made(superuser: Connection) -> None:
    out = StringIO()
    drop(superuser, later(3))
    call_command("add_partitions", stdout=out)
    call_command("add_partitions", stdout=out)

    assert out.getvalue().splitlines() == [f"made {name_of(later(3))}", "nothing to do"]


def test_the_owner_moves_entries_out_of_the_default_partition(world: World, superuser: Connection) -> None:
    this = wanted_months()[0]
    drop(superuser, this)
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    posted = world.pay(payer, payee, 300)
    with pytest.raises(DefaultPartitionHoldsEntries):
        add_partitions()
    in_book = "SELECT * FROM ledger_entry ORDER BY id"
    before = superuser.execute(in_book).fetchall()
    environment = {
        **os.environ,
        "DATABASE_URL": database_url("default"),
        "MIGRATION_DATABASE_URL": database_url("owner"),
    }

    command = [sys.executable, "manage.py", "add_partitions", "--move-entries"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert output == f"made {name_of(this)}\n"
    assert superuser.execute(in_book).fetchall() == before
    assert superuser.execute("SELECT count(*) FROM ledger_parts.entry_default").fetchone() == (0,)
    assert (payer.balance, payee.balance) == (700, 300)
    assert add_partitions() == []
    assert faulty_guards() == []
    assert reconcile().status == ReconciliationRun.Status.CLEAN
    world.pay(payee, payer, 50)
    moved = f"SELECT count(*) FROM ledger_parts.{name_of(this)} WHERE created_at > %s"
    assert superuser.execute(moved, [posted.created_at]).fetchone() == (2,)


@pytest.mark.race
def test_no_transfer_fails_while_partitions_are_made(world: World, superuser: Connection) -> None:
    people = [world.person(f"person-{number}", balance=10_000) for number in range(4)]
    stop = threading.Event()

    def keep_paying(offset: int) -> int:
        payments = 0
        try:
            while not stop.is_set():
                world.pay(people[(payments + offset) % 4], people[(payments + offset + 1) % 4], 1)
                payments += 1
            return payments
        finally:
            close_connection()

    months = [later(ahead) for ahead in range(5, 13)]
    with watched(superuser) as deadlocks:
        for _ in range(ROUNDS):
            stop.clear()
            with ThreadPoolExecutor(4) as pool:
                payments = [pool.submit(keep_paying, offset) for offset in range(4)]
                try:
                    for month in months:
                        make_patiently(month)
                finally:
                    stop.set()
                assert all(future.result() > 0 for future in payments)
            assert {name_of(month) for month in months} <= live_partitions(superuser)
            drop(superuser, *months)
        assert deadlocks() == 0


def make_patiently(month: date) -> None:
    """As the task does: locks that are not had in time are tried for again."""
    for _ in range(100):
        with contextlib.suppress(OperationalError):
            assert partitions._add_partition(month) == name_of(month)
            return
    pytest.fail("no lock in a hundred tries")
