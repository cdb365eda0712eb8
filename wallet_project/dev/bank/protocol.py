"""What the bank answers: to us, whom it knows by our key, about payments (docs/bank.md)."""

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wallet_project.dev.bank import behaviours, course
from wallet_project.dev.bank.book import Book
from wallet_project.dev.bank.course import Order, Refusal
from wallet_project.dev.bank.teller import Teller

_REFERENCE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CURRENCY = re.compile(r"[A-Z]{3}")
_MEMBERS = {"direction", "amount", "currency", "destination", "description"}
_MAX_AMOUNT = 2**53 - 1


@dataclass(frozen=True, kw_only=True)
class Request:
    """What came in."""

    method: str
    path: str
    query: Mapping[str, str]
    token: str
    """What stands behind `Bearer`."""
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What goes out, unless a fault is committed instead."""

    status: int
    body: Any
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bank:
    """The bank at its counter."""

    book: Book
    teller: Teller
    api_key: str
    delay: float

    def answer(self, request: Request) -> Answer:
        """The answer to a request for a payment, which is noted first."""
        self.book.note_request(method=request.method, path=request.path, body=request.body)
        if outage := self.book.told("outage"):
            return Answer(status=503, body=None, fault=outage)
        if not hmac.compare_digest(request.token.encode(), self.api_key.encode()):
            return Answer(status=401, body={"reason": "The key is wrong."})
        match request.method, request.path.split("/")[1:]:
            case "PUT", ["payments", reference] if _REFERENCE.fullmatch(reference):
                return self._submit(reference, request.body)
            case "GET", ["payments", reference] if _REFERENCE.fullmatch(reference):
                return self._query(reference)
            case _:
                return Answer(status=404, body={"reason": "There is no such address."})

    def _submit(self, reference: str, body: bytes) -> Answer:
        try:
            order = _read_order(reference, body)
            words = course.words_for(self.book, order)
            plan = behaviours.read(words)
        except ValueError as error:
            return Answer(status=422, body={"reference": reference, "reason": str(error)})
        if "reject" in plan:
            return Answer(status=422, body={"reference": reference, "reason": "The sandbox was told so."})
        word = behaviours.chosen(plan, behaviours.ANSWERS)
        tries = plan[word] or 1 if word else 0
        if word == "lost" and course.is_lost(self.book, order, tries=tries):
            return Answer(status=503, body=None, fault="reset")
        try:
            taken = course.take(self.book, order, words=words, delay=self.delay)
        except Refusal as error:
            return Answer(status=409, body={"reference": reference, "reason": str(error)})
        self.teller.wake()
        if "early" in plan and taken.tries == 1:
            self.teller.send_now(reference)
        fault = _FAULTS.get(word or "") if taken.tries <= tries else None
        return Answer(status=201 if taken.tries == 1 else 200, body=taken.answer, fault=fault)

    def _query(self, reference: str) -> Answer:
        payment = self.book.payment(reference)
        if payment is None:
            return Answer(status=404, body={"reference": reference, "reason": "There is no such payment."})
        return Answer(status=200, body=payment)


_FAULTS = {"timeout": "hang", "broken": "broken", "reset": "reset", "502": "502"}


def _read_order(reference: str, body: bytes) -> Order:
    """The order in a request.

    Raises:
        ValueError: it is none; the text says why.
    """
    try:
        values = json.loads(body)
    except ValueError:
        raise ValueError("The body is no JSON.") from None
    if not isinstance(values, dict) or values.keys() != _MEMBERS:
        raise ValueError(f"The body must be an object of {', '.join(sorted(_MEMBERS))}.")
    amount, destination = values["amount"], values["destination"]
    if values["direction"] not in ("IN", "OUT"):
        raise ValueError("direction must be IN or OUT.")
    if type(amount) is not int or not 0 < amount <= _MAX_AMOUNT:
        raise ValueError("amount must be a positive integer.")
    if not isinstance(values["currency"], str) or not _CURRENCY.fullmatch(values["currency"]):
        raise ValueError("currency must be a code of ISO 4217.")
    if not isinstance(values["description"], str):
        raise ValueError("description must be a text.")
    if (isinstance(destination, str) and destination != "") != (values["direction"] == "OUT"):
        raise ValueError("destination must be a text for money out, and null for money in.")
    return Order(reference=reference, **values)
