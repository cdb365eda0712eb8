"""Races on the book: first controls that show each race when its lock is taken away, then the races themselves.

With the locks, the service refuses and the constraint never has to; nobody deadlocks; nothing stays open.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

import pytest
from django.db import models

from accounts.models import Account
from ledger import services
from ledger.commands import Command
from ledger.models import JournalTransaction
from ledger.posting import Book, read_book, write
from tests.ledger.kit import ids, move, post_all, words
from tests.races import PATIENCE, POSTED, REPLAYED, at_once, in_processes, outcome_of, outcomes_of, soak
from tests.races import deadlocks as deadlocks
from tests.races import no_deadlocks as no_deadlocks
from tests.world import Person, World
from wallet_project.kernel.db import lock_rows

pytestmark = [pytest.mark.race, pytest.mark.django_db(transaction=True)]


def of_person(person: Person) -> dict[str, Any]:
    """Who a racer in another process is, for `tests.ledger.racers`."""
    who = {"user_id": person.user.pk, "stamp": person.caller.stamp, "from_account_id": person.account_id}
    return {**who, "threads": 5}


# --- Controls ---------------------------------------------------------------------------------------------------------


def test_control_without_the_lock_the_constraint_must_refuse(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All read the balance before any has posted, and all think that they may."""
    payer, payee = world.person("payer", balance=50_000), world.person("payee")
    racers = 5
    all_have_read = threading.Barrier(racers)

    def read_without_lock(queryset: models.QuerySet[Account]) -> list[Account]:
        rows = list(queryset.order_by("pk"))
        all_have_read.wait(PATIENCE)
        return rows

    monkeypatch.setattr(services, "lock_rows", read_without_lock)
    outcomes = outcomes_of([partial(world.pay, payer, payee, 20_000)] * racers)

    # Who comes to the account second may also be refused for coming with an older time: that is the database, too.
    by_the_database = outcomes["account_balance_not_negative"] + outcomes["ledger_entry_in_order"]
    assert outcomes["insufficient_funds"] == 0
    assert by_the_database == racers - outcomes[POSTED] > 0
    assert 1 <= outcomes[POSTED] <= 2


