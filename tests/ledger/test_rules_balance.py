"""Rules 3 and 4: a balance moves only through an entry, and stays within its bounds."""

from collections.abc import Callable

import pytest

from tests.attacks import (
    ACCEPTED,
    LOGINS,
    NO_RIGHT,
    Attack,
    Deed,
    Refusal,
    Scene,
    posting_sql,
    statements,
    tries,
)
from wallet_project.kernel.money import MAX_AMOUNT

Attempt = Callable[[str, Deed], Refusal]

BY_ENTRY = "account_balance_by_entry"
NOT_IN_RANGE = "22003"  # numeric_value_out_of_range
OF_PAYER = "WHERE id = %(payer)s"
OWNER_OF_HOLD = "(SELECT owner_id FROM account WHERE id = %(hold)s)"
FAMILY_OF_HOLD = "(SELECT parent_id FROM account WHERE id = %(hold)s)"

MOVED_BY_HAND = {
    "raised": f"UPDATE account SET balance = balance + 1 {OF_PAYER}",
    "emptied": f"UPDATE account SET balance = 0 {OF_PAYER}",
    "moved to another account, in one statement": (
        "UPDATE account SET balance = balance + CASE id WHEN %(payer)s THEN -100 ELSE 100 END"
        " WHERE id IN (%(payer)s, %(payee)s)"
    ),
    "raised in a WITH": (
        f"WITH moved AS (UPDATE account SET balance = balance + 1 {OF_PAYER} RETURNING 1) SELECT * FROM moved"
    ),
    "raised by MERGE": (
        "MERGE INTO account USING (VALUES (%(payer)s)) AS v (id) ON account.id = v.id"
        " WHEN MATCHED THEN UPDATE SET balance = balance + 1"
    ),
    "raised by ON CONFLICT": (
        "INSERT INTO account (id, owner_id, currency) VALUES (%(payer)s, %(payer_user)s, 'VND')"
        " ON CONFLICT (id) DO UPDATE SET balance = account.balance + 1"
    ),
    "raised beside an honest entry": (
        posting_sql("payer -100, payee 100") + f"UPDATE account SET balance = balance + 100 {OF_PAYER}"
    ),
    "raised under django-pgtrigger's switch": (
        "SELECT set_config('pgtrigger.ignore', '{account:account_balance_by_entry}', true);"
        f"UPDATE account SET balance = balance + 1 {OF_PAYER}"
    ),
    "left, but its last entry made older": f"UPDATE account SET last_entry_at = '2020-01-01' {OF_PAYER}",
    "left, but its last entry forgotten": f"UPDATE account SET last_entry_at = NULL {OF_PAYER}",
}
OPENED = {
    "with money": ("(owner_id, currency, balance)", "(%(payer_user)s, 'VND', 1000)", "account_opens_empty"),
    "in debt": (
        "(owner_id, currency, kind, allow_negative, balance)",
        "(%(payer_user)s, 'CHF', 'BANK_CLEARING', true, -1000)",
        "account_opens_empty",
    ),
    "with a last entry": (
        "(owner_id, currency, last_entry_at)",
        "(%(payer_user)s, 'VND', '2020-01-01')",
        "account_opens_empty",
    ),
    "as a wallet that may be negative": (
        "(owner_id, currency, allow_negative)",
        "(%(payer_user)s, 'VND', true)",
        "account_negative_if_system",
    ),
    "as a HOLD that may be negative": (
        "(owner_id, currency, kind, allow_negative)",
        "(%(payer_user)s, 'CHF', 'HOLD', true)",
        "account_negative_if_system",
    ),
    "of a kind nobody knows": (
        "(owner_id, currency, kind)",
        "(%(payer_user)s, 'VND', 'PETTY_CASH')",
        "account_kind_known",
    ),
    "as a second family of a kind and currency": (
        "(owner_id, currency, kind)",
        "(%(payer_user)s, 'VND', 'HOLD')",
        "account_system_family_unique",
    ),
    "as a shard of another owner's account": (
        "(owner_id, currency, parent_id, shard_no)",
        "(%(payee_user)s, 'VND', %(payer)s, 0)",
        "account_shard_matches_parent",
    ),
    "as a shard in another currency": (
        "(owner_id, currency, parent_id, shard_no)",
        "(%(payer_user)s, 'USD', %(payer)s, 0)",
        "account_shard_matches_parent",
    ),
    "as a wallet in a system family": (
        "(owner_id, currency, parent_id, shard_no)",
        f"({OWNER_OF_HOLD}, 'VND', {FAMILY_OF_HOLD}, 99)",
        "account_shard_matches_parent",
    ),
    "as a shard of a shard": (
        "(owner_id, currency, kind, parent_id, shard_no)",
        f"({OWNER_OF_HOLD}, 'VND', 'HOLD', %(hold)s, 0)",
        "account_shard_matches_parent",
    ),
    "as a shard without a number": (
        "(owner_id, currency, parent_id)",
        "(%(payer_user)s, 'VND', %(payer)s)",
        "account_shard_numbered",
    ),
    "with a number and no parent": (
        "(owner_id, currency, shard_no)",
        "(%(payer_user)s, 'VND', 1)",
        "account_shard_numbered",
    ),
    "as a shard that is there already": (
        "(owner_id, currency, kind, parent_id, shard_no)",
        f"({OWNER_OF_HOLD}, 'VND', 'HOLD', {FAMILY_OF_HOLD}, 0)",
        "account_shard_unique",
    ),
}
BALANCES = [
    *(
        Attack(rule=3, story=f"a balance {way}", sql=sql, refused_by=BY_ENTRY, app=NO_RIGHT)
        for way, sql in MOVED_BY_HAND.items()
    ),
    *(
        Attack(
            rule=3 if by == "account_opens_empty" else 4,
            story=f"an account opened {way}",
            sql=f"INSERT INTO account {columns} VALUES {values}",
            refused_by=by,
            app=NO_RIGHT,
        )
        for way, (columns, values, by) in OPENED.items()
    ),
    Attack(
        rule=4,
        story="a wallet made one that may be negative",
        sql=f"UPDATE account SET allow_negative = true {OF_PAYER}",
        refused_by="account_identity_is_fixed",
        app=NO_RIGHT,
    ),
    Attack(
        rule=4,
        story="an account opened in a currency that is no code",
        sql="INSERT INTO account (owner_id, currency, name) VALUES (%(payer_user)s, 'vnd', '')",
        refused_by="account_currency_is_code",
    ),
    Attack(
        rule=4,
        story="one dong more than there is",
        sql=posting_sql("payer -49001, payee 49001"),
        refused_by="account_balance_not_negative",
    ),
    Attack(
        rule=4,
        story="more than there is, in slices",
        sql=posting_sql("payer -30000, payer -19001, payee 49001"),
        refused_by="account_balance_not_negative",
    ),
    Attack(
        rule=4,
        story="more than there is, given back within the statement",
        sql=posting_sql("payer -49001, payer 1, payee 49000"),
        refused_by="account_balance_not_negative",
    ),
    Attack(
        rule=4,
        story="a HOLD below zero",
        sql=posting_sql("hold -1, payee 1"),
        refused_by="account_balance_not_negative",
    ),
    Attack(
        rule=4,
        story="a wallet one dong above the largest balance",
        sql=posting_sql(f"clearing -{MAX_AMOUNT - 999}, payee {MAX_AMOUNT - 999}"),
        refused_by="account_balance_within_maximum",
    ),
    Attack(
        rule=4,
        story="a balance beyond what a bigint holds",
        sql=posting_sql(f"clearing {-(2**63)}, payer 1, hold {2**63 - 1}"),
        refused_by=NOT_IN_RANGE,
    ),
    Attack(
        rule=4,
        story="an amount beyond what a bigint holds",
        sql=posting_sql(f"clearing {-(2**63) - 1}, hold {2**63 + 1}"),
        refused_by=NOT_IN_RANGE,
    ),
    Attack(
        rule=3,
        story="an account that is not there",
        sql=posting_sql("payer -100, nowhere 100").replace("%(nowhere)s", "9223372036854775807"),
        refused_by="ledger_entry_account_fk",
    ),
]


