"""The reconciliation finds what is wrong, finds nothing where nothing is, and repairs nothing."""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models import Sum

from accounts.models import Account
from ledger import reconciliation
from ledger.models import JournalTransaction, LedgerEntry, ReconciliationFinding, ReconciliationRun
from ledger.reconciliation import reconcile
from tests.conftest import wait_until
from tests.ledger.damage import damage
from tests.world import Person, World, close_connection
from wallet_project.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)

Superuser = psycopg.Connection[Any]
Check = ReconciliationFinding.Check
Status = ReconciliationRun.Status
YESTERDAY = clock.business_date() - timedelta(days=1)
ROUNDS = 50 if os.environ.get("WALLET_SOAK") else 10


@pytest.fixture
def payer(world: World) -> Person:
    return world.person("payer", balance=1_000)


@pytest.fixture
def payee(world: World) -> Person:
    return world.person("payee")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every test walks over several."""
    monkeypatch.setattr(reconciliation, "CHUNK_OF_TRANSACTIONS", 2)
    monkeypatch.setattr(reconciliation, "CHUNK_OF_ACCOUNTS", 7)


@pytest.fixture
def alerts(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def found(run: ReconciliationRun) -> set[tuple[Any, ...]]:
    return set(run.findings.values_list("check_name", "account", "transaction", "currency", "expected", "actual"))


def test_a_whole_book_is_clean(world: World, payer: Person, payee: Person) -> None:
    for _ in range(5):
        world.pay(payer, payee, 10)

    run = reconcile()

    assert (run.status, run.business_date, found(run)) == (Status.CLEAN, None, set())
    assert run.transactions_checked == JournalTransaction.objects.count() == 6
    assert run.accounts_checked == Account.objects.count()
    assert run.finished_at is not None


@pytest.mark.parametrize("accounts", [6, 7, 8])
def test_no_row_falls_between_two_chunks(world: World, accounts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "CHUNK_OF_ACCOUNTS", Account.objects.count() + 7)
    for number in range(accounts):
        world.person(f"person-{number}", balance=1)

    run = reconcile()

    assert (run.transactions_checked, run.accounts_checked) == (accounts, Account.objects.count())


@pytest.mark.corrupts_books
def test_a_balance_off_by_one_is_found_and_left_alone(
    superuser: Superuser, payer: Person, alerts: Callable[[], list[str]]
) -> None:
    damage(superuser, "UPDATE account SET balance = balance + 1 WHERE id = %s", payer.account_id)

    run = reconcile()

    assert run.status == Status.FINDINGS
    assert found(run) == {(Check.ACCOUNT_BALANCE, payer.account_id, None, "VND", 1_000, 1_001)}
    assert payer.balance == 1_001
    [alert] = alerts()
    assert f"account {payer.account_id}" in alert
    assert "expected 1000, actual 1001 VND" in alert
    assert found(reconcile()) == found(run)


@pytest.mark.corrupts_books
def test_a_deleted_leg_is_found_from_every_side(
    superuser: Superuser, world: World, payer: Person, payee: Person
) -> None:
    posted = world.pay(payer, payee, 300)
    world.pay(payer, payee, 50)
    damage(
        superuser,
        "DELETE FROM ledger_entry WHERE transaction_id = %s AND account_id = %s",
        *(posted.transaction_id, payer.account_id),
    )

    assert found(reconcile()) == {
        (Check.TRANSACTION_SUM, None, posted.transaction_id, "VND", 0, 300),
        (Check.BOOK_SUM, None, None, "VND", 0, 300),
        (Check.ACCOUNT_BALANCE, payer.account_id, None, "VND", 950, 650),
        (Check.BALANCE_AFTER, payer.account_id, None, "VND", 950, 650),
    }


@pytest.mark.corrupts_books
def test_a_transaction_that_vanished_whole_is_missed_by_its_accounts(
    superuser: Superuser, world: World, payer: Person, payee: Person
) -> None:
    posted = world.pay(payer, payee, 300)
    damage(superuser, "DELETE FROM ledger_entry WHERE transaction_id = %s", posted.transaction_id)

    assert found(reconcile()) == {
        (Check.ACCOUNT_BALANCE, payer.account_id, None, "VND", 1_000, 700),
        (Check.ACCOUNT_BALANCE, payee.account_id, None, "VND", 0, 300),
    }


@pytest.mark.corrupts_books
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_lying_balance_after_is_found_wherever_it_stands(
    superuser: Superuser, world: World, payer: Person, payee: Person, position: int
) -> None:
    for _ in range(2):
        world.pay(payer, payee, 100)
    entry = LedgerEntry.objects.filter(account_id=payer.account_id).order_by("pk")[position]
    damage(superuser, "UPDATE ledger_entry SET balance_after = balance_after - 5 WHERE id = %s", entry.pk)

    run = reconcile()

    truth = entry.balance_after
    assert found(run) == {(Check.BALANCE_AFTER, payer.account_id, None, "VND", truth, truth - 5)}
    assert run.findings.get().detail == f"entry {entry.pk}"


@pytest.mark.corrupts_books
def test_sums_larger_than_any_column_are_findings_and_no_crash(superuser: Superuser, payer: Person) -> None:
    largest = 2**63 - 1
    damage(superuser, "UPDATE ledger_entry SET amount = %s, balance_after = %s", largest, -largest)

    findings = found(reconcile())

    assert (Check.BOOK_SUM, None, None, "VND", 0, largest) in findings
    assert (Check.ACCOUNT_BALANCE, payer.account_id, None, "VND", largest, 1_000) in findings


@pytest.mark.corrupts_books
def test_findings_are_bounded_per_check(
    superuser: Superuser, world: World, payer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "MOST_FINDINGS", 3)
    for number in range(5):
        world.person(f"person-{number}", balance=10)
    damage(superuser, "UPDATE account SET balance = balance + 1 WHERE kind = 'WALLET'")

    run = reconcile()

    assert run.status == Status.FINDINGS
    assert run.findings.filter(check_name=Check.ACCOUNT_BALANCE).count() == 3


def test_the_long_timeout_is_gone_with_its_statement(payer: Person) -> None:
    reconcile()

    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), current_setting('jit')")
        assert cursor.fetchone() == ("10s", "on")


@pytest.mark.race
def test_no_false_alarm_while_money_moves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "CHUNK_OF_TRANSACTIONS", 100)
    people = [world.person(f"person-{number}", balance=10_000) for number in range(6)]
    stop = threading.Event()

    def keep_paying(offset: int) -> int:
        payments = 0
        try:
            while not stop.is_set():
                payer, payee = people[(payments + offset) % 6], people[(payments * 5 + offset + 1) % 6]
                if payer is not payee:
                    world.pay(payer, payee, 1)
                payments += 1
            return payments
        finally:
            close_connection()

    with ThreadPoolExecutor(3) as pool:
        payments = [pool.submit(keep_paying, offset) for offset in range(3)]
        try:
            wait_until(raises_a_false_alarm, seconds=30)  # The control: there is something to be wrong about.
            statuses = [reconcile().status for _ in range(ROUNDS)]
        finally:
            stop.set()
        assert all(future.result() > 0 for future in payments)
    assert set(statuses) == {Status.CLEAN}


def raises_a_false_alarm() -> bool:
    """A check that reads balances and entries in two statements, so at two moments."""
    balance_of = dict(Account.objects.values_list("pk", "balance"))
    entries = LedgerEntry.objects.values_list("account_id").annotate(total=Sum("amount"))
    return any(balance_of[account_id] != total for account_id, total in entries)
