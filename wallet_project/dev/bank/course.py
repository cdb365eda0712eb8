"""What becomes of a payment: taken, settled, refused, returned; and what is told of it, and when.

Each step is one transaction in the book, with the notices that tell of it.
"""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wallet_project.dev.bank import behaviours
from wallet_project.dev.bank.behaviours import Plan
from wallet_project.dev.bank.book import Book, Connection, Row, as_told, insert, instant

_LATE_SECONDS = 5
_EARLY_SECONDS = 1  # after which the teller sends what a killed process has not
_REASON = "The sandbox was told so."


class Refusal(Exception):
    """What the bank does not do; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A payment as it was asked for."""

    reference: str
    direction: str
    amount: int
    currency: str
    destination: str | None
    description: str


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A payment that stands in the book."""

    answer: dict[str, Any]
    """As it was when it was taken."""
    tries: int
    """How often it has been submitted, this time included."""


def words_for(book: Book, order: Order) -> str:
    """What is to become of an order: as the bank was told for it, as its own texts say, or as told for all."""
    told = book.told(f"payment {order.reference}")
    return told or behaviours.find(order.destination, order.description) or book.told("default") or "settle"


def is_lost(book: Book, order: Order, *, tries: int) -> bool:
    """Whether this try gets lost on its way, as the first ones are to."""
    name = f"lost {order.reference}"
    lost = int(book.told(name) or 0)
    if lost < tries:
        book.tell(name, str(lost + 1))
    return lost < tries


def take(book: Book, order: Order, *, words: str, delay: float) -> Taken:
    """Write an order down, once, and what is to become of it.

    Args:
        delay: seconds until it is settled, unless the words say otherwise; and from there until it is returned.

    Raises:
        Refusal: the reference belongs to another payment.
        ValueError: there are no such words.
    """
    plan = behaviours.read(words)
    with book.transaction() as connection:
        row = _find(connection, order.reference)
        if row is not None:
            if any(row[name] != value for name, value in vars(order).items()):
                raise Refusal("The reference was used for another payment.")
            connection.execute("UPDATE payment SET tries = tries + 1 WHERE reference = ?", [order.reference])
            return Taken(answer=as_told(connection, row), tries=row["tries"] + 1)
        columns = {**vars(order), "status": "ACCEPTED", "plan": words, "tries": 1, "updated_at": time.time()}
        insert(connection, "payment", columns)
        row = _must_find(connection, order.reference)
        if "refuse-now" in plan:
            _end(connection, row, "REFUSED", plan, delay=delay)
            row = _must_find(connection, order.reference)
        elif "early" in plan:
            _end(connection, row, "SETTLED", plan, delay=delay)
        elif "wait" not in plan:
            word = "refuse" if "refuse" in plan else "settle"
            seconds = plan.get(word)
            _plan_step(connection, row, word, None, seconds=delay if seconds is None else seconds)
        return Taken(answer=as_told(connection, row), tries=1)


def act(book: Book, reference: str, action: str, amount: int | None, *, delay: float) -> None:
    """Do now what was not planned: settle, refuse, return so much or all, or send all notices once more.

    Raises:
        Refusal: the payment is unknown, or not in a state for that.
    """
    with book.transaction() as connection:
        _act(connection, _must_find(connection, reference), action, amount, delay=delay)


def do_what_is_due(book: Book, *, delay: float) -> None:
    """Settle, refuse and return what was planned for now."""
    with book.transaction() as connection:
        now = time.time()
        for step in connection.execute(
            "SELECT * FROM step WHERE due_at <= ? ORDER BY due_at, number", [now]
        ).fetchall():
            connection.execute("DELETE FROM step WHERE number = ?", [step["number"]])
            row = _must_find(connection, step["reference"])
            try:
                _act(connection, row, step["action"], step["amount"], delay=delay)
            except Refusal:
                continue  # Somebody has told the bank something else meanwhile.


def totals(book: Book) -> list[dict[str, Any]]:
    """What was paid, by direction and currency: how many payments, and the sums of each state and of the returns."""
    return book.rows("""
        SELECT direction, currency, count(*) AS payments,
            sum(CASE WHEN status = 'ACCEPTED' THEN amount ELSE 0 END) AS accepted,
            sum(CASE WHEN status = 'SETTLED' THEN amount ELSE 0 END) AS settled,
            sum(CASE WHEN status = 'REFUSED' THEN amount ELSE 0 END) AS refused,
            sum((SELECT coalesce(sum(r.amount), 0) FROM returned r WHERE r.reference = payment.reference)) AS returned
        FROM payment GROUP BY direction, currency ORDER BY direction, currency
    """)


def _find(connection: Connection, reference: str) -> Row | None:
    row: Row | None = connection.execute("SELECT * FROM payment WHERE reference = ?", [reference]).fetchone()
    return row


def _must_find(connection: Connection, reference: str) -> Row:
    row = _find(connection, reference)
    if row is None:
        raise Refusal("There is no such payment.")
    return row


def _plan_step(connection: Connection, row: Row, action: str, amount: int | None, *, seconds: float) -> None:
    due_at = time.time() + seconds
    insert(connection, "step", {"reference": row["reference"], "action": action, "amount": amount, "due_at": due_at})


def _act(connection: Connection, row: Row, action: str, amount: int | None, *, delay: float) -> None:
    plan = behaviours.read(row["plan"])
    match action:
        case "settle" | "refuse":
            if row["status"] != "ACCEPTED":
                raise Refusal(f"The payment is {row['status']}.")
            _end(connection, row, "SETTLED" if action == "settle" else "REFUSED", plan, delay=delay)
        case "return":
            return_id = _give_back(connection, row, amount)
            _notify(connection, row, "RETURNED", plan, return_id=return_id)
        case "notify":
            again = "UPDATE notice SET copies = copies + 1, due_at = ? WHERE reference = ?"
            connection.execute(again, [time.time(), row["reference"]])
        case _:
            raise Refusal("The bank can settle, refuse, return or notify.")


def _end(connection: Connection, row: Row, status: str, plan: Plan, *, delay: float) -> None:
    """Settle or refuse, and tell."""
    reason = _REASON if status == "REFUSED" else None
    connection.execute(
        "UPDATE payment SET status = ?, reason = ?, updated_at = ? WHERE reference = ?",
        [status, reason, time.time(), row["reference"]],
    )
    behind = None
    if status == "SETTLED" and "return-first" in plan:
        return_id = _give_back(connection, _must_find(connection, row["reference"]), plan["return-first"])
        behind = _notify(connection, row, "RETURNED", plan, return_id=return_id)
    told = _notify(connection, row, status, plan, reason=reason, behind=behind)
    if status == "SETTLED" and "refuse-after" in plan:
        _notify(connection, row, "REFUSED", plan, reason=_REASON, behind=told)
    if status == "SETTLED" and "return" in plan:
        _plan_step(connection, row, "return", plan["return"], seconds=delay)


def _give_back(connection: Connection, row: Row, amount: int | None) -> str:
    """Return so much of a settled payment, or all that is left; the return's id."""
    given = "SELECT coalesce(sum(amount), 0) FROM returned WHERE reference = ?"
    left = row["amount"] - connection.execute(given, [row["reference"]]).fetchone()[0]
    amount = left if amount is None else amount
    if row["status"] != "SETTLED" or not 0 < amount <= left:
        raise Refusal(f"The payment is {row['status']}, and {left} of it could go back.")
    return_id = f"R-{uuid.uuid4()}"
    insert(connection, "returned", {"return_id": return_id, "reference": row["reference"], "amount": amount})
    connection.execute("UPDATE payment SET updated_at = ? WHERE reference = ?", [time.time(), row["reference"]])
    return return_id


