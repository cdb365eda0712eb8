"""Holds: set aside, taken in one or several parts, given back; by whom, and what refuses."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from accounts.services import freeze, thaw
from ledger.models import HeldMoney, JournalTransaction
from outbox.models import OutboxEvent
from tests.transfers.till import Till, refusal, status_of
from tests.world import Person, World
from transfers.models import Hold
from transfers.selectors import operation_body
from transfers.services import close_account, fund, reverse
from wallet_project.kernel import clock
from wallet_project.kernel.errors import DomainError, IllegalState, InvalidRequest
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


@pytest.fixture
def till(world: World, superuser: psycopg.Connection[Any]) -> Till:
    return Till(world, superuser)


# --- Stories ---------------------------------------------------------------------------------------------------------


def test_a_hold_is_taken_in_parts_and_the_rest_comes_back(till: Till) -> None:
    hold = till.reserve(100)
    assert till.figures == (900, 100, 0)

    assert till.capture(hold, amount=30).body["status"] == "ACTIVE"
    assert till.figures == (900, 70, 30)
    assert till.capture(hold, amount=20, final=True).body["status"] == "CAPTURED"
    assert till.figures == (950, 0, 50)

    kept = Hold.objects.get(pk=hold)
    (last,) = JournalTransaction.objects.filter(continues=hold, type="CAPTURE").order_by("-pk")[:1]
    assert (kept.status, kept.ended_by_id, kept.ended_at) == ("CAPTURED", last.pk, last.created_at)
    types = JournalTransaction.objects.filter(continues=hold).order_by("pk").values_list("type", flat=True)
    assert list(types) == ["CAPTURE", "CAPTURE", "RELEASE"]


def test_without_an_amount_all_that_is_left_is_taken(till: Till) -> None:
    hold = till.reserve(100)
    till.capture(hold, amount=1)
    assert till.capture(hold).body["status"] == "CAPTURED"
    assert till.figures == (900, 0, 100)
    assert not JournalTransaction.objects.filter(type="RELEASE").exists()


def test_a_final_capture_of_all_releases_nothing(till: Till) -> None:
    hold = till.reserve(100)
    till.capture(hold, amount=100, final=True)
    assert till.figures == (900, 0, 100)
    assert not JournalTransaction.objects.filter(type="RELEASE").exists()


def test_voiding_gives_back_what_was_not_taken(till: Till) -> None:
    hold = till.reserve(100)
    till.capture(hold, amount=30)
    body = till.void(hold).body
    assert (body["status"], body["capturedAmount"], body["releasedAmount"]) == ("VOIDED", 30, 70)
    assert till.figures == (970, 0, 30)


def test_the_payer_of_an_open_hold_names_who_gets_it(till: Till) -> None:
    hold = till.reserve(100, promised=False)
    friend = till.world.person("friend")
    till.capture(hold, by=till.payer, amount=60, to_account_id=till.merchant.account_id)
    till.capture(hold, by=till.payer, to_account_id=friend.account_id)
    assert (till.figures, friend.balance) == ((900, 0, 60), 40)


def test_seven_days_unless_it_is_said(till: Till) -> None:
    hold = Hold.objects.get(pk=till.reserve())
    assert hold.expires_at - hold.created_at == timedelta(days=7)
    in_a_month = clock.now() + timedelta(days=30)
    assert Hold.objects.get(pk=till.reserve(expires_at=in_a_month)).expires_at == in_a_month


# --- Who -------------------------------------------------------------------------------------------------------------


def test_who_may_command_a_hold(till: Till, snapshot: Snapshot) -> None:
    """For everybody else it does not exist."""
    stranger = till.world.person("stranger")
    promised, open_ = till.reserve(), till.reserve(promised=False)
    before = snapshot()
    for hold, others in ((promised, (till.payer, stranger)), (open_, (till.merchant, stranger))):
        for other in others:
            assert refusal(till.capture, hold, by=other, to_account_id=other.account_id) == "not_found"
            assert refusal(till.void, hold, by=other) == "not_found"
    for missing in (uuid4(), JournalTransaction.objects.filter(type="DEPOSIT").values_list("pk", flat=True)[0]):
        assert refusal(till.capture, missing) == "not_found"
        assert refusal(till.void, missing) == "not_found"
    assert snapshot() == before


def test_a_disabled_user_commands_nothing(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve()
    for person in (till.payer, till.merchant):
        person.user.is_active = False
        person.user.save(update_fields=["is_active"])
    before = snapshot()
    for deed in (till.reserve, lambda: till.capture(hold), lambda: till.void(hold)):
        assert refusal(deed) == "token_invalid"
    assert snapshot() == before


# --- What refuses ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_reserved(till: Till, snapshot: Snapshot) -> None:
    dollars = till.world.person("yankee", currency="USD").account_id
    gone = till.world.person("gone")
    close_account(caller=gone.caller, key="close", account_id=gone.account_id)
    system = HeldMoney.objects.get(pk=till.reserve()).hold_account_id
    before = snapshot()
    refused = {
        "insufficient_funds": {"amount": 901},
        "same_account": {"to_account_id": till.payer.account_id},
        "currency_mismatch": {"to_account_id": dollars},
        "account_closed": {"to_account_id": gone.account_id},
    }
    for code, call in refused.items():
        assert refusal(till.reserve, **call) == code
    for number in (2**62, system):
        assert refusal(till.reserve, to_account_id=number) == "not_found"
        for _ in range(40):  # The shard that is drawn may be the one that was named.
            assert refusal(till.reserve, account_id=number) == "not_found"
    assert refusal(till.reserve, account_id=till.merchant.account_id, promised=False) == "not_found"
    freeze(account_id=till.payer.account_id, cause="STAFF", reason="a call", staff_id=gone.user.pk)
    assert refusal(till.reserve) == "account_frozen"
    thaw(account_id=till.payer.account_id, reason="over", staff_id=gone.user.pk)
    assert {**snapshot(), **_freezes(before)} == before


def _freezes(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in snapshot.items() if name.startswith(("account_freeze", "account_thaw"))}


@pytest.mark.parametrize(
    ("ahead", "code"),
    [(timedelta(0), "past"), (timedelta(days=-400), "past"), (timedelta(days=30, minutes=1), "too_far")],
)
def test_a_time_that_cannot_be(till: Till, snapshot: Snapshot, ahead: timedelta, code: str) -> None:
    before = snapshot()
    with pytest.raises(InvalidRequest) as refused:
        till.reserve(5_000, expires_at=clock.now() + ahead)
    (fault,) = refused.value.fields
    assert (fault.field, fault.code) == ("expiresAt", code)
    assert snapshot() == before


def test_more_than_is_left_is_not_taken(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve(100)
    till.capture(hold, amount=60)
    before = snapshot()
    assert refusal(till.capture, hold, amount=41) == "capture_exceeds_hold"
    assert refusal(till.capture, hold, amount=MAX_AMOUNT, final=True) == "capture_exceeds_hold"
    assert snapshot() == before


def test_for_whom_nothing_can_be_captured(till: Till, snapshot: Snapshot) -> None:
    promised, open_ = till.reserve(), till.reserve(promised=False)
    other = till.world.person("other")
    dollars = till.world.person("yankee", currency="USD")
    system = HeldMoney.objects.get(pk=open_).hold_account_id
    before = snapshot()
    assert refusal(till.capture, promised, to_account_id=other.account_id) == "invalid_request"
    assert refusal(till.capture, open_, by=till.payer) == "invalid_request"
    assert refusal(till.capture, open_, by=till.payer, to_account_id=till.payer.account_id) == "same_account"
    assert refusal(till.capture, open_, by=till.payer, to_account_id=dollars.account_id) == "currency_mismatch"
    for number in (2**62, system):
        assert refusal(till.capture, open_, by=till.payer, to_account_id=number) == "not_found"
    assert snapshot() == before
    assert till.capture(promised, to_account_id=till.merchant.account_id).body["status"] == "CAPTURED"


@pytest.mark.parametrize("end", ["CAPTURED", "VOIDED", "EXPIRED"])
def test_nothing_is_done_with_a_hold_that_has_ended(till: Till, snapshot: Snapshot, end: str) -> None:
    """By whatever way it ended, and by whatever id it was known."""
    hold = till.ended(end)
    others = JournalTransaction.objects.filter(continues=hold).values_list("pk", flat=True)
    before = snapshot()
    for deed in (till.capture, till.void):
        with pytest.raises(IllegalState, match=end):
            deed(hold)
        for other in others:
            assert refusal(deed, other) == "not_found"
    assert refusal(till.capture, hold, amount=1, final=True) == "illegal_state"
    assert snapshot() == before


def test_a_capture_is_late_before_the_sweep_has_come_by(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve()
    till.let_expire(hold)
    before = snapshot()
    with pytest.raises(IllegalState, match="EXPIRED"):
        till.capture(hold)
    assert snapshot() == before
    assert status_of(hold) == "ACTIVE"


def test_voiding_stays_possible_until_the_sweep_comes_by(till: Till) -> None:
    hold = till.reserve()
    till.let_expire(hold)
    assert till.void(hold).body["status"] == "VOIDED"
    assert till.figures == (1_000, 0, 0)


def test_a_payee_who_has_closed_the_wallet_gets_nothing(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve()
    close_account(caller=till.merchant.caller, key="close", account_id=till.merchant.account_id)
    before = snapshot()
    assert refusal(till.capture, hold) == "account_closed"
    assert snapshot() == before
    till.void(hold)
    assert till.figures == (1_000, 0, 0)


def test_a_full_payee_gets_nothing(till: Till, snapshot: Snapshot) -> None:
    fund(account_id=till.merchant.account_id, amount=MAX_AMOUNT - 50, key="fortune")
    hold = till.reserve()
    before = snapshot()
    assert refusal(till.capture, hold, key="K") == "balance_limit_exceeded"
    assert snapshot() == before
    till.capture(hold, amount=50, key="K2", final=True)
    assert till.figures == (950, 0, MAX_AMOUNT)


def test_a_full_payer_gets_nothing_back(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve()
    fund(account_id=till.payer.account_id, amount=MAX_AMOUNT - 950, key="fortune")
    before = snapshot()
    assert refusal(till.void, hold) == "balance_limit_exceeded"
    assert refusal(till.capture, hold, amount=1, final=True) == "balance_limit_exceeded"
    assert snapshot() == before
    till.capture(hold, amount=50, final=True)
    assert till.figures == (MAX_AMOUNT, 0, 50)


def test_money_that_is_not_there_is_refused_loudly(
    till: Till, snapshot: Snapshot, superuser: psycopg.Connection[Any]
) -> None:
    """Somebody has emptied the HOLD account beneath the book: nothing moves, and nothing is marked."""
    hold = till.reserve()
    shard = HeldMoney.objects.get(pk=hold).hold_account_id
    _set_balance(superuser, shard, 0)
    before = snapshot()
    assert refusal(till.capture, hold) == "insufficient_funds"
    assert refusal(till.void, hold) == "insufficient_funds"
    assert snapshot() == before
    _set_balance(superuser, shard, 100)


def _set_balance(superuser: psycopg.Connection[Any], account_id: int, balance: int) -> None:
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute("UPDATE account SET balance = %s WHERE id = %s", [balance, account_id])


# --- Frozen and closed (the table in docs/money-on-hold.md) ----------------------------------------------------------


def test_a_freeze_does_not_take_back_what_was_promised(till: Till) -> None:
    taken, voided = till.reserve(), till.reserve()
    freeze(account_id=till.payer.account_id, cause="STAFF", reason="a call", staff_id=till.payer.user.pk)
    till.capture(taken, amount=10, final=True)
    till.void(voided)
    assert till.figures == (990, 0, 10)


def test_a_frozen_payer_names_nobody(till: Till, snapshot: Snapshot) -> None:
    """Or an open hold would be a way out of every freeze to come."""
    hold, voided = till.reserve(promised=False), till.reserve(promised=False)
    freeze(account_id=till.payer.account_id, cause="STAFF", reason="a call", staff_id=till.payer.user.pk)
    before = snapshot()
    named: dict[str, Any] = {"by": till.payer, "to_account_id": till.merchant.account_id}
    assert refusal(till.capture, hold, **named) == "account_frozen"
    assert snapshot() == before
    till.void(voided, by=till.payer)
    thaw(account_id=till.payer.account_id, reason="over", staff_id=till.payer.user.pk)
    till.capture(hold, **named)
    assert till.figures == (900, 0, 100)


def test_a_frozen_payee_receives(till: Till) -> None:
    hold = till.reserve()
    freeze(account_id=till.merchant.account_id, cause="STAFF", reason="a call", staff_id=till.payer.user.pk)
    till.capture(hold)
    assert till.figures == (900, 0, 100)


def test_a_wallet_with_money_on_hold_stays_open(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve(1_000)
    before = snapshot()
    with pytest.raises(IllegalState, match="1000 on hold"):
        close_account(caller=till.payer.caller, key="close", account_id=till.payer.account_id)
    assert snapshot() == before
    till.capture(hold)
    close_account(caller=till.payer.caller, key="close", account_id=till.payer.account_id)


# --- Keys ------------------------------------------------------------------------------------------------------------


def test_every_command_is_done_once_and_answered_again(till: Till, snapshot: Snapshot) -> None:
    reserved = till.reserving(key="R")
    hold = UUID(reserved.body["holdId"])
    part = till.capture(hold, amount=30, key="C")
    last = till.capture(hold, amount=20, final=True, key="L")
    other = till.reserve()
    voided = till.void(other, key="V")
    before = snapshot()

    assert [answer.replayed for answer in (reserved, part, last, voided)] == [False] * 4
    for first, again in (
        (reserved, till.reserving(key="R")),
        (part, till.capture(hold, amount=30, key="C")),
        (last, till.capture(hold, amount=20, final=True, key="L")),
        (voided, till.void(other, key="V")),
    ):
        assert (again.status, again.body, again.replayed) == (first.status, first.body, True)
    for person, key, answer in (
        (till.payer, "R", reserved),
        (till.merchant, "C", part),
        (till.merchant, "L", last),
        (till.merchant, "V", voided),
    ):
        told = operation_body(owner_id=person.user.pk, key=key)
        assert told == {"status": answer.status, "body": answer.body}
    assert snapshot() == before


def test_a_key_belongs_to_one_command(till: Till, snapshot: Snapshot) -> None:
    hold, other = till.reserve(key="R"), till.reserve()
    till.capture(hold, amount=30, key="C")
    till.void(other, key="V")
    elsewhere = till.world.person("elsewhere").account_id
    before = snapshot()
    for change in ({"amount": 99}, {"to_account_id": elsewhere}, {"promised": False}, {"expires_at": _tomorrow()}):
        assert refusal(till.reserve, **{"key": "R", **change}) == "idempotency_key_reused"
    for change in ({"amount": 31}, {"final": True}, {"to_account_id": till.merchant.account_id}, {"amount": None}):
        assert refusal(till.capture, hold, **{"key": "C", "amount": 30, **change}) == "idempotency_key_reused"
    assert refusal(till.capture, other, key="C", amount=30) == "idempotency_key_reused"
    for key in ("C", "V"):
        assert refusal(till.void, hold, key=key) == "idempotency_key_reused"
    assert refusal(till.capture, hold, key="V") == "idempotency_key_reused"
    assert snapshot() == before


def _tomorrow() -> Any:
    return clock.now() + timedelta(days=1)


def test_a_refused_command_has_not_used_its_key(till: Till) -> None:
    assert refusal(till.reserve, 1_001, key="R") == "insufficient_funds"
    fund(account_id=till.payer.account_id, amount=1, key="a penny")
    hold = till.reserve(1_001, key="R")
    assert refusal(till.capture, hold, amount=1_002, key="C") == "capture_exceeds_hold"
    assert till.capture(hold, amount=1, key="C").replayed is False


def test_a_replay_is_answered_though_its_time_is_over(
    till: Till, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry says a time that has passed by now; it was good when it was first sent."""
    expires_at = clock.now() + timedelta(hours=1)
    first = till.reserving(expires_at=expires_at, key="R")
    before = snapshot()
    monkeypatch.setattr(clock, "now", lambda: expires_at)
    again = till.reserving(expires_at=expires_at, key="R")
    assert (again.body, again.replayed) == (first.body, True)
    for change in ({"key": "new"}, {"amount": 99}):
        assert refusal(till.reserving, **{"expires_at": expires_at, "key": "R", **change}) == "invalid_request"
    assert snapshot() == before


