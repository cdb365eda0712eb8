"""Posting when things go wrong: clocks, deadlocks, lost races, failures half way, and what changed during the wait."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from accounts.models import Account, User
from ledger import services
from ledger.commands import Posted
from ledger.errors import ClockAhead
from ledger.models import JournalTransaction
from outbox.models import OutboxEvent
from tests.attacks import carry_out, posting_sql, statements
from tests.books import value
from tests.ledger.kit import faulty, move, post_all, word, words, written_at
from tests.races import meanwhile, wait_for_lock
from tests.world import Person, World
from transfers.services import close_account
from wallet_project.kernel.db import ATTEMPTS, LostRace, is_unavailable, lock_rows
from wallet_project.kernel.errors import Unavailable

Connect = Callable[[str], psycopg.Connection[Any]]
Snapshot = Callable[[], dict[str, Any]]


@pytest.fixture
def payer(world: World) -> Person:
    return world.person("payer", balance=50_000)


@pytest.fixture
def payee(world: World) -> Person:
    return world.person("payee")


# --- The clock --------------------------------------------------------------------------------------------------------


@contextmanager
def clock_off_by(connect: Connect, offset: str) -> Iterator[None]:
    """While the block runs, the product reads a clock that is wrong; the database's own rules read the right one."""
    owner = connect("owner")
    owner.execute(
        "CREATE SCHEMA wrong; GRANT USAGE ON SCHEMA wrong TO PUBLIC; CREATE FUNCTION wrong.clock_timestamp()"
        f" RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '{offset}' $$"
    )
    owner.commit()
    with connection.cursor() as cursor:
        cursor.execute("SET search_path = wrong, pg_catalog, public")
    try:
        yield
    finally:
        connection.close()
        owner.execute("DROP SCHEMA wrong CASCADE")
        owner.commit()


def test_entries_do_not_go_behind_the_last_one_of_a_clock_that_was_ahead(
    world: World, connect: Connect, payer: Person, payee: Person
) -> None:
    with clock_off_by(connect, "30 seconds"):
        ahead = world.pay(payer, payee, 10)
    (back,) = post_all(move(payer, payee, 10))
    assert isinstance(back, Posted)
    assert back.created_at == ahead.created_at  # The same moment, and in order by number.
    assert written_at(back.transaction_id) == {ahead.created_at}

    other = world.person("other", balance=10)
    assert world.pay(other, world.person("stranger"), 10).created_at < ahead.created_at  # Nobody else's business.
    assert world.pay(world.person("third", balance=1), payee, 1).created_at == ahead.created_at


def test_a_clock_that_jumps_back_within_a_transaction_posts_at_its_beginning(
    world: World, connect: Connect, payer: Person, payee: Person
) -> None:
    with clock_off_by(connect, "-1 hour"):
        posted = world.pay(payer, payee, 10)
    now = value(connect("app"), "SELECT clock_timestamp()")
    assert now - posted.created_at < timedelta(minutes=1)


def test_a_clock_over_a_minute_ahead_posts_nothing_and_alarms(
    connect: Connect, payer: Person, payee: Person, snapshot: Snapshot, caplog: pytest.LogCaptureFixture
) -> None:
    before = snapshot()
    with clock_off_by(connect, "65 seconds"), pytest.raises(ClockAhead) as refusal:
        post_all(move(payer, payee, 10))
    assert isinstance(refusal.value, Unavailable)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    assert snapshot() == before


def test_a_last_entry_over_a_minute_ahead_stops_its_account_alone(
    world: World, superuser: psycopg.Connection[Any], payer: Person, payee: Person
) -> None:
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute(
            "UPDATE account SET last_entry_at = now() + interval '2 minutes' WHERE id = %s", [payer.account_id]
        )
    with pytest.raises(ClockAhead):
        world.pay(payer, payee, 10)
    world.pay(world.person("other", balance=10), payee, 10)


# --- What the database throws -----------------------------------------------------------------------------------------

WRITTEN = ["journal_transaction", "ledger_entry", "outbox_event"]


@pytest.mark.parametrize("at_commit", [False, True], ids=["at once", "at commit"])
@pytest.mark.parametrize("table", ["journal_transaction", "outbox_event"])
def test_a_failure_half_way_leaves_nothing(
    connect: Connect, payer: Person, payee: Person, snapshot: Snapshot, table: str, at_commit: bool
) -> None:
    before = snapshot()
    with faulty(connect("owner"), table, "XX000", at_commit=at_commit):
        with pytest.raises(DatabaseError):
            post_all(move(payer, payee, 10, key="k"))
        assert snapshot() == before
        assert words(post_all(move(payer, payee, 10, key="k"))) == ["posted"]


