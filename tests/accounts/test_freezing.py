"""Freezing, thawing and closing wallets: rows with a cause and a maker, under the account's lock."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from accounts.models import Freeze
from accounts.services import freeze, thaw
from tests.races import POSTED, outcomes_of
from tests.world import World
from transfers.services import close_account
from wallet_project.kernel.errors import DomainError

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(DomainError) as refused:
        call()
    return refused.value.code


def test_a_frozen_wallet_receives_and_does_not_pay(world: World) -> None:
    suspect, friend, staff = world.person("suspect", balance=100), world.person("friend"), world.person("staff")

    row = freeze(account_id=suspect.account_id, cause="STAFF", reason="odd pattern", staff_id=staff.user.pk)
    assert (row.cause, row.reason, row.made_by_id) == ("STAFF", "odd pattern", staff.user.pk)
    assert code_of(lambda: world.pay(suspect, friend, 1, key="k")) == "account_frozen"
    world.pay(world.person("another payer", balance=5), suspect, 5)

    (ended,) = thaw(account_id=suspect.account_id, reason="explained", staff_id=staff.user.pk)
    assert (ended.freeze_id, ended.reason, ended.made_by_id) == (row.pk, "explained", staff.user.pk)
    world.pay(suspect, friend, 105, key="k")
    assert (suspect.balance, friend.balance) == (0, 105)


def test_a_freeze_of_each_cause_stands_for_itself_and_a_thaw_ends_all(world: World) -> None:
    suspect, staff = world.person("suspect"), world.person("staff")
    freezing = partial(freeze, account_id=suspect.account_id, reason="why", staff_id=staff.user.pk)
    thawing = partial(thaw, account_id=suspect.account_id, reason="why", staff_id=staff.user.pk)

    assert code_of(thawing) == "illegal_state"
    freezing(cause="STAFF")
    assert code_of(lambda: freezing(cause="STAFF")) == "illegal_state"
    freezing(cause="CHARGEBACK")
    assert len(thawing()) == 2
    assert code_of(thawing) == "illegal_state"
    freezing(cause="STAFF")
    assert Freeze.objects.filter(thaw=None).count() == 1


def test_only_wallets_are_frozen(world: World) -> None:
    staff = world.person("staff")
    assert code_of(lambda: freeze(account_id=1, cause="STAFF", reason="why", staff_id=staff.user.pk)) == "not_found"


def test_closing_is_for_empty_open_wallets_of_ones_own(world: World, snapshot: Snapshot) -> None:
    owner, stranger, staff = world.person("owner", balance=10), world.person("stranger"), world.person("staff")
    close = partial(close_account, account_id=owner.account_id)
    before = snapshot()

    assert code_of(lambda: close(caller=stranger.caller, key="k")) == "not_found"
    assert code_of(lambda: close(caller=owner.caller, key="k")) == "illegal_state"
    assert snapshot() == before

    world.pay(owner, stranger, 10)
    freeze(account_id=owner.account_id, cause="STAFF", reason="why", staff_id=staff.user.pk)
    assert code_of(lambda: close(caller=owner.caller, key="k")) == "illegal_state"
    thaw(account_id=owner.account_id, reason="why", staff_id=staff.user.pk)

    first = close(caller=owner.caller, key="k")
    assert (first.status, first.body["status"], first.replayed) == (200, "CLOSED", False)
    again = close(caller=owner.caller, key="k")
    assert (again.body, again.replayed) == (first.body, True)
    assert code_of(lambda: close(caller=owner.caller, key="another")) == "illegal_state"
    assert code_of(lambda: close_account(caller=owner.caller, key="k", account_id=stranger.account_id)) == (
        "idempotency_key_reused"
    )
    assert code_of(lambda: world.pay(stranger, owner, 1)) == "account_closed"


@pytest.mark.race
def test_a_wallet_is_closed_or_paid_into_never_both(world: World) -> None:
    owner, payer = world.person("owner"), world.person("payer", balance=10)

    # An answer has `replayed`, as a posting does, which is all that is asked of it here.
    close: Any = partial(close_account, caller=owner.caller, key="close", account_id=owner.account_id)
    counted = outcomes_of([close, partial(world.pay, payer, owner, 10)])
    assert counted in ({POSTED: 1, "illegal_state": 1}, {POSTED: 1, "account_closed": 1})
    assert payer.balance + owner.balance == 10


@pytest.mark.race
def test_a_freeze_waits_for_the_debit_under_way_and_stops_the_next(world: World) -> None:
    suspect, friend, staff = world.person("suspect", balance=100), world.person("friend"), world.person("staff")

    def freezing() -> Any:
        freeze(account_id=suspect.account_id, cause="STAFF", reason="why", staff_id=staff.user.pk)
        return world.pay(suspect, friend, 1)

    counted = outcomes_of([freezing, *(partial(world.pay, suspect, friend, 1) for _ in range(10))])
    # Whoever tries after the freeze has returned is refused; all that were posted came before it.
    assert counted["account_frozen"] >= 1
    assert counted[POSTED] + counted["account_frozen"] == 11
    assert friend.balance == counted[POSTED]
