"""Writers of the outbox: the event goes into the transaction that it tells of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg.types.json import Jsonb

from wallet_project.kernel.db import demand_transaction

# An event's id is a uuid5 of its transaction's in this namespace, so it can be made again from the journal.
EVENT_NAMESPACE = UUID("6f0c3c8e-6d7b-5f0a-9c1f-3d0f5a0b7e21")

_INSERT = """
    INSERT INTO outbox_event (event_id, topic, key, payload)
    SELECT * FROM unnest(%s::uuid[], %s::varchar[], %s::varchar[], %s::jsonb[])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event to be published.

    Args:
        event_id: the same in every delivery.
        topic: the Kafka topic.
        key: the message key; events of one key keep their order.
        payload: the value, as JSON.
    """

    event_id: UUID
    topic: str
    key: str
    payload: Mapping[str, Any]


def event_insert(events: Sequence[Event]) -> tuple[str, list[list[Any]]]:
    """The statement that leaves events in the outbox, and its parameters, for the writer's own round trip."""
    return _INSERT, [
        [event.event_id for event in events],
        [event.topic for event in events],
        [event.key for event in events],
        [Jsonb(event.payload) for event in events],
    ]


def add_events(events: Sequence[Event]) -> None:
    """Leave events in the outbox, in the open transaction.

    Raises:
        TransactionManagementError: no transaction is open.
    """
    demand_transaction()
    statement, parameters = event_insert(events)
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
