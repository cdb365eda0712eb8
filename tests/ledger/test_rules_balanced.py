"""Rules 1 and 7: a transaction is whole. Its legs are at least two, sum to zero per currency, and come in one go."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.attacks import (
    ACCEPTED,
    FORMS,
    LOGINS,
    NO_RIGHT,
    Attack,
    Deed,
    Leg,
    Refusal,
    Scene,
    carry_out,
    entries_sql,
    event,
    journal,
    journal_sql,
    partitions,
    posting_sql,
    statements,
    tries,
)

Attempt = Callable[[str, Deed], Refusal]
Connect = Callable[[str], psycopg.Connection[Any]]
Legs = Sequence[tuple[str, str, int]]  # transaction, account, amount; in the scene's names

UNBALANCED: dict[str, Legs] = {
    "one leg": [("new", "payer", -1_000)],
    "999 out, 998 in": [("new", "payer", -999), ("new", "payee", 998)],
    "998 out, 999 in": [("new", "payer", -998), ("new", "payee", 999)],
    "two currencies that cancel out": [("new", "payer", -100), ("new", "dollars", 100)],
    "two transactions that cancel out": [("new", "payer", -100), ("other", "payee", 100)],
    "one of two transactions": [
        ("new", "payer", -100),
        ("new", "payee", 100),
        ("other", "payer", -100),
        ("other", "payee", 99),
    ],
    "three legs, one dong short": [("new", "payer", -100), ("new", "payee", 50), ("new", "hold", 49)],
}


def write(form: str, table: str, legs: Legs, scene: Scene, *, at: datetime | None = None) -> Deed:
    """The deed that writes the journal rows, then all legs in one statement of that form."""
    names = scene.names
    rows = [
        Leg(transaction_id=names[transaction], account_id=names[account], amount=amount, created_at=at)
        for transaction, account, amount in legs
    ]

    def deed(cursor: psycopg.Cursor[Any]) -> None:
        for transaction_id in {row.transaction_id for row in rows}:
            journal(cursor, transaction_id, **({} if at is None else {"created_at": at}))
            event(cursor, transaction_id)
        FORMS[form](cursor, table, rows)

    return deed


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("legs", UNBALANCED.values(), ids=UNBALANCED.keys())
def test_an_unbalanced_statement_is_refused_at_once(attempt: Attempt, scene: Scene, legs: Legs, login: str) -> None:
    assert attempt(login, write("INSERT", "ledger_entry", legs, scene)) == Refusal(by="ledger_entry_balanced")


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("form", FORMS)
def test_whatever_its_form(attempt: Attempt, scene: Scene, form: str, login: str) -> None:
    legs = UNBALANCED["999 out, 998 in"]
    assert attempt(login, write(form, "ledger_entry", legs, scene)) == Refusal(by="ledger_entry_balanced")


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("form", FORMS)
def test_the_same_forms_pass_when_the_legs_balance(attempt: Attempt, scene: Scene, form: str, login: str) -> None:
    """The control: it is the balance that is refused above, not the form."""
    legs = [("new", "payee", 60), ("new", "payer", -100), ("new", "fresh", 40)]
    assert attempt(login, write(form, "ledger_entry", legs, scene)).by == ACCEPTED


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize(
    "conflict", ["DO NOTHING", "(id, created_at) DO NOTHING", "(id, created_at) DO UPDATE SET amount = EXCLUDED.amount"]
)
def test_entries_are_never_skipped_or_changed_on_conflict(
    attempt: Attempt, scene: Scene, conflict: str, login: str
) -> None:
    """A skipped row's trigger has run already, and has moved a balance for an entry that is not there."""
    sql = journal_sql() + entries_sql("payer -100, payee 100").replace(";", f" ON CONFLICT {conflict};")
    refusal = attempt(login, statements(sql, scene.names))
    assert refusal.by == NO_RIGHT if login == "app" and "UPDATE" in conflict else refusal.by.endswith("_pkey")


@pytest.mark.parametrize("form", FORMS)
def test_one_leg_straight_into_a_partition_is_refused_by_its_own_trigger(
    connect: Connect, scene: Scene, form: str
) -> None:
    """Statement triggers are not inherited. The owner may date back, so each kind of partition is tried."""
    now = datetime.now(UTC)
    two_months_ago = (now.replace(day=1) - timedelta(days=32)).replace(day=15)
    kinds = {
        f"ledger_parts.entry_{two_months_ago:%Y_%m}": two_months_ago,
        f"ledger_parts.entry_{now:%Y_%m}": None,
        "ledger_parts.entry_default": now.replace(year=now.year - 5, day=15),
    }
    owner = connect("owner")
    with owner.transaction(force_rollback=True):
        owner.execute("SELECT ledger_add_partition(%s)", [two_months_ago.date()])
        assert kinds.keys() <= set(partitions(owner))
        for part, at in kinds.items():
            refusal = carry_out(owner, write(form, part, [("new", "hold", 1_000)], scene, at=at))
            assert refusal.by == "ledger_entry_balanced", part


@pytest.mark.parametrize(("login", "by"), [("app", NO_RIGHT), ("superuser", "ledger_entry_balanced")])
def test_this_months_partition_by_name_as(attempt: Attempt, scene: Scene, login: str, by: str) -> None:
    part = f"ledger_parts.entry_{datetime.now(UTC):%Y_%m}"
    assert attempt(login, write("INSERT", part, UNBALANCED["one leg"], scene)).by == by


