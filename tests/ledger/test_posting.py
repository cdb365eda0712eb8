"""Posting: every refusal in the contract's order, many commands at once, and keys."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from accounts.models import Account, User
from accounts.services import freeze
from ledger.commands import Command, Leg, Posted
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from tests.ledger.kit import entries_of, ids, move, post_all, spread, words
from tests.world import Person, World
from transfers.services import close_account, fund
from wallet_project.kernel.money import MAX_AMOUNT

Snapshot = Callable[[], dict[str, Any]]


class Cast:
    """People in every state that a command can meet."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.payer = world.person("payer", balance=50_000)
        self.payee = world.person("payee")
        self.rich = world.person("rich", balance=MAX_AMOUNT)
        self.frozen = world.person("frozen", balance=5_000)
        self.american = world.person("american", balance=5_000, currency="USD")
        self.closed = world.person("closed")
        self.nobody = Person(user=self.payee.user, account_id=2**62)
        close_account(caller=self.closed.caller, key="close", account_id=self.closed.account_id)
        freeze(account_id=self.frozen.account_id, cause="STAFF", reason="a call", staff_id=self.payee.user.pk)

    def owned_by(self, owner: Person, account: Person) -> Person:
        """Somebody who claims another's account."""
        return Person(user=owner.user, account_id=account.account_id)


@pytest.fixture
def cast(world: World) -> Cast:
    return Cast(world)


# Each command has the fault it is named for and, where one exists, one that comes later in the contract's order; the
# first is what the caller is told.
REFUSALS: dict[str, tuple[str, Callable[[Cast], Command]]] = {
    "a wrong stamp, to oneself": (
        "token_invalid",
        lambda cast: move(cast.payer, cast.payer, 1, stamp="of an older password"),
    ),
    "a wrong stamp, a used key": (
        "token_invalid",
        lambda cast: move(cast.rich, cast.payee, 2, key="used", stamp="of an older password"),
    ),
    "a used key, to oneself": ("idempotency_key_reused", lambda cast: move(cast.payer, cast.payer, 2, key="used")),
    "to oneself, and not one's own": (
        "same_account",
        lambda cast: move(cast.owned_by(cast.payer, cast.rich), cast.rich, 1),
    ),
    "to oneself, closed": ("same_account", lambda cast: move(cast.closed, cast.closed, 1)),
    "twice to the same": ("same_account", lambda cast: _twice(cast.payer, cast.payee)),
    "to nobody, from a closed wallet": ("not_found", lambda cast: move(cast.closed, cast.nobody, 1)),
    "from another's frozen wallet": (
        "not_found",
        lambda cast: move(cast.owned_by(cast.payer, cast.frozen), cast.payee, 1),
    ),
    "to a closed wallet, from a frozen one": ("account_closed", lambda cast: move(cast.frozen, cast.closed, 1)),
    "from a closed wallet, more than it has": ("account_closed", lambda cast: move(cast.closed, cast.payee, 10**9)),
    "from a frozen wallet, to another currency": ("account_frozen", lambda cast: move(cast.frozen, cast.american, 1)),
    "from a frozen wallet, more than it has": ("account_frozen", lambda cast: move(cast.frozen, cast.payee, 10**9)),
    "to another currency, more than there is": (
        "currency_mismatch",
        lambda cast: move(cast.payer, cast.american, 10**9),
    ),
    "more than there is, to a full wallet": ("insufficient_funds", lambda cast: move(cast.payer, cast.rich, 50_001)),
    "to a full wallet": ("balance_limit_exceeded", lambda cast: move(cast.payer, cast.rich, 2)),
}


def _twice(payer: Person, payee: Person) -> Command:
    """A command of three legs, two of them on one account."""
    command = spread(payer, {payee: 2})
    one = Leg(account_id=payee.account_id, amount=1)
    return Command(
        initiator_id=command.initiator_id,
        stamp=command.stamp,
        key=command.key,
        fingerprint=command.fingerprint,
        type=command.type,
        legs=(command.legs[0], one, one),
        event=command.event,
    )


@pytest.mark.parametrize(("code", "command"), REFUSALS.values(), ids=REFUSALS.keys())
def test_the_first_fault_is_what_the_caller_is_told(
    cast: Cast, snapshot: Snapshot, code: str, command: Callable[[Cast], Command]
) -> None:
    post_all(move(cast.payer, cast.payee, 1, key="used"), move(cast.rich, cast.payee, 1, key="used"))
    before = snapshot()
    assert words(post_all(command(cast))) == [code]
    assert snapshot() == before


def _account_of_kind(**filters: Any) -> int:
    return Account.objects.filter(**filters).values_list("pk", flat=True)[0]


