"""The sweep that gives back what nobody has taken in time."""

import logging
import time
from collections.abc import Iterator
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Q
from django.db.models.functions import Now

from outbox.alerts import raise_alert
from transfers.models import Hold
from transfers.services.holds import release
from wallet_project.kernel import clock
from wallet_project.kernel.db import is_unavailable, lock_rows, run_in_transaction, sqlstate
from wallet_project.kernel.errors import DomainError

logger = logging.getLogger(__name__)

BATCH = 500

# The database's clock dates the release, so it says what is due.
_DUE = Hold.objects.filter(status=Hold.Status.ACTIVE, expires_at__lte=Now())


def expire_due(*, seconds: float = 9) -> int:
    """Release every hold whose time is over, each in a transaction of its own; returns how many.

    One that somebody is at work on is left to them, and to the next sweep. One that cannot be released does not stop
    the others; staff are told once.

    Args:
        seconds: after that long the rest is left to the next sweep.

    Raises:
        OperationalError: the database is away.
    """
    deadline = time.monotonic() + seconds
    expired = 0
    for hold_id in _due():
        expired += _expire(hold_id)
        if time.monotonic() > deadline:
            break
    return expired


def _due() -> Iterator[UUID]:
    """Those that are due, oldest first; each once, whatever becomes of it."""
    after = Q()
    while True:
        batch = list(_DUE.filter(after).order_by("expires_at", "pk").values_list("expires_at", "pk")[:BATCH])
        yield from (hold_id for _, hold_id in batch)
        if len(batch) < BATCH:
            return
        expires_at, hold_id = batch[-1]
        after = Q(expires_at__gt=expires_at) | Q(expires_at=expires_at, pk__gt=hold_id)


def _expire(hold_id: UUID) -> bool:
    """Whether it was released here."""

    def work() -> bool:
        found = lock_rows(_DUE.filter(pk=hold_id), skip_locked=True)
        for hold in found:
            release(hold, status=Hold.Status.EXPIRED)
        return bool(found)

    try:
        return run_in_transaction(work)
    except DomainError as refusal:
        _tell_staff(hold_id, refusal)
    except DatabaseError as error:
        if not is_unavailable(error):
            _tell_staff(hold_id, error)
        elif sqlstate(error) is None:
            raise
        else:
            logger.warning("hold %s is left to the next sweep: %s", hold_id, error)
    return False


def _tell_staff(hold_id: UUID, error: Exception) -> None:
    """Once for each hold: it is tried again by every sweep."""

    def work() -> None:
        for hold in lock_rows(Hold.objects.filter(pk=hold_id, status=Hold.Status.ACTIVE, stuck_at=None)):
            hold.stuck_at = clock.now()
            hold.save(update_fields=["stuck_at"])
            raise_alert(
                code="HOLD_STUCK",
                detail=f"Hold {hold_id} has expired and cannot be released: {error}",
                subject={"holdId": str(hold_id)},
                account_id=hold.account_id,
            )

    run_in_transaction(work)