JOURNAL = journal_sql()
ENTRIES = entries_sql("payer -100, payee 100")
NO_ENTRIES = "journal_has_entries"
WHOLE = [
    Attack(rule=1, story="no entries at all", sql=JOURNAL, refused_by=NO_ENTRIES, at_commit=True),
    Attack(
        rule=1,
        story="no entries, the check called early",
        sql="SET CONSTRAINTS ALL IMMEDIATE;" + JOURNAL,
        refused_by=NO_ENTRIES,
    ),
    Attack(
        rule=1,
        story="no entries, all checks asked to wait",
        sql="SET CONSTRAINTS ALL DEFERRED;" + JOURNAL,
        refused_by=NO_ENTRIES,
        at_commit=True,
    ),
    Attack(
        rule=1,
        story="entries rolled back to a savepoint",
        sql=f"{JOURNAL} SAVEPOINT legs; {ENTRIES} ROLLBACK TO SAVEPOINT legs",
        refused_by=NO_ENTRIES,
        at_commit=True,
    ),
    Attack(
        rule=1,
        story="entries rolled back to a savepoint after the check has passed",
        sql=f"{JOURNAL} SAVEPOINT legs; {ENTRIES} SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO SAVEPOINT legs",
        refused_by=NO_ENTRIES,
        at_commit=True,
    ),
    Attack(
        rule=1,
        story="one leg, its refusal swallowed",
        sql=f"{JOURNAL} DO $$ BEGIN {entries_sql('payer -100')} EXCEPTION WHEN OTHERS THEN NULL; END $$",
        refused_by=NO_ENTRIES,
        at_commit=True,
    ),
    Attack(
        rule=1,
        story="legs that cancel out, in two statements",
        sql=JOURNAL + entries_sql("payer -100") + entries_sql("payee 100"),
        refused_by="ledger_entry_balanced",
    ),
    Attack(
        rule=1,
        story="legs of nothing",
        sql=JOURNAL + entries_sql("payer 0, payee 0"),
        refused_by="ledger_entry_amount_not_zero",
    ),
    Attack(rule=1, story="entries of no transaction", sql=ENTRIES, refused_by="ledger_entry_transaction_fk"),
    Attack(
        rule=7,
        story="entries added to a transaction of the past",
        sql=entries_sql("payer -100, payee 100", transaction="paid"),
        refused_by="ledger_entry_same_transaction",
    ),
    Attack(
        rule=7,
        story="entries added to a transaction of the past, dated as it is",
        sql=entries_sql("payer -100, payee 100", transaction="paid", at="%(paid_at)s"),
        refused_by="ledger_entry_not_backdated",
        owner="ledger_entry_same_transaction",
    ),
    Attack(
        rule=7,
        story="entries added to a transaction of the past in a savepoint, beside one of our own",
        sql=f"{JOURNAL} {ENTRIES} SAVEPOINT legs;" + entries_sql("payer -100, payee 100", transaction="paid"),
        refused_by="ledger_entry_same_transaction",
    ),
    Attack(
        rule=7,
        story="a lie about the database transaction, a past one",
        sql="INSERT INTO journal_transaction (id, idempotency_key, type, xact)"
        f" VALUES (%(new)s, 'attack', 'TRANSFER', '3'); {ENTRIES}",
        refused_by="journal_xact_is_own",
        app=NO_RIGHT,
    ),
    Attack(
        rule=7,
        story="a lie about the database transaction, one to come",
        sql="INSERT INTO journal_transaction (id, idempotency_key, type, xact) VALUES (%(new)s, 'attack', 'TRANSFER',"
        f" (pg_current_xact_id()::text::bigint + 1)::text::xid8); {ENTRIES}",
        refused_by="journal_xact_is_own",
        app=NO_RIGHT,
    ),
    Attack(
        rule=7,
        story="a past transaction made our own, to add to it",
        sql="UPDATE journal_transaction SET xact = pg_current_xact_id() WHERE id = %(paid)s;"
        + entries_sql("payer -100, payee 100", transaction="paid"),
        refused_by="journal_is_kept",
        app=NO_RIGHT,
    ),
]


@tries(WHOLE)
def test_refused(assert_refused: Callable[[Attack, str], None], attack: Attack, login: str) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize(("login", "by"), [("app", NO_RIGHT), ("owner", "ledger_entry_balanced")])
def test_two_legs_of_one_statement_by_two_doors(attempt: Attempt, scene: Scene, login: str, by: str) -> None:
    """One leg through the parent, the other straight into the partition: each door judges alone."""
    part = f"ledger_parts.entry_{datetime.now(UTC):%Y_%m}"
    door = entries_sql("payee 100").replace("ledger_entry", part)
    sql = JOURNAL + f"WITH one AS ({entries_sql('payer -100').rstrip(';')}) {door}"
    assert attempt(login, statements(sql, scene.names)).by == by


def test_entries_may_come_in_savepoints_of_the_one_transaction(attempt: Attempt, scene: Scene) -> None:
    """The control of rule 7: the number is the database transaction's, not the savepoint's."""
    posting = posting_sql("payer -100, payee 100")
    sql = f"SAVEPOINT one; {posting} RELEASE one; SAVEPOINT two; {ENTRIES} RELEASE two; {ENTRIES}"
    assert attempt("app", statements(sql, scene.names)).by == ACCEPTED


def test_an_uncommitted_transaction_takes_no_strangers_entries(connect: Connect, scene: Scene) -> None:
    maker, stranger = connect("app"), connect("app")
    journal(maker.cursor(), scene.new)
    assert carry_out(stranger, statements(ENTRIES, scene.names)).by == "ledger_entry_transaction_fk"


def test_the_refusal_names_the_transaction_and_what_is_missing(connect: Connect, scene: Scene) -> None:
    """Whoever debugs a posting reads it in the log; programs go by the constraint's name."""
    app = connect("app")
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        write("INSERT", "ledger_entry", UNBALANCED["999 out, 998 in"], scene)(psycopg.ClientCursor(app))
    assert f"transaction {scene.new} sum to -1 VND" in str(refusal.value)
