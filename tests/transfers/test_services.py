"""The use cases as an interface calls them: plain values in, plain values out, refusals raised."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from accounts.models import Account, User
from accounts.services import Caller
from ledger.errors import IdempotencyKeyReused, InsufficientFunds
from ledger.models import IdempotencyRecord, JournalTransaction
from tests.races import at_once
from tests.world import Person, World
from transfers.services import close_account, fund, open_account, transfer
from wallet_project.kernel.errors import DomainError

Snapshot = Callable[[], dict[str, Any]]


@pytest.fixture
def payer(world: World) -> Person:
    return world.person("payer", balance=1_000)


@pytest.fixture
def payee(world: World) -> Person:
    return world.person("payee")


def _code(deed: Callable[[], object]) -> str:
    with pytest.raises(DomainError) as refusal:
        deed()
    return refusal.value.code


def test_a_transfer_keeps_its_reference_and_metadata(payer: Person, payee: Person) -> None:
    sent = transfer(
        caller=payer.caller,
        key="k",
        from_account_id=payer.account_id,
        to_account_id=payee.account_id,
        amount=10,
        reference="Tiền nhà tháng 6 🏠",
        metadata={"invoice": {"number": 7, "lines": [1, 2.5, None, True]}},
    )
    journal = JournalTransaction.objects.get(pk=sent.transaction_id)
    assert journal.reference == "Tiền nhà tháng 6 🏠"
    assert journal.metadata == {"invoice": {"number": 7, "lines": [1, 2.5, None, True]}}


FIELDS: dict[str, dict[str, Any]] = {
    "amount": {"amount": 11},
    "reference": {"reference": "rent"},
    "no reference": {"reference": None},
    "metadata": {"metadata": {"a": 2}},
    "no metadata": {"metadata": None},
}


@pytest.mark.parametrize("change", FIELDS.values(), ids=FIELDS.keys())
def test_every_field_is_part_of_the_command(
    payer: Person, payee: Person, snapshot: Snapshot, change: dict[str, Any]
) -> None:
    command: dict[str, Any] = {
        "caller": payer.caller,
        "key": "k",
        "from_account_id": payer.account_id,
        "to_account_id": payee.account_id,
        "amount": 10,
        "reference": "a pen",
        "metadata": {"a": 1},
    }
    first = transfer(**command)
    before = snapshot()
    with pytest.raises(IdempotencyKeyReused):
        transfer(**{**command, **change})
    assert transfer(**command).transaction_id == first.transaction_id
    assert snapshot() == before


def test_a_refusal_is_raised_and_is_not_final(world: World, payer: Person, payee: Person, snapshot: Snapshot) -> None:
    before = snapshot()
    with pytest.raises(InsufficientFunds):
        world.pay(payer, payee, 1_001, key="k")
    assert snapshot() == before
    fund(account_id=payer.account_id, amount=1, key="top-up")
    assert not world.pay(payer, payee, 1_001, key="k").replayed


def test_funding_is_once_per_key_whichever_shard_is_drawn(payer: Person) -> None:
    first = fund(account_id=payer.account_id, amount=5, key="top-up")
    for _ in range(10):  # Sixteen shards: another one is nearly always drawn.
        assert fund(account_id=payer.account_id, amount=5, key="top-up").transaction_id == first.transaction_id
    assert payer.balance == 1_005
    with pytest.raises(IdempotencyKeyReused):
        fund(account_id=payer.account_id, amount=6, key="top-up")


def test_only_wallets_are_funded(payer: Person) -> None:
    system = Account.objects.filter(kind=Account.Kind.SUSPENSE)[0]
    with pytest.raises(Account.DoesNotExist):
        fund(account_id=system.pk, amount=5, key="top-up")


# --- Opening and closing: commands that post nothing -----------------------------------------------------------------


def test_a_wallet_is_opened_once_per_key(payer: Person) -> None:
    first = open_account(caller=payer.caller, key="k", currency="USD", name="travel")
    again = open_account(caller=payer.caller, key="k", currency="USD", name="travel")
    assert (first.status, first.replayed, again.replayed) == (201, False, True)
    assert list(again.body.items()) == list(first.body.items())  # Word for word, and in the same order.
    assert Account.objects.owned_by(payer.user.pk).filter(currency="USD").count() == 1
    assert first.body["name"] == "travel"
    assert (first.body["balance"], first.body["status"]) == (0, "ACTIVE")


def test_the_answer_stays_the_first_one(world: World, payer: Person) -> None:
    first = open_account(caller=payer.caller, key="k", currency="VND")
    fund(account_id=first.body["accountId"], amount=5, key="top-up")
    assert open_account(caller=payer.caller, key="k", currency="VND").body == first.body


def test_a_wallet_is_opened_once_however_many_ask_at_once(payer: Person) -> None:
    answers = at_once([lambda: open_account(caller=payer.caller, key="k", currency="USD")] * 10)
    assert len({answer.body["accountId"] for answer in answers}) == 1
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 9
    assert Account.objects.filter(currency="USD", kind="WALLET").count() == 1


@pytest.mark.parametrize("change", [{"currency": "EUR"}, {"name": "other"}, {"name": None}])
def test_another_wallet_under_a_used_key(payer: Person, snapshot: Snapshot, change: dict[str, Any]) -> None:
    command: dict[str, Any] = {"caller": payer.caller, "key": "k", "currency": "USD", "name": "travel"}
    open_account(**command)
    before = snapshot()
    assert _code(lambda: open_account(**{**command, **change})) == "idempotency_key_reused"
    assert snapshot() == before


def test_one_key_covers_all_kinds_of_commands(world: World, payer: Person, payee: Person) -> None:
    world.pay(payer, payee, 1, key="k")
    assert _code(lambda: open_account(caller=payer.caller, key="k", currency="USD")) == "idempotency_key_reused"
    assert (
        _code(lambda: close_account(caller=payer.caller, key="k", account_id=payer.account_id))
        == "idempotency_key_reused"
    )


def test_closing_is_for_ever_and_replayed(payer: Person, payee: Person, world: World) -> None:
    closed = close_account(caller=payee.caller, key="k", account_id=payee.account_id)
    assert (closed.status, closed.body["status"]) == (200, "CLOSED")
    assert close_account(caller=payee.caller, key="k", account_id=payee.account_id).replayed
    assert _code(lambda: close_account(caller=payee.caller, key="l", account_id=payee.account_id)) == "illegal_state"
    assert _code(lambda: world.pay(payer, payee, 1)) == "account_closed"


def test_what_is_not_ones_own_is_not_closed(payer: Person, payee: Person, snapshot: Snapshot) -> None:
    before = snapshot()
    for account_id in (payee.account_id, 2**62, 1):
        close = partial(close_account, caller=payer.caller, key="k", account_id=account_id)
        assert _code(close) == "not_found"
    assert _code(lambda: close_account(caller=payer.caller, key="k", account_id=payer.account_id)) == "illegal_state"
    assert snapshot() == before
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "another hash"}], ids=["disabled", "password"])
def test_who_may_no_longer_act_opens_and_closes_nothing_not_even_again(
    payer: Person, payee: Person, snapshot: Snapshot, change: dict[str, Any]
) -> None:
    open_account(caller=payee.caller, key="k", currency="USD")
    User.objects.filter(pk=payee.user.pk).update(**change)
    before = snapshot()
    assert _code(lambda: open_account(caller=payee.caller, key="k", currency="USD")) == "token_invalid"
    assert _code(lambda: open_account(caller=payee.caller, key="l", currency="USD")) == "token_invalid"
    assert _code(lambda: close_account(caller=payee.caller, key="m", account_id=payee.account_id)) == "token_invalid"
    assert snapshot() == before


def test_a_caller_who_is_nobody(payer: Person, snapshot: Snapshot) -> None:
    nobody = Caller(user_id=2**40, stamp=payer.caller.stamp)
    before = snapshot()
    assert _code(lambda: open_account(caller=nobody, key="k", currency="USD")) == "token_invalid"
    assert snapshot() == before
