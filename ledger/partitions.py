"""Upkeep of the entries' monthly partitions: this month's and the next three are there before they are needed.

What makes one is the SQL function `ledger_add_partition`, which belongs to the owner of the tables; the application may
only call it. It stops postings for the moment that it waits for its locks, so it waits for 100 ms and no longer.
"""

import logging
from datetime import date, timedelta

from django.db import IntegrityError, connection, connections, transaction
from psycopg import sql

from wallet_project.kernel import clock
from wallet_project.kernel.db import sqlstate

logger = logging.getLogger(__name__)

MONTHS_AHEAD = 3
ALERT_BELOW = 2  # months ahead
# What making a partition may violate is one thing: that its rows are not in the default partition.
CHECK_VIOLATION = "23514"

# The locks in the order in which postings take them. A detached table has lost the guards of its rows, so that those
# moved can be deleted; it gets them back when it is attached. PostgreSQL 16 attaches no table with the guards of
# statements, so these go as well, and come back by the function that guards every partition.
MOVE_MONTH = """
    LOCK TABLE journal_transaction, account IN SHARE ROW EXCLUSIVE MODE;
    LOCK TABLE ledger_entry IN ACCESS EXCLUSIVE MODE;
    ALTER TABLE ledger_entry DETACH PARTITION ledger_parts.entry_default;
    DROP TRIGGER ledger_entry_balanced ON ledger_parts.entry_default;
    DROP TRIGGER ledger_entry_is_not_truncated ON ledger_parts.entry_default;
    CREATE TABLE {part} (LIKE ledger_entry INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
    INSERT INTO {part} SELECT * FROM ledger_parts.entry_default WHERE created_at >= {first} AND created_at < {past};
    DELETE FROM ledger_parts.entry_default WHERE created_at >= {first} AND created_at < {past};
    ALTER TABLE ledger_entry ATTACH PARTITION {part} FOR VALUES FROM ({first}) TO ({past});
    ALTER TABLE ledger_entry ATTACH PARTITION ledger_parts.entry_default DEFAULT;
    SELECT ledger_guard_partition({name}::regclass), ledger_guard_partition('ledger_parts.entry_default'::regclass);
"""


class DefaultPartitionHoldsEntries(Exception):
    """Entries of these months lie in the default partition, so that no partition of theirs can be made.

    Trying again is no help: the owner moves the entries (`move_entries`). Until then the default takes them all.
    """

    def __init__(self, months: list[date]) -> None:
        self.months = months
        names = ", ".join(f"{month:%Y-%m}" for month in months)
        super().__init__(
            f"entries of {names} lie in the default partition: run `manage.py add_partitions --move-entries`"
        )


def add_partitions() -> list[str]:
    """Make the partitions that are missing, each in a transaction of its own. Returns their names.

    Raises:
        OperationalError: the locks were not had in time; try again a moment later.
        DefaultPartitionHoldsEntries: of some months; all others are made. Logged as an alert.
    """
    made = []
    blocked = []
    try:
        for month in wanted_months():
            try:
                name = _add_partition(month)
            except IntegrityError as error:
                if sqlstate(error) != CHECK_VIOLATION:
                    raise
                blocked.append(month)
            else:
                made += [name] if name else []
    finally:
        _alert_when_few_are_ahead()
    if blocked:
        obstacle = DefaultPartitionHoldsEntries(blocked)
        logger.critical("cannot make partitions: %s", obstacle)
        raise obstacle
    return made


def wanted_months() -> list[date]:
    """The first days of this month and the next ones. Partitions are cut in UTC."""
    today = clock.now().date()
    months = (today.year * 12 + today.month - 1 + ahead for ahead in range(MONTHS_AHEAD + 1))
    return [date(month // 12, month % 12 + 1, 1) for month in months]


def months_ahead() -> int:
    """For how many months after this one, without a gap, partitions are there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
            " WHERE inhparent = 'ledger_entry'::regclass"
        )
        existing = {name for (name,) in cursor.fetchall()}
    ahead = 0
    for month in wanted_months()[1:]:
        if f"entry_{month:%Y_%m}" not in existing:
            break
        ahead += 1
    return ahead


def move_entries() -> list[str]:
    """Give the entries in the default partition partitions of their own, as the owner of the tables. Returns the names.

    A month is one transaction, in which nothing is posted. A table is filled first and made a part of the book then:
    put into a partition, the entries would be posted a second time.

    Raises:
        OperationalError: the locks were not had in time; nothing was changed.
    """
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT date_trunc('month', created_at AT TIME ZONE 'UTC') FROM ledger_parts.entry_default"
        )
        months = sorted(month.date() for (month,) in cursor.fetchall())
    return [_move_month(month) for month in months]


def _move_month(first: date) -> str:
    past = (first + timedelta(days=31)).replace(day=1)
    name = f"entry_{first:%Y_%m}"
    names = {"part": sql.Identifier("ledger_parts", name), "name": sql.Literal(f"ledger_parts.{name}")}
    bounds = {"first": sql.Literal(f"{first} 00:00+00"), "past": sql.Literal(f"{past} 00:00+00")}
    with transaction.atomic(using="owner", durable=True), connections["owner"].cursor() as cursor:
        cursor.execute(sql.SQL(MOVE_MONTH).format(**names, **bounds).as_string())
    return name


def _add_partition(month: date) -> str | None:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT ledger_add_partition(%s)", [month])
        (name,) = cursor.fetchone()
    return name if name is None else str(name)


def _alert_when_few_are_ahead() -> None:
    ahead = months_ahead()
    if ahead < ALERT_BELOW:
        logger.critical("partitions of ledger_entry are there for %d months ahead, not for %d", ahead, MONTHS_AHEAD)
