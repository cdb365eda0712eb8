"""Writers of the inbox: a message is dealt with once, or kept aside whole."""

import json
from collections.abc import Callable, Mapping

from django.db import connection, transaction
from django.db.models.functions import Now

from outbox.alerts import TOPIC as ALERTS
from outbox.alerts import raise_alert
from outbox.models import ParkedMessage

_RECEIVE = "INSERT INTO inbox_message (consumer, message_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_PARK = """
    INSERT INTO inbox_parked_message (consumer, topic, partition, "offset", key, value, headers, error)
    VALUES (%s, %s, %s, %s, %s, %s, %s::jsonb, %s) ON CONFLICT DO NOTHING
"""


def receive_once(*, consumer: str, message_id: str, work: Callable[[], None]) -> bool:
    """Do a message's work, unless it was done before; the work and the note of it are one transaction.

    Two processes with the same message at the same moment: the second waits for the first, and finds it done.

    Returns:
        Whether the work was done now.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(_RECEIVE, [consumer, message_id])
            is_new: bool = cursor.rowcount == 1
        if is_new:
            work()
    return is_new


def park_message(
    *,
    consumer: str,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Mapping[str, str],
    error: str,
) -> None:
    """Keep a message that cannot be dealt with, and tell staff. Once per place in the topic."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            stored = json.dumps({_storable(name): _storable(text) for name, text in headers.items()})
            cursor.execute(_PARK, [consumer, topic, partition, offset, key, value, stored, _storable(error)])
            is_new = cursor.rowcount == 1
        if is_new and topic != ALERTS:
            raise_alert(
                code="MESSAGE_PARKED",
                detail=f"{consumer} cannot deal with a message: {error}",
                subject={"topic": topic, "partition": partition, "offset": offset},
            )


def _storable(text: str) -> str:
    """PostgreSQL keeps neither NUL characters nor lone surrogates."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def mark_resolved(parked: ParkedMessage) -> None:
    """Note that a parked message has been dealt with after all."""
    ParkedMessage.objects.filter(pk=parked.pk).update(resolved_at=Now())
