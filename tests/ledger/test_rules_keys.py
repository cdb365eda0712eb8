"""Rule 6: a key is used once per initiator, and no more goes back than ever came."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.attacks import (
    ACCEPTED,
    LOGINS,
    NO_RIGHT,
    Attack,
    Deed,
    Refusal,
    Scene,
    carry_out,
    entries_sql,
    journal_sql,
    posting_sql,
    statements,
    tries,
)
from tests.world import World

Attempt = Callable[[str, Deed], Refusal]
Connect = Callable[[str], psycopg.Connection[Any]]

LEGS = "payer -10, payee 10"


def keyed(initiator: str, *, key: str = "the key", transaction: str = "new", at: str = "now()") -> str:
    """A transfer with an initiator and a key."""
    return with_key(posting_sql(LEGS, transaction=transaction, at=at), initiator, key=key, transaction=transaction)


def with_key(sql: str, initiator: str, *, key: str = "the key", transaction: str = "new") -> str:
    """The posting, with an initiator and that key in place of its own."""
    return sql.replace(
        f"(id, idempotency_key, type, reverses_id, continues_id, created_at)"
        f" VALUES (%({transaction})s, 'attack:{transaction}'",
        "(initiator_id, id, idempotency_key, type, reverses_id, continues_id, created_at)"
        f" VALUES ({initiator}, %({transaction})s, '{key}'",
    )


KEYS = [
    Attack(
        rule=6,
        story="a user's key used twice",
        sql=keyed("%(payer_user)s") + keyed("%(payer_user)s", transaction="other"),
        refused_by="journal_key_unique",
    ),
    Attack(
        rule=6,
        story="nobody's key used twice",
        sql=keyed("NULL") + keyed("NULL", transaction="other"),
        refused_by="journal_key_unique",
    ),
    Attack(
        rule=6,
        story="a used key skipped on conflict, its entries not",
        sql=keyed("%(payer_user)s") + "INSERT INTO journal_transaction (id, initiator_id, idempotency_key, type)"
        " VALUES (%(other)s, %(payer_user)s, 'the key', 'TRANSFER') ON CONFLICT DO NOTHING;"
        + entries_sql(LEGS, transaction="other"),
        refused_by="ledger_entry_transaction_fk",
    ),
    Attack(
        rule=6,
        story="a used key whose row is made another's",
        sql="UPDATE journal_transaction SET idempotency_key = 'other' WHERE id = %(paid)s",
        refused_by="journal_is_kept",
        app=NO_RIGHT,
    ),
    Attack(rule=6, story="an empty key", sql=keyed("%(payer_user)s", key=""), refused_by="journal_key_given"),
    Attack(
        rule=6,
        story="a key of 65 characters",
        sql=keyed("%(payer_user)s", key="k" * 65),
        refused_by="22001",  # string_data_right_truncation
    ),
    Attack(
        rule=6,
        story="a recorded answer's key used twice",
        sql="INSERT INTO idempotency_record (initiator_id, key, fingerprint, status, response)"
        " SELECT %(payer_user)s, 'the key', '', 201, '{}' FROM generate_series(1, 2)",
        refused_by="idempotency_record_pkey",
    ),
]


@tries(KEYS)
def test_a_key_is_used_once(assert_refused: Callable[[Attack, str], None], attack: Attack, login: str) -> None:
    assert_refused(attack, login)


def test_another_users_same_key_is_another_key(attempt: Attempt, scene: Scene) -> None:
    two = keyed("%(payer_user)s") + keyed("%(payee_user)s", transaction="other")
    assert attempt("app", statements(two, scene.names)).by == ACCEPTED


def test_upper_and_lower_case_are_two_keys(attempt: Attempt, scene: Scene) -> None:
    two = keyed("%(payer_user)s", key="k") + keyed("%(payer_user)s", key="K", transaction="other")
    assert attempt("app", statements(two, scene.names)).by == ACCEPTED


@pytest.mark.parametrize("initiator", ["%(payer_user)s", "NULL"])
def test_a_key_stays_used_when_the_month_turns(connect: Connect, scene: Scene, initiator: str) -> None:
    """Entries are partitioned by month, and a unique index of theirs would hold within a month only (TRIALS 84)."""
    legs = "outside -100, fresh 100"  # Without entries, so that the past is open.
    owner = connect("owner")
    before = with_key(posting_sql(legs, type="DEPOSIT", at="'2021-01-31 23:59:59+00'"), initiator)
    after = with_key(
        posting_sql(legs, transaction="other", type="DEPOSIT", at="'2021-02-01 00:00:01+00'"),
        initiator,
        transaction="other",
    )
    other_key = after.replace("the key", "another key")
    assert carry_out(owner, statements(before, scene.names)).by == ACCEPTED
    assert carry_out(owner, statements(after, scene.names)).by == "journal_key_unique"
    assert carry_out(owner, statements(other_key, scene.names)).by == ACCEPTED


# --- Reversals. `paid` moved 1 000 from payer to payee. ---------------------------------------------------------------


def back(amount: int, *, transaction: str = "new", reverses: str = "paid") -> str:
    legs = f"payee -{amount}, payer {amount}"
    return posting_sql(legs, transaction=transaction, type="REVERSAL", reverses=reverses)


MORE_MONEY = posting_sql("payer -5000, payee 5000", transaction="third")
TWO_CURRENCIES = posting_sql("payer -1000, payee 1000, dollars -5, abroad 5", transaction="third")
TOO_MUCH = "reversal_within_original"
REVERSALS = [
    Attack(rule=6, story="one dong more goes back than came", sql=MORE_MONEY + back(1_001), refused_by=TOO_MUCH),
    Attack(
        rule=6,
        story="all goes back twice",
        sql=MORE_MONEY + back(1_000) + back(1_000, transaction="other"),
        refused_by=TOO_MUCH,
    ),
    Attack(
        rule=6,
        story="parts that are too much together",
        sql=MORE_MONEY + back(600) + back(401, transaction="other"),
        refused_by=TOO_MUCH,
    ),
    Attack(
        rule=6,
        story="parts that are too much together, in one statement",
        sql=MORE_MONEY
        + journal_sql(type="REVERSAL", reverses="paid")
        + journal_sql(transaction="other", type="REVERSAL", reverses="paid")
        + entries_sql("payee -600, payer 600").rstrip(";")
        + ", (%(other)s, %(payee)s, -401, now()), (%(other)s, %(payer)s, 401, now())",
        refused_by=TOO_MUCH,
    ),
    Attack(
        rule=6,
        story="a reversal that goes on in a second statement",
        sql=MORE_MONEY + back(1_000) + entries_sql("payee -1, payer 1"),
        refused_by=TOO_MUCH,
    ),
    Attack(
        rule=6,
        story="a reversal of a reversal",
        sql=back(1_000) + back(1_000, transaction="other", reverses="new"),
        refused_by="reversal_not_of_reversal",
    ),
    Attack(
        rule=6,
        story="a reversal of itself",
        sql=back(1_000, reverses="new"),
        refused_by="reversal_not_of_reversal",
    ),
    Attack(
        rule=6,
        story="a reversal of a reversal that is written after it",
        sql=journal_sql(transaction="other", type="REVERSAL", reverses="new")
        + back(1_000)
        + entries_sql("payer -1000, payee 1000", transaction="other"),
        refused_by="reversal_not_of_reversal",
    ),
    Attack(
        rule=6,
        story="two reversals of each other, written in one statement",
        sql="INSERT INTO journal_transaction (id, idempotency_key, type, reverses_id)"
        " VALUES (%(new)s, 'one', 'REVERSAL', %(other)s), (%(other)s, 'two', 'REVERSAL', %(new)s);"
        + entries_sql("payee -10, payer 10")
        + entries_sql("payer -10, payee 10", transaction="other"),
        refused_by="reversal_not_of_reversal",
    ),
    Attack(
        rule=6,
        story="a reversal of nothing",
        sql=posting_sql("payee -10, payer 10", type="REVERSAL"),
        refused_by="journal_reversal_has_original",
    ),
    Attack(
        rule=6,
        story="a reversal by another name",
        sql=posting_sql("payee -10, payer 10", type="TRANSFER", reverses="paid"),
        refused_by="journal_reversal_has_original",
    ),
    Attack(
        rule=6,
        story="a reversal of a transaction whose entries are still to come",
        sql=journal_sql(transaction="other") + back(10, reverses="other"),
        refused_by="reversal_mirrors_original",
    ),
    Attack(
        rule=6,
        story="what came going back to somebody else",
        sql=posting_sql("payee -5, fresh 5", type="REVERSAL", reverses="paid"),
        refused_by="reversal_mirrors_original",
    ),
    Attack(
        rule=6,
        story="a reversal that pays once more",
        sql=posting_sql("payer -5, payee 5", type="REVERSAL", reverses="paid"),
        refused_by="reversal_mirrors_original",
    ),
    Attack(
        rule=6,
        story="dong that came, going back as dollars",
        sql=posting_sql("abroad -5, dollars 5", type="REVERSAL", reverses="paid"),
        refused_by="reversal_same_currency",
    ),
    Attack(
        rule=6,
        story="more dollars than came, in the room that the dong made",
        sql=TWO_CURRENCIES + posting_sql("abroad -50, dollars 50", type="REVERSAL", reverses="third"),
        refused_by="reversal_same_currency",
    ),
    Attack(
        rule=6,
        story="the budget raised by hand",
        sql=back(1_000) + "UPDATE reversal_budget SET original = 5000",
        refused_by="reversal_budget_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=6,
        story="what went back forgotten by hand",
        sql=back(1_000) + "UPDATE reversal_budget SET reversed = 1",
        refused_by="reversal_budget_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=6,
        story="the budget deleted",
        sql=back(1_000) + "DELETE FROM reversal_budget",
        refused_by="reversal_budget_by_entry",
        app=NO_RIGHT,
    ),
    Attack(
        rule=6,
        story="a budget written beforehand",
        sql="INSERT INTO reversal_budget (transaction_id, original, reversed) VALUES (%(paid)s, 100000, 1)",
        refused_by="reversal_budget_by_entry",
        app=NO_RIGHT,
    ),
]


@pytest.fixture
def names(world: World, scene: Scene) -> dict[str, Any]:
    """The scene with a second wallet in dollars, and with room for more transactions."""
    abroad = world.person("payee", currency="USD", balance=500).account_id
    return {**scene.names, "abroad": abroad, "third": str(uuid4()), "fourth": str(uuid4())}


@tries(REVERSALS)
def test_no_more_goes_back_than_came(attempt: Attempt, names: dict[str, Any], attack: Attack, login: str) -> None:
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)


@pytest.mark.parametrize("login", LOGINS)
def test_all_of_it_goes_back_in_parts(attempt: Attempt, names: dict[str, Any], login: str) -> None:
    parts = MORE_MONEY + back(1) + back(999, transaction="other")
    assert attempt(login, statements(parts, names)).by == ACCEPTED
    assert attempt(login, statements(back(1, transaction="fourth"), names)).by == TOO_MUCH