def test_control_unsorted_locks_deadlock(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    deadlocks: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each takes its first lock, then wants the other's. One is thrown out, and only the retry saves its transfer."""
    first, second = world.person("first", balance=1_000), world.person("second", balance=1_000)
    both_hold_one = threading.Barrier(2)
    tries: Counter[str] = Counter()

    def lock_unsorted(queryset: models.QuerySet[Account]) -> list[Account]:
        racer = threading.current_thread().name
        tries[racer] += 1
        upside_down = racer == "racer 1" and tries[racer] == 1
        rows: list[Account] = []
        for number in sorted(queryset.values_list("pk", flat=True), reverse=upside_down):
            rows += queryset.filter(pk=number).select_for_update(no_key=True)
            if tries[racer] == 1 and len(rows) == 1:
                both_hold_one.wait(PATIENCE)
        return rows

    monkeypatch.setattr(services, "lock_rows", lock_unsorted)
    outcomes = outcomes_of([partial(world.pay, first, second, 1), partial(world.pay, second, first, 1)])

    assert outcomes == {POSTED: 2}
    assert sorted(tries.values()) == [1, 2]
    assert deadlocks() == 1
    assert "deadlock" in caplog.text


def test_control_keys_claimed_in_the_callers_order_deadlock(
    world: World, monkeypatch: pytest.MonkeyPatch, deadlocks: Callable[[], int]
) -> None:
    """Two calls share two keys, on different accounts; the journal rows go in sorted by key, or they wait crosswise."""
    payer = world.person("payer", balance=1_000)
    pocket = Person(user=payer.user, account_id=world.wallet(payer.user, balance=1_000))
    payee = world.person("payee")
    other = world.person("other")
    both_have_one = threading.Barrier(2)
    tries: Counter[str] = Counter()

    def one_by_one(accepted: dict[UUID, Command], book: Book) -> dict[UUID, dict[int, int]]:
        racer = threading.current_thread().name
        tries[racer] += 1
        if tries[racer] > 1:
            return write(accepted, book)
        written: dict[UUID, dict[int, int]] = {}
        for id_, command in accepted.items():
            written |= write({id_: command}, book)
            if len(written) == 1:
                both_have_one.wait(PATIENCE)
        return written

    monkeypatch.setattr(services, "write", one_by_one)
    a_then_b = [move(payer, payee, 1, key="a"), move(payer, payee, 2, key="b")]
    b_then_a = [move(pocket, other, 3, key="b"), move(pocket, other, 4, key="a")]
    outcomes = at_once([lambda: words(post_all(*a_then_b)), lambda: words(post_all(*b_then_a))])
    assert deadlocks() == 1
    assert sorted(outcomes) == [["idempotency_key_reused"] * 2, ["posted"] * 2]


# --- Races ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(20)))
def test_fifty_thousand_and_a_hundred_transfers_of_a_thousand(world: World, round_: int) -> None:
    payer, payee = world.person("payer", balance=50_000), world.person("payee")
    payees = [payee.account_id, world.person("other").account_id]
    crew = in_processes(
        "tests.ledger.racers.pay_many",
        [
            {**of_person(payer), "to_account_ids": payees, "amount": 1_000, "count": 25, "key": f"{number}"}
            for number in range(4)
        ],
    )
    outcomes = sum((Counter(one) for one in crew), Counter())
    assert outcomes == {POSTED: 50, "insufficient_funds": 50}  # The service's own word, not the constraint's.
    assert payer.balance == 0
    assert JournalTransaction.objects.filter(type="TRANSFER").count() == 50


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(20)))
def test_one_key_from_fifty_threads_is_one_transaction(world: World, round_: int) -> None:
    payer, payee = world.person("payer", balance=50_000), world.person("payee")
    one = {**of_person(payer), "to_account_id": payee.account_id, "amount": 1_000, "key": "k", "threads": 25}
    told = list(chain.from_iterable(in_processes("tests.ledger.racers.pay_once", [one, one])))
    assert len(told) == 50
    assert len(set(told)) == 1
    assert (payer.balance, payee.balance) == (49_000, 1_000)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(20)))