UNSEEN: dict[str, Callable[[Cast], int]] = {
    "zero": lambda cast: 0,
    "below zero": lambda cast: -1,
    "not there": lambda cast: 2**62,
    "the largest bigint": lambda cast: 2**63 - 1,
    "beyond a bigint": lambda cast: 2**63,
    "far beyond a bigint": lambda cast: 10**30,
    "a system account": lambda cast: _account_of_kind(kind="SUSPENSE", currency="VND", parent=None),
    "a system account's shard": lambda cast: draw_system_shard(kind="BANK_CLEARING", currency="VND"),
}


@pytest.mark.parametrize("number", UNSEEN.values(), ids=UNSEEN.keys())
def test_what_clients_may_not_see_is_not_found(cast: Cast, snapshot: Snapshot, number: Callable[[Cast], int]) -> None:
    unseen = Person(user=cast.payer.user, account_id=number(cast))
    before = snapshot()
    outcomes = post_all(move(cast.payer, unseen, 1), move(unseen, cast.payee, 1))
    assert words(outcomes) == ["not_found", "not_found"]
    assert snapshot() == before


def test_a_wallets_shard_is_not_found(
    cast: Cast, connect: Callable[[str], psycopg.Connection[Any]], snapshot: Snapshot
) -> None:
    owner = connect("owner")
    row = owner.execute(
        "INSERT INTO account (owner_id, currency, parent_id, shard_no) VALUES (%s, 'VND', %s, 0) RETURNING id",
        [cast.payer.user.pk, cast.payer.account_id],
    ).fetchone()
    owner.commit()
    assert row is not None
    shard = Person(user=cast.payer.user, account_id=row[0])
    before = snapshot()
    assert words(post_all(move(cast.payee, shard, 1), move(shard, cast.payee, 1))) == ["not_found", "not_found"]
    assert snapshot() == before


# --- Many commands in one post ---------------------------------------------------------------------------------------


def test_the_second_spends_what_the_first_brought(world: World) -> None:
    payer, merchant, supplier = (world.person(name) for name in ("payer", "merchant", "supplier"))
    fund(account_id=payer.account_id, amount=100, key="top-up")

    outcomes = post_all(
        move(merchant, supplier, 100),  # Too early.
        move(payer, merchant, 100),
        move(merchant, supplier, 60),
        move(merchant, supplier, 60),  # Too much.
        move(merchant, supplier, 40),
    )

    assert words(outcomes) == ["insufficient_funds", "posted", "posted", "insufficient_funds", "posted"]
    assert [person.balance for person in (payer, merchant, supplier)] == [0, 0, 100]
    assert entries_of(merchant) == [(100, 100), (-60, 40), (-40, 0)]


def test_the_largest_balance_counts_what_came_before(world: World) -> None:
    bank, full = world.person("bank", balance=1_000), world.person("full", balance=MAX_AMOUNT - 10)
    outcomes = post_all(move(bank, full, 11), move(bank, full, 10), move(bank, full, 1), move(full, bank, 1))
    assert words(outcomes) == ["balance_limit_exceeded", "posted", "balance_limit_exceeded", "posted"]
    assert full.balance == MAX_AMOUNT - 1


