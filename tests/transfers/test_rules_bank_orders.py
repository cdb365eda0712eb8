"""What the database refuses about bank orders, whoever asks: raw SQL as the application, the owner and a superuser."""

from collections.abc import Callable
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from accounts.models import Account
from ledger.models import HeldMoney
from tests.attacks import ACCEPTED, LOGINS, NO_RIGHT, Attack, Deed, Refusal, carry_out, posting_sql, statements, tries
from tests.transfers.bank_kit import a_deposit, a_withdrawal
from tests.world import World
from transfers.bank.gateway import PaymentStatus
from transfers.models import LEGAL_MOVES, BankOrder, Cause
from transfers.services import close_account, fund
from transfers.services.bank_moves import move
from transfers.services.bank_outcomes import News, apply_news, lock_order
from wallet_project.kernel.db import run_in_transaction

Connect = Callable[[str], psycopg.Connection[Any]]
Snapshot = Callable[[], dict[str, Any]]
Attempt = Callable[[str, Deed], Refusal]

RULE = 14
MOVES_MONEY, RETURN_MOVES_MONEY = "bank_order_move_moves_money", "bank_return_moves_money"
BY_CHANGE, NO_ORDER = "bank_order_moves_by_change", "journal_has_bank_order"
GENERATED = "428C9"  # generated_always
# Dated as an honest transaction is: not before what the accounts have seen.
NOW = "(SELECT greatest(now(), max(last_entry_at)) FROM account)"


def bring_to(order: BankOrder, status: str) -> BankOrder:
    """Move an order as the worker does, as if the bank had spoken."""
    if status != "PENDING":
        run_in_transaction(lambda: move(lock_order(order.pk), "SUBMITTED", cause=Cause.SUBMIT))
    if status == "UNKNOWN":
        run_in_transaction(lambda: move(lock_order(order.pk), "UNKNOWN", cause=Cause.NO_ANSWER))
    said = {"COMPLETED": PaymentStatus.SETTLED, "FAILED": PaymentStatus.REFUSED}.get(status)
    if said is not None:
        news = News(status=said, cause=Cause.ANSWER)
        run_in_transaction(lambda: apply_news(lock_order(order.pk), news))
    return order


@pytest.fixture
def names(world: World) -> dict[str, Any]:
    """A withdrawal of 100 in every state, two submitted ones, two deposits, and people around them."""
    payer, stranger, gone = world.person("payer", balance=10_000), world.person("stranger"), world.person("gone")
    waiting = world.person("waiting")
    withdrawals = {status.lower(): bring_to(a_withdrawal(payer, 100), status) for status in BankOrder.Status}
    other_sent = bring_to(a_withdrawal(payer, 100), "SUBMITTED")
    asked = bring_to(a_deposit(payer, 100), "SUBMITTED")
    got = bring_to(a_deposit(payer, 100), "COMPLETED")
    a_deposit(waiting, 5)
    theirs = bring_to(a_deposit(stranger, 20), "COMPLETED")
    close_account(caller=gone.caller, key="close", account_id=gone.account_id)
    shards = dict(HeldMoney.objects.values_list("pk", "hold_account_id"))
    system = {
        kind.lower(): Account.objects.filter(kind=kind, currency="VND", parent__isnull=False).earliest("pk").pk
        for kind in ("BANK_CLEARING", "SUSPENSE", "RECEIVABLE", "HOLD")
    }
    return {
        **{name: order.pk for name, order in withdrawals.items()},
        **system,
        "other_sent": other_sent.pk,
        "asked": asked.pk,
        "got": got.pk,
        "theirs": theirs.pk,
        "sent_shard": shards[withdrawals["submitted"].pk],
        "other_shard": shards[other_sent.pk],
        "payer": payer.account_id,
        "payer_user": payer.user.pk,
        "stranger": stranger.account_id,
        "gone": gone.account_id,
        "waiting": waiting.account_id,
        "funded": fund(account_id=payer.account_id, amount=100, key="before").transaction_id,
        "settled": withdrawals["completed"].changes.get(to_status="COMPLETED").transaction_id,
        "new": uuid4(),
        "other": uuid4(),
        "nobody": uuid4(),
    }


@pytest.fixture
def attempt(connect: Connect, snapshot: Snapshot) -> Attempt:
    """`attempt(login, deed)`: who refused it. Whatever was refused has changed nothing."""

    def attempt_as(login: str, deed: Deed) -> Refusal:
        before = snapshot()
        refusal = carry_out(connect(login), deed)
        if refusal.is_refused:
            assert snapshot() == before
        return refusal

    return attempt_as


