"""Rule 10: order and time are the lock's."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.attacks import (
    ACCEPTED,
    LOGINS,
    Attack,
    Deed,
    Refusal,
    Scene,
    carry_out,
    entries_sql,
    event,
    journal_sql,
    posting_sql,
    statements,
    tries,
)
from tests.races import meanwhile, wait_for_lock

Attempt = Callable[[str, Deed], Refusal]
Connect = Callable[[str], psycopg.Connection[Any]]

LEGS = "payer -100, payee 100"
NOT_BACKDATED, NOT_AHEAD, IN_ORDER = "ledger_entry_not_backdated", "ledger_entry_not_ahead", "ledger_entry_in_order"
TIMES = [
    *(
        Attack(
            rule=10,
            story=f"entries dated {when}",
            sql=posting_sql(LEGS, at=at),
            refused_by=NOT_BACKDATED,
            owner=IN_ORDER,  # The owner may date back, but not behind the accounts' last entries.
        )
        for when, at in {
            "a microsecond before their database transaction, on accounts with later ones": (
                "(%(paid_at)s - interval '1 microsecond')"
            ),
            "an hour ago": "now() - interval '1 hour'",
            "a year ago, in a month of its own": "now() - interval '1 year'",
            "before all time": "'-infinity'",
        }.items()
    ),
    *(
        Attack(rule=10, story=f"entries dated {when}", sql=posting_sql(LEGS, at=at), refused_by=NOT_AHEAD)
        for when, at in {
            "over a minute ahead": "now() + interval '65 seconds'",
            "in a month to come": "now() + interval '40 days'",
            "after all time": "'infinity'",
        }.items()
    ),
    Attack(
        rule=10,
        story="entries with another time than their journal row",
        sql=journal_sql() + entries_sql(LEGS, at="now() + interval '1 second'"),
        refused_by="ledger_entry_same_time",
    ),
    Attack(
        rule=10,
        story="a journal row dated back, its entries not",
        sql=journal_sql(at="'2020-01-01'") + entries_sql(LEGS),
        refused_by="ledger_entry_same_time",
    ),
    Attack(
        rule=10,
        story="two legs with two times",
        sql=journal_sql()
        + entries_sql("payer -100").replace(";", ", (%(new)s, %(payee)s, 100, now() + interval '1 second');"),
        refused_by="ledger_entry_same_time",
    ),
    Attack(
        rule=10,
        story="a journal row without a time",
        sql=journal_sql(at="NULL") + entries_sql(LEGS),
        refused_by="23502",  # not_null_violation
    ),
    Attack(
        rule=10,
        story="entries before one that is a little ahead of the clock",
        sql=posting_sql(LEGS, at="now() + interval '30 seconds'") + posting_sql(LEGS, transaction="other"),
        refused_by=IN_ORDER,
    ),
]


@tries(TIMES)
def test_refused(assert_refused: Callable[[Attack, str], None], attack: Attack, login: str) -> None:
    assert_refused(attack, login)


def test_the_owner_places_entries_in_the_past_oldest_first(connect: Connect, scene: Scene) -> None:
    legs = "outside -100, fresh 100"  # They have no entries yet.
    owner = connect("owner")
    first = posting_sql(legs, type="DEPOSIT", at="'2020-01-15'")
    second = posting_sql(legs, type="DEPOSIT", transaction="other", at="'2020-01-16'")
    assert carry_out(owner, statements(second, scene.names)).by == ACCEPTED
    assert carry_out(owner, statements(first, scene.names)).by == IN_ORDER


@pytest.mark.parametrize("login", LOGINS)
def test_numbers_and_balances_that_sql_names_are_overwritten(
    connect: Connect, attempt: Attempt, scene: Scene, login: str
) -> None:
    lies = journal_sql() + entries_sql(LEGS).replace("(transaction_id", "(id, balance_after, transaction_id").replace(
        "VALUES (", "VALUES (4611686018427387904, 1000000, "
    ).replace("), (", "), (1, 0, ")

    def deed(cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute(lies, scene.names)
        event(cursor, scene.new)

    assert attempt(login, deed).by == ACCEPTED
    rows = connect("superuser").execute(
        "SELECT e.account_id, e.balance_after, e.id BETWEEN last.id - 1 AND last.id FROM ledger_entry e,"
        " (SELECT last_value AS id FROM ledger_entry_id_seq) AS last WHERE transaction_id = %s ORDER BY e.id",
        [scene.new],
    )
    assert rows.fetchall() == [(scene.payer, 48_900, True), (scene.payee, 1_100, True)]


def test_who_began_first_but_came_later_is_not_dated_before(connect: Connect, scene: Scene) -> None:
    """now() is the beginning of a transaction, so it is in order only for one that did not wait (TRIALS 44)."""
    early, late = connect("app"), connect("app")
    early.execute("SELECT 1")  # Its now() stands still from here on.
    assert carry_out(late, statements(posting_sql(LEGS, transaction="other"), scene.names)).by == ACCEPTED
    names = scene.names
    with early.transaction():  # A savepoint: the transaction began above.
        refusal = carry_out(early, statements(posting_sql(LEGS), names))
    assert refusal.by == IN_ORDER
    by_the_clock = "(SELECT max(last_entry_at) FROM account)"
    psycopg.ClientCursor(early).execute(posting_sql(LEGS, at=by_the_clock), names)
    early.commit()


def test_numbers_are_drawn_after_the_wait(connect: Connect, scene: Scene, superuser: psycopg.Connection[Any]) -> None:
    """A default would be drawn before it: who waits would then write a number below those of the one waited for."""
    holder, waiter = connect("app"), connect("app")
    names = scene.names
    waits = statements(posting_sql(LEGS, at="now() + interval '5 seconds'"), names)
    psycopg.ClientCursor(holder).execute("SELECT FROM account WHERE id = %(payer)s FOR NO KEY UPDATE", names)
    with meanwhile(lambda: carry_out(waiter, waits)) as refusal:
        wait_for_lock(superuser)
        psycopg.ClientCursor(holder).execute(posting_sql(LEGS, transaction="other"), names)
        holder.commit()
        assert refusal().by == ACCEPTED
    entries = superuser.execute("SELECT transaction_id FROM ledger_entry ORDER BY id DESC LIMIT 4").fetchall()
    assert [id_ for (id_,) in entries] == [scene.new, scene.new, scene.other, scene.other]