# --- What the world is told ------------------------------------------------------------------------------------------


def test_each_movement_has_one_event(till: Till) -> None:
    hold = till.reserve(100)
    till.capture(hold, amount=30)
    till.capture(hold, amount=20, final=True)
    events = OutboxEvent.objects.filter(topic="wallet.holds").order_by("pk")
    payer, merchant = till.payer.account_id, till.merchant.account_id
    said = [tuple(event.payload[name] for name in ("type", "from", "to", "amount", "holdStatus")) for event in events]
    assert said == [
        ("HOLD", payer, None, 100, "ACTIVE"),
        ("CAPTURE", payer, merchant, 30, "ACTIVE"),
        ("CAPTURE", payer, merchant, 20, "CAPTURED"),
        ("RELEASE", None, payer, 50, "CAPTURED"),
    ]
    assert {event.key for event in events} == {str(payer)}
    assert {event.payload["holdId"] for event in events} == {str(hold)}
    assert events[0].payload["transactionId"] == str(hold)


@pytest.mark.parametrize("end", ["VOIDED", "EXPIRED"])
def test_a_release_says_how_the_hold_ended(till: Till, end: str) -> None:
    till.ended(end)
    released = OutboxEvent.objects.filter(topic="wallet.holds").latest("pk")
    assert (released.payload["type"], released.payload["holdStatus"]) == ("RELEASE", end)