@tries(BALANCES)
def test_refused(assert_refused: Callable[[Attack, str], None], attack: Attack, login: str) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize("login", LOGINS)
def test_the_bounds_themselves_can_be_reached(attempt: Attempt, scene: Scene, login: str) -> None:
    """The control: to the last dong, and up to the largest balance."""
    everything = posting_sql("payer -49000, payee 49000")
    up_to_the_top = posting_sql(
        f"clearing -{MAX_AMOUNT - 50_000}, payee {MAX_AMOUNT - 50_000}", transaction="other", type="DEPOSIT"
    )
    assert attempt(login, statements(everything + up_to_the_top, scene.names)).by == ACCEPTED


def test_the_application_opens_wallets_by_naming_three_columns(attempt: Attempt, scene: Scene) -> None:
    wallet = "INSERT INTO account (owner_id, currency, name) VALUES (%(payer_user)s, 'VND', 'savings')"
    assert attempt("app", statements(wallet, scene.names)).by == ACCEPTED


# --- Tricks: to be taken for the book, or to put something else in its place ------------------------------------------

TEMPORARY = "CREATE TEMP TABLE fake (LIKE public.ledger_entry);"
ONE_FAKE_LEG = "INSERT INTO fake VALUES (1, %(paid)s, %(payer)s, 1000, 0, now());"
OTHER_BOOK = "ledger_entry_posts"
TRICKS = [
    Attack(
        rule=3,
        story="the posting trigger on a temporary table",
        sql=f"{TEMPORARY} CREATE TRIGGER t BEFORE INSERT ON fake FOR EACH ROW"
        f" EXECUTE FUNCTION public.ledger_entry_posts(); {ONE_FAKE_LEG}",
        refused_by=OTHER_BOOK,
        app=NO_RIGHT,
    ),
    Attack(
        rule=3,
        story="the posting trigger on a temporary table's partition",
        sql="CREATE TEMP TABLE fake (LIKE public.ledger_entry) PARTITION BY RANGE (created_at);"
        "CREATE TEMP TABLE part PARTITION OF fake DEFAULT;"
        "CREATE TRIGGER t BEFORE INSERT ON fake FOR EACH ROW EXECUTE FUNCTION public.ledger_entry_posts();"
        + ONE_FAKE_LEG,
        refused_by=OTHER_BOOK,
        app=NO_RIGHT,
    ),
    Attack(
        rule=6,
        story="the budget's trigger on a temporary table",
        sql=f"{TEMPORARY} CREATE TRIGGER t AFTER INSERT ON fake REFERENCING NEW TABLE AS new_entries"
        f" FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_entry_balanced(); {ONE_FAKE_LEG}",
        refused_by=OTHER_BOOK,
        app=NO_RIGHT,
    ),
    Attack(
        rule=3,
        story="a balance raised from inside a trigger",
        sql="CREATE TEMP TABLE fake (id bigint);"
        "CREATE FUNCTION pg_temp.lift() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN UPDATE public.account SET balance = balance + 1 WHERE id = NEW.id; RETURN NEW; END';"
        "CREATE TRIGGER t BEFORE INSERT ON fake FOR EACH ROW EXECUTE FUNCTION pg_temp.lift();"
        "INSERT INTO fake VALUES (%(payer)s)",
        refused_by=BY_ENTRY,
        app=NO_RIGHT,
    ),
    Attack(
        rule=1,
        story="currencies lied about by a temporary table that shadows account",
        sql="CREATE TEMP TABLE account AS SELECT * FROM public.account;"
        "UPDATE pg_temp.account SET currency = 'VND', balance = 1000000; GRANT ALL ON pg_temp.account TO wallet_book;"
        "SET LOCAL search_path = pg_temp, public;" + posting_sql("payer -100, dollars 100"),
        refused_by="ledger_entry_balanced",
        app=NO_RIGHT,
    ),
    Attack(
        rule=4,
        story="more than there is, the balance in a temporary table that shadows account",
        sql="CREATE TEMP TABLE account AS SELECT * FROM public.account;"
        "UPDATE pg_temp.account SET balance = 1000000; GRANT ALL ON pg_temp.account TO wallet_book;"
        "SET LOCAL search_path = pg_temp, public;" + posting_sql("payer -49001, payee 49001"),
        refused_by="account_balance_not_negative",
        app=NO_RIGHT,
    ),
    Attack(
        rule=10,
        story="a clock of one's own, first in the search path",
        sql="CREATE SCHEMA evil; CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " AS $$ SELECT timestamptz '2099-01-01' $$; GRANT USAGE ON SCHEMA evil TO PUBLIC;"
        "SET LOCAL search_path = evil, pg_catalog, public;"
        + posting_sql("payer -100, payee 100", at="now() + interval '1 hour'"),
        refused_by="ledger_entry_not_ahead",
        app=NO_RIGHT,
    ),
    Attack(
        rule=3,
        story="the posting function called by hand",
        sql="SELECT public.ledger_entry_posts()",
        refused_by="0A000",  # feature_not_supported: trigger functions can only be called as triggers
        app=NO_RIGHT,
        superuser="0A000",
    ),
]


