"""Races for money on hold: first controls that show each race when its lock is taken away, then the races themselves.

With the locks the service refuses, and the database never has to.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from django.db import models

from ledger.commands import Posted
from ledger.holdings import Holding, find_holding
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from outbox.models import OutboxEvent
from tests.conftest import wait_until
from tests.races import PATIENCE, POSTED, REPLAYED, at_once, meanwhile, outcome_of, outcomes_of, soak, wait_for_lock
from tests.races import deadlocks as deadlocks
from tests.races import no_deadlocks as no_deadlocks
from tests.transfers.till import Till, refusal, status_of
from tests.world import World
from transfers.models import Hold
from transfers.services import Answer, close_account, expire_due, holds
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]

M = TypeVar("M", bound=models.Model)
Connect = Callable[[str], psycopg.Connection[Any]]


@pytest.fixture
def till(world: World, superuser: psycopg.Connection[Any]) -> Till:
    return Till(world, superuser)


def movements(hold: UUID) -> Counter[str]:
    """What became of a hold's money, by type."""
    return Counter(JournalTransaction.objects.filter(continues=hold).values_list("type", flat=True))


# --- Controls --------------------------------------------------------------------------------------------------------


def without_the_holds_lock(queryset: models.QuerySet[M], **options: Any) -> list[M]:
    return list(queryset) if queryset.model is Hold else lock_rows(queryset, **options)


def test_control_without_the_lock_the_database_must_refuse(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    """All read how much is left before any has taken its part, and all think that they may."""
    racers = 5
    all_have_read = threading.Barrier(racers)
    hold = _with_another_in_its_shard(till, monkeypatch)

    def read_with_the_others(transaction_id: UUID) -> Holding | None:
        holding = find_holding(transaction_id)
        all_have_read.wait(PATIENCE)
        return holding

    monkeypatch.setattr(holds, "lock_rows", without_the_holds_lock)
    monkeypatch.setattr(holds, "find_holding", read_with_the_others)
    outcomes = outcomes_of([partial(till.capture, hold, amount=30)] * racers)

    assert outcomes == {POSTED: 3, "held_money_within_amount": 2}
    assert till.figures == (800, 110, 90)


def _with_another_in_its_shard(till: Till, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """A hold of 100 whose HOLD account has more than that, so that the account's balance refuses nothing."""
    shard = draw_system_shard(kind="HOLD", currency="VND")
    monkeypatch.setattr(holds, "draw_system_shard", lambda **_: shard)
    till.reserve(100)
    return till.reserve(100)


def test_control_without_the_lock_void_and_capture_both_go_on(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see an active hold with all its money; who comes second finds none, and only the database says so."""
    hold = _with_another_in_its_shard(till, monkeypatch)
    both_have_read = threading.Barrier(2)

    def read_with_the_other(transaction_id: UUID) -> Holding | None:
        holding = find_holding(transaction_id)
        both_have_read.wait(PATIENCE)
        return holding

    monkeypatch.setattr(holds, "lock_rows", without_the_holds_lock)
    monkeypatch.setattr(holds, "find_holding", read_with_the_other)
    outcomes = outcomes_of([partial(till.capture, hold), partial(till.void, hold)])

    assert outcomes == {POSTED: 1, "held_money_within_amount": 1}
    assert sum(movements(hold).values()) == 1


# --- Races -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(100, few=2)))
def test_ten_captures_of_thirty_out_of_a_hundred(till: Till, round_: int) -> None:
    hold = till.reserve(100)
    outcomes = outcomes_of([partial(till.capture, hold, amount=30)] * 10)
    assert outcomes == {POSTED: 3, "capture_exceeds_hold": 7}
    assert till.figures == (900, 10, 90)
    assert status_of(hold) == "ACTIVE"


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(500, few=4)))
def test_the_sweep_and_ten_captures(till: Till, superuser: psycopg.Connection[Any], round_: int) -> None:
    """The hold's time is over in the middle of it: money is taken or given back, never both, and once."""
    hold = till.reserve(100)

    let_expire = partial(till.let_expire, hold, after_milliseconds=round_ * 53 % 240)

    def sweep() -> str:
        if round_ % 2:
            with suppress(psycopg.errors.CheckViolation):  # A capture was first, and in time.
                let_expire()
        while status_of(hold) == Hold.Status.ACTIVE:
            expire_due()
        return "swept"

    if not round_ % 2:  # Mostly the sweep comes first so, and otherwise a capture.
        let_expire()
    captures = [partial(outcome_of, partial(till.capture, hold)) for _ in range(10)]
    deeds: list[Callable[[], str]] = [sweep, *captures]
    outcomes = Counter(at_once(deeds))

    status = status_of(hold)
    assert status in ("CAPTURED", "EXPIRED")
    taken = status == "CAPTURED"
    assert outcomes == Counter({"swept": 1, POSTED: int(taken), "illegal_state": 10 - taken})
    assert movements(hold) == {"CAPTURE" if taken else "RELEASE": 1}
    assert till.figures == ((900, 0, 100) if taken else (1_000, 0, 0))
    assert OutboxEvent.objects.filter(topic="wallet.holds").count() == 2


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(200, few=2)))
def test_sweeps_at_once_give_back_once(till: Till, round_: int) -> None:
    expired = [till.reserve(100) for _ in range(4)]
    till.let_expire(*expired)
    released = sum(at_once([expire_due] * 4))
    released += expire_due()  # Where all looked away from what another one had.
    assert released == 4
    assert [movements(hold) for hold in expired] == [{"RELEASE": 1}] * 4
    assert till.figures == (1_000, 0, 0)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(200, few=2)))