def order_sql(
    *,
    id: str = "nobody",
    kind: str = "DEPOSIT",
    account: str = "payer",
    amount: int = 10,
    more: str = "",
    values: str = "",
) -> str:
    """A row of `bank_order`; `id` and `account` are names of the scene."""
    return (
        f"INSERT INTO bank_order (id, kind, account_id, amount, initiator_id{more})"
        f" VALUES (%({id})s, '{kind}', %({account})s, {amount}, %(payer_user)s{values});"
    )


def withdrawal_sql(*, id: str, opening: str, amount: int = 10, account: str = "payer") -> str:
    more = ", destination, opening_id"
    return order_sql(
        id=id, kind="WITHDRAWAL", account=account, amount=amount, more=more, values=f", 'x', %({opening})s"
    )


def change_sql(of: str, from_: str | None, to: str, *, by: str = "NULL") -> str:
    """A row of `bank_order_change`; `of` and `by` are names of the scene."""
    transaction = by if by == "NULL" else f"%({by})s"
    before = "NULL" if from_ is None else f"'{from_}'"
    return (
        "INSERT INTO bank_order_change (order_id, from_status, to_status, cause, transaction_id)"
        f" VALUES (%({of})s, {before}, '{to}', 'ANSWER', {transaction});"
    )


def return_sql(of: str, amount: int, *, by: str = "new", named: str = "R") -> str:
    return (
        "INSERT INTO bank_return (order_id, return_id, amount, cause, transaction_id)"
        f" VALUES (%({of})s, '{named}', {amount}, 'NOTICE', %({by})s);"
    )


def money(legs: str, type: str, *, continues: str = "NULL", transaction: str = "new") -> str:
    return posting_sql(legs, type=type, continues=continues, transaction=transaction, at=NOW)


def line(story: str, sql: str, refused_by: str, **more: Any) -> Attack:
    return Attack(rule=RULE, story=story, sql=sql, refused_by=refused_by, **more)


# --- Moves -----------------------------------------------------------------------------------------------------------

STATUSES = [status.value for status in BankOrder.Status]
ILLEGAL = [
    line(f"from {from_} to {to}", change_sql((from_ or "pending").lower(), from_, to), "bank_order_move_legal")
    for from_, to in product([None, *STATUSES], STATUSES)
    if to not in LEGAL_MOVES.get(from_, ())
]
MOVES = [
    line("to no status at all", change_sql("submitted", "SUBMITTED", "PAID"), "bank_order_move_legal"),
    line("a second beginning", change_sql("pending", None, "PENDING"), "bank_order_begins_once"),
    line(
        "from where it is not",
        change_sql("submitted", "PENDING", "SUBMITTED"),
        "bank_order_move_from_state",
    ),
    line(
        "a completed one failing from where it was",
        change_sql("completed", "SUBMITTED", "FAILED"),
        "bank_order_move_from_state",
    ),
    line("an order that is not there", change_sql("nobody", "PENDING", "SUBMITTED"), "bank_order_move_from_state"),
    line("the status by hand", "UPDATE bank_order SET status = 'COMPLETED'", BY_CHANGE, app=NO_RIGHT),
    line(
        "the status of one by hand",
        "UPDATE bank_order SET status = 'FAILED' WHERE id = %(submitted)s",
        BY_CHANGE,
        app=NO_RIGHT,
    ),
    line("what was returned by hand", "UPDATE bank_order SET returned = 1 WHERE id = %(got)s", BY_CHANGE, app=NO_RIGHT),
    line("without a history", order_sql(), "bank_order_has_history", at_commit=True),
    line(
        "completed from the beginning",
        order_sql(more=", status", values=", 'COMPLETED'"),
        "bank_order_opens_pending",
    ),
    line("returned from the beginning", order_sql(more=", returned", values=", 1"), "bank_order_opens_pending"),
    line("of a closed wallet", order_sql(account="gone"), "bank_order_of_open_wallet"),
    line("of a system account", order_sql(account="suspense"), "bank_order_of_open_wallet"),
    line("of nothing", order_sql(amount=0), "bank_order_amount_positive"),
    line("of less than nothing", order_sql(amount=-5), "bank_order_amount_positive"),
    line("of more than any wallet may have", order_sql(amount=2**53), "bank_order_amount_positive"),
    line("of an unknown kind", order_sql(kind="GIFT"), "bank_order_fits_kind"),
    line("a deposit with a destination", order_sql(more=", destination", values=", 'x'"), "bank_order_fits_kind"),
    line(
        "a withdrawal without an opening",
        order_sql(kind="WITHDRAWAL", more=", destination", values=", 'x'"),
        "bank_order_fits_kind",
    ),
    line("a withdrawal of another's opening", withdrawal_sql(id="nobody", opening="pending"), "bank_order_fits_kind"),
    line(
        "forgotten by the workers",
        "UPDATE bank_order SET next_step_at = NULL WHERE id = %(submitted)s",
        "bank_order_open_has_next_step",
    ),
]


