"""The books, checked whole, and wiped: what every test that moves money ends with.

It looks as a superuser with SQL of its own, so that it shares no code and no right with what it checks.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from jsonschema import Draft202012Validator, ValidationError

# Each statement lists what must not be there.
FAULTS = {
    "a transaction's entries do not sum to zero": """
        SELECT e.transaction_id, a.currency, sum(e.amount) FROM ledger_entry e JOIN account a ON a.id = e.account_id
         GROUP BY 1, 2 HAVING sum(e.amount) <> 0""",
    "a transaction has fewer than two entries": """
        SELECT j.id FROM journal_transaction j LEFT JOIN ledger_entry e ON e.transaction_id = j.id
         GROUP BY 1 HAVING count(e.id) < 2""",
    "a balance is not the sum of its entries": """
        SELECT a.id, a.balance, coalesce(sum(e.amount), 0)
          FROM account a LEFT JOIN ledger_entry e ON e.account_id = a.id
         GROUP BY 1, 2 HAVING a.balance <> coalesce(sum(e.amount), 0)""",
    "a balance_after is not the running sum in order of id": """
        SELECT * FROM (SELECT id, account_id, balance_after,
                              sum(amount) OVER (PARTITION BY account_id ORDER BY id) AS total
                         FROM ledger_entry) AS running
         WHERE balance_after <> total""",
    "entries of an account are out of order": """
        SELECT * FROM (SELECT id, created_at, lag(created_at) OVER (PARTITION BY account_id ORDER BY id) AS before
                         FROM ledger_entry) AS chain
         WHERE created_at < before""",
    "a wallet is below zero": "SELECT id, balance FROM account WHERE NOT allow_negative AND balance < 0",
    "a transaction has not exactly one event": """
        SELECT j.id, count(o.id) FROM journal_transaction j
          LEFT JOIN outbox_event o ON o.payload ->> 'transactionId' = j.id::text
         WHERE j.type <> 'CONSOLIDATION' GROUP BY 1 HAVING count(o.id) <> 1""",
    "an event tells of a transaction that is not there": """
        SELECT o.id FROM outbox_event o LEFT JOIN journal_transaction j ON j.id::text = o.payload ->> 'transactionId'
         WHERE o.payload ->> 'transactionId' IS NOT NULL AND j.id IS NULL""",
    "more went back than came": "SELECT transaction_id FROM reversal_budget WHERE reversed > original",
    "a HOLD account is not what its openings have left": """
        SELECT a.id, a.balance, sum(h.amount - h.spent - h.released)
          FROM account a LEFT JOIN held_money h ON h.hold_account_id = a.id WHERE a.kind = 'HOLD'
         GROUP BY 1, 2 HAVING a.balance <> coalesce(sum(h.amount - h.spent - h.released), 0)""",
    "money on hold is not what its transactions say": """
        SELECT h.transaction_id, h.amount, h.spent, h.released FROM held_money h
          LEFT JOIN LATERAL (
              SELECT sum(e.amount) FILTER (WHERE j.id = h.transaction_id) AS amount,
                     sum(-e.amount) FILTER (WHERE j.type IN ('CAPTURE', 'SETTLEMENT')) AS spent,
                     sum(-e.amount) FILTER (WHERE j.type = 'RELEASE') AS released
                FROM journal_transaction j JOIN ledger_entry e ON e.transaction_id = j.id
               WHERE (j.id = h.transaction_id OR j.continues_id = h.transaction_id)
                 AND e.account_id = h.hold_account_id) AS book ON true
         WHERE (h.amount, h.spent, h.released)
               IS DISTINCT FROM (book.amount, coalesce(book.spent, 0), coalesce(book.released, 0))""",
    "an opening holds nothing": """
        SELECT j.id FROM journal_transaction j LEFT JOIN held_money h ON h.transaction_id = j.id
         WHERE j.type IN ('HOLD', 'WITHDRAWAL') AND h.transaction_id IS NULL""",
    "an order's status is not its last change's": """
        SELECT o.id, o.status, last.to_status FROM bank_order o
          LEFT JOIN LATERAL (SELECT to_status FROM bank_order_change WHERE order_id = o.id
                              ORDER BY id DESC LIMIT 1) AS last ON true
         WHERE o.status IS DISTINCT FROM last.to_status""",
    "a deposit has not exactly its money": """
        SELECT o.id, o.status, count(j.id), sum(e.amount) FROM bank_order o
          LEFT JOIN bank_order_change c ON c.order_id = o.id AND c.transaction_id IS NOT NULL
          LEFT JOIN journal_transaction j ON j.id = c.transaction_id AND j.type = 'DEPOSIT'
          LEFT JOIN ledger_entry e ON e.transaction_id = j.id AND e.account_id = o.account_id
         WHERE o.kind = 'DEPOSIT' GROUP BY 1, 2, o.amount
        HAVING count(c.id) <> (o.status = 'COMPLETED')::int OR count(j.id) <> (o.status = 'COMPLETED')::int
            OR coalesce(sum(e.amount), 0) <> CASE o.status WHEN 'COMPLETED' THEN o.amount ELSE 0 END""",
    "a withdrawal has not its money on hold, spent or released": """
        SELECT o.id, o.status, h.amount, h.spent, h.released FROM bank_order o
          LEFT JOIN held_money h ON h.transaction_id = o.opening_id AND h.account_id = o.account_id
         WHERE o.kind = 'WITHDRAWAL' AND (h.amount, h.spent, h.released) IS DISTINCT FROM
               (o.amount, CASE o.status WHEN 'COMPLETED' THEN o.amount ELSE 0 END,
                CASE o.status WHEN 'FAILED' THEN o.amount ELSE 0 END)""",
    "what was returned of an order is not the sum of its returns and of their transactions": """
        SELECT o.id, o.returned FROM bank_order o
          LEFT JOIN LATERAL (SELECT sum(r.amount) AS amount, sum(e.amount) AS moved
                               FROM bank_return r JOIN journal_transaction j ON j.id = r.transaction_id
                                AND j.type = CASE o.kind WHEN 'DEPOSIT' THEN 'CHARGEBACK' ELSE 'RETURN' END
                               JOIN ledger_entry e ON e.transaction_id = j.id AND e.amount > 0
                              WHERE r.order_id = o.id) AS returns ON true
         WHERE (o.returned, o.returned) IS DISTINCT FROM (coalesce(returns.amount, 0), coalesce(returns.moved, 0))""",
    "money of an order has no order": """
        SELECT j.id, j.type FROM journal_transaction j
          LEFT JOIN bank_order_change c ON c.transaction_id = j.id LEFT JOIN bank_return r ON r.transaction_id = j.id
          LEFT JOIN journal_transaction opening ON opening.id = j.continues_id
         WHERE j.type IN ('WITHDRAWAL', 'SETTLEMENT', 'RELEASE', 'RETURN', 'CHARGEBACK')
           AND opening.type IS DISTINCT FROM 'HOLD' AND c.id IS NULL AND r.id IS NULL""",
    "a closed wallet has an order under way": """
        SELECT o.id FROM bank_order o JOIN account a ON a.id = o.account_id
         WHERE a.status = 'CLOSED' AND o.status IN ('PENDING', 'SUBMITTED', 'UNKNOWN')""",
    "a move has not exactly one event": """
        SELECT moves.type, moves.order_id, moves.count, events.count
          FROM (SELECT o.kind || '_' || c.to_status AS type, o.id::text AS order_id, count(*)
                  FROM bank_order_change c JOIN bank_order o ON o.id = c.order_id GROUP BY 1, 2) AS moves
          FULL JOIN (SELECT payload ->> 'type' AS type,
                            coalesce(payload ->> 'depositId', payload ->> 'withdrawalId') AS order_id, count(*)
                       FROM outbox_event
                      WHERE topic IN ('wallet.deposits', 'wallet.withdrawals') AND payload ->> 'transactionId' IS NULL
                        AND payload ? 'type'  -- Tests of the relay leave events that say nothing.
                      GROUP BY 1, 2) AS events USING (type, order_id)
         WHERE moves.count IS DISTINCT FROM events.count""",
    "a hold's status disagrees with its money": """
        SELECT j.id, h.status, m.amount, m.spent, m.released FROM journal_transaction j
          LEFT JOIN hold h ON h.transaction_id = j.id LEFT JOIN held_money m ON m.transaction_id = j.id
         WHERE j.type = 'HOLD'
           AND CASE h.status WHEN 'ACTIVE' THEN m.amount > m.spent + m.released
                             WHEN 'CAPTURED' THEN m.amount = m.spent + m.released AND m.spent > 0
                             ELSE m.amount = m.spent + m.released AND m.released > 0 END IS NOT TRUE""",
    "a hold was captured late, or for somebody else": """
        SELECT c.id FROM hold h JOIN journal_transaction c ON c.continues_id = h.transaction_id AND c.type = 'CAPTURE'
          JOIN ledger_entry e ON e.transaction_id = c.id AND e.amount > 0
         WHERE c.created_at >= h.expires_at OR e.account_id = h.account_id OR e.account_id <> h.to_account_id""",
    "a day's outflow is not what its entries say": """
        SELECT account_id, business_date, spent FROM account_outflow
         WHERE spent <> account_outflow_of(account_id, business_date)""",
}

# What migrations made stays; everything else goes.
WIPE = """
    SET LOCAL session_replication_role = replica;
    DELETE FROM reconciliation_finding; DELETE FROM reconciliation_run;
    DELETE FROM outbox_event; UPDATE outbox_relay SET (floor, ceiling, horizon, published_total, parked_total, rate,
        runs_total, run_seconds_total, failing_since, lagging_since, bloated_since) =
        (0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL);
    DELETE FROM inbox_message; DELETE FROM inbox_parked_message; DELETE FROM notification;
    DELETE FROM idempotency_record; DELETE FROM reversal_budget;
    DELETE FROM hold; DELETE FROM held_money; DELETE FROM account_outflow;
    DELETE FROM bank_notice; DELETE FROM bank_return; DELETE FROM bank_order_change; DELETE FROM bank_order;
    DELETE FROM ledger_entry; DELETE FROM journal_transaction;
    DELETE FROM account_thaw; DELETE FROM account_freeze;
    DELETE FROM account WHERE kind = 'WALLET'; DELETE FROM tier;
    UPDATE account SET balance = 0, last_entry_at = NULL WHERE balance <> 0 OR last_entry_at IS NOT NULL;
    DELETE FROM sign_in;
    DELETE FROM django_admin_log; DELETE FROM django_session;
    DELETE FROM wallet_user_groups; DELETE FROM wallet_user_user_permissions;
    DELETE FROM wallet_user WHERE username <> 'system';
