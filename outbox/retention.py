"""What is kept for a time only: published events, and what consumers remember of messages. Purged in small batches."""

import time
from datetime import datetime
from typing import Any

from django.db import connection, transaction

_BATCH = 5_000

# Rows go in the order in which they came, so the walk along the primary key ends at the first batch that is all young;
# rows that must stay are passed by.
_NEXT_EVENTS = """
    SELECT max(id), min(created_at) FROM
           (SELECT id, created_at FROM outbox_event WHERE id > %s ORDER BY id LIMIT %s) AS batch
"""
_PURGE_EVENTS = """
    DELETE FROM outbox_event WHERE id > %s AND id <= %s AND published AND published_at < %s
"""
_NEXT_MESSAGES = """
    SELECT max(id), min(received_at) FROM
           (SELECT id, received_at FROM inbox_message WHERE id > %s ORDER BY id LIMIT %s) AS batch
"""
_PURGE_MESSAGES = "DELETE FROM inbox_message WHERE id > %s AND id <= %s AND received_at < %s"


def purge_published(*, before: datetime, seconds: float, batch: int = _BATCH) -> int:
    """Delete events published before a moment, never others. Each batch is a transaction, so locks are short.

    Args:
        before: events published earlier go.
        seconds: how long to go on; the rest waits for the next call.
        batch: rows looked at in one transaction.

    Returns:
        How many went.
    """
    return _purge(_NEXT_EVENTS, _PURGE_EVENTS, before=before, seconds=seconds, batch=batch)


def purge_inbox(*, before: datetime, seconds: float, batch: int = _BATCH) -> int:
    """Forget messages received before a moment, as `purge_published` does.

    A duplicate that comes after that is handled as new: keep them longer than Kafka and the outbox keep events.
    """
    return _purge(_NEXT_MESSAGES, _PURGE_MESSAGES, before=before, seconds=seconds, batch=batch)


def _purge(next_rows: str, delete: str, *, before: datetime, seconds: float, batch: int) -> int:
    deadline = time.monotonic() + seconds
    purged, last = 0, 0
    while time.monotonic() < deadline:
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            cursor.execute(next_rows, [last, batch])
            row: tuple[Any, ...] = cursor.fetchone()
            newest, earliest = row
            if newest is None or earliest >= before:
                break
            cursor.execute(delete, [last, newest, before])
            purged += cursor.rowcount
            last = newest
    return purged
