"""Reconciliation: is what the book says true? It reads, records and alerts, and never repairs.

Each check reads either everything in one statement, or chunks, each one statement. A statement is one snapshot, and a
transaction and its entries are committed at once: so running transfers raise no false alarm, and no snapshot is held
for long. Transactions and accounts that come in meanwhile are the next run's.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Max, QuerySet
from django.db.models.functions import Now

from accounts.models import Account
from ledger.guards import faulty_guards
from ledger.models import JournalTransaction, ReconciliationFinding, ReconciliationRun
from wallet_project.kernel import clock

logger = logging.getLogger(__name__)

STATEMENT_TIMEOUT = timedelta(minutes=30)
# A live run reports after every statement, and none takes longer than the timeout.
DEAD_AFTER = STATEMENT_TIMEOUT + timedelta(minutes=5)
CHUNK_OF_TRANSACTIONS = 20_000
CHUNK_OF_ACCOUNTS = 5_000
# Of one check. That many tell that the book is broken; to list more helps nobody and would fill the memory.
MOST_FINDINGS = 1_000
# When nightly runs were missed for longer, the oldest are only reported: each run checks the whole book anyway.
MOST_MISSED_DATES = 31

Status = ReconciliationRun.Status
Check = ReconciliationFinding.Check
Findings = Iterator[ReconciliationFinding]

BOOK_SUMS = """
    SELECT a.currency, sum(e.total)
      FROM (SELECT account_id, sum(amount) AS total FROM ledger_entry GROUP BY account_id) e
      JOIN account a ON a.id = e.account_id
     GROUP BY a.currency HAVING sum(e.total) <> 0
     ORDER BY a.currency
"""

# LATERAL keeps the plan: a look-up per row, whatever the planner thinks of the table's size. The chunk's extent stands
# in each row, and in one without a fault where there is none.
TRANSACTIONS = """
    WITH chunk AS MATERIALIZED (
        SELECT id, created_at FROM journal_transaction WHERE id > %s AND id <= %s ORDER BY id LIMIT %s
    )
    SELECT extent.*, fault.*
      FROM (SELECT count(*), (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) FROM chunk) AS extent
      LEFT JOIN (
          SELECT c.id, s.currency, s.total
            FROM chunk c CROSS JOIN LATERAL (
                SELECT a.currency, sum(e.amount) AS total
                  FROM ledger_entry e JOIN account a ON a.id = e.account_id
                 WHERE e.transaction_id = c.id AND e.created_at = c.created_at
                 GROUP BY a.currency HAVING sum(e.amount) <> 0) s
      ) AS fault ON true
"""

# `first_lie` is the first entry whose balance_after is not the sum up to it: its id, that sum, and what it says.
ACCOUNTS = """
    WITH chunk AS MATERIALIZED (
        SELECT id, currency, balance FROM account WHERE id > %s AND id <= %s ORDER BY id LIMIT %s
    )
    SELECT extent.*, fault.*
      FROM (SELECT count(*), (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) FROM chunk) AS extent
      LEFT JOIN (
          SELECT c.id, c.currency, c.balance, s.total, s.first_lie
            FROM chunk c CROSS JOIN LATERAL (
                SELECT coalesce(sum(amount), 0) AS total,
                       min(ARRAY[id, total_so_far, balance_after])
                           FILTER (WHERE balance_after <> total_so_far) AS first_lie
                  FROM (SELECT id, amount, balance_after,
                               sum(amount) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS total_so_far
                          FROM ledger_entry WHERE account_id = c.id) AS history) s
           WHERE c.balance <> s.total OR s.first_lie IS NOT NULL
      ) AS fault ON true
"""

# In one statement, and so in one snapshot: what is on hold, and what the accounts have that it should be in.
HELD_MONEY = """
    SELECT a.id, a.currency, coalesce(h.total, 0), a.balance
      FROM account a
      LEFT JOIN (SELECT hold_account_id, sum(amount - spent - released) AS total FROM held_money
                  WHERE amount > spent + released GROUP BY hold_account_id) AS h ON h.hold_account_id = a.id
     WHERE a.kind = 'HOLD' AND a.balance <> coalesce(h.total, 0)
     ORDER BY a.id
