"""Database helpers: the one function that takes row locks, the one retry loop, and what a database error means."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    models,
    transaction,
)

from wallet_project.kernel.errors import DomainError, Unavailable

logger = logging.getLogger(__name__)
M = TypeVar("M", bound=models.Model)
T = TypeVar("T")

ATTEMPTS = 3

# SQLSTATEs after which the same command may simply be sent again: lock and statement timeouts, idle in transaction,
# serialization failure, deadlock, a read-only (just failed over) server.
_TRY_AGAIN_STATES = {"55P03", "57014", "25P03", "25P04", "40001", "40P01", "25006"}
# Classes of the same kind: connection lost, out of resources, server shutting down.
_TRY_AGAIN_CLASSES = {"08", "53", "57"}
_CONFLICT_STATES = {"40001", "40P01"}


class LostRace(Exception):
    """Somebody else committed first what this transaction was about to write; begin again."""


def demand_transaction() -> None:
    """Refuse to go on outside a transaction: building blocks never open one of their own.

    Raises:
        TransactionManagementError: no transaction is open.
    """
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("This needs an open transaction; the use case opens it.")


def lock_rows(queryset: models.QuerySet[M], *, skip_locked: bool = False, limit: int | None = None) -> list[M]:
    """Lock the rows of a queryset in primary-key order and return them as they are now.

    The only place in the code base that takes row locks. NO KEY UPDATE, so that inserts which refer to the rows do
    not wait; sorted, so that two callers can never wait for each other; evaluated at once, so that the lock is real.

    Args:
        skip_locked: leave out rows that somebody else has locked, rather than wait for them.
        limit: lock the first so many.

    Raises:
        TransactionManagementError: no transaction is open.
        OperationalError: the role's lock_timeout passed (55P03); answered with 503.
    """
    demand_transaction()
    return list(queryset.select_for_update(no_key=True, skip_locked=skip_locked).order_by("pk")[:limit])


def run_in_transaction(work: Callable[[], T]) -> T:
    """Run a use case in a transaction of its own, again from the start when it lost a race, three times at most.

    Raises:
        Unavailable: the race was lost three times in a row.
        RuntimeError: a transaction is open already; use cases do not nest.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with transaction.atomic(durable=True):
                return work()
        except LostRace:
            logger.debug("lost a race for a key, attempt %d", attempt)
        except OperationalError as error:
            if sqlstate(error) not in _CONFLICT_STATES:
                raise
            logger.error("deadlock or serialization failure, attempt %d: %s", attempt, error)
    raise Unavailable


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE under a Django or psycopg error; None when the server was never reached, or lost."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None


def is_unavailable(error: DatabaseError | InterfaceError) -> bool:
    """Whether the database, rather than the command, is the reason: such a request may be repeated as it is."""
    state = sqlstate(error)
    if state is None:
        return isinstance(error, (OperationalError, InterfaceError))
    return state in _TRY_AGAIN_STATES or state[:2] in _TRY_AGAIN_CLASSES


def violated_constraint(error: DatabaseError) -> str | None:
    """The name of the constraint or trigger rule that refused, or None."""
    cause = error.__cause__
    return cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None


@contextmanager
def translated(rules: Mapping[str, type[DomainError] | type[LostRace]]) -> Iterator[None]:
    """Raise the domain error that belongs to a violated constraint; let unknown violations crash."""
    try:
        yield
    except IntegrityError as error:
        meaning = rules.get(violated_constraint(error) or "")
        if meaning is None:
            raise
        raise meaning from error