@tries(MOVES)
def test_an_order_moves_by_the_table(attempt: Attempt, names: dict[str, Any], attack: Attack, login: str) -> None:
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)


@pytest.mark.parametrize("login", LOGINS)
def test_no_move_but_those_of_the_table(attempt: Attempt, names: dict[str, Any], login: str) -> None:
    assert len(ILLEGAL) == 6 * 5 - sum(map(len, LEGAL_MOVES.values()))
    for attack in ILLEGAL:
        assert attempt(login, statements(attack.sql, names)) == attack.expected(login), attack


def test_the_table_allows_what_it_says(attempt: Attempt, names: dict[str, Any]) -> None:
    """A control: the moves that move no money, and one that does, as plain SQL. (Their events are left by hand.)"""
    told = (
        "INSERT INTO outbox_event (topic, key, payload) SELECT 'wallet.withdrawals', 'attack',"
        " jsonb_build_object('withdrawalId', %({of})s::text, 'type', 'WITHDRAWAL_{to}', 'transactionId', NULL, 'from',"
        " 1, 'to', NULL, 'amount', 1, 'currency', 'VND', 'occurredAt', '2026-01-01T00:00:00Z', 'status', '{to}');"
    )
    settle = money("sent_shard -100, bank_clearing 100", "SETTLEMENT", continues="submitted")
    honest = (
        change_sql("pending", "PENDING", "SUBMITTED")
        + told.format(of="pending", to="SUBMITTED")
        + change_sql("pending", "SUBMITTED", "UNKNOWN")
        + told.format(of="pending", to="UNKNOWN")
        + settle
        + change_sql("submitted", "SUBMITTED", "COMPLETED", by="new")
        + told.format(of="submitted", to="COMPLETED")
    )
    assert attempt("app", statements(honest, names)).by == ACCEPTED
    done = BankOrder.objects.get(pk=names["submitted"])
    assert (done.status, done.next_step_at) == ("COMPLETED", None)


# --- Money -----------------------------------------------------------------------------------------------------------