def test_void_and_the_sweep_give_back_once(till: Till, round_: int) -> None:
    hold = till.reserve(100)
    till.let_expire(hold)
    swept, voided = at_once([lambda: str(expire_due()), lambda: outcome_of(partial(till.void, hold))])
    assert (swept, voided, status_of(hold)) in (("1", "illegal_state", "EXPIRED"), ("0", POSTED, "VOIDED"))
    assert movements(hold) == {"RELEASE": 1}


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(200, few=2)))
def test_of_void_and_capture_one_wins(till: Till, round_: int) -> None:
    hold = till.reserve(100)
    deeds = [partial(till.void, hold), partial(till.capture, hold)] * 3
    assert outcomes_of(deeds) == {POSTED: 1, "illegal_state": 5}
    assert sum(movements(hold).values()) == 1


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(200, few=2)))
def test_of_several_final_captures_one_wins(till: Till, round_: int) -> None:
    hold = till.reserve(100)
    assert outcomes_of([partial(till.capture, hold, amount=40, final=True)] * 4) == {POSTED: 1, "illegal_state": 3}
    assert movements(hold) == {"CAPTURE": 1, "RELEASE": 1}
    assert till.figures == (960, 0, 40)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(200, few=2)))
def test_transfers_and_holds_spend_one_wallet_once(till: Till, round_: int) -> None:
    pay = partial(till.world.pay, till.payer, till.merchant, 400)
    outcomes = outcomes_of([pay, partial(till.reserving, 400)] * 3)
    assert outcomes == {POSTED: 2, "insufficient_funds": 4}
    balance, held, received = till.figures
    assert (balance, held + received) == (200, 800)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(100)))
def test_one_key_from_many_threads_is_one_command(till: Till, round_: int) -> None:
    def told(deed: Callable[[], Answer]) -> list[Answer]:
        answers = at_once([deed] * 10)
        assert Counter(answer.replayed for answer in answers) == {False: 1, True: 9}
        assert all(answer.body == answers[0].body for answer in answers)
        return answers

    hold = UUID(told(partial(till.reserving, key="R"))[0].body["holdId"])
    other = till.reserve()
    told(partial(till.capture, hold, amount=60, final=True, key="C"))
    told(partial(till.void, other, key="V"))
    assert till.figures == (940, 0, 60)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50)))
def test_one_key_for_two_holds_is_one_capture(till: Till, round_: int) -> None:
    """No row is shared, so the unique key decides, and who lost begins again."""
    first, second = till.reserve(), till.reserve()
    outcomes = outcomes_of([partial(till.capture, hold, key="K") for hold in (first, second) * 3])
    assert outcomes == {POSTED: 1, REPLAYED: 2, "idempotency_key_reused": 3}
    assert till.figures == (800, 100, 100)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(100, few=2)))
def test_a_wallet_does_not_close_while_its_money_is_set_aside(till: Till, round_: int) -> None:
    close = partial(close_account, caller=till.payer.caller, account_id=till.payer.account_id)
    deeds = [partial(till.reserving, 1_000), *(partial(close, key=till.key()) for _ in range(3))]
    assert outcomes_of(deeds) == {POSTED: 1, "illegal_state": 3}


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50)))
def test_holds_there_and_back_among_transfers_never_deadlock(till: Till, round_: int) -> None:
    payer, merchant, world = till.payer, till.merchant, till.world
    world.pay(payer, merchant, 500)
    there = [till.reserve(10) for _ in range(6)]
    back = [till.reserve(10, by=merchant, to_account_id=payer.account_id) for _ in range(6)]
    deeds: list[Callable[[], Answer | Posted]] = [
        *(partial(till.capture, hold, amount=4, final=True) for hold in there[:3]),
        *(partial(till.void, hold) for hold in there[3:]),
        *(partial(till.capture, hold, by=payer, amount=4, final=True) for hold in back[:3]),
        *(partial(till.void, hold, by=payer) for hold in back[3:]),
        *(partial(world.pay, payer, merchant, 1) for _ in range(3)),
        *(partial(world.pay, merchant, payer, 1) for _ in range(3)),
    ]
    assert outcomes_of(deeds) == {POSTED: 18}
    assert till.figures == (500, 0, 500)


# --- A wait that lasts beyond the hold's time ------------------------------------------------------------------------


def test_a_capture_that_waited_for_too_long_is_late(till: Till, connect: Connect) -> None:
    """It came in time, and its accounts were free too late: the time of the transaction counts."""
    expires_at = clock.now() + timedelta(seconds=1)
    hold = till.reserve(100, expires_at=expires_at)
    with _locked(connect, till.merchant.account_id) as let_go, meanwhile(lambda: refusal(till.capture, hold)) as told:
        wait_for_lock(till.superuser)
        wait_until(lambda: clock.now() > expires_at, seconds=5)
        let_go()
        assert told() == "illegal_state"
    assert till.figures == (900, 100, 0)


def test_a_reservation_that_waited_for_too_long_is_none(till: Till, connect: Connect) -> None:
    expires_at = clock.now() + timedelta(seconds=1)
    reserve = partial(refusal, till.reserve, expires_at=expires_at)
    with _locked(connect, till.payer.account_id) as let_go, meanwhile(reserve) as told:
        wait_for_lock(till.superuser)
        wait_until(lambda: clock.now() > expires_at, seconds=5)
        let_go()
        assert told() == "invalid_request"
    assert till.figures == (1_000, 0, 0)


@contextmanager
def _locked(connect: Connect, account_id: int) -> Iterator[Callable[[], None]]:
    """An account that somebody else has locked, until what is yielded is called."""
    somebody = connect("app")
    somebody.execute("SELECT FROM account WHERE id = %s FOR NO KEY UPDATE", [account_id])
    yield somebody.rollback
