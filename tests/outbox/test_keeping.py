"""What the outbox keeps, for how long, and what it tells of itself."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction
from django.test import override_settings

from outbox.inbox import receive_once
from outbox.models import InboxMessage, OutboxEvent, RelayState
from outbox.retention import purge_inbox, purge_published
from outbox.selectors import HEADS, oldest_snapshot_transactions, read_figures
from outbox.state import advance_floor
from outbox.tasks import purge
from outbox.watch import watch
from tests.conftest import wait_until
from tests.outbox.kit import Listener, add_events, relay_to
from wallet_project.dev.servers import Broker
from wallet_project.kernel import clock
from wallet_project.kernel.db import violated_constraint

pytestmark = pytest.mark.django_db(transaction=True)

_NOW = clock.now()
Connect = Callable[[str], psycopg.Connection[Any]]


# --- Retention --------------------------------------------------------------------------------------------------------


def test_published_events_go_after_their_time_and_no_others(superuser: psycopg.Connection[Any]) -> None:
    old, young, unpublished, parked = (add_events(30) for _ in range(4))
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '9 days'")
    _published(superuser, old, days_ago=8)
    _published(superuser, young, days_ago=6)
    superuser.execute("UPDATE outbox_event SET parked = true, last_error = 'no' WHERE event_id = ANY(%s)", [parked])

    purge()

    left = set(OutboxEvent.objects.values_list("event_id", flat=True))
    assert left == {*young, *unpublished, *parked}


def test_the_purge_goes_in_batches_and_passes_by_what_must_stay(superuser: psycopg.Connection[Any]) -> None:
    events = add_events(100)
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '9 days'")
    _published(superuser, events[::2], days_ago=8)
    cutoff = clock.now() - timedelta(days=7)

    assert purge_published(before=cutoff, seconds=0, batch=7) == 0
    assert purge_published(before=cutoff, seconds=60, batch=7) == 50
    assert purge_published(before=cutoff, seconds=60, batch=7) == 0
    assert OutboxEvent.objects.count() == 50


def test_the_purge_waits_for_nobody_and_holds_up_nobody(
    superuser: psycopg.Connection[Any], broker: Broker, connect: Connect
) -> None:
    """A relay is at work on the rows that wait, and a posting has just written one."""
    published, posting, relaying = add_events(20), connect("app"), connect("app")
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '9 days'")
    _published(superuser, published, days_ago=8)
    add_events(5)
    posting.execute("INSERT INTO outbox_event (topic, payload) VALUES ('wallet.alerts', '{}')")
    relaying.execute("SELECT id FROM outbox_event WHERE NOT published FOR NO KEY UPDATE")

    assert purge_published(before=clock.now() - timedelta(days=7), seconds=60) == 20


@pytest.mark.parametrize("role", ["app", "owner", "superuser"])
def test_the_database_keeps_an_event_until_it_is_published(role: str, connect: Connect) -> None:
    add_events(1)
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        connect(role).execute("DELETE FROM outbox_event")
    assert refusal.value.diag.constraint_name == "outbox_event_is_kept"


@pytest.mark.parametrize("column", ["topic", "key", "payload", "event_id", "created_at"])
def test_the_application_cannot_change_what_an_event_says(column: str, connect: Connect) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect("app").execute(f"UPDATE outbox_event SET {column} = {column}")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"published": True}, "outbox_event_published_when"),
        ({"parked": True}, "outbox_event_parked_why"),
        (
            {"parked": True, "last_error": "no", "published": True, "published_at": clock.now()},
            "outbox_event_parked_why",
        ),
    ],
)
def test_published_has_a_time_and_parked_a_reason(change: dict[str, Any], rule: str) -> None:
    add_events(1)
    with pytest.raises(IntegrityError) as refusal, transaction.atomic():
        OutboxEvent.objects.update(**change)
    assert violated_constraint(refusal.value) == rule


def test_consumers_forget_in_time(superuser: psycopg.Connection[Any]) -> None:
    for name in ("old", "young"):
        receive_once(consumer="test", message_id=name, work=lambda: None)
    superuser.execute("UPDATE inbox_message SET received_at = now() - interval '31 days' WHERE message_id = 'old'")

    assert purge_inbox(before=clock.now() - timedelta(days=30), seconds=60) == 1
    assert list(InboxMessage.objects.values_list("message_id", flat=True)) == ["young"]


# --- The poll ---------------------------------------------------------------------------------------------------------


def test_the_poll_is_flat_while_somebody_holds_a_snapshot(
    broker: Broker, connect: Connect, superuser: psycopg.Connection[Any]
) -> None:
    """Published rows that cannot be vacuumed are walked over by nobody: the floor is above them."""
    superuser.execute(
        "INSERT INTO outbox_event (topic, key, payload, published, published_at)"
        " SELECT 'wallet.alerts', n::text, '{}', true, now() FROM generate_series(1, 20000) n"
    )
    holder = connect("owner")
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT count(*) FROM account")
    relay = relay_to(broker.url)
    for _ in range(5):
        add_events(1_000, keys=100)
        assert relay.run().published == 1_000
    # Transactions of others in the same cluster may hold the floor for a moment.
    settled = OutboxEvent.objects.latest("pk").pk
    wait_until(lambda: _floor() == settled, seconds=30)
    add_events(4, keys=4)

    # Without the floor each poll would look at the 5 000 dead rows: the control that can fail.
    assert _buffers(HEADS.replace("(SELECT floor FROM outbox_relay)", "0")) > 500
    assert _buffers(HEADS) < 60
    holder.rollback()


def test_a_poll_walks_along_its_index_whatever_the_statistics_say(superuser: psycopg.Connection[Any]) -> None:
    add_events(1)  # above what earlier tests have left in the index
    RelayState.objects.update(floor=OutboxEvent.objects.latest("pk").pk)
    superuser.execute("ANALYZE outbox_event")
    add_events(20_000, keys=100)
    assert "Index Scan using outbox_event_unpublished" in _plan(HEADS)
    assert _buffers(HEADS) < 60


def test_an_event_below_the_floor_is_found(broker: Broker) -> None:
    (overlooked,) = add_events(1)
    RelayState.objects.update(floor=OutboxEvent.objects.get(event_id=overlooked).pk + 5)
    relay = relay_to(broker.url)
    assert relay.run().published == 0

    watch()

    assert relay.run().published == 1


# --- Figures and alerts -----------------------------------------------------------------------------------------------


def test_the_figures(broker: Broker, superuser: psycopg.Connection[Any]) -> None:
    add_events(40, keys=40)
    add_events(1, topic="wallet.deposits", padding=1_200_000)
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '1 hour'")
    before = read_figures()
    assert (before.unpublished, before.parked, before.published_total) == (41, 0, 0)
    assert before.oldest_seconds == pytest.approx(3600, abs=60)

    for _ in range(2):  # two processes
        relay_to(broker.url, batch_size=15).run()

    after = read_figures()
    assert (after.unpublished, after.oldest_seconds, after.parked) == (0, 0, 1)
    assert (after.published_total, after.parked_total) == (41, 1)  # the alert, too
    assert after.published_per_second == pytest.approx(41 / 60, rel=0.3)
    assert after.runs_total >= 1
    assert 0 < after.last_run_seconds <= after.run_seconds_total
    assert (after.failing_since, after.last_error) == (None, "")


@override_settings(OUTBOX_LAG_ALERT_SECONDS=60)
def test_a_backlog_alerts_once_per_episode(
    broker: Broker, listener: Listener, superuser: psycopg.Connection[Any]
) -> None:
    add_events(1, topic="wallet.holds")
    watch()
    assert _alerts() == []
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '2 minutes'")
    for _ in range(3):
        watch()
    assert _alerts() == ["OUTBOX_LAGGING"]

    relay_to(broker.url).run()
    listener.until(lambda: len(listener.heard) == 2)
    watch()
    assert RelayState.objects.get().lagging_since is None
    add_events(1, topic="wallet.holds")
    superuser.execute("UPDATE outbox_event SET created_at = now() - interval '2 minutes' WHERE NOT published")
    watch()
    assert _alerts() == ["OUTBOX_LAGGING", "OUTBOX_LAGGING"]


def test_a_snapshot_that_is_held_for_too_long_alerts(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whosever session it is: the application sees how old the snapshot is, and no more."""
    monkeypatch.setattr("outbox.watch.SNAPSHOT_LIMIT", 50)
    watch()
    assert _alerts() == []
    holder = connect("superuser")
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT count(*) FROM account")
    for _ in range(60):
        add_events(1)
    assert oldest_snapshot_transactions() > 50
    watch()
    assert _alerts() == ["OLD_SNAPSHOT"]
    holder.rollback()
    wait_until(lambda: oldest_snapshot_transactions() <= 50, seconds=10)
    watch()
    assert RelayState.objects.get().bloated_since is None


def _floor() -> int:
    advance_floor()
    return RelayState.objects.get().floor


def _alerts() -> list[str]:
    alerts = OutboxEvent.objects.filter(topic="wallet.alerts").exclude(payload__code="TEST").order_by("pk")
    return [alert.payload["code"] for alert in alerts]


def _published(superuser: psycopg.Connection[Any], event_ids: list[Any], *, days_ago: int) -> None:
    superuser.execute(
        "UPDATE outbox_event SET published = true, published_at = now() - %s * interval '1 day'"
        " WHERE event_id = ANY(%s)",
        [days_ago, event_ids],
    )


def _plan(query: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {query}", [[]])
        return "\n".join(row[0] for row in cursor.fetchall())


def _buffers(query: str) -> int:
    """Pages that a query looks at."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", [[]])
        (plan,) = cursor.fetchone()
    return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])