SETTLE = money("sent_shard -100, bank_clearing 100", "SETTLEMENT", continues="submitted")
RELEASE = money("sent_shard -100, payer 100", "RELEASE", continues="submitted")
MONEY = [
    line("completed without money", change_sql("submitted", "SUBMITTED", "COMPLETED"), MOVES_MONEY),
    line("failed without money", change_sql("submitted", "SUBMITTED", "FAILED"), MOVES_MONEY),
    line("a deposit completed without money", change_sql("asked", "SUBMITTED", "COMPLETED"), MOVES_MONEY),
    line("completed by a release", RELEASE + change_sql("submitted", "SUBMITTED", "COMPLETED", by="new"), MOVES_MONEY),
    line("failed by a settlement", SETTLE + change_sql("submitted", "SUBMITTED", "FAILED", by="new"), MOVES_MONEY),
    line(
        "settled in part",
        money("sent_shard -60, bank_clearing 60", "SETTLEMENT", continues="submitted")
        + change_sql("submitted", "SUBMITTED", "COMPLETED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "released in part",
        money("sent_shard -60, payer 60", "RELEASE", continues="submitted")
        + change_sql("submitted", "SUBMITTED", "FAILED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "settled with another order's money",
        money("other_shard -100, bank_clearing 100", "SETTLEMENT", continues="other_sent")
        + change_sql("submitted", "SUBMITTED", "COMPLETED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "settled with a settlement of before",
        change_sql("submitted", "SUBMITTED", "COMPLETED", by="settled"),
        "bank_order_change_transaction_id_key",
    ),
    line(
        "two orders settled by one transaction",
        SETTLE
        + change_sql("submitted", "SUBMITTED", "COMPLETED", by="new")
        + change_sql("other_sent", "SUBMITTED", "COMPLETED", by="new"),
        "bank_order_change_transaction_id_key",
    ),
    line(
        "a deposit completed with money of before",
        change_sql("asked", "SUBMITTED", "COMPLETED", by="funded"),
        MOVES_MONEY,
    ),
    line(
        "a deposit for somebody else",
        money("bank_clearing -100, stranger 100", "DEPOSIT") + change_sql("asked", "SUBMITTED", "COMPLETED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a deposit shared with somebody else",
        money("bank_clearing -100, payer 60, stranger 40", "DEPOSIT")
        + change_sql("asked", "SUBMITTED", "COMPLETED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a deposit larger than was asked for",
        money("bank_clearing -101, payer 101", "DEPOSIT") + change_sql("asked", "SUBMITTED", "COMPLETED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a deposit into suspense",
        money("bank_clearing -100, suspense 100", "DEPOSIT") + change_sql("asked", "SUBMITTED", "COMPLETED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a deposit that fails with money",
        money("bank_clearing -100, payer 100", "DEPOSIT") + change_sql("asked", "SUBMITTED", "FAILED", by="new"),
        MOVES_MONEY,
    ),
    line(
        "money with a move that moves none",
        money("bank_clearing -100, payer 100", "DEPOSIT") + change_sql("submitted", "SUBMITTED", "UNKNOWN", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a withdrawal that sets too little aside",
        money("payer -5, hold 5", "WITHDRAWAL")
        + withdrawal_sql(id="new", opening="new")
        + change_sql("new", None, "PENDING", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a withdrawal of somebody else's money",
        money("payer -10, hold 10", "WITHDRAWAL")
        + withdrawal_sql(id="new", opening="new", account="stranger")
        + change_sql("new", None, "PENDING", by="new"),
        MOVES_MONEY,
    ),
    line(
        "a withdrawal that is no withdrawal",
        money("payer -10, hold 10", "HOLD")
        + withdrawal_sql(id="new", opening="new")
        + change_sql("new", None, "PENDING", by="new"),
        MOVES_MONEY,
    ),
    line("set aside for no order", money("payer -10, hold 10", "WITHDRAWAL"), NO_ORDER, at_commit=True),
    line("settled for no order", SETTLE, NO_ORDER, at_commit=True),
    line("released for no order", RELEASE, NO_ORDER, at_commit=True),
    line("returned for no order", money("bank_clearing -10, payer 10", "RETURN"), NO_ORDER, at_commit=True),
    line("taken back for no order", money("payer -10, bank_clearing 10", "CHARGEBACK"), NO_ORDER, at_commit=True),
]


@tries(MONEY)
def test_money_moves_with_its_order(attempt: Attempt, names: dict[str, Any], attack: Attack, login: str) -> None:
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)


# --- Returns ---------------------------------------------------------------------------------------------------------

SENT_BACK = money("bank_clearing -10, payer 10", "RETURN")
TAKEN_BACK = money("payer -10, bank_clearing 10", "CHARGEBACK")
RETURNS = [
    line("of an order under way", SENT_BACK + return_sql("submitted", 10), "bank_return_of_completed"),
    line("of a failed order", SENT_BACK + return_sql("failed", 10), "bank_return_of_completed"),
    line(
        "more than there was",
        money("bank_clearing -101, payer 101", "RETURN") + return_sql("completed", 101),
        "bank_order_returned_within_amount",
    ),
    line(
        "more than there was, in parts",
        money("bank_clearing -60, payer 60", "RETURN")
        + return_sql("completed", 60)
        + money("bank_clearing -41, payer 41", "RETURN", transaction="other")
        + return_sql("completed", 41, by="other", named="S"),
        "bank_order_returned_within_amount",
    ),
    line(
        "one return twice",
        SENT_BACK
        + return_sql("completed", 10)
        + money("bank_clearing -10, payer 10", "RETURN", transaction="other")
        + return_sql("completed", 10, by="other"),
        "bank_return_once",
    ),
    line(
        "two returns of one transaction",
        SENT_BACK + return_sql("completed", 10) + return_sql("completed", 10, named="S"),
        "bank_return_transaction_id_key",
    ),
    line("another amount than moved", SENT_BACK + return_sql("completed", 9), RETURN_MOVES_MONEY),
    line(
        "to somebody else",
        money("bank_clearing -10, stranger 10", "RETURN") + return_sql("completed", 10),
        RETURN_MOVES_MONEY,
    ),
    line("a deposit that comes again", SENT_BACK + return_sql("got", 10), RETURN_MOVES_MONEY),
    line("a withdrawal that is taken back", TAKEN_BACK + return_sql("completed", 10), RETURN_MOVES_MONEY),
    line("taken back from somebody else", TAKEN_BACK + return_sql("theirs", 10), RETURN_MOVES_MONEY),
    line("with money of before", return_sql("got", 100, by="funded"), RETURN_MOVES_MONEY),
    line("of nothing", SENT_BACK + return_sql("completed", 0), "bank_return_amount_positive"),
    line("without a name", SENT_BACK + return_sql("completed", 10, named=""), "bank_return_named"),
]


@tries(RETURNS)
def test_no_more_is_returned_than_there_was(
    attempt: Attempt, names: dict[str, Any], attack: Attack, login: str
) -> None:
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)


@pytest.mark.parametrize("login", LOGINS)
def test_an_honest_return_counts(attempt: Attempt, names: dict[str, Any], login: str) -> None:
    assert attempt(login, statements(SENT_BACK + return_sql("completed", 10), names)).by == ACCEPTED
    assert BankOrder.objects.get(pk=names["completed"]).returned == 10


# --- What stays ------------------------------------------------------------------------------------------------------

FIXED = {
    "id": "%(nobody)s",
    "kind": "'WITHDRAWAL'",
    "account_id": "%(stranger)s",
    "amount": "99",
    "destination": "'mine'",
    "reference": "'mine'",
    "opening_id": "%(settled)s",
    "initiator_id": "initiator_id + 1",
    "created_at": "created_at - interval '1 day'",
}
KEPT = [
    *(
        line(
            f"another {column}",
            f"UPDATE bank_order SET {column} = {value} WHERE id = %(got)s",
            "bank_order_is_fixed",
            app=NO_RIGHT,
        )
        for column, value in FIXED.items()
    ),
    line(
        "another reference at the bank",
        "UPDATE bank_order SET bank_reference = 'mine'",
        GENERATED,
    ),
    line(
        "a reference at the bank of one's own choice",
        order_sql(more=", bank_reference", values=", 'mine'"),
        GENERATED,
    ),
    line("an order deleted", "DELETE FROM bank_order WHERE id = %(got)s", "bank_order_is_kept", app=NO_RIGHT),
    *(
        line(f"{table} {what}", sql.format(table=table), f"{table}_is_kept", app=NO_RIGHT)
        for table in ("bank_order_change", "bank_return", "bank_notice")
        for what, sql in (
            ("rewritten", "UPDATE {table} SET created_at = now()"),
            ("deleted", "DELETE FROM {table}"),
            ("truncated", "TRUNCATE {table}"),
        )
    ),
    line(
        "all orders truncated",
        "TRUNCATE bank_order, bank_order_change, bank_return, bank_notice",
        "bank_order_is_kept",
        app=NO_RIGHT,
    ),
    line(
        "a notice of nobody that was applied",
        "INSERT INTO bank_notice (notice_id, reference, event, amount, currency, occurred_at, body, outcome)"
        " VALUES ('A', 'x', 'SETTLED', 1, 'VND', now(), '', 'APPLIED')",
        "bank_notice_of_order",
    ),
    line(
        "a notice taken twice",
        "INSERT INTO bank_notice (notice_id, reference, event, amount, currency, occurred_at, body, outcome)"
        " SELECT 'A', 'x', 'SETTLED', 1, 'VND', now(), '', 'UNKNOWN_REFERENCE' FROM generate_series(1, 2)",
        "bank_notice_notice_id_key",
    ),
    line(
        "a wallet closed with an order under way",
        "UPDATE account SET status = 'CLOSED' WHERE id = %(waiting)s",
        "account_closed_has_no_order",
    ),
    line(
        "a wallet closed in a snapshot of before",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;UPDATE account SET status = 'CLOSED' WHERE id = %(stranger)s",
        "account_closed_has_no_order",
    ),
]


@pytest.fixture
def a_row_of_each(names: dict[str, Any], connect: Connect) -> None:
    """Rows for row triggers to stand before."""
    honest = (
        SENT_BACK.replace("%(new)s", f"'{uuid4()}'")
        + "INSERT INTO bank_notice (notice_id, reference, event, amount, currency, occurred_at, body, outcome)"
        " VALUES ('N', 'x', 'SETTLED', 1, 'VND', now(), '', 'UNKNOWN_REFERENCE');"
    )
    id_ = honest.split("'", 2)[1]
    honest += return_sql("completed", 10).replace("%(new)s", f"'{id_}'")
    assert carry_out(connect("app"), statements(honest, names)).by == ACCEPTED


@tries(KEPT)
def test_what_an_order_is_and_what_was_heard_stays(
    a_row_of_each: None, attempt: Attempt, names: dict[str, Any], attack: Attack, login: str
) -> None:
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)