def test_a_failure_between_the_legs_and_the_event_leaves_nothing(
    connect: Connect, payer: Person, payee: Person, snapshot: Snapshot
) -> None:
    before = snapshot()
    with faulty(connect("owner"), "ledger_entry", "XX000"):
        with pytest.raises(DatabaseError):
            post_all(move(payer, payee, 10, key="k"))
        assert snapshot() == before
        assert words(post_all(move(payer, payee, 10, key="k"))) == ["posted"]


@pytest.mark.parametrize("at_commit", [False, True], ids=["at once", "at commit"])
@pytest.mark.parametrize("state", ["40P01", "40001"])
@pytest.mark.parametrize("times", [1, ATTEMPTS - 1])
def test_a_deadlock_or_serialization_failure_is_tried_again_whole(
    connect: Connect, payer: Person, payee: Person, state: str, times: int, at_commit: bool
) -> None:
    with faulty(connect("owner"), "outbox_event", state, times=times, at_commit=at_commit):
        assert words(post_all(move(payer, payee, 10))) == ["posted"]
    assert payer.balance == 49_990


def test_it_is_tried_a_bounded_number_of_times(
    connect: Connect, payer: Person, payee: Person, snapshot: Snapshot
) -> None:
    before = snapshot()
    with faulty(connect("owner"), "outbox_event", "40P01", times=ATTEMPTS):
        with pytest.raises(Unavailable):
            post_all(move(payer, payee, 10, key="k"))
        assert snapshot() == before
        assert words(post_all(move(payer, payee, 10, key="k"))) == ["posted"]


@pytest.mark.parametrize("state", ["55P03", "57014"])
def test_a_timeout_is_not_tried_again_but_may_be(
    connect: Connect, payer: Person, payee: Person, snapshot: Snapshot, state: str
) -> None:
    before = snapshot()
    with faulty(connect("owner"), "outbox_event", state):
        with pytest.raises(OperationalError) as error:
            post_all(move(payer, payee, 10, key="k"))
        assert is_unavailable(error.value)
        assert snapshot() == before
        assert words(post_all(move(payer, payee, 10, key="k"))) == ["posted"]


def test_a_race_that_is_lost_every_time_ends(
    monkeypatch: pytest.MonkeyPatch, payer: Person, payee: Person, snapshot: Snapshot
) -> None:
    tries = []

    def lose(*_: Any) -> Any:
        tries.append(1)
        raise LostRace

    before = snapshot()
    monkeypatch.setattr(services, "write", lose)
    with pytest.raises(Unavailable):
        post_all(move(payer, payee, 10))
    assert len(tries) == ATTEMPTS
    assert snapshot() == before


# --- What changed during the wait -------------------------------------------------------------------------------------


def _close(person: Person) -> None:
    Account.objects.filter(pk=person.account_id).update(status="CLOSED")


CHANGES: dict[str, tuple[Callable[[Person, Person], object], str]] = {
    "the user was disabled": (
        lambda payer, payee: User.objects.filter(pk=payer.user.pk).update(is_active=False),
        "token_invalid",
    ),
    "the password was changed": (
        lambda payer, payee: User.objects.filter(pk=payer.user.pk).update(password="another hash"),
        "token_invalid",
    ),
    "the payee's wallet was closed": (lambda payer, payee: _close(payee), "account_closed"),
    "nothing": (lambda payer, payee: None, "posted"),
}


@pytest.mark.parametrize(("change", "code"), CHANGES.values(), ids=CHANGES.keys())
def test_what_was_committed_while_the_locks_were_awaited_counts(
    connect: Connect,
    superuser: psycopg.Connection[Any],
    payer: Person,
    payee: Person,
    change: Callable[[Person, Person], object],
    code: str,
) -> None:
    holder = connect("app")
    holder.execute("SELECT FROM account WHERE id = %s FOR NO KEY UPDATE", [payer.account_id])
    with meanwhile(lambda: post_all(move(payer, payee, 10))) as outcomes:
        wait_for_lock(superuser)
        change(payer, payee)
        holder.rollback()
        assert words(outcomes()) == [code]


@pytest.mark.parametrize(
    ("same_body", "committed", "expected"),
    [(True, True, "replayed"), (False, True, "idempotency_key_reused"), (True, False, "posted")],
    ids=["the same command", "another command", "and rolled back"],
)
def test_a_key_taken_meanwhile_with_other_accounts(
    connect: Connect,
    superuser: psycopg.Connection[Any],
    world: World,
    payer: Person,
    payee: Person,
    same_body: bool,
    committed: bool,
    expected: str,
) -> None:
    """No lock of accounts stands between the two, so the unique key decides: who waited begins again, and finds it."""
    command = move(payer, payee, 10, key="k")
    third, fourth = world.person("third", balance=100), world.person("fourth")
    rival = connect("app")
    names = {"new": "00000000-0000-4000-8000-000000000001", "third": third.account_id, "fourth": fourth.account_id}
    cursor = psycopg.ClientCursor(rival)
    cursor.execute(
        "INSERT INTO journal_transaction (id, initiator_id, idempotency_key, type, fingerprint)"
        " VALUES (%s, %s, 'k', 'TRANSFER', %s)",
        [names["new"], payer.user.pk, command.fingerprint if same_body else b"another"],
    )
    legs_and_event = posting_sql("third -10, fourth 10").partition(";")[2]
    cursor.execute(legs_and_event, names)

    with meanwhile(lambda: post_all(command)) as outcomes:
        wait_for_lock(superuser)
        if committed:
            rival.commit()
        else:
            rival.rollback()
        (outcome,) = outcomes()
    assert word(outcome) == expected
    assert payer.balance == (50_000 if committed else 49_990)
    assert JournalTransaction.objects.filter(idempotency_key="k").count() == 1
    assert OutboxEvent.objects.filter(payload__transactionId=names["new"]).count() == committed