@tries(TRICKS)
def test_nothing_takes_the_books_place(
    assert_refused: Callable[[Attack, str], None], attack: Attack, login: str
) -> None:
    assert_refused(attack, login)


@pytest.mark.parametrize("login", ["owner", "superuser"])
@pytest.mark.parametrize(
    "shape",
    [
        "CREATE TEMP TABLE fake PARTITION OF ledger_entry FOR VALUES FROM ('2010-01-01') TO ('2011-01-01')",
        "CREATE TABLE fake () INHERITS (ledger_entry)",
    ],
)
def test_the_book_has_no_temporary_or_inherited_part(attempt: Attempt, scene: Scene, shape: str, login: str) -> None:
    assert attempt(login, statements(shape, {})).is_refused


@pytest.mark.parametrize("login", ["owner", "superuser"])
@pytest.mark.parametrize("conflict", ["", "ON CONFLICT DO NOTHING"])
def test_no_balance_moves_for_a_number_that_is_taken(attempt: Attempt, scene: Scene, conflict: str, login: str) -> None:
    again = (
        posting_sql("payer -100, payee 100")
        + f"""
        SELECT setval('ledger_entry_id_seq', currval('ledger_entry_id_seq') - 2);
        INSERT INTO ledger_entry (transaction_id, account_id, amount, created_at)
        VALUES (%(new)s, %(payer)s, -100, now()), (%(new)s, %(payee)s, 100, now()) {conflict};
    """
    )
    assert attempt(login, statements(again, scene.names)).by.endswith("_pkey")