def test_one_key_with_a_slow_look_up(world: World, monkeypatch: pytest.MonkeyPatch, round_: int) -> None:
    """The window between look-up and insert, held open: nobody gets in while the accounts are locked."""
    payer, payee = world.person("payer", balance=50_000), world.person("payee")

    def read_slowly(commands: Sequence[Command], accounts: Mapping[int, Account]) -> Book:
        book = read_book(commands, accounts)
        time.sleep(0.005)
        return book

    monkeypatch.setattr(services, "read_book", read_slowly)
    assert outcomes_of([partial(world.pay, payer, payee, 1_000, key="k")] * 20) == {POSTED: 1, REPLAYED: 19}


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50)))
def test_one_key_and_two_bodies_is_one_transfer(world: World, round_: int) -> None:
    payer, payee = world.person("payer", balance=50_000), world.person("payee")
    outcomes = outcomes_of([partial(world.pay, payer, payee, 1 + number % 2, key="k") for number in range(20)])
    assert outcomes == {POSTED: 1, REPLAYED: 9, "idempotency_key_reused": 10}


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50, few=3)))
def test_one_key_on_different_accounts_at_once(world: World, round_: int) -> None:
    """No account is shared, so the locks do not help: the unique key decides, and who lost begins again."""
    payer = world.person("payer", balance=1_000)
    pockets = [Person(user=payer.user, account_id=world.wallet(payer.user, balance=1_000)) for _ in range(7)]
    payees = [world.person(f"payee-{number}") for number in range(8)]
    pairs = zip([payer, *pockets], payees, strict=True)
    outcomes = outcomes_of([partial(world.pay, pocket, payee, 10, key="k") for pocket, payee in pairs])
    assert outcomes == {POSTED: 1, "idempotency_key_reused": 7}


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50, few=3)))
def test_a_refused_key_is_sent_again_by_many(world: World, round_: int) -> None:
    """It left nothing behind, so all run anew; one is first."""
    payer, payee = world.person("payer"), world.person("payee")
    assert outcome_of(partial(world.pay, payer, payee, 10, key="k")) == "insufficient_funds"
    giver = world.person("giver", balance=10)
    again = [partial(world.pay, payer, payee, 10, key="k")] * 10
    outcomes = outcomes_of([*again, partial(world.pay, giver, payer, 10)])
    # Those who came before the gift are refused again.
    assert outcomes[POSTED] in (1, 2)
    assert outcomes[POSTED] + outcomes[REPLAYED] + outcomes["insufficient_funds"] == 11
    assert outcome_of(partial(world.pay, payer, payee, 10, key="k")) in (POSTED, REPLAYED)
    assert (payer.balance, payee.balance) == (0, 10)


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(20)))
@pytest.mark.parametrize("size", [2, 3], ids=["there and back", "in a circle"])
def test_crossing_transfers_never_deadlock(world: World, size: int, round_: int) -> None:
    people = [world.person(f"person-{number}", balance=10_000) for number in range(size)]
    circle = [(people[number], people[(number + 1) % size]) for number in range(size)]
    crew = in_processes(
        "tests.ledger.racers.pay_many",
        [
            {**of_person(payer), "to_account_ids": [payee.account_id], "amount": 1, "count": 60, "key": "k"}
            for payer, payee in circle
        ],
    )
    assert crew == [{POSTED: 60}] * size
    assert [person.balance for person in people] == [10_000] * size


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50, few=3)))
def test_calls_that_share_accounts_and_keys_in_opposite_order(world: World, round_: int) -> None:
    first, second, third = (world.person(name, balance=1_000) for name in ("first", "second", "third"))
    commands = [
        move(first, second, 1, key="a"),
        move(second, third, 2, key="b"),
        move(third, first, 3, key="c"),
        move(first, third, 4, key="d"),
    ]
    calls = [commands, commands[::-1], commands[2:] + commands[:2], commands[1:3]]
    told = at_once([partial(_told, call) for call in calls])
    assert {len({by_key[key] for by_key in told if key in by_key}) for key in ("a", "b", "c", "d")} == {1}
    assert [person.balance for person in (first, second, third)] == [998, 999, 1_003]


def _told(commands: list[Command]) -> dict[str, Any]:
    return dict(zip([command.key for command in commands], ids(post_all(*commands)), strict=True))


@pytest.mark.usefixtures("no_deadlocks")
@pytest.mark.parametrize("round_", range(soak(50, few=2)))
def test_batches_and_singles_spend_one_wallet_once(world: World, round_: int) -> None:
    payer, merchant = world.person("payer", balance=1_000), world.person("merchant")
    batches = [[move(payer, merchant, 600), move(payer, merchant, 300)] for _ in range(2)]
    singles = [[move(payer, merchant, 100)] for _ in range(4)]
    told = Counter(chain.from_iterable(at_once([partial(_words, call) for call in batches + singles])))
    assert set(told) == {POSTED, "insufficient_funds"}
    assert payer.balance + merchant.balance == 1_000
    assert payer.balance < 100  # Whatever was refused was more than was left.


def _words(commands: list[Command]) -> list[str]:
    return words(post_all(*commands))


def test_lock_rows_is_what_posting_locks_with() -> None:
    """The controls above take it away by name; should posting lock by another, they would prove nothing."""
    assert vars(services)["lock_rows"] is lock_rows