def test_balances_are_each_commands_own(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    first, second = post_all(move(payer, payee, 10), move(payer, payee, 20))
    assert isinstance(first, Posted)
    assert isinstance(second, Posted)
    assert dict(first.balances) == {payer.account_id: 90, payee.account_id: 10}
    assert dict(second.balances) == {payer.account_id: 70, payee.account_id: 30}


def test_a_refused_one_among_accepted_leaves_nothing_and_its_key_runs_anew(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")

    outcomes = post_all(move(payer, payee, 60), move(payer, payee, 50, key="late"), move(payer, payee, 40))
    assert words(outcomes) == ["posted", "insufficient_funds", "posted"]
    assert not JournalTransaction.objects.filter(idempotency_key="late").exists()

    fund(account_id=payer.account_id, amount=50, key="top-up")
    assert words(post_all(move(payer, payee, 50, key="late"))) == ["posted"]
    assert payee.balance == 150


def test_a_refused_key_runs_anew_later_in_the_same_call(world: World) -> None:
    payer, payee = world.person("payer"), world.person("payee", balance=100)
    outcomes = post_all(
        move(payer, payee, 50, key="k"),  # Nothing there yet.
        move(payee, payer, 70),
        move(payer, payee, 60, key="k"),  # Another body, which is no reuse: the first left nothing behind.
        move(payer, payee, 60, key="k"),
        move(payer, payee, 50, key="k"),
    )
    assert words(outcomes) == ["insufficient_funds", "posted", "posted", "replayed", "idempotency_key_reused"]
    assert ids(outcomes)[2] == ids(outcomes)[3]
    assert payer.balance == 10


def test_one_key_twice_in_a_call_is_one_transaction(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    command, other = move(payer, payee, 60, key="k"), move(payer, payee, 61, key="k")
    outcomes = post_all(command, command, other)
    assert words(outcomes) == ["posted", "replayed", "idempotency_key_reused"]
    assert ids(outcomes)[0] == ids(outcomes)[1]
    assert payer.balance == 40


def test_a_thousand_commands_in_one_post(world: World) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    commands = [move(payer, payee, 1, key=f"item:{number}") for number in range(1_000)]
    commands.append(move(payer, payee, 1, key="one too many"))

    outcomes = post_all(*commands)
    assert words(outcomes) == ["posted"] * 1_000 + ["insufficient_funds"]
    assert len(set(ids(outcomes))) == 1_001
    assert (payer.balance, payee.balance) == (0, 1_000)
    assert entries_of(payer)[1:] == [(-1, 999 - number) for number in range(1_000)]

    again = post_all(*commands)
    assert words(again) == ["replayed"] * 1_000 + ["insufficient_funds"]
    assert ids(again) == ids(outcomes)


def test_a_call_without_commands(world: World) -> None:
    assert post_all() == []


# --- Keys ------------------------------------------------------------------------------------------------------------


def test_a_replay_is_the_same_outcome_and_moves_nothing(world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    (first,) = post_all(move(payer, payee, 60, key="k"))
    before = snapshot()
    (again,) = post_all(move(payer, payee, 60, key="k"))
    assert isinstance(first, Posted)
    assert isinstance(again, Posted)
    assert (again.transaction_id, again.created_at) == (first.transaction_id, first.created_at)
    assert again.replayed
    assert snapshot() == before


def test_a_success_is_replayed_whatever_has_become_of_the_accounts(cast: Cast, snapshot: Snapshot) -> None:
    payer, payee = cast.world.person("spender", balance=100), cast.world.person("leaver")
    first = post_all(move(payer, payee, 60, key="k"))
    post_all(move(payer, cast.payee, 40), move(payee, cast.payee, 60))
    close_account(caller=payer.caller, key="close", account_id=payer.account_id)
    close_account(caller=payee.caller, key="close", account_id=payee.account_id)
    before = snapshot()
    again = post_all(move(payer, payee, 60, key="k"))
    assert (words(again), ids(again)) == (["replayed"], ids(first))
    assert snapshot() == before


@pytest.mark.parametrize("change", ["amount", "payee", "reference"])
def test_another_body_under_a_used_key_is_refused(world: World, snapshot: Snapshot, change: str) -> None:
    payer, payee, other = world.person("payer", balance=100), world.person("payee"), world.person("other")
    post_all(move(payer, payee, 10, key="k"))
    changed = {
        "amount": move(payer, payee, 11, key="k"),
        "payee": move(payer, other, 10, key="k"),
        "reference": move(payer, payee, 10, key="k", reference="rent"),
    }
    before = snapshot()
    assert words(post_all(changed[change])) == ["idempotency_key_reused"]
    assert snapshot() == before


def test_a_key_belongs_to_who_sent_it(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee", balance=100)
    outcomes = post_all(move(payer, payee, 10, key="k"), move(payee, payer, 20, key="k"))
    assert words(outcomes) == ["posted", "posted"]
    assert len(set(ids(outcomes))) == 2


def test_a_key_of_another_kind_of_command_is_used_too(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    empty = world.wallet(payer.user)
    close_account(caller=payer.caller, key="k", account_id=empty)
    assert words(post_all(move(payer, payee, 10, key="k"))) == ["idempotency_key_reused"]


# --- Who asks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "another hash"}], ids=["disabled", "password"])
def test_a_disabled_user_or_a_changed_password_is_noticed(
    world: World, snapshot: Snapshot, change: dict[str, Any], replay: bool
) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    command = move(payer, payee, 10, key="k")
    if replay:
        post_all(command)
    User.objects.filter(pk=payer.user.pk).update(**change)
    before = snapshot()
    assert words(post_all(command)) == ["token_invalid"]
    assert snapshot() == before


def test_another_users_stamp_is_none_of_mine(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    User.objects.filter(pk=payee.user.pk).update(password="another hash")
    payee.user.refresh_from_db()
    assert words(post_all(move(payer, payee, 10, stamp=payee.caller.stamp))) == ["token_invalid"]


def test_a_user_who_is_gone(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    ghost = Person(user=User(pk=2**40, password=payer.user.password), account_id=payer.account_id)
    assert words(post_all(move(ghost, payee, 10))) == ["token_invalid"]
