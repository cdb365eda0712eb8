"""Rule 11: what is set aside is spent or given back, once and no more than there is; and each type has its accounts."""

from collections.abc import Callable
from itertools import product
from typing import Any

import psycopg
import pytest

from accounts.models import Account
from ledger.models import JournalTransaction
from tests.attacks import (
    LOGINS,
    NO_RIGHT,
    Attack,
    Deed,
    Refusal,
    Scene,
    entries_sql,
    journal_sql,
    posting_sql,
    statements,
    tries,
)
from tests.transfers.till import Till
from tests.world import World
from transfers.services import holds

Attempt = Callable[[str, Deed], Refusal]

WITHIN = "held_money_within_amount"
CONTINUES = "held_money_continues_opening"
BY_ENTRY = "held_money_by_entry"
NOW = "(SELECT greatest(now(), max(last_entry_at)) FROM account)"


@pytest.fixture
def names(
    scene: Scene, world: World, superuser: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The scene; and holds of 100 for a merchant: one beside others in one shard, one in another, one voided."""
    till = Till(world, superuser)
    shard, other_shard = Account.objects.filter(
        kind=Account.Kind.HOLD, currency="VND", parent__isnull=False, last_entry_at=None
    ).values_list("pk", flat=True)[:2]
    monkeypatch.setattr(holds, "draw_system_shard", lambda **_: shard)
    held, _, voided = till.reserve(100), till.reserve(100), till.ended("VOIDED")
    monkeypatch.setattr(holds, "draw_system_shard", lambda **_: other_shard)
    till.reserve(100)
    return {
        **scene.names,
        "holder": till.payer.account_id,
        "merchant": till.merchant.account_id,
        "pocket": world.wallet(till.payer.user),
        "held": held,
        "voided": voided,
        "shard": shard,
        "other_shard": other_shard,
    }


@pytest.fixture
def assert_refused(attempt: Attempt, names: dict[str, Any]) -> Callable[[Attack, str], None]:
    def check(attack: Attack, login: str) -> None:
        assert attempt(login, statements(attack.sql, names)) == attack.expected(login)

    return check


def line(story: str, sql: str, refused_by: str, **more: Any) -> Attack:
    return Attack(rule=11, story=story, sql=sql, refused_by=refused_by, **more)


def capture(legs: str, *, of: str = "held", transaction: str = "new", type: str = "CAPTURE") -> str:
    return posting_sql(legs, type=type, continues=of, transaction=transaction, at=NOW)


SPENDING = [
    line("more captured than there is", capture("shard -101, merchant 101"), WITHIN),
    line("more released than there is", capture("shard -101, holder 101", type="RELEASE"), WITHIN),
    line(
        "captured in parts that are more than there is",
        capture("shard -60, merchant 60") + capture("shard -41, merchant 41", transaction="other"),
        WITHIN,
    ),
    line(
        "captured in parts that are more than there is, in one statement",
        journal_sql(type="CAPTURE", continues="held", at=NOW)
        + journal_sql(type="CAPTURE", continues="held", transaction="other", at=NOW)
        + entries_sql("shard -60, merchant 60", at=NOW).rstrip(";")
        + f", (%(other)s, %(shard)s, -41, {NOW}), (%(other)s, %(merchant)s, 41, {NOW});",
        WITHIN,
    ),
    line(
        "captured, and released as well",
        capture("shard -60, merchant 60") + capture("shard -41, holder 41", transaction="other", type="RELEASE"),
        WITHIN,
    ),
    line("captured though it was voided", capture("shard -1, merchant 1", of="voided"), WITHIN),
    line("released twice", capture("shard -1, holder 1", of="voided", type="RELEASE"), WITHIN),
]

CONTINUING = [
    line("a capture of a transfer", capture("shard -10, merchant 10", of="paid"), CONTINUES),
    line("a capture of nothing that is there", capture("shard -10, merchant 10", of="other"), CONTINUES),
    line("a settlement of a hold", capture("shard -10, clearing 10", type="SETTLEMENT"), CONTINUES),
    line("a release to somebody else", capture("shard -10, payer 10", type="RELEASE"), CONTINUES),
    line("a release to another wallet of the same owner's", capture("shard -10, pocket 10", type="RELEASE"), CONTINUES),
    line("a capture out of another hold's money", capture("other_shard -10, merchant 10"), CONTINUES),
    line(
        "a capture out of both",
        capture("shard -5, other_shard -5, merchant 10"),
        CONTINUES,
    ),
    line(
        "a capture of nothing",
        posting_sql("shard -10, merchant 10", type="CAPTURE", at=NOW),
        "journal_continues_opening",
    ),
    line(
        "a release of nothing", posting_sql("shard -10, holder 10", type="RELEASE", at=NOW), "journal_continues_opening"
    ),
    line(
        "a settlement of nothing",
        posting_sql("shard -10, clearing 10", type="SETTLEMENT", at=NOW),
        "journal_continues_opening",
    ),
    line("a transfer of a hold", capture("payer -10, merchant 10", type="TRANSFER"), "journal_continues_opening"),
    line("a hold of a hold", capture("payer -10, shard 10", type="HOLD"), "journal_continues_opening"),
    line(
        "a reversal of a hold that continues it",
        posting_sql("merchant -10, payer 10", type="REVERSAL", reverses="held", continues="held", at=NOW),
        "journal_continues_opening",
    ),
    line(
        "a hold reversed",
        posting_sql("payer -10, holder 10", type="REVERSAL", reverses="held", at=NOW),
        "reversal_mirrors_original",
    ),
]

OPENING = [
    line(
        "a hold of two people's money",
        posting_sql("payer -5, payee -5, shard 10", type="HOLD", at=NOW),
        "held_money_of_one_wallet",
    ),
    line(
        "a withdrawal of two people's money",
        posting_sql("payer -5, payee -5, shard 10", type="WITHDRAWAL", at=NOW),
        "held_money_of_one_wallet",
    ),
    line(
        "a hold in two places",
        posting_sql("payer -10, shard 5, other_shard 5", type="HOLD", at=NOW),
        "held_money_of_one_wallet",
    ),
]

MEDDLING = [
    *(
        line(
            f"{column} changed by hand",
            f"UPDATE held_money SET {column} = {value} WHERE transaction_id = %(held)s",
            BY_ENTRY,
            app=NO_RIGHT,
        )
        for column, value in {
            "amount": "1000",
            "spent": "spent + 1",
            "released": "released + 1",
            "account_id": "%(payer)s",
            "hold_account_id": "%(other_shard)s",
            "transaction_id": "%(paid)s",
        }.items()
    ),
    line(
        "money on hold made up",
        "INSERT INTO held_money (transaction_id, account_id, hold_account_id, amount)"
        " VALUES (%(paid)s, %(payer)s, %(shard)s, 1000)",
        BY_ENTRY,
        app=NO_RIGHT,
    ),
    line("money on hold forgotten", "DELETE FROM held_money", BY_ENTRY, app=NO_RIGHT),
    line("all of it forgotten", "TRUNCATE held_money CASCADE", BY_ENTRY, app=NO_RIGHT),
]


@tries([*SPENDING, *CONTINUING, *OPENING, *MEDDLING])
def test_money_on_hold_is_what_the_entries_say(
    assert_refused: Callable[[Attack, str], None], attack: Attack, login: str
) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize("login", LOGINS)
def test_a_wallet_is_not_closed_over_its_money_on_hold(attempt: Attempt, names: dict[str, Any], login: str) -> None:
    balance = Account.objects.get(pk=names["holder"]).balance
    closing = posting_sql(f"holder -{balance}, payer {balance}", at=NOW)
    closing += "UPDATE account SET status = 'CLOSED' WHERE id = %(holder)s;"
    assert attempt(login, statements(closing, names)).by == "account_closed_holds_nothing"


# --- Each type has its kinds of account on either side ---------------------------------------------------------------

Type, Kind = JournalTransaction.Type, Account.Kind
FITTING: dict[str, tuple[set[str], set[str]]] = {
    Type.TRANSFER: ({Kind.WALLET}, {Kind.WALLET}),
    Type.DEPOSIT: ({Kind.BANK_CLEARING}, {Kind.WALLET, Kind.SUSPENSE}),
    Type.HOLD: ({Kind.WALLET}, {Kind.HOLD}),
    Type.CAPTURE: ({Kind.HOLD}, {Kind.WALLET}),
    Type.RELEASE: ({Kind.HOLD}, {Kind.WALLET}),
    Type.WITHDRAWAL: ({Kind.WALLET}, {Kind.HOLD}),
    Type.SETTLEMENT: ({Kind.HOLD}, {Kind.BANK_CLEARING}),
    Type.RETURN: ({Kind.BANK_CLEARING}, {Kind.WALLET, Kind.SUSPENSE}),
    Type.REVERSAL: ({Kind.WALLET}, {Kind.WALLET}),
    Type.CHARGEBACK: ({Kind.WALLET, Kind.RECEIVABLE}, {Kind.BANK_CLEARING}),
    Type.CONSOLIDATION: ({Kind.WALLET}, {Kind.WALLET}),
}
# An account of each kind from which something can go, and another one to which it can.
DEBITED = {"WALLET": "payer", "BANK_CLEARING": "clearing", "RECEIVABLE": "lender", "HOLD": "shard"}
CREDITED = {**DEBITED, "WALLET": "merchant", "HOLD": "other_shard", "SUSPENSE": "suspense"}
UNFIT = [
    (type_, debited, credited)
    for type_, (debits, credits) in FITTING.items()
    for debited, credited in product(DEBITED, CREDITED)
    if not (debited in debits and credited in credits) and DEBITED[debited] != CREDITED[credited]
]


def test_every_type_says_what_fits_it() -> None:
    assert set(FITTING) == set(Type)
    assert len(UNFIT) > 100


@pytest.mark.parametrize("type_", FITTING)
def test_a_type_keeps_to_its_kinds_of_account(attempt: Attempt, names: dict[str, Any], type_: str) -> None:
    """Every other pair of kinds, one after the other."""
    suspense = Account.objects.filter(kind=Kind.SUSPENSE, currency="VND", parent__isnull=False).earliest("pk").pk
    logins = iter(LOGINS * len(UNFIT))
    for _, debited, credited in (line for line in UNFIT if line[0] == type_):
        sql = posting_sql(
            f"{DEBITED[debited]} -10, {CREDITED[credited]} 10",
            type=type_,
            reverses="paid" if type_ == Type.REVERSAL else "NULL",
            continues="held" if type_ in (Type.CAPTURE, Type.RELEASE, Type.SETTLEMENT) else "NULL",
            at=NOW,
        )
        refusal = attempt(next(logins), statements(sql, {**names, "suspense": suspense}))
        assert refusal.by == "ledger_entry_fits_type", f"{debited} -> {credited}"


@pytest.mark.parametrize("login", LOGINS)
def test_a_consolidation_stays_within_its_family(attempt: Attempt, names: dict[str, Any], login: str) -> None:
    sql = posting_sql("payer -10, merchant 10", type="CONSOLIDATION", at=NOW)
    assert attempt(login, statements(sql, names)).by == "ledger_entry_fits_type"
