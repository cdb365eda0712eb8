"""What the database refuses about holds, whoever asks: raw SQL as the application, the owner and a superuser."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from ledger.models import HeldMoney
from tests.attacks import ACCEPTED, LOGINS, NO_RIGHT, Attack, Deed, Refusal, carry_out, posting_sql, statements, tries
from tests.transfers.till import Till
from tests.world import World
from transfers.services import close_account

Connect = Callable[[str], psycopg.Connection[Any]]
Snapshot = Callable[[], dict[str, Any]]

RULE = 13


@pytest.fixture
def names(world: World, superuser: psycopg.Connection[Any]) -> dict[str, Any]:
    """A hold of 100 for the merchant, one that names nobody, and others that have ended or are over."""
    till = Till(world, superuser)
    promised, open_ = till.reserve(100), till.reserve(100, promised=False)
    voided, late, released = till.ended("VOIDED"), till.reserve(100), till.ended("CAPTURED")
    till.let_expire(late)
    gone = world.person("gone")
    close_account(caller=gone.caller, key="close", account_id=gone.account_id)
    shards = dict(HeldMoney.objects.values_list("pk", "hold_account_id"))
    return {
        "payer": till.payer.account_id,
        "merchant": till.merchant.account_id,
        "stranger": world.person("stranger").account_id,
        "dollars": world.wallet(till.payer.user, currency="USD"),
        "gone": gone.account_id,
        "promised": promised,
        "open": open_,
        "voided": voided,
        "captured": released,
        "late": late,
        "shard": shards[promised],
        "open_shard": shards[open_],
        "late_shard": shards[late],
        "payer_user": till.payer.user.pk,
        "new": uuid4(),
        "other": uuid4(),
    }


@pytest.fixture
def attempt(connect: Connect, snapshot: Snapshot) -> Callable[[str, Deed], Refusal]:
    """`attempt(login, deed)`: who refused it. Whatever was refused has changed nothing."""

    def attempt_as(login: str, deed: Deed) -> Refusal:
        before = snapshot()
        refusal = carry_out(connect(login), deed)
        if refusal.is_refused:
            assert snapshot() == before
        return refusal

    return attempt_as


# Dated as an honest transaction is: not before what the accounts have seen.
NOW = "(SELECT greatest(now(), max(last_entry_at)) FROM account)"


def made_at(transaction: str) -> str:
    return f"(SELECT created_at FROM journal_transaction WHERE id = %({transaction})s)"


def hold_sql(
    *,
    of: str = "new",
    account: str = "payer",
    payee: str = "NULL",
    life: str = "1 hour",
    at: str = made_at("new"),
    status: str | None = None,
) -> str:
    """A row of `hold`; `of`, `account` and `payee` are names of the scene."""
    to = payee if payee == "NULL" else f"%({payee})s"
    column, value = (", status", f", '{status}'") if status else ("", "")
    return (
        f"INSERT INTO hold (transaction_id, account_id, to_account_id, expires_at, created_at{column})"
        f" VALUES (%({of})s, %({account})s, {to}, {at} + interval '{life}', {at}{value});"
    )


def opening(type: str = "HOLD") -> str:
    return posting_sql("payer -10, shard 10", type=type, at=NOW)


def take(
    amount: int,
    *,
    of: str = "promised",
    shard: str = "shard",
    to: str = "merchant",
    transaction: str = "new",
    at: str = NOW,
) -> str:
    legs = f"{shard} -{amount}, {to} {amount}"
    return posting_sql(legs, type="CAPTURE", continues=of, transaction=transaction, at=at)


def give_back(amount: int, *, of: str = "promised", shard: str = "shard", transaction: str = "new") -> str:
    legs = f"{shard} -{amount}, payer {amount}"
    return posting_sql(legs, type="RELEASE", continues=of, transaction=transaction, at=NOW)


def end(status: str, *, of: str = "promised", by: str = "new", at: str | None = None) -> str:
    return (
        f"UPDATE hold SET status = '{status}', ended_by_id = %({by})s, ended_at = {at or made_at(by)}"
        f" WHERE transaction_id = %({of})s;"
    )


def line(story: str, sql: str, refused_by: str, **more: Any) -> Attack:
    return Attack(rule=RULE, story=story, sql=sql, refused_by=refused_by, **more)


def at_commit(story: str, sql: str, refused_by: str) -> Attack:
    return line(story, sql, refused_by, at_commit=True)


MAKING = [
    line("a hold of no transaction", hold_sql(at="now()"), "hold_fits_transaction"),
    line("a hold of a withdrawal", opening("WITHDRAWAL") + hold_sql(), "hold_fits_transaction"),
    line("a hold of a capture", take(100) + end("CAPTURED") + hold_sql(), "hold_fits_transaction"),
    line("a hold of somebody else's money", opening() + hold_sql(account="merchant"), "hold_fits_transaction"),
    line(
        "a hold of another time",
        opening() + hold_sql(at=made_at("new") + " + interval '1 second'"),
        "hold_fits_transaction",
    ),
    line("two holds of one transaction", opening() + hold_sql() + hold_sql(), "hold_pkey"),
    line("a promise to oneself", opening() + hold_sql(payee="payer"), "hold_fits_payee"),
    line("a promise in another currency", opening() + hold_sql(payee="dollars"), "hold_fits_payee"),
    line("a promise to a closed wallet", opening() + hold_sql(payee="gone"), "hold_fits_payee"),
    line("a promise to a system account", opening() + hold_sql(payee="shard"), "hold_fits_payee"),
    line("a hold that is over when it begins", opening() + hold_sql(life="0"), "hold_expires_in_time"),
    line("a hold for ever", opening() + hold_sql(life="32 days"), "hold_expires_in_time"),
    line("a hold born ended", opening() + hold_sql(status="VOIDED"), "hold_ended_when", app=NO_RIGHT),
    at_commit("a HOLD without a hold", opening(), "hold_matches_money"),
]

OTHER_VALUES = {
    "transaction_id": "%(new)s",
    "account_id": "%(stranger)s",
    "to_account_id": "NULL",
    "expires_at": "expires_at + interval '1 day'",
    "created_at": "created_at - interval '1 day'",
}
CHANGING = [
    *(
        line(
            f"another {column}",
            f"UPDATE hold SET {column} = {value} WHERE transaction_id = %(promised)s",
            "hold_is_fixed",
            app=NO_RIGHT,
        )
        for column, value in OTHER_VALUES.items()
    ),
    line("a hold deleted", "DELETE FROM hold WHERE transaction_id = %(voided)s", "hold_is_kept", app=NO_RIGHT),
    line("all holds emptied", "TRUNCATE hold", "hold_is_kept", app=NO_RIGHT),
    *(
        line(
            f"one that was {of} made active again",
            f"UPDATE hold SET status = 'ACTIVE', ended_by_id = NULL, ended_at = NULL WHERE transaction_id = %({of})s",
            "hold_is_final",
        )
        for of in ("voided", "captured")
    ),
    line(
        "voided turned into captured",
        "UPDATE hold SET status = 'CAPTURED' WHERE transaction_id = %(voided)s",
        "hold_is_final",
    ),
    line("a status nobody knows", end("LOST", by="promised"), "hold_status_known"),
    line(
        "ended by nothing",
        "UPDATE hold SET status = 'VOIDED' WHERE transaction_id = %(promised)s",
        "hold_ended_when",
    ),
    line(
        "active, and ended by something",
        "UPDATE hold SET ended_by_id = transaction_id WHERE transaction_id = %(promised)s",
        "hold_ended_when",
    ),
    line("expired early", give_back(100) + end("EXPIRED"), "hold_ended_in_time"),
    line(
        "captured late, and whole",
        take(100, of="late", shard="late_shard") + end("CAPTURED", of="late"),
        "hold_ended_in_time",
    ),
]

DISAGREEING = [
    at_commit("a part given back while it goes on", give_back(40), "hold_matches_money"),
    at_commit(
        "given back in two parts",
        give_back(40) + give_back(60, transaction="other") + end("VOIDED", by="other"),
        "hold_released_once",
    ),
    at_commit("ended with money left", end("VOIDED", by="promised", at="now()"), "hold_matches_money"),
    at_commit("ended with a part left", give_back(40) + end("VOIDED"), "hold_matches_money"),
    at_commit("captured whole, and still active", take(100), "hold_matches_money"),
    at_commit("released whole, and still active", give_back(100), "hold_matches_money"),
    at_commit("voided by a capture", take(100) + end("VOIDED"), "hold_matches_ending"),
    at_commit("captured by a release", give_back(100) + end("CAPTURED"), "hold_matches_ending"),
    at_commit("ended by its own opening", give_back(100) + end("VOIDED", by="promised"), "hold_matches_ending"),
    at_commit(
        "ended by another hold's release",
        give_back(100)
        + give_back(100, of="open", shard="open_shard", transaction="other")
        + end("VOIDED", by="other")
        + end("VOIDED", of="open", by="other"),
        "hold_matches_ending",
    ),
    at_commit(
        "ended at another time",
        give_back(100) + end("VOIDED", at="now() + interval '1 second'"),
        "hold_matches_ending",
    ),
]

TAKING = [
    at_commit("taken late, in part", take(40, of="late", shard="late_shard"), "hold_not_expired"),
    at_commit(
        "made, and taken late, in one transaction",
        opening()
        + take(5, of="new", transaction="other", at=f"{NOW} + interval '1 second'")
        + hold_sql(life="1 millisecond"),
        "hold_not_expired",
    ),
    at_commit("taken by somebody else", take(40, to="stranger"), "hold_captured_by_payee"),
    at_commit("taken by the payer", take(40, to="payer"), "hold_captured_by_payee"),
    at_commit(
        "taken by the payer, where nobody was named",
        take(40, of="open", shard="open_shard", to="payer"),
        "hold_captured_by_payee",
    ),
]

FREEZE_PAYER = """
    INSERT INTO account_freeze (account_id, cause, reason, made_by_id)
    VALUES (%(payer)s, 'STAFF', 'a call from the police', %(payer_user)s);