def _notify(
    connection: Connection,
    row: Row,
    event: str,
    plan: Plan,
    *,
    reason: str | None = None,
    return_id: str | None = None,
    behind: int | None = None,
) -> int | None:
    """Queue a notice; its number, or None if none is to be sent."""
    if "never" in plan:
        return None
    notice_id = f"N-{uuid.uuid4()}"
    now = time.time()
    body = {
        "noticeId": notice_id,
        "reference": row["reference"],
        "event": event,
        "amount": _told_amount(connection, row, plan, return_id=return_id),
        "currency": row["currency"],
        "returnId": return_id,
        "reason": reason,
        "occurredAt": instant(now),
    }
    columns: Mapping[str, Any] = {
        "notice_id": notice_id,
        "reference": row["reference"],
        "event": event,
        "body": json.dumps(body, ensure_ascii=False),
        "due_at": now + _seconds_until_told(plan),
        "behind": behind,
        "copies": _number(plan, "twice", 2) if "twice" in plan else 1,
    }
    return insert(connection, "notice", dict(columns))


def _told_amount(connection: Connection, row: Row, plan: Plan, *, return_id: str | None) -> int:
    if return_id is not None:
        found = connection.execute("SELECT amount FROM returned WHERE return_id = ?", [return_id]).fetchone()
        return int(found["amount"])
    return _number(plan, "wrong-amount", row["amount"] + 1) if "wrong-amount" in plan else int(row["amount"])


def _seconds_until_told(plan: Plan) -> float:
    if "late" in plan:
        return _number(plan, "late", _LATE_SECONDS)
    return _EARLY_SECONDS if "early" in plan else 0


def _number(plan: Plan, word: str, otherwise: int) -> int:
    number = plan.get(word)
    return otherwise if number is None else number