def test_two_closings_at_once_under_one_key_are_one(
    connect: Connect, superuser: psycopg.Connection[Any], payer: Person, world: World
) -> None:
    """The second waits for the first and replays it, as with every command."""
    empty = world.wallet(payer.user)
    holder = connect("app")
    holder.execute("SELECT FROM account WHERE id = %s FOR NO KEY UPDATE", [empty])
    close = lambda: close_account(caller=payer.caller, key="close", account_id=empty)  # noqa: E731
    with meanwhile(close) as first, meanwhile(close) as second:
        wait_for_lock(superuser, waiters=2)
        holder.rollback()
        answers = [first(), second()]
    assert sorted(answer.replayed for answer in answers) == [False, True]
    assert answers[0].body == answers[1].body


def test_a_lock_not_had_in_time_is_said_to_be_worth_another_try(
    connect: Connect, payer: Person, payee: Person, snapshot: Snapshot
) -> None:
    before = snapshot()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
    holder = connect("app")
    holder.execute("SELECT FROM account WHERE id = %s FOR NO KEY UPDATE", [payee.account_id])
    with pytest.raises(OperationalError) as error:
        post_all(move(payer, payee, 10))
    connection.close()
    assert is_unavailable(error.value)
    assert snapshot() == before


def test_a_childs_insert_does_not_wait_for_the_lock(connect: Connect, payer: Person, payee: Person) -> None:
    """NO KEY UPDATE leaves room for the KEY SHARE of foreign keys (TRIALS 26)."""
    freezing = "SET LOCAL lock_timeout = '50ms'; INSERT INTO account_freeze (account_id, cause, reason, made_by_id)"
    values = " VALUES (%(payer)s, 'STAFF', 'a call', %(staff)s)"
    names = {"payer": payer.account_id, "staff": payee.user.pk}
    with transaction.atomic():
        lock_rows(Account.objects.filter(pk=payer.account_id))
        assert not carry_out(connect("app"), statements(freezing + values, names)).is_refused


def test_keys_are_claimed_in_their_own_order(
    connect: Connect, superuser: psycopg.Connection[Any], payer: Person, payee: Person
) -> None:
    """Whoever waits for one key holds those before it and none behind it, so two calls never wait crosswise."""
    rival = connect("app")
    claim = "INSERT INTO journal_transaction (initiator_id, idempotency_key, type) VALUES (%s, %s, 'TRANSFER')"
    rival.execute(claim, [payer.user.pk, "middle"])

    def is_claimed(key: str) -> bool:
        third = connect("app")
        third.execute("SET lock_timeout = '50ms'")
        try:
            third.execute(claim, [payer.user.pk, key])
        except psycopg.errors.LockNotAvailable:
            return True
        finally:
            third.rollback()
        return False

    with meanwhile(lambda: post_all(*(move(payer, payee, 1, key=key) for key in ("zenith", "middle", "apex")))) as told:
        wait_for_lock(superuser)
        assert (is_claimed("apex"), is_claimed("zenith")) == (True, False)
        rival.rollback()
        assert words(told()) == ["posted"] * 3


def test_a_session_killed_while_it_waits_leaves_nothing_and_its_key_runs_anew(
    connect: Connect, superuser: psycopg.Connection[Any], payer: Person, payee: Person, snapshot: Snapshot
) -> None:
    before = snapshot()
    holder = connect("app")
    holder.execute("SELECT FROM account WHERE id = %s FOR NO KEY UPDATE", [payer.account_id])

    def killed() -> bool:
        with pytest.raises(DatabaseError) as error:
            post_all(move(payer, payee, 10, key="k"))
        return isinstance(error.value, DatabaseError) and is_unavailable(error.value)

    with meanwhile(killed) as unavailable:
        wait_for_lock(superuser)
        superuser.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        assert unavailable()
    holder.rollback()
    assert snapshot() == before
    assert words(post_all(move(payer, payee, 10, key="k"), move(payer, payee, 10, key="k"))) == ["posted", "replayed"]
