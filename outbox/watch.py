"""Looks after the relay from outside: tells staff, once per episode, of what the relay cannot mend by itself."""

import logging

from django.conf import settings
from django.db import transaction

from outbox.alerts import raise_alert
from outbox.models import OutboxEvent, RelayState
from outbox.selectors import oldest_snapshot_transactions, oldest_waiting_seconds
from outbox.state import lower_floor
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows

logger = logging.getLogger(__name__)

# Transactions since the oldest snapshot: half an hour of them at 500 a second.
SNAPSHOT_LIMIT = 1_000_000


def watch() -> None:
    """Check for a backlog, for a snapshot that keeps dead rows from being vacuumed, and for events below the floor.

    An alert begins an episode, and the next needs a new one. A use case of its own.
    """
    lag, held = oldest_waiting_seconds(), oldest_snapshot_transactions()
    overlooked = _overlooked()
    with transaction.atomic(durable=True):
        (state,) = lock_rows(RelayState.objects.all())
        _alert_once(
            state,
            "lagging_since",
            lag > settings.OUTBOX_LAG_ALERT_SECONDS,
            code="OUTBOX_LAGGING",
            detail=f"The oldest event has waited for {lag:.0f} s. {state.last_error}".strip(),
        )
        _alert_once(
            state,
            "bloated_since",
            held > SNAPSHOT_LIMIT,
            code="OLD_SNAPSHOT",
            detail=f"A session has held its snapshot for {held} transactions, so dead rows cannot be vacuumed.",
        )
        if overlooked is not None:
            logger.error("event %d was below the floor and is published now", overlooked)
            lower_floor(overlooked)


def _alert_once(state: RelayState, since: str, wrong: bool, *, code: str, detail: str) -> None:
    began = getattr(state, since)
    if wrong and began is None:
        raise_alert(code=code, detail=detail, subject={})
    if wrong != (began is not None):
        setattr(state, since, clock.now() if wrong else None)
        state.save(update_fields=[since])


def _overlooked() -> int | None:
    """The row of an event that waits below the floor, where no poll comes by.

    The floor is safe for all who had a transaction number before they drew the row's id, as every posting has. A
    transaction whose very first row is an event draws the id a moment earlier, and could be overtaken in between.
    """
    floor = RelayState.objects.values_list("floor", flat=True).get()
    waiting = OutboxEvent.objects.filter(published=False, parked=False, pk__lte=floor)
    return waiting.order_by("pk").values_list("pk", flat=True).first()