"""

COUNTED = [
    "journal_transaction",
    "ledger_entry",
    "outbox_event",
    "idempotency_record",
    "account",
    "reversal_budget",
    "held_money",
    "hold",
    "account_outflow",
    "bank_order",
    "bank_order_change",
    "bank_return",
    "bank_notice",
    "account_freeze",
    "account_thaw",
    "wallet_user",
]


def value(connection: psycopg.Connection[Any], query: str, parameters: Sequence[Any] = ()) -> Any:
    """The one value of the one row that a query finds."""
    (row,) = connection.execute(query, parameters).fetchall()
    (found,) = row
    return found


def faults(superuser: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """What is wrong with the books, by kind; empty when they balance."""
    found = {name: superuser.execute(query).fetchall() for name, query in FAULTS.items()}
    found["an event is not as its schema says"] = _events_against_schemas(superuser)
    return {name: rows for name, rows in found.items() if rows}


def _events_against_schemas(superuser: psycopg.Connection[Any]) -> list[Any]:
    """Attacks leave events with nothing but their transaction's id; all others say what they are."""
    query = "SELECT lower(topic || '.' || (payload ->> 'type')), payload FROM outbox_event WHERE payload ? 'type'"
    schemas = _schemas()
    return [
        (type_, error.message, payload)
        for type_, payload in superuser.execute(query)
        for error in (schemas[type_].iter_errors(payload) if type_ in schemas else [ValidationError("no schema")])
    ]


@cache
def _schemas() -> dict[str, Draft202012Validator]:
    files = Path(__file__).parents[1].glob("transfers/event_schemas/*.json")
    return {file.stem: Draft202012Validator(json.loads(file.read_text())) for file in files}


def wipe(superuser: psycopg.Connection[Any]) -> None:
    """Forget what a test wrote. Replica mode silences the guards in this one session only (docs/adr/0004)."""
    with superuser.transaction():
        superuser.execute(WIPE)


def snapshot(superuser: psycopg.Connection[Any]) -> dict[str, Any]:
    """All that a refusal must leave as it was: balances, how many rows each table has, and their every word."""
    balances = superuser.execute("SELECT id, balance, status FROM account ORDER BY id").fetchall()
    counts = {
        table: superuser.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # type: ignore[index]
        for table in COUNTED
    }
    words = {
        f"{table}, word for word": superuser.execute(
            f"SELECT md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM {table} AS t"
        ).fetchone()
        for table in COUNTED
    }
    return {"balances": balances, **counts, **words}