# --- Reversals of captures -------------------------------------------------------------------------------------------


def test_a_capture_goes_back_to_the_payers_wallet(till: Till) -> None:
    hold = till.reserve(100)
    taken = UUID(till.capture(hold, amount=60).body["transactionId"])
    staff = till.world.person("finance")
    reverse(caller=staff.caller, key="r1", transaction_id=taken, reason="goods came back", amount=25)
    assert till.figures == (925, 40, 35)
    reverse(caller=staff.caller, key="r2", transaction_id=taken, reason="goods came back")
    assert till.figures == (960, 40, 0)
    with pytest.raises(DomainError) as refused:
        reverse(caller=staff.caller, key="r3", transaction_id=taken, reason="again")
    assert refused.value.code == "already_reversed"
    event = OutboxEvent.objects.get(payload__type="REVERSAL", payload__amount=25)
    assert (event.topic, event.key) == ("wallet.transfers", str(till.payer.account_id))
    assert (event.payload["from"], event.payload["to"]) == (till.merchant.account_id, till.payer.account_id)
    # What went back does not go on hold again.
    assert refusal(till.capture, hold, amount=41) == "capture_exceeds_hold"


def test_a_hold_and_a_release_are_not_reversed(till: Till, snapshot: Snapshot) -> None:
    hold = till.ended("VOIDED")
    staff = till.world.person("finance")
    before = snapshot()
    for transaction in JournalTransaction.objects.exclude(type="DEPOSIT"):
        with pytest.raises(DomainError) as refused:
            reverse(caller=staff.caller, key="r", transaction_id=transaction.pk, reason="no")
        assert refused.value.code == "not_reversible"
    assert snapshot() == before
    assert status_of(hold) == "VOIDED"


def test_a_capture_that_was_spent_is_not_taken_from_anybody(till: Till, snapshot: Snapshot) -> None:
    hold = till.reserve(100)
    taken = UUID(till.capture(hold).body["transactionId"])
    staff, supplier = till.world.person("finance"), till.world.person("supplier")
    till.world.pay(till.merchant, supplier, 90)
    before = snapshot()
    with pytest.raises(DomainError) as refused:
        reverse(caller=staff.caller, key="r", transaction_id=taken, reason="goods came back")
    assert refused.value.code == "insufficient_funds"
    assert snapshot() == before


def test_a_wallet_of_the_payers_may_be_the_payee(till: Till) -> None:
    """Two wallets of one person's are two accounts."""
    pocket = Person(user=till.payer.user, account_id=till.world.wallet(till.payer.user))
    hold = till.reserve(100, to_account_id=pocket.account_id)
    till.capture(hold, by=till.payer)
    assert (till.figures, pocket.balance) == ((900, 0, 0), 100)
