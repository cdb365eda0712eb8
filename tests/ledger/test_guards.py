"""Whatever is done to a guard of the book is noticed: the live catalog is compared, per partition."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from ledger import guards
from ledger.guards import TRIGGERS, faulty_guards
from ledger.models import ReconciliationFinding
from ledger.reconciliation import reconcile

pytestmark = pytest.mark.django_db(transaction=True)

Connection = psycopg.Connection[Any]


@pytest.fixture
def undone(connect: Callable[[str], Connection], monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A superuser's transaction that is rolled back, and in which the guards are looked at."""
    connection = connect("superuser")

    def rows(query: Any, parameters: Any = None) -> list[tuple[Any, ...]]:
        return connection.execute(query, parameters).fetchall()

    monkeypatch.setattr(guards, "_rows", rows)
    yield connection
    connection.rollback()


def test_all_guards_stand_as_the_application_sees_them() -> None:
    assert faulty_guards() == []


def test_every_table_with_triggers_is_on_the_page(superuser: Connection) -> None:
    tables = superuser.execute(
        "SELECT DISTINCT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE NOT tgisinternal AND relnamespace = 'public'::regnamespace"
    ).fetchall()

    assert {name for (name,) in tables} == set(TRIGGERS)


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "ALTER TABLE account DISABLE TRIGGER account_is_kept",
            "account: trigger account_is_kept is switched off (mode D)",
        ),
        (
            "ALTER TABLE account ENABLE REPLICA TRIGGER account_balance_by_entry",
            "account: trigger account_balance_by_entry is switched off (mode R)",
        ),
        ("DROP TRIGGER account_opens_empty ON account", "account: trigger account_opens_empty is missing"),
        (
            "DROP TRIGGER account_is_kept ON account; CREATE TRIGGER account_is_kept BEFORE DELETE ON account"
            " FOR EACH ROW WHEN (OLD.balance <> 0) EXECUTE FUNCTION refuse_change('account_is_kept')",
            "account: trigger account_is_kept is not as it should be",
        ),
        (
            "CREATE TRIGGER helpful BEFORE INSERT ON ledger_entry FOR EACH ROW"
            " EXECUTE FUNCTION refuse_change('helpful')",
            "entry_default: trigger helpful is unknown",
        ),
        (
            "DROP TRIGGER ledger_entry_balanced ON ledger_parts.entry_default",
            "entry_default: trigger ledger_entry_balanced is missing",
        ),
        (
            "ALTER TABLE ledger_parts.entry_default DISABLE TRIGGER ledger_entry_posts",
            "entry_default: trigger ledger_entry_posts is switched off (mode D)",
        ),
        (
            "ALTER TABLE ledger_entry DETACH PARTITION ledger_parts.entry_default",
            "ledger_parts.entry_default is not a part of the book",
        ),
        (
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RETURN coalesce(NEW, OLD); END $$",
            "function refuse_change is not as any migration made it",
        ),
        (
            "CREATE FUNCTION give() RETURNS void LANGUAGE sql SECURITY DEFINER"
            " AS 'UPDATE account SET balance = balance + 1'",
            "function give is not as any migration made it",
        ),
        (
            "ALTER TABLE account DROP CONSTRAINT account_balance_not_negative",
            "account: constraint account_balance_not_negative is missing or not validated",
        ),
        (
            "ALTER TABLE journal_transaction DROP CONSTRAINT journal_key_unique",
            "journal_transaction: constraint journal_key_unique is missing or not validated",
        ),
        ("ALTER TABLE account_thaw RENAME TO thaw", "account_thaw: the table is missing"),
    ],
)
def test_what_is_done_to_a_guard_is_noticed(undone: Connection, statement: str, fault: str) -> None:
    undone.execute(statement)

    assert fault in faulty_guards()


def test_a_trigger_dropped_from_the_book_is_missed_on_each_partition(undone: Connection) -> None:
    partitions = undone.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'ledger_entry'::regclass"
    ).fetchall()
    undone.execute("DROP TRIGGER ledger_entry_is_kept ON ledger_entry")

    tables = ["ledger_entry", *(name for (name,) in partitions)]
    assert set(faulty_guards()) == {f"{table}: trigger ledger_entry_is_kept is missing" for table in tables}
    assert len(partitions) >= 5


def test_switched_off_foreign_keys_are_noticed(undone: Connection) -> None:
    undone.execute("ALTER TABLE ledger_parts.entry_default DISABLE TRIGGER ALL")

    off = [fault for fault in faulty_guards() if "entry_default: trigger RI_ConstraintTrigger" in fault]
    assert len(off) == 4  # two for each of its keys


def test_the_reconciliation_raises_the_alarm(superuser: Connection, caplog: pytest.LogCaptureFixture) -> None:
    superuser.execute("ALTER TABLE journal_transaction DISABLE TRIGGER journal_is_kept")
    try:
        run = reconcile()
    finally:
        superuser.execute("ALTER TABLE journal_transaction ENABLE TRIGGER journal_is_kept")

    finding = run.findings.get()
    assert finding.check_name == ReconciliationFinding.Check.GUARD
    assert finding.detail == "journal_transaction: trigger journal_is_kept is switched off (mode D)"
    [alert] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert finding.detail in alert
