"""A phone for the tests, and what every refusal that it gets must have."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import count
from threading import Barrier
from typing import Any, TypeVar

import httpx
from django.contrib.auth.models import Permission

from accounts.models import User
from accounts.services import stamp_of
from accounts.tokens import AccessToken
from tests.world import Person

T = TypeVar("T")
Headers = dict[str, str] | Sequence[tuple[str, str]]

_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Phone:
    """Sends what it is told to, with its owner's token."""

    http: httpx.Client
    token: str | None = None

    @property
    def credentials(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, *, headers: Headers = (), **params: Any) -> httpx.Response:
        return self.http.get(path, headers={**self.credentials, **dict(headers)}, params=params or None)

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> httpx.Response:
        """Send a command; it gets a key of its own unless it names one."""
        key_header = {"Idempotency-Key": key or f"key-{next(_numbers)}"}
        return self.http.post(path, json=body, headers={**self.credentials, **key_header})

    def send(self, path: str, content: bytes, *, headers: Headers = ()) -> httpx.Response:
        """Send exactly these bytes with exactly these headers; for each that is missing, a good one is added."""
        given = [(name.lower(), value) for name, value in (headers.items() if isinstance(headers, dict) else headers)]
        good = {
            "content-type": "application/json",
            "idempotency-key": f"key-{next(_numbers)}",
            **{name.lower(): value for name, value in self.credentials.items()},
        }
        missing = [(name, value) for name, value in good.items() if name not in dict(given)]
        return self.http.post(path, content=content, headers=[*given, *missing])

    def raw(self, path: str, content: bytes, *, headers: Headers) -> httpx.Response:
        """As `send`, but for headers that a decent client does not write."""
        base = httpx.URL(self.http.base_url)
        given = headers.items() if isinstance(headers, dict) else headers
        connection = HTTPConnection(base.host, base.port or 80, timeout=30)
        connection.putrequest("POST", path)
        length, type_ = ("Content-Length", str(len(content))), ("Content-Type", "application/json")
        for name, value in [length, type_, *self.credentials.items(), *given]:
            connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        request = httpx.Request("POST", base.join(path))
        return httpx.Response(answer.status, headers=answer.getheaders(), content=body, request=request)

    def pay(self, payer: Person, payee: Person, amount: Any, *, key: str | None = None, **more: Any) -> httpx.Response:
        return self.post("/v1/transfers", transfer_body(payer, payee, amount, **more), key=key)


class Phones:
    """`phones.of(person)` is signed in, `phones.nobody` is not."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.nobody = Phone(http=http)

    def of(self, person: Person) -> Phone:
        return self.with_token(access_token(person.user))

    def with_token(self, token: str) -> Phone:
        return Phone(http=self.http, token=token)


@dataclass(frozen=True)
class Call:
    """One way to call the API, for tests that try them all."""

    method: str
    path: str
    body: Any = field(default=None)

    def by(self, phone: Phone) -> httpx.Response:
        if self.method == "GET":
            return phone.get(self.path)
        return phone.post(self.path, self.body)


def may_reverse(person: Person) -> Person:
    """Make somebody a member of staff with the right to reverse."""
    person.user.is_staff = True
    person.user.save(update_fields=["is_staff"])
    right = Permission.objects.get(content_type__app_label="ledger", codename="reverse_journaltransaction")
    person.user.user_permissions.add(right)
    return person


def transfer_body(payer: Person, payee: Person, amount: Any, **more: Any) -> dict[str, Any]:
    return {"fromAccountId": payer.account_id, "toAccountId": payee.account_id, "amount": amount, **more}


def access_token(user: User) -> str:
    token = AccessToken()
    token["user_id"] = str(user.pk)
    token["stamp"] = stamp_of(user.password)
    return str(token)


def problem(response: httpx.Response, *, status: int, code: str) -> dict[str, Any]:
    """The body of a refusal, after a look at all that every refusal must have."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    names = ["type", "title", "status", "code", "detail", "instance", "requestId", "retry", "errors"]
    assert list(body) == names
    assert (body["code"], body["status"]) == (code, status)
    assert body["type"].endswith("/errors/" + code.replace("_", "-"))
    assert body["instance"] == httpx.URL(response.request.url).path
    assert body["requestId"] == response.headers["x-request-id"]
    assert body["title"]
    assert body["detail"]
    assert ("www-authenticate" in response.headers) == (status == 401)
    assert ("retry-after" in response.headers) == (status in (429, 503))
    return body


def faults(body: dict[str, Any]) -> dict[str, str]:
    """Which field of a refusal has which fault."""
    return {error["field"]: error["code"] for error in body["errors"]}


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at one moment, each in a thread of its own; their answers in the same order."""
    barrier = Barrier(len(calls))

    def wait_and_call(call: Callable[[], T]) -> T:
        barrier.wait(timeout=30)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(wait_and_call, calls))
