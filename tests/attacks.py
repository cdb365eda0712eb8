"""Raw SQL against the rules of the book: who tries, what is tried, and who refused it.

Everything here goes beneath Django and beneath the services, so that only the database can say no.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

Cursor = psycopg.Cursor[Any]
Deed = Callable[[Cursor], object]

# The application, the owner of the tables, and a superuser; all leave the triggers on.
LOGINS = ("app", "owner", "superuser")

ACCEPTED = "accepted"
NO_RIGHT = "42501"  # insufficient_privilege
NO_SUCH_ROW = "23503"  # foreign_key_violation
NOT_UNIQUE = "23505"  # unique_violation


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Who said no, and whether it took until COMMIT."""

    by: str
    at_commit: bool = False

    @property
    def is_refused(self) -> bool:
        return self.by != ACCEPTED


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One line of the specification: a rule, how somebody would break it, and what refuses.

    Args:
        rule: its number in docs/architecture.md.
        story: what is tried, in words; the test's name.
        sql: the statements, with the scene's names as `%(payer)s`.
        refused_by: the constraint's or trigger's name, or the SQLSTATE where nothing with a name refuses.
        app, owner, superuser: who refuses that login, where it is somebody else: mostly a missing right.
        at_commit: the statements pass, and COMMIT is refused.
        logins: who tries. Not those for whom the statement means switching the guards off: that is theirs to do, and
            the check of the guards finds it.
    """

    rule: int
    story: str
    sql: str
    refused_by: str
    app: str | None = None
    owner: str | None = None
    superuser: str | None = None
    at_commit: bool = False
    logins: tuple[str, ...] = LOGINS

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.story}"

    def expected(self, login: str) -> Refusal:
        other: str | None = getattr(self, login)
        return Refusal(by=other or self.refused_by, at_commit=self.at_commit and other is None)


def tries(attacks: Sequence[Attack]) -> pytest.MarkDecorator:
    """The mark that runs a test for each attack as each login."""
    return pytest.mark.parametrize(
        ("attack", "login"),
        [pytest.param(attack, login, id=f"{attack}, as {login}") for attack in attacks for login in attack.logins],
    )


def carry_out(connection: psycopg.Connection[Any], deed: Deed) -> Refusal:
    """Do something in one transaction and commit; `by` is `ACCEPTED` when nothing refused."""
    done = False
    try:
        with connection.transaction():
            deed(psycopg.ClientCursor(connection))  # binds on this side, so that scripts may have parameters
            done = True
    except psycopg.Error as error:
        return Refusal(by=error.diag.constraint_name or error.sqlstate or repr(error), at_commit=done)
    return Refusal(by=ACCEPTED)


def statements(sql: str, names: Mapping[str, Any]) -> Deed:
    """The deed that executes a script of SQL, with the scene's names filled in."""
    return lambda cursor: cursor.execute(sql, names)


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One row for `ledger_entry`, as an attacker would write it."""

    transaction_id: UUID
    account_id: int
    amount: int
    created_at: datetime | None = None

    @property
    def row(self) -> tuple[Any, ...]:
        return self.transaction_id, self.account_id, self.amount, self.created_at


_COLUMNS = "transaction_id, account_id, amount, created_at"
_ROW = "(%s::uuid, %s::bigint, %s::bigint, coalesce(%s::timestamptz, now()))"


def _values(legs: Sequence[Leg]) -> tuple[str, list[Any]]:
    return ", ".join([_ROW] * len(legs)), [value for leg in legs for value in leg.row]


def _insert(template: str) -> Callable[[Cursor, str, Sequence[Leg]], None]:
    def write(cursor: Cursor, table: str, legs: Sequence[Leg]) -> None:
        rows, parameters = _values(legs)
        cursor.execute(template.format(table=table, columns=_COLUMNS, rows=rows), parameters)

    return write


def _copy(cursor: Cursor, table: str, legs: Sequence[Leg]) -> None:
    (now,) = cursor.execute("SELECT now()").fetchone() or (None,)
    with cursor.copy(f"COPY {table} ({_COLUMNS}) FROM STDIN") as copy:
        for leg in legs:
            copy.write_row((leg.transaction_id, leg.account_id, leg.amount, leg.created_at or now))


# Every way in which SQL puts rows into a table.
FORMS: dict[str, Callable[[Cursor, str, Sequence[Leg]], None]] = {
    "INSERT": _insert("INSERT INTO {table} ({columns}) VALUES {rows}"),
    "INSERT .. SELECT": _insert("INSERT INTO {table} ({columns}) SELECT * FROM (VALUES {rows}) AS v"),
    "WITH .. INSERT": _insert(
        "WITH written AS (INSERT INTO {table} ({columns}) VALUES {rows} RETURNING 1) SELECT count(*) FROM written"
    ),
    "MERGE": _insert(
        "MERGE INTO {table} USING (VALUES {rows}) AS v ({columns}) ON false"
        " WHEN NOT MATCHED THEN INSERT ({columns}) VALUES (v.transaction_id, v.account_id, v.amount, v.created_at)"
    ),
    "COPY": _copy,
}


def journal(cursor: Cursor, transaction_id: UUID, **columns: Any) -> None:
    """Write a journal row: a TRANSFER with a key of its own, unless the columns say otherwise."""
    row = {"id": transaction_id, "idempotency_key": f"attack:{transaction_id}", "type": "TRANSFER", **columns}
    names = ", ".join(row)
    marks = ", ".join(["%s"] * len(row))
    cursor.execute(f"INSERT INTO journal_transaction ({names}) VALUES ({marks})", list(row.values()))


def event(cursor: Cursor, transaction_id: UUID) -> None:
    """Leave the event that every honest transaction leaves."""
    cursor.execute(
        "INSERT INTO outbox_event (topic, key, payload)"
        " VALUES ('wallet.transfers', 'attack', jsonb_build_object('transactionId', %s::text))",
        [transaction_id],
    )


def journal_sql(
    *,
    transaction: str = "new",
    type: str = "TRANSFER",
    at: str = "now()",
    reverses: str = "NULL",
    continues: str = "NULL",
) -> str:
    """A journal row whose key nobody has used; `transaction`, `reverses` and `continues` are names of the scene."""
    original, opening = (name if name == "NULL" else f"%({name})s" for name in (reverses, continues))
    return (
        "INSERT INTO journal_transaction (id, idempotency_key, type, reverses_id, continues_id, created_at)"
        f" VALUES (%({transaction})s, 'attack:{transaction}', '{type}', {original}, {opening}, {at});"
    )


def entries_sql(legs: str, *, transaction: str = "new", at: str = "now()") -> str:
    """Entries in one statement; the legs as in `payer -100, payee 100`."""
    rows = [leg.split() for leg in legs.split(",")]
    values = ", ".join(f"(%({transaction})s, %({account})s, {amount}, {at})" for account, amount in rows)
    return f"INSERT INTO ledger_entry (transaction_id, account_id, amount, created_at) VALUES {values};"


def posting_sql(
    legs: str,
    *,
    transaction: str = "new",
    type: str = "TRANSFER",
    at: str = "now()",
    reverses: str = "NULL",
    continues: str = "NULL",
) -> str:
    """A whole transaction: journal row, entries, event."""
    event_row = f"('wallet.transfers', 'attack', jsonb_build_object('transactionId', %({transaction})s::text))"
    return (
        journal_sql(transaction=transaction, type=type, at=at, reverses=reverses, continues=continues)
        + entries_sql(legs, transaction=transaction, at=at)
        + f"INSERT INTO outbox_event (topic, key, payload) VALUES {event_row};"
    )


def partitions(connection: psycopg.Connection[Any]) -> list[str]:
    """Every partition of the entries, by its qualified name, as the catalog has them."""
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'public.ledger_entry'::regclass ORDER BY 1"
    ).fetchall()
    assert len(rows) >= 5, "this month's, three more, and the default one"
    return [name for (name,) in rows]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Whom the attacks are about. `names` are the same as parameters for SQL."""

    payer: int  # has 49 000, of which no more than that can go
    payee: int  # has 1 000
    dollars: int  # a wallet in USD with 500
    clearing: int  # the shard of BANK_CLEARING in VND that brought the money, below zero
    hold: int  # a shard of HOLD in VND, empty
    lender: int  # a shard of RECEIVABLE in VND, which may go below zero, without entries
    outside: int  # a shard of BANK_CLEARING in VND without entries
    fresh: int  # a wallet in VND without entries, of the payer's
    payer_user: int
    payee_user: int
    paid: UUID  # the transaction in which the payer paid the payee 1 000
    paid_at: datetime
    new: UUID  # ids for transactions that an attacker makes
    other: UUID

    @property
    def names(self) -> dict[str, Any]:
        return asdict(self)
