"""Reversals: from the payee's wallet back to the payer's, whole or in part, never more than came."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from accounts.services import freeze
from ledger.commands import Posted
from ledger.models import JournalTransaction, LedgerEntry
from ledger.reversals import find_original
from tests.races import POSTED, REPLAYED, outcomes_of
from tests.world import Person, World
from transfers.services import close_account, fund, reverse
from wallet_project.kernel.errors import DomainError

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


class Desk:
    """A member of staff who reverses one transfer of 100 from payer to payee."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.payer = world.person("payer", balance=100)
        self.payee = world.person("payee")
        self.staff = world.person("finance")
        self.transfer = world.pay(self.payer, self.payee, 100)

    def reverse(self, *, key: str, staff: Person | None = None, **more: Any) -> Posted:
        given = {"transaction_id": self.transfer.transaction_id, "reason": "sent to the wrong person", **more}
        return reverse(caller=(staff or self.staff).caller, key=key, **given)

    def refusal(self, **call: Any) -> str:
        with pytest.raises(DomainError) as refused:
            self.reverse(**call)
        return refused.value.code

    @property
    def balances(self) -> tuple[int, int]:
        return self.payer.balance, self.payee.balance


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world)


def test_a_whole_reversal_brings_everybody_back_to_where_they_were(desk: Desk) -> None:
    assert desk.balances == (0, 100)

    posted = desk.reverse(key="r1")

    assert desk.balances == (100, 0)
    journal = JournalTransaction.objects.get(pk=posted.transaction_id)
    assert (journal.type, journal.reverses_id, journal.reference) == (
        "REVERSAL",
        desk.transfer.transaction_id,
        "sent to the wrong person",
    )
    legs = LedgerEntry.objects.filter(transaction=journal).order_by("amount")
    assert [(leg.account_id, leg.amount, leg.balance_after) for leg in legs] == [
        (desk.payee.account_id, -100, 0),
        (desk.payer.account_id, 100, 100),
    ]


def test_parts_go_back_until_nothing_is_left(desk: Desk) -> None:
    desk.reverse(key="r1", amount=30)
    assert desk.balances == (30, 70)
    desk.reverse(key="r2", amount=30)
    assert desk.balances == (60, 40)
    desk.reverse(key="r3")
    assert desk.balances == (100, 0)

    assert desk.refusal(key="r4") == "already_reversed"
    original = find_original(desk.transfer.transaction_id)
    assert original is not None
    assert (original.reversed_amount, original.left, len(original.reversal_ids)) == (100, 0, 3)


def test_reversing_again_and_again_moves_nothing(desk: Desk, snapshot: Snapshot) -> None:
    first = desk.reverse(key="r1")
    before = snapshot()

    again = desk.reverse(key="r1")
    assert (again.transaction_id, again.replayed) == (first.transaction_id, True)
    assert desk.refusal(key="r2") == "already_reversed"
    assert desk.refusal(key="r3", transaction_id=first.transaction_id) == "not_reversible"
    assert desk.refusal(key="r1", amount=100) == "idempotency_key_reused"

    assert snapshot() == before


def test_a_replay_is_answered_though_nothing_is_left(desk: Desk) -> None:
    part = desk.reverse(key="part", amount=40)
    desk.reverse(key="rest")
    assert desk.reverse(key="part", amount=40).transaction_id == part.transaction_id


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"amount": 101}, "reversal_exceeds_original"),
        ({"shown_left": 99}, "illegal_state"),
        ({"transaction_id": uuid4()}, "not_found"),
    ],
)
def test_what_cannot_go_back_is_refused(desk: Desk, snapshot: Snapshot, call: dict[str, Any], code: str) -> None:
    before = snapshot()
    assert desk.refusal(key="r1", **call) == code
    assert snapshot() == before


def test_a_refused_reversal_has_not_used_its_key(desk: Desk) -> None:
    assert desk.refusal(key="r1", amount=101) == "reversal_exceeds_original"
    assert desk.reverse(key="r1", amount=100).replayed is False


def test_a_deposit_comes_back_only_through_the_bank(desk: Desk, snapshot: Snapshot) -> None:
    deposit = fund(account_id=desk.payer.account_id, amount=5, key="from the bank")
    before = snapshot()
    assert desk.refusal(key="r1", transaction_id=deposit.transaction_id) == "not_reversible"
    assert snapshot() == before