"""

# One winner, whoever comes at the same moment: the row is new, or failed, or its worker is dead.
CLAIM = """
    INSERT INTO reconciliation_run AS run (business_date) VALUES (%s)
    ON CONFLICT (business_date) DO UPDATE
       SET status = 'RUNNING', attempt = run.attempt + 1, started_at = now(), progress_at = now(), finished_at = NULL,
           transactions_checked = 0, accounts_checked = 0
     WHERE run.status = 'FAILED' OR (run.status = 'RUNNING' AND run.progress_at < now() - make_interval(secs => %s))
    RETURNING id
"""


class TakenOver(Exception):
    """The run was taken for dead, and another worker goes on with it; what this one found does not count."""


def reconcile() -> ReconciliationRun:
    """Check the whole book now. Returns the finished run; its findings are stored and logged as alerts.

    Raises:
        DatabaseError: the check could not be carried out; the run is marked FAILED.
    """
    run = _claim(None)
    assert run is not None  # noqa: S101  Without a business date there is no conflict.
    return _conduct(run)


def reconcile_business_dates() -> list[ReconciliationRun]:
    """Run what is due: yesterday's business date, and earlier ones that were missed, failed or whose worker died.

    However many workers call this at once, each date is run by one of them. Returns the runs that this call made.

    Raises:
        DatabaseError: as `reconcile`; the next call tries again.
        TakenOver: this worker was taken for dead.
    """
    _bury_runs_by_hand()
    runs = []
    for day in _due_dates():
        run = _claim(day)
        if run is not None:
            runs.append(_conduct(run))
    return runs


def _bury_runs_by_hand() -> None:
    """Nobody takes over a run without a business date; its row shall not say RUNNING for ever."""
    dead = ReconciliationRun.objects.filter(
        business_date=None, status=Status.RUNNING, progress_at__lt=Now() - DEAD_AFTER
    )
    dead.update(status=Status.FAILED, finished_at=Now())


def _due_dates() -> list[date]:
    yesterday = clock.business_date() - timedelta(days=1)
    last = ReconciliationRun.objects.aggregate(last=Max("business_date"))["last"] or yesterday - timedelta(days=1)
    missing = [last + timedelta(days=days) for days in range(1, (yesterday - last).days + 1)]
    if len(missing) > 1:
        logger.critical("reconciliation was missed for the business dates %s to %s", missing[0], missing[-1])
    unfinished = ReconciliationRun.objects.filter(status__in=[Status.FAILED, Status.RUNNING])
    again = [run.business_date for run in unfinished if run.business_date]
    return sorted({*again, *missing[-MOST_MISSED_DATES:]})


def _claim(business_date: date | None) -> ReconciliationRun | None:
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, [business_date, DEAD_AFTER.total_seconds()])
        row = cursor.fetchone()
    return None if row is None else ReconciliationRun.objects.get(pk=row[0])


def _conduct(run: ReconciliationRun) -> ReconciliationRun:
    if run.attempt > 1:
        logger.error("reconciliation of %s failed or died before; this is attempt %d", run.business_date, run.attempt)
    try:
        _finish(run, list(_findings(run)))
    finally:
        # Whatever the reason, an interrupt included: what is not finished by now has failed.
        _mine(run).update(status=Status.FAILED, finished_at=Now())
    run.refresh_from_db()
    return run


def _findings(run: ReconciliationRun) -> Findings:
    for check in (_check_guards, _check_book, _check_held_money, _check_transactions, _check_accounts):
        for finding in islice(check(run), MOST_FINDINGS):
            logger.critical("reconciliation %d: %s", run.pk, finding)
            yield finding


def _finish(run: ReconciliationRun, findings: list[ReconciliationFinding]) -> None:
    with transaction.atomic(durable=True):
        status = Status.FINDINGS if findings else Status.CLEAN
        if not _mine(run).update(status=status, finished_at=Now()):
            raise TakenOver
        ReconciliationFinding.objects.bulk_create(findings)


def _report_progress(run: ReconciliationRun) -> None:
    progress = {"transactions_checked": run.transactions_checked, "accounts_checked": run.accounts_checked}
    if not _mine(run).update(progress_at=Now(), **progress):
        raise TakenOver


def _mine(run: ReconciliationRun) -> QuerySet[ReconciliationRun]:
    return ReconciliationRun.objects.filter(pk=run.pk, attempt=run.attempt, status=Status.RUNNING)


# --- The checks ----------------------------------------------------------------------------------------------------


def _check_guards(run: ReconciliationRun) -> Findings:
    for fault in faulty_guards():
        yield ReconciliationFinding(run=run, check_name=Check.GUARD, detail=fault[:200])


def _check_book(run: ReconciliationRun) -> Findings:
    """All entries at once: sums of chunks from different moments would not add up to zero."""
    for currency, total in _read(BOOK_SUMS):
        yield ReconciliationFinding(
            run=run, check_name=Check.BOOK_SUM, currency=currency, expected=0, actual=_bigint(total)
        )
    _report_progress(run)


def _check_held_money(run: ReconciliationRun) -> Findings:
    for account_id, currency, expected, actual in _read(HELD_MONEY):
        yield ReconciliationFinding(
            run=run,
            check_name=Check.HELD_MONEY,
            account_id=account_id,
            currency=currency,
            expected=_bigint(expected),
            actual=actual,
        )
    _report_progress(run)


def _check_transactions(run: ReconciliationRun) -> Findings:
    def count(size: int) -> None:
        run.transactions_checked += size

    last = JournalTransaction.objects.order_by("pk").values_list("pk", flat=True).last()
    faults = _walk(run, TRANSACTIONS, first=UUID(int=0), last=last, size=CHUNK_OF_TRANSACTIONS, count=count)
    for transaction_id, currency, total in faults:
        yield ReconciliationFinding(
            run=run,
            check_name=Check.TRANSACTION_SUM,
            transaction_id=transaction_id,
            currency=currency,
            expected=0,
            actual=_bigint(total),
        )


def _check_accounts(run: ReconciliationRun) -> Findings:
    def count(size: int) -> None:
        run.accounts_checked += size

    last = Account.objects.order_by("pk").values_list("pk", flat=True).last()
    faults = _walk(run, ACCOUNTS, first=0, last=last, size=CHUNK_OF_ACCOUNTS, count=count)
    for account_id, currency, balance, total, first_lie in faults:
        where = {"run": run, "account_id": account_id, "currency": currency}
        if balance != total:
            yield ReconciliationFinding(
                **where, check_name=Check.ACCOUNT_BALANCE, expected=_bigint(total), actual=balance
            )
        if first_lie is not None:
            entry_id, total_so_far, balance_after = first_lie
            yield ReconciliationFinding(
                **where,
                check_name=Check.BALANCE_AFTER,
                expected=_bigint(total_so_far),
                actual=_bigint(balance_after),
                detail=f"entry {entry_id}",
            )


def _walk(
    run: ReconciliationRun, query: str, *, first: Any, last: Any, size: int, count: Callable[[int], None]
) -> Iterator[tuple[Any, ...]]:
    """The faults that a chunked query finds, in primary-key order, up to the last row that was there at the beginning.

    Without that end a run could follow the new ones for ever.
    """
    after = first
    while True:
        rows = _read(query, [after, last, size])
        read, after = rows[0][:2]
        count(read)
        _report_progress(run)
        yield from (row[2:] for row in rows if row[2] is not None)
        if read < size:
            return


def _read(query: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with _patience() as cursor:
        cursor.execute(query, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


@contextmanager
def _patience() -> Iterator[CursorWrapper]:
    """A transaction for one long statement: the role's own timeouts are made for transfers."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('work_mem', '128MB', true),"
            " set_config('jit', 'off', true)",
            [f"{STATEMENT_TIMEOUT.total_seconds():.0f}s"],
        )
        yield cursor


def _bigint(total: Decimal) -> int:
    """A sum as its column takes it; in a broken book it may be larger than any bigint."""
    return max(-(2**63), min(int(total), 2**63 - 1))
