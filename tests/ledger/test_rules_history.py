"""Rules 2 and 9: nobody rewrites the past, and nobody changes what an account is."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

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
    partitions,
    posting_sql,
    statements,
    tries,
)

Attempt = Callable[[str, Deed], Refusal]
Connect = Callable[[str], psycopg.Connection[Any]]

# Each table of history, the rule that keeps it, and a column that somebody would like to be otherwise.
KEPT = {
    "ledger_entry": ("ledger_entry_is_kept", "amount = amount * 2"),
    "journal_transaction": ("journal_is_kept", "reference = 'never happened'"),
    "idempotency_record": ("idempotency_record_is_kept", "status = 500"),
    "reversal_budget": ("reversal_budget_by_entry", "reversed = 1"),
    "account_freeze": ("freeze_is_kept", "reason = 'a mistake'"),
    "account_thaw": ("thaw_is_kept", "reason = 'a mistake'"),
}
# One row in each of them.
HISTORY = (
    posting_sql("payee -10, payer 10", type="REVERSAL", reverses="paid")
    + """
    INSERT INTO idempotency_record (initiator_id, key, fingerprint, status, response)
    VALUES (%(payer_user)s, 'opened', '', 201, '{}');
    INSERT INTO account_freeze (account_id, cause, reason, made_by_id)
    VALUES (%(payee)s, 'STAFF', 'a call', %(payee_user)s);
    INSERT INTO account_thaw (freeze_id, reason, made_by_id)
    SELECT id, 'a second call', %(payee_user)s FROM account_freeze;
    """
)


@pytest.fixture
def history(connect: Connect, scene: Scene) -> Scene:
    assert carry_out(connect("app"), statements(HISTORY, scene.names)).by == ACCEPTED
    return scene


def _rewrite(table: str) -> list[Attack]:
    rule, change = KEPT[table]
    (column,) = change.split(" = ")[:1]
    ways = {
        "changed": f"UPDATE {table} SET {change}",
        "left as they were, word for word": f"UPDATE {table} SET {column} = {column}",
        "changed in a WITH": f"WITH changed AS (UPDATE {table} SET {change} RETURNING 1) SELECT count(*) FROM changed",
        "changed by MERGE": f"MERGE INTO {table} USING (VALUES (1)) AS v ON true WHEN MATCHED THEN UPDATE SET {change}",
        "deleted": f"DELETE FROM {table}",
        "deleted by MERGE": f"MERGE INTO {table} USING (VALUES (1)) AS v ON true WHEN MATCHED THEN DELETE",
        "truncated": f"TRUNCATE {table} CASCADE",
    }
    plain = {"changed", "deleted", "truncated"}
    return [
        Attack(
            rule=2,
            story=f"rows of {table} {way}",
            sql=sql,
            refused_by=rule,
            app=NO_RIGHT,
            logins=LOGINS if way in plain else ("owner",),
        )
        for way, sql in ways.items()
    ]


REWRITES = [attack for table in KEPT for attack in _rewrite(table)]


@tries(REWRITES)
def test_the_past_is_not_rewritten(
    history: Scene, assert_refused: Callable[[Attack, str], None], attack: Attack, login: str
) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize("table", ["account", "wallet_user", "account, ledger_entry"])
@pytest.mark.parametrize("login", LOGINS)
def test_truncating_what_history_refers_to_truncates_no_history(
    history: Scene, attempt: Attempt, table: str, login: str
) -> None:
    refusal = attempt(login, statements(f"TRUNCATE {table} CASCADE", {}))
    assert refusal.by == NO_RIGHT if login == "app" else refusal.by.endswith("_is_kept")


@pytest.mark.parametrize("login", LOGINS)
def test_no_partition_is_rewritten_by_its_own_name(
    connect: Connect, history: Scene, attempt: Attempt, login: str
) -> None:
    # Something old, so that the default partition has rows too; accounts without entries may be posted to at any time.
    old = posting_sql("outside -700, fresh 700", transaction="other", type="DEPOSIT", at="'2020-01-15'")
    assert carry_out(connect("owner"), statements(old, history.names)).by == ACCEPTED
    by = NO_RIGHT if login == "app" else "ledger_entry_is_kept"
    filled = {f"ledger_parts.entry_{datetime.now(UTC):%Y_%m}", "ledger_parts.entry_default"}

    for part in partitions(connect("superuser")):
        assert attempt(login, statements(f"TRUNCATE {part}", {})).by == by, part
        for change in (f"UPDATE {part} SET amount = amount * 2", f"DELETE FROM {part}"):
            expected = ACCEPTED if login != "app" and part not in filled else by  # No row, nothing to refuse.
            assert attempt(login, statements(change, {})).by == expected, part


# --- Rule 9 -----------------------------------------------------------------------------------------------------------

FIXED = {
    "id": "id = id + 1000000",
    "owner": "owner_id = %(payee_user)s",
    "currency": "currency = 'USD'",
    "kind": "kind = 'SUSPENSE'",
    "allow_negative": "allow_negative = true",
    "parent": "parent_id = %(payee)s",
    "shard": "shard_no = 1",
    "parent and shard": "parent_id = %(payee)s, shard_no = 1",
    "created_at": "created_at = '2020-01-01'",
}
IDENTITY = [
    *(
        Attack(
            rule=9,
            story=f"an account's {name} changed",
            sql=f"UPDATE account SET {change} WHERE id = %(payer)s",
            refused_by="account_identity_is_fixed",
            app=NO_RIGHT,
        )
        for name, change in FIXED.items()
    ),
    Attack(
        rule=9,
        story="a shard moved to another family",
        sql="UPDATE account SET parent_id = %(payer)s WHERE id = %(hold)s",
        refused_by="account_identity_is_fixed",
        app=NO_RIGHT,
    ),
    Attack(
        rule=9,
        story="an account changed on the way, by ON CONFLICT",
        sql="INSERT INTO account (id, owner_id, currency) VALUES (%(payer)s, %(payee_user)s, 'VND')"
        " ON CONFLICT (id) DO UPDATE SET owner_id = EXCLUDED.owner_id",
        refused_by="account_identity_is_fixed",
        app=NO_RIGHT,
    ),
    Attack(
        rule=9,
        story="an account deleted",
        sql="DELETE FROM account WHERE id = %(payer)s",
        refused_by="account_is_kept",
        app=NO_RIGHT,
    ),
    Attack(
        rule=9,
        story="an empty account without entries deleted",
        sql="DELETE FROM account WHERE id = %(hold)s",
        refused_by="account_is_kept",
        app=NO_RIGHT,
    ),
    Attack(
        rule=9,
        story="an account deleted by MERGE",
        sql="MERGE INTO account USING (VALUES (%(payer)s)) AS v (id) ON account.id = v.id WHEN MATCHED THEN DELETE",
        refused_by="account_is_kept",
        app=NO_RIGHT,
    ),
]


@tries(IDENTITY)
def test_an_account_stays_what_it_is(assert_refused: Callable[[Attack, str], None], attack: Attack, login: str) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize("login", ["owner", "superuser"])
def test_a_user_with_an_account_is_not_deleted(attempt: Attempt, scene: Scene, login: str) -> None:
    refusal = attempt(login, statements("DELETE FROM wallet_user WHERE id = %(payer_user)s", scene.names))
    assert refusal.is_refused
    assert refusal.by.endswith("fk_wallet_user_id")


def test_the_application_may_rename_an_account(attempt: Attempt, scene: Scene) -> None:
    """The control: what may change does."""
    rename = statements("UPDATE account SET name = 'savings' WHERE id = %(payer)s", scene.names)
    assert attempt("app", rename).by == ACCEPTED
