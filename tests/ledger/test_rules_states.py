"""Rule 5: nothing leaves a frozen account but what staff must be able to take back, and a closed account is closed."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger.models import JournalTransaction
from tests.attacks import (
    ACCEPTED,
    LOGINS,
    NO_RIGHT,
    Attack,
    Deed,
    Refusal,
    Scene,
    carry_out,
    posting_sql,
    statements,
    tries,
)

Attempt = Callable[[str, Deed], Refusal]
Connect = Callable[[str], psycopg.Connection[Any]]

FREEZE_PAYEE = """
    INSERT INTO account_freeze (account_id, cause, reason, made_by_id)
    VALUES (%(payee)s, 'STAFF', 'a call from the police', %(payer_user)s);
"""
THAW_ONE = """
    INSERT INTO account_thaw (freeze_id, reason, made_by_id)
    SELECT min(id), 'a second call', %(payer_user)s FROM account_freeze;
"""
FROZEN = "ledger_entry_account_not_frozen"
CLOSED = "ledger_entry_account_not_closed"
MAY_LEAVE = ["REVERSAL", "CHARGEBACK", "CONSOLIDATION"]
MAY_NOT_LEAVE = sorted(set(JournalTransaction.Type) - set(MAY_LEAVE))
CONTINUE = ("CAPTURE", "RELEASE", "SETTLEMENT")


def typed(legs: str, type: str) -> str:
    """Whatever the type needs beside its legs, which are judged before the transaction as a whole is."""
    return posting_sql(
        legs,
        type=type,
        reverses="paid" if type == "REVERSAL" else "NULL",
        continues="paid" if type in CONTINUE else "NULL",
    )


def out_of(account: str, type: str) -> str:
    return typed(f"{account} -10, payer 10", type)


OUT_OF_FROZEN = [
    *(
        Attack(
            rule=5,
            story=f"{type} out of a frozen account",
            sql=out_of("payee", type),
            refused_by=FROZEN,
            logins=LOGINS if type == "TRANSFER" else ("app",),
        )
        for type in MAY_NOT_LEAVE
    ),
    Attack(
        rule=5,
        story="out of a frozen account, put back within the statement",
        sql=posting_sql("payee -10, payee 10"),
        refused_by=FROZEN,
    ),
    Attack(
        rule=5,
        story="out of an account frozen twice, one of the two over",
        sql=FREEZE_PAYEE + THAW_ONE + out_of("payee", "TRANSFER"),
        refused_by=FROZEN,
    ),
    Attack(
        rule=5,
        story="the freeze made to be another's",
        sql="UPDATE account_freeze SET account_id = %(payer)s;" + out_of("payee", "TRANSFER"),
        refused_by="freeze_is_kept",
        app=NO_RIGHT,
    ),
    Attack(
        rule=5,
        story="the freeze deleted",
        sql="DELETE FROM account_freeze;" + out_of("payee", "TRANSFER"),
        refused_by="freeze_is_kept",
        app=NO_RIGHT,
    ),
    Attack(
        rule=5,
        story="frozen written as a status",
        sql="UPDATE account SET status = 'FROZEN' WHERE id = %(payer)s",
        refused_by="account_status_known",
    ),
    Attack(
        rule=5,
        story="a freeze without a reason",
        sql=FREEZE_PAYEE.replace("a call from the police", ""),
        refused_by="freeze_reason_given",
    ),
    Attack(
        rule=5,
        story="a freeze of a cause nobody knows",
        sql=FREEZE_PAYEE.replace("STAFF", "WHIM"),
        refused_by="freeze_cause_known",
    ),
    Attack(
        rule=5,
        story="a thaw without a reason",
        sql=THAW_ONE.replace("a second call", ""),
        refused_by="thaw_reason_given",
    ),
    Attack(rule=5, story="a freeze ended twice", sql=THAW_ONE + THAW_ONE, refused_by="account_thaw_pkey"),
]


@pytest.fixture
def frozen_payee(connect: Connect, scene: Scene) -> Scene:
    assert carry_out(connect("app"), statements(FREEZE_PAYEE, scene.names)).by == ACCEPTED
    return scene


@tries(OUT_OF_FROZEN)
def test_a_frozen_account_keeps_its_money(
    frozen_payee: Scene, assert_refused: Callable[[Attack, str], None], attack: Attack, login: str
) -> None:
    assert_refused(attack, login)


# A shard of the payee's wallet, made by the owner, with money on it.
SHARD = """
    INSERT INTO account (id, owner_id, currency, parent_id, shard_no) VALUES (-1, %(payee_user)s, 'VND', %(payee)s, 0);
