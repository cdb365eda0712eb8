"""Runs of the reconciliation: once per business date, whoever dies meanwhile; kept for good; and by hand."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest
from celery import current_app
from django.conf import settings
from django.db import OperationalError
from django.db.models import F

from accounts.models import Account
from ledger import reconciliation, tasks
from ledger.models import ReconciliationFinding, ReconciliationRun
from ledger.reconciliation import TakenOver, reconcile, reconcile_business_dates
from tests.conftest import database_url
from tests.ledger.damage import damage
from tests.world import Person, World, close_connection
from wallet_project.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)

Superuser = psycopg.Connection[Any]
Check = ReconciliationFinding.Check
Status = ReconciliationRun.Status
TODAY = date(2026, 3, 1)
YESTERDAY = TODAY - timedelta(days=1)
ROUNDS = 200 if os.environ.get("WALLET_SOAK") else 10


@pytest.fixture
def payer(world: World) -> Person:
    return world.person("payer", balance=1_000)


@pytest.fixture(autouse=True)
def one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """No midnight comes between two lines of a test."""
    monkeypatch.setattr(clock, "business_date", lambda: TODAY)


@pytest.fixture
def alerts(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def test_the_nightly_run_is_yesterdays_and_is_done_once(payer: Person) -> None:
    [run] = reconcile_business_dates()

    assert (run.business_date, run.status) == (YESTERDAY, Status.CLEAN)
    assert reconcile_business_dates() == []


@pytest.mark.race
def test_however_many_workers_begin_at_once_there_is_one_run_per_business_date(
    payer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = 4
    for round_ in range(ROUNDS):
        day = YESTERDAY + timedelta(days=round_)
        monkeypatch.setattr(clock, "business_date", lambda day=day: day + timedelta(days=1))
        barrier = threading.Barrier(workers)

        def work(barrier: threading.Barrier = barrier) -> list[ReconciliationRun]:
            try:
                barrier.wait(10)
                return reconcile_business_dates()
            finally:
                close_connection()

        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(work) for _ in range(workers)]
            runs = [run for future in futures for run in future.result()]
        assert [(run.business_date, run.attempt) for run in runs] == [(day, 1)]
    assert ReconciliationRun.objects.count() == ROUNDS


@pytest.mark.parametrize(
    ("silent_for", "attempts"), [(reconciliation.DEAD_AFTER + timedelta(minutes=1), [2]), (timedelta(minutes=1), [])]
)
def test_a_run_whose_worker_died_is_taken_over_and_a_live_one_is_not(
    payer: Person, silent_for: timedelta, attempts: list[int]
) -> None:
    left = ReconciliationRun.objects.create(
        business_date=YESTERDAY, progress_at=clock.now() - silent_for, transactions_checked=17
    )

    runs = reconcile_business_dates()

    assert [run.attempt for run in runs] == attempts
    left.refresh_from_db()
    assert left.status == (Status.CLEAN if attempts else Status.RUNNING)
    assert left.transactions_checked == (1 if attempts else 17)


def test_a_run_by_hand_that_died_does_not_say_running_for_ever(payer: Person) -> None:
    left = ReconciliationRun.objects.create(progress_at=clock.now() - timedelta(days=1))

    reconcile_business_dates()

    left.refresh_from_db()
    assert left.status == Status.FAILED


def test_a_failed_run_is_tried_again_at_the_next_tick(payer: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: ReconciliationRun) -> Any:
        raise OperationalError("the database is away")

    with monkeypatch.context() as broken:
        broken.setattr(reconciliation, "_check_accounts", fail)
        with pytest.raises(OperationalError):
            reconcile_business_dates()
    assert ReconciliationRun.objects.get().status == Status.FAILED

    [run] = reconcile_business_dates()

    assert (run.business_date, run.attempt, run.status) == (YESTERDAY, 2, Status.CLEAN)


@pytest.mark.corrupts_books
def test_a_worker_that_was_taken_for_dead_leaves_nothing(
    superuser: Superuser, payer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_taken_over(run: ReconciliationRun) -> Any:
        ReconciliationRun.objects.filter(pk=run.pk).update(attempt=F("attempt") + 1)
        return iter([ReconciliationFinding(run=run, check_name=Check.GUARD, detail="what the dead one saw")])

    monkeypatch.setattr(reconciliation, "_check_guards", be_taken_over)

    with pytest.raises(TakenOver):
        reconcile_business_dates()

    run = ReconciliationRun.objects.get()
    assert (run.status, run.attempt, run.findings.count()) == (Status.RUNNING, 2, 0)


def test_missed_business_dates_are_run_once_each_with_an_alert(payer: Person, alerts: Callable[[], list[str]]) -> None:
    ReconciliationRun.objects.create(
        business_date=YESTERDAY - timedelta(days=8), status=Status.CLEAN, finished_at=clock.now()
    )

    runs = reconcile_business_dates()

    assert [run.business_date for run in runs] == [YESTERDAY - timedelta(days=days) for days in range(7, -1, -1)]
    [alert] = alerts()
    assert str(YESTERDAY - timedelta(days=7)) in alert
    assert reconcile_business_dates() == []


def test_after_months_without_runs_the_last_dates_are_run_and_the_others_reported(
    payer: Person, alerts: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "MOST_MISSED_DATES", 2)
    last = YESTERDAY - timedelta(days=90)
    ReconciliationRun.objects.create(business_date=last, status=Status.CLEAN, finished_at=clock.now())

    runs = reconcile_business_dates()

    assert [run.business_date for run in runs] == [YESTERDAY - timedelta(days=1), YESTERDAY]
    assert str(last + timedelta(days=1)) in alerts()[0]


def test_a_day_that_comes_twice_is_no_missed_day(payer: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    reconcile_business_dates()

    monkeypatch.setattr(clock, "business_date", lambda: date(2000, 1, 1))

    assert reconcile_business_dates() == []


def test_beat_knows_the_tasks() -> None:
    current_app.loader.import_default_modules()

    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    mine = {tasks.add_partitions.name, tasks.reconcile_business_date.name}

    assert mine <= scheduled
    assert mine <= set(current_app.tasks)


def test_the_task_runs_what_is_due(payer: Person) -> None:
    tasks.reconcile_business_date.apply().get()

    assert ReconciliationRun.objects.get().business_date == YESTERDAY


# --- History ---------------------------------------------------------------------------------------------------------


@pytest.mark.corrupts_books
@pytest.mark.parametrize("role", ["app", "owner", "superuser"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE reconciliation_run SET status = 'CLEAN'",
        "DELETE FROM reconciliation_run",
        "TRUNCATE reconciliation_run CASCADE",
        "UPDATE reconciliation_finding SET actual = expected",
        "DELETE FROM reconciliation_finding",
        "TRUNCATE reconciliation_finding",
    ],
)
def test_runs_and_findings_are_not_rewritten(
    superuser: Superuser,
    connect: Callable[[str], psycopg.Connection[Any]],
    payer: Person,
    role: str,
    statement: str,
) -> None:
    damage(superuser, "UPDATE account SET balance = balance + 1 WHERE id = %s", payer.account_id)
    run = reconcile()

    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InsufficientPrivilege)):
        connect(role).execute(statement)

    run.refresh_from_db()
    assert (run.status, run.findings.count()) == (Status.FINDINGS, 1)


# --- The command -----------------------------------------------------------------------------------------------------


def manage(*arguments: str, url: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "DATABASE_URL": url or database_url("default")}
    environment.pop("MIGRATION_DATABASE_URL", None)
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_exits_with_0_when_clean(payer: Person) -> None:
    ended = manage("reconcile")

    assert ended.returncode == 0
    accounts = Account.objects.count()
    assert f"CLEAN. 1 transactions and {accounts} accounts checked" in ended.stdout


@pytest.mark.corrupts_books
def test_the_command_exits_with_1_on_findings(superuser: Superuser, payer: Person) -> None:
    damage(superuser, "UPDATE account SET balance = balance - 1 WHERE id = %s", payer.account_id)

    ended = manage("reconcile")

    assert ended.returncode == 1
    assert (
        f"ACCOUNT_BALANCE: Balance is not the sum of the account's entries; account {payer.account_id}" in ended.stdout
    )
    assert "expected 1000, actual 999 VND" in ended.stdout


def test_the_command_exits_with_2_when_it_could_not_look(payer: Person) -> None:
    ended = manage("reconcile", url="postgresql://wallet_app:no@127.0.0.1:1/wallet")

    assert ended.returncode == 2
    assert "could not be carried out" in ended.stderr
