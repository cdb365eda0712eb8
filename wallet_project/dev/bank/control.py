"""What the bank is told by somebody who plays with it, or by a test; and what it shows them.

    GET  /sandbox                           the words
    GET  /sandbox/book                      payments, and their sums by direction and currency
    GET  /sandbox/requests                  every request for a payment that came, however it was answered
    GET  /sandbox/notices                   every notice, how often it was sent, and the last answer
    PUT  /sandbox/payments/<reference>      {"words": "timeout,return=40"}: before it comes
    POST /sandbox/payments/<reference>      {"action": "settle" | "refuse" | "return" | "notify", "amount": 40}: now
    PUT  /sandbox/default                   {"words": "wait"}: for every payment that nobody speaks of; null ends it
    PUT  /sandbox/outage                    {"fault": "hang"}: for every request; null ends it
    PUT  /sandbox/callback                  {"url": "http://..."}: where notices go; null keeps them back

Requests and notices take `?reference=`. All but the first want `Authorization: Bearer <SANDBOX_BANK_TOKEN>`.
"""

import hmac
import json
from collections.abc import Callable
from typing import Any, TypeVar

from wallet_project.dev.bank import behaviours, course
from wallet_project.dev.bank.course import Refusal
from wallet_project.dev.bank.faults import FAULTS
from wallet_project.dev.bank.protocol import Answer, Bank, Request

_T = TypeVar("_T", str, int)


def answer(bank: Bank, request: Request, *, token: str) -> Answer:
    """The answer to whoever has the token."""
    if request.path == "/sandbox":
        return Answer(status=200, body={"words": behaviours.WORDS, "faults": list(FAULTS)})
    if not hmac.compare_digest(request.token.encode(), token.encode()):
        return Answer(status=401, body={"reason": "The token is wrong."})
    try:
        return Answer(status=200, body=_do(bank, request))
    except Refusal as error:
        return Answer(status=409, body={"reason": str(error)})
    except (ValueError, KeyError) as error:
        return Answer(status=400, body={"reason": f"That is not understood: {error}."})
    finally:
        bank.teller.wake()


def _do(bank: Bank, request: Request) -> Any:
    reference = request.query.get("reference")
    match request.method, request.path.split("/")[2:]:
        case "GET", ["book"]:
            return {"payments": bank.book.payments(), "totals": course.totals(bank.book)}
        case "GET", ["requests"]:
            return _requests(bank, reference)
        case "GET", ["notices"]:
            return bank.book.rows("SELECT * FROM notice WHERE ? IN ('', reference) ORDER BY number", [reference or ""])
        case "PUT", ["payments", reference]:
            _tell(bank, f"payment {reference}", request, "words", behaviours.read)
        case "POST", ["payments", reference]:
            action, amount = _member(request, "action", str), _member(request, "amount", int)
            course.act(bank.book, reference, action or "", amount, delay=bank.delay)
        case "PUT", ["default"]:
            _tell(bank, "default", request, "words", behaviours.read)
        case "PUT", ["outage"]:
            _tell(bank, "outage", request, "fault", FAULTS.__getitem__)
        case "PUT", ["callback"]:
            _tell(bank, "callback", request, "url", str)
        case _:
            raise ValueError("there is no such address")
    return {}


def _tell(bank: Bank, name: str, request: Request, member: str, check: Callable[[str], object]) -> None:
    value = _member(request, member, str)
    if value is not None:
        check(value)
    bank.book.tell(name, value)


def _member(request: Request, name: str, kind: type[_T]) -> _T | None:
    values = json.loads(request.body)
    value = values.get(name) if isinstance(values, dict) else values
    if value is not None and type(value) is not kind:
        raise ValueError(f"{name} must be {kind.__name__} or null")
    return value


def _requests(bank: Bank, reference: str | None) -> list[dict[str, Any]]:
    rows = bank.book.rows("SELECT received_at, method, path, body FROM request ORDER BY number")
    return [row for row in rows if reference is None or row["path"] == f"/payments/{reference}"]