def test_money_that_was_spent_is_not_taken_twice(desk: Desk, snapshot: Snapshot) -> None:
    merchant = desk.world.person("merchant")
    desk.world.pay(desk.payee, merchant, 90)
    before = snapshot()

    assert desk.refusal(key="r1") == "insufficient_funds"
    assert snapshot() == before

    desk.reverse(key="r2", amount=10)
    assert desk.balances == (10, 0)


def test_a_frozen_receiver_is_no_obstacle(desk: Desk) -> None:
    freeze(account_id=desk.payee.account_id, cause="STAFF", reason="under inquiry", staff_id=desk.staff.user.pk)
    desk.reverse(key="r1")
    assert desk.balances == (100, 0)


def test_a_closed_payer_cannot_be_paid_back(desk: Desk, snapshot: Snapshot) -> None:
    close_account(caller=desk.payer.caller, key="close", account_id=desk.payer.account_id)
    before = snapshot()
    assert desk.refusal(key="r1") == "account_closed"
    assert snapshot() == before


def test_staff_who_were_dismissed_reverse_nothing(desk: Desk, snapshot: Snapshot) -> None:
    caller = desk.staff.caller
    desk.staff.user.is_active = False
    desk.staff.user.save(update_fields=["is_active"])
    before = snapshot()
    with pytest.raises(DomainError) as refused:
        reverse(caller=caller, key="r1", transaction_id=desk.transfer.transaction_id, reason="revenge")
    assert refused.value.code == "token_invalid"
    assert snapshot() == before


def test_the_event_follows_its_original(desk: Desk, superuser: psycopg.Connection[Any]) -> None:
    posted = desk.reverse(key="r1", amount=40)
    events = superuser.execute(
        "SELECT topic, key, payload FROM outbox_event WHERE topic = 'wallet.transfers' ORDER BY id"
    ).fetchall()
    (_, original_key, _), (topic, key, payload) = events
    assert key == original_key == str(desk.payer.account_id)
    assert topic == "wallet.transfers"
    assert {name: payload[name] for name in ("transactionId", "from", "to", "amount", "type")} == {
        "transactionId": str(posted.transaction_id),
        "from": desk.payee.account_id,
        "to": desk.payer.account_id,
        "amount": 40,
        "type": "REVERSAL",
    }


# --- Races ---------------------------------------------------------------------------------------------------------


@pytest.mark.race
def test_parts_at_once_never_exceed_the_original(desk: Desk) -> None:
    counted = outcomes_of([partial(desk.reverse, key=f"r{n}", amount=10) for n in range(20)])
    assert counted == {POSTED: 10, "already_reversed": 10}
    assert desk.balances == (100, 0)


@pytest.mark.race
def test_two_colleagues_at_once_make_one_reversal(desk: Desk) -> None:
    colleague = desk.world.person("finance2")
    counted = outcomes_of([partial(desk.reverse, key="mine"), partial(desk.reverse, key="mine", staff=colleague)])
    assert counted == {POSTED: 1, "already_reversed": 1}
    assert desk.balances == (100, 0)


@pytest.mark.race
def test_colleagues_who_were_shown_the_same_make_one_reversal_of_a_part(desk: Desk) -> None:
    counted = outcomes_of([partial(desk.reverse, key=f"form-{n}", amount=30, shown_left=100) for n in range(4)])
    assert counted == {POSTED: 1, "illegal_state": 3}
    assert desk.balances == (30, 70)


@pytest.mark.race
def test_a_double_submit_is_one_reversal(desk: Desk) -> None:
    counted = outcomes_of([partial(desk.reverse, key="form", amount=30, shown_left=100)] * 8)
    assert counted == {POSTED: 1, REPLAYED: 7}
    assert desk.balances == (30, 70)


@pytest.mark.race
def test_the_receiver_spends_while_it_goes_back(desk: Desk) -> None:
    merchant = desk.world.person("merchant")
    counted = outcomes_of([partial(desk.reverse, key="r1"), partial(desk.world.pay, desk.payee, merchant, 100)])
    assert counted == {POSTED: 1, "insufficient_funds": 1}
    assert (desk.payer.balance, desk.payee.balance, merchant.balance) in [(100, 0, 0), (0, 0, 100)]
