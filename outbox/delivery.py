"""Writers of what became of an event: published, parked, or to be tried again."""

from collections.abc import Collection

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from outbox.alerts import TOPIC as ALERTS
from outbox.alerts import raise_alert
from outbox.models import OutboxEvent
from outbox.state import lower_floor
from wallet_project.kernel.db import lock_rows


def mark_published(events: Collection[OutboxEvent]) -> None:
    """Mark events that the broker has acknowledged; their rows are locked."""
    if events:
        ids = [event.pk for event in events]
        OutboxEvent.objects.filter(pk__in=ids).update(published=True, published_at=Now(), last_error="")


def park(event: OutboxEvent, *, reason: str) -> None:
    """Set an event aside that can never be sent, and tell staff; its row is locked."""
    OutboxEvent.objects.filter(pk=event.pk).update(parked=True, attempts=F("attempts") + 1, last_error=reason)
    if event.topic != ALERTS:  # An alert that cannot be sent would bring forth the next.
        raise_alert(
            code="EVENT_PARKED",
            detail=f"An event of {event.topic} can never be sent: {reason}",
            subject={"eventId": str(event.event_id), "topic": event.topic, "key": event.key},
        )


def retry_parked(*, event_ids: Collection[int]) -> list[OutboxEvent]:
    """Let the relay try parked events once more; a use case of its own. `last_error` stays until they are published.

    Args:
        event_ids: the numbers of their rows. Those that are not parked are left alone.

    Returns:
        Those that were.
    """
    with transaction.atomic(durable=True):
        parked = lock_rows(OutboxEvent.objects.filter(pk__in=event_ids, parked=True))
        if parked:
            OutboxEvent.objects.filter(pk__in=[event.pk for event in parked]).update(parked=False)
            lower_floor(parked[0].pk)
    return parked
