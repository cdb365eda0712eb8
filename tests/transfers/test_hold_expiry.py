"""The sweep: what nobody has taken in time goes back, once; and one that cannot stops no other."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from celery import current_app
from django.db import OperationalError

from ledger.models import JournalTransaction
from outbox.models import OutboxEvent
from tests.ledger.kit import faulty
from tests.transfers.till import Till, status_of
from tests.world import World
from transfers import tasks
from transfers.models import Hold
from transfers.services import expire_due, expiry, fund
from wallet_project.kernel import clock
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]
Connect = Callable[[str], psycopg.Connection[Any]]


@pytest.fixture
def till(world: World, superuser: psycopg.Connection[Any]) -> Till:
    return Till(world, superuser)


def test_what_nobody_took_goes_back(till: Till) -> None:
    untouched, half, kept = (till.reserve(100) for _ in range(3))
    till.capture(half, amount=30)
    till.let_expire(untouched, half)

    assert expire_due() == 2

    assert [status_of(hold) for hold in (untouched, half, kept)] == ["EXPIRED", "EXPIRED", "ACTIVE"]
    assert till.figures == (870, 100, 30)
    ended = Hold.objects.get(pk=half)
    release = JournalTransaction.objects.get(continues=half, type="RELEASE")
    assert (ended.ended_by_id, ended.ended_at) == (release.pk, release.created_at)
    assert release.initiator is not None
    assert (release.initiator.username, release.idempotency_key) == ("system", f"hold:{half}:release")


def test_it_expires_nothing_that_is_not_due(till: Till, snapshot: Snapshot) -> None:
    till.reserve()
    till.reserve(expires_at=clock.now() + timedelta(seconds=30))
    before = snapshot()
    assert expire_due() == 0
    assert snapshot() == before


@pytest.mark.parametrize("end", ["CAPTURED", "VOIDED", "EXPIRED"])
def test_what_has_ended_is_left_alone_for_ever(till: Till, snapshot: Snapshot, end: str) -> None:
    hold = till.reserve()
    if end == "CAPTURED":
        till.capture(hold)
    elif end == "VOIDED":
        till.void(hold)
    till.let_expire(hold)
    expire_due()
    before = snapshot()
    assert [expire_due() for _ in range(5)] == [0] * 5
    assert snapshot() == before
    assert status_of(hold) == end
    assert OutboxEvent.objects.filter(payload__type="RELEASE").count() == (0 if end == "CAPTURED" else 1)


def test_batches_reach_everything_that_is_due(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "BATCH", 3)
    holds = [till.reserve(1) for _ in range(10)]
    for some in (holds[:4], holds[4:]):  # Four at one moment, six at another.
        till.let_expire(*some)
    assert expire_due() == 10
    assert till.figures == (1_000, 0, 0)


def test_it_stops_in_time_and_the_next_sweep_goes_on(till: Till) -> None:
    till.let_expire(*[till.reserve(1) for _ in range(3)])
    assert [expire_due(seconds=0) for _ in range(4)] == [1, 1, 1, 0]


def test_a_hold_that_somebody_is_at_work_on_is_left_to_them(till: Till, connect: Connect) -> None:
    busy, idle = till.reserve(), till.reserve()
    till.let_expire(busy, idle)
    somebody = connect("app")
    with somebody.transaction():
        somebody.execute("SELECT FROM hold WHERE transaction_id = %s FOR NO KEY UPDATE", [busy])
        assert expire_due() == 1
    assert (status_of(busy), status_of(idle)) == ("ACTIVE", "EXPIRED")
    assert expire_due() == 1


# --- One that cannot be released -------------------------------------------------------------------------------------


def alerts() -> list[dict[str, Any]]:
    return [event.payload for event in OutboxEvent.objects.filter(topic="wallet.alerts").order_by("pk")]


def test_one_that_cannot_be_released_stops_no_other_and_is_told_of_once(till: Till) -> None:
    stuck = till.reserve(100)
    free = till.reserve(100, by=till.world.person("another", balance=100))
    fund(account_id=till.payer.account_id, amount=MAX_AMOUNT - 950, key="fortune")
    till.let_expire(stuck, free)

    assert [expire_due() for _ in range(3)] == [1, 0, 0]

    assert (status_of(stuck), status_of(free)) == ("ACTIVE", "EXPIRED")
    (alert,) = alerts()
    assert (alert["code"], alert["subject"]) == ("HOLD_STUCK", {"holdId": str(stuck)})
    assert Hold.objects.get(pk=stuck).stuck_at is not None

    till.world.pay(till.payer, till.merchant, 500)
    assert expire_due() == 1
    assert status_of(stuck) == "EXPIRED"
    assert len(alerts()) == 1


def test_what_the_database_refuses_stops_no_other_either(till: Till, connect: Connect) -> None:
    """Should a rule of the database ever stand against a release, the sweep goes on with the next."""
    first, second = till.reserve(), till.reserve()
    till.let_expire(first)
    till.let_expire(second)
    with faulty(connect("owner"), "journal_transaction", "23514"):
        assert expire_due() == 1
    assert {status_of(first), status_of(second)} == {"ACTIVE", "EXPIRED"}
    assert [alert["subject"] for alert in alerts()] == [{"holdId": str(first)}]
    assert expire_due() == 1


def test_a_lock_that_is_not_had_in_time_is_the_next_sweeps(till: Till, connect: Connect) -> None:
    first, second = till.reserve(), till.reserve()
    till.let_expire(first)
    till.let_expire(second)
    with faulty(connect("owner"), "journal_transaction", "55P03"):
        assert expire_due() == 1
    assert alerts() == []
    assert expire_due() == 1
    assert (status_of(first), status_of(second)) == ("EXPIRED", "EXPIRED")


# --- The task --------------------------------------------------------------------------------------------------------


def test_beat_runs_it_every_ten_seconds(till: Till) -> None:
    entry = current_app.conf.beat_schedule["expire-holds"]
    assert (entry["task"], entry["schedule"]) == (tasks.expire_holds.name, 10.0)
    hold = till.reserve()
    till.let_expire(hold)
    tasks.expire_holds()
    assert status_of(hold) == "EXPIRED"


def test_without_a_database_it_waits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def away() -> int:
        raise OperationalError("connection refused")

    monkeypatch.setattr(tasks, "expire_due", away)
    with caplog.at_level(logging.WARNING):
        tasks.expire_holds()
    assert "expired holds wait" in caplog.text
