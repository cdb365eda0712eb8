"""Readers of the outbox: what waits, and the figures that `/metrics` shows."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from math import exp
from typing import Any

from django.db import connection

from outbox.models import OutboxEvent, RelayState
from wallet_project.kernel import clock

# Seconds over which the rate of published events is weighted.
RATE_SECONDS = 60
# The first event that waits in each lane, but for those of some topics. ORDER BY and LIMIT within a lane leave the
# planner no choice but the partial index, whatever it believes of the share of unpublished rows.
HEADS = """
    SELECT lanes.lane, head.id, head.created_at
      FROM generate_series(0, 3) AS lanes (lane),
           LATERAL (SELECT e.id, e.created_at FROM outbox_event e
                     WHERE e.lane = lanes.lane AND NOT e.published AND NOT e.parked
                       AND e.id > (SELECT floor FROM outbox_relay) AND e.topic <> ALL (%s::varchar[])
                     ORDER BY e.id LIMIT 1) AS head
"""
# A backlog is counted up to here: what a page of figures may cost has a bound.
COUNT_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How the outbox does; the same for every process, since the relays keep them in the database.

    Args:
        unpublished: events that wait, at most COUNT_LIMIT.
        oldest_seconds: the age of the one that waits longest; 0 if none does.
        parked: events that can never be sent and wait for staff.
        published_total, parked_total: how many so far.
        published_per_second: over the last minute, the latest counting most.
        runs_total, run_seconds_total: the relays' runs that had something to do, and how long they took.
        last_run_seconds: how long the latest one took.
        failing_since: when deliveries began to fail; None while they do not.
        last_error: why they fail.
    """

    unpublished: int
    oldest_seconds: float
    parked: int
    published_total: int
    parked_total: int
    published_per_second: float
    runs_total: int
    run_seconds_total: float
    last_run_seconds: float
    failing_since: datetime | None
    last_error: str


def read_figures() -> Figures:
    """The figures as of now."""
    state = RelayState.objects.get()
    now = clock.now()
    idle = max(0.0, (now - state.rate_at).total_seconds())
    return Figures(
        unpublished=OutboxEvent.objects.waiting()[:COUNT_LIMIT].count(),
        oldest_seconds=oldest_waiting_seconds(),
        parked=OutboxEvent.objects.filter(parked=True).count(),
        published_total=state.published_total,
        parked_total=state.parked_total,
        published_per_second=state.rate * exp(-idle / RATE_SECONDS),
        runs_total=state.runs_total,
        run_seconds_total=state.run_seconds_total,
        last_run_seconds=state.last_run_seconds,
        failing_since=state.failing_since,
        last_error=state.last_error,
    )


def lanes_with_work(*, without_topics: Collection[str] = ()) -> list[int]:
    """The lanes in which events wait, but for those of some topics."""
    return [lane for lane, _, _ in _heads(without_topics)]


def oldest_waiting_seconds() -> float:
    """The age of the event that waits longest, in seconds; 0 if none does."""
    moments = [created_at for _, _, created_at in _heads(())]
    return max(0.0, (clock.now() - min(moments)).total_seconds()) if moments else 0.0


def _heads(without_topics: Collection[str]) -> list[tuple[int, int, datetime]]:
    with connection.cursor() as cursor:
        cursor.execute(HEADS, [list(without_topics)])
        return list(cursor.fetchall())


def oldest_snapshot_transactions() -> int:
    """How many transactions ago the oldest snapshot of this database was taken that somebody still holds.

    Rows that died since then cannot be vacuumed, so tables grow, the outbox first. Whose it is needs no right to see.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(max(age(backend_xmin)), 0) FROM pg_stat_activity WHERE datname = current_database()"
        )
        row: tuple[Any, ...] = cursor.fetchone()
    return int(row[0])