""" + posting_sql("payer -100, shard 100", transaction="other")
TAKE_BACK = {
    "REVERSAL": "{} -10, payer 10",
    "CHARGEBACK": "{} -10, clearing 10",
    "CONSOLIDATION": "payee 10, shard -10",
}


@pytest.mark.parametrize("type", MAY_LEAVE)
def test_what_staff_must_be_able_to_take_back_leaves_a_frozen_account(
    connect: Connect, attempt: Attempt, scene: Scene, type: str
) -> None:
    names = {**scene.names, "shard": -1}
    assert carry_out(connect("owner"), statements(SHARD + FREEZE_PAYEE, names)).by == ACCEPTED
    refusal = attempt("app", statements(typed(TAKE_BACK[type].format("payee"), type), names))
    # What a chargeback has to have beside its entries is judged at COMMIT.
    assert refusal.by == ACCEPTED or (refusal.at_commit and type == "CHARGEBACK")


def test_money_comes_into_a_frozen_account(frozen_payee: Scene, attempt: Attempt) -> None:
    inward = statements(posting_sql("payer -10, payee 10"), frozen_payee.names)
    assert attempt("app", inward).by == ACCEPTED


def test_a_snapshot_from_before_the_freeze_does_not_help(connect: Connect, attempt: Attempt, scene: Scene) -> None:
    """Under REPEATABLE READ the trigger could not see the freeze, so entries are posted in READ COMMITTED alone."""
    thief, staff = connect("app"), connect("app")
    with thief.transaction():
        thief.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        thief.execute("SELECT count(*) FROM account_freeze")
        assert carry_out(staff, statements(FREEZE_PAYEE, scene.names)).by == ACCEPTED
        refusal = carry_out(thief, statements(out_of("payee", "TRANSFER"), scene.names))
    assert refusal.by == "ledger_entry_read_committed"


def test_a_thaw_ends_it(frozen_payee: Scene, attempt: Attempt) -> None:
    thaw = statements(THAW_ONE + out_of("payee", "TRANSFER"), frozen_payee.names)
    assert attempt("app", thaw).by == ACCEPTED


@pytest.mark.parametrize("type", ["TRANSFER", "CAPTURE", "CONSOLIDATION", "CHARGEBACK"])
def test_a_parents_freeze_holds_for_its_shards(connect: Connect, attempt: Attempt, scene: Scene, type: str) -> None:
    names = {**scene.names, "shard": -1}
    assert carry_out(connect("owner"), statements(SHARD + FREEZE_PAYEE, names)).by == ACCEPTED
    legs = TAKE_BACK.get(type, "{} -10, payer 10").format("shard")
    refusal = attempt("app", statements(typed(legs, type), names))
    if type in MAY_LEAVE:
        assert refusal.by == ACCEPTED or (refusal.at_commit and type == "CHARGEBACK")
    else:
        assert refusal.by == FROZEN


# --- Closed -----------------------------------------------------------------------------------------------------------

EMPTY_PAYEE = posting_sql("payee -1000, payer 1000", transaction="other")
CLOSE_PAYEE = "UPDATE account SET status = 'CLOSED' WHERE id = %(payee)s;"
CLOSED_DOORS = [
    *(
        Attack(
            rule=5,
            story=f"{type} into a closed account",
            sql=typed("payer -10, payee 10", type),
            refused_by=CLOSED,
            logins=LOGINS if type == "TRANSFER" else ("app",),
        )
        for type in sorted(JournalTransaction.Type)
    ),
    *(
        Attack(
            rule=5,
            story=f"{type} out of a closed account",
            sql=out_of("payee", type),
            refused_by=CLOSED,
            logins=LOGINS if type == "TRANSFER" else ("app",),
        )
        for type in sorted(JournalTransaction.Type)
    ),
    Attack(
        rule=5,
        story="a closed account opened again",
        sql="UPDATE account SET status = 'ACTIVE' WHERE id = %(payee)s",
        refused_by="account_closed_is_final",
    ),
    Attack(
        rule=5,
        story="a system account closed, for ever",
        sql="UPDATE account SET status = 'CLOSED' WHERE kind = 'HOLD' AND balance = 0",
        refused_by="account_system_stays_open",
    ),
    Attack(
        rule=5,
        story="a closed account opened again for a moment",
        sql="UPDATE account SET status = 'ACTIVE' WHERE id = %(payee)s;"
        + posting_sql("payer -10, payee 10")
        + CLOSE_PAYEE,
        refused_by="account_closed_is_final",
    ),
]


@pytest.fixture
def closed_payee(connect: Connect, scene: Scene) -> Scene:
    assert carry_out(connect("app"), statements(EMPTY_PAYEE + CLOSE_PAYEE, scene.names)).by == ACCEPTED
    return scene


@tries(CLOSED_DOORS)
def test_a_closed_account_is_closed(
    closed_payee: Scene, assert_refused: Callable[[Attack, str], None], attack: Attack, login: str
) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize("login", LOGINS)
def test_an_account_with_money_is_not_closed(attempt: Attempt, scene: Scene, login: str) -> None:
    assert attempt(login, statements(CLOSE_PAYEE, scene.names)).by == "account_closed_is_empty"


@pytest.mark.parametrize("login", LOGINS)
def test_closing_and_paying_in_one_transaction(attempt: Attempt, scene: Scene, login: str) -> None:
    sql = EMPTY_PAYEE + CLOSE_PAYEE + posting_sql("payer -10, payee 10")
    assert attempt(login, statements(sql, scene.names)).by == CLOSED
