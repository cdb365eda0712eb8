"""The statement that leaves events in the outbox, for the writer's own round trip."""

from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from outbox.models import OutboxEvent
from outbox.services import Event, event_insert

pytestmark = pytest.mark.django_db(transaction=True)


def _leave(*events: Event) -> None:
    statement, parameters = event_insert(events)
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _alert(**payload: object) -> Event:
    return Event(event_id=uuid4(), topic="wallet.alerts", key="clock", payload=payload)


def test_events_stand_in_the_order_in_which_they_were_left() -> None:
    events = [_alert(number=number) for number in range(20)]
    _leave(*events)
    left = OutboxEvent.objects.order_by("id")
    assert [row.event_id for row in left] == [event.event_id for event in events]
    assert [row.payload for row in left] == [{"number": number} for number in range(20)]
    assert {(row.published, row.parked, row.attempts) for row in left} == {(False, False, 0)}


def test_no_events_are_no_rows() -> None:
    _leave()
    assert not OutboxEvent.objects.exists()


def test_what_is_rolled_back_was_never_said() -> None:
    with transaction.atomic():
        _leave(_alert(text="not true"))
        transaction.set_rollback(True)
    assert not OutboxEvent.objects.exists()


def test_an_event_is_left_once() -> None:
    event = _alert(text="Đồng hồ chạy sai")
    _leave(event)
    with pytest.raises(IntegrityError):
        _leave(event)
    assert OutboxEvent.objects.get().payload == {"text": "Đồng hồ chạy sai"}