"""


@tries([*MAKING, *CHANGING, *DISAGREEING, *TAKING])
def test_the_database_refuses(
    names: dict[str, Any], attempt: Callable[[str, Deed], Refusal], attack: Attack, login: str
) -> None:
    assert attempt(login, statements(attack.sql, names)) == attack.expected(login)


@pytest.mark.parametrize("login", LOGINS)
def test_a_frozen_payer_names_nobody(
    names: dict[str, Any], connect: Connect, attempt: Callable[[str, Deed], Refusal], login: str
) -> None:
    assert carry_out(connect("app"), statements(FREEZE_PAYER, names)).by == ACCEPTED
    out = take(40, of="open", shard="open_shard", to="stranger")
    assert attempt(login, statements(out, names)) == Refusal(by="hold_payer_not_frozen", at_commit=True)
    promised = take(40, transaction="other")
    assert attempt(login, statements(promised, names)).by == ACCEPTED


@pytest.mark.parametrize(
    "sql",
    [
        opening() + hold_sql(payee="merchant"),
        take(40),
        take(100) + end("CAPTURED"),
        take(40, of="open", shard="open_shard", to="stranger"),
        give_back(100) + end("VOIDED"),
        give_back(100, of="late", shard="late_shard") + end("VOIDED", of="late"),
        give_back(100, of="late", shard="late_shard") + end("EXPIRED", of="late"),
        take(60) + give_back(40, transaction="other") + end("CAPTURED"),
    ],
    ids=[
        *("made", "taken in part", "taken whole", "named at last", "voided", "voided late", "expired"),
        "taken for the last time",
    ],
)
def test_what_is_right_is_accepted(names: dict[str, Any], attempt: Callable[[str, Deed], Refusal], sql: str) -> None:
    """The same statements, put together rightly: so the refusals above have the reasons that they name."""
    assert attempt("app", statements(sql, names)).by == ACCEPTED
