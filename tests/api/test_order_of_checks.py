"""One order of checks: a request with several faults gets the first one's code. One table per command.

Each line has the fault that it names and, as far as they can stand together, all that come later.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.api.phone import Phone, Phones, may_reverse, problem, transfer_body
from tests.api.test_transfers import closed, frozen
from tests.world import Person, World
from transfers.services import fund
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]

COMMANDS = {
    "transfer": "/v1/transfers",
    "open": "/v1/accounts",
    "close": "/v1/accounts/9/close",
    "reserve": "/v1/holds",
    "capture": f"/v1/holds/{uuid4()}/capture",
    "void": f"/v1/holds/{uuid4()}/void",
    "deposit": "/v1/deposits",
    "withdraw": "/v1/withdrawals",
    "reverse": f"/v1/transactions/{uuid4()}/reversals",
}
WITHOUT_KEY = ["/v1/users", "/v1/auth/token", "/v1/auth/token/refresh", "/v1/auth/logout"]
TOO_LARGE, NO_JSON, NO_FIELDS = b"{" * (2**20 + 1), b"{", b'{"nonsense": 1}'
TEXT, NO_KEY = {"Content-Type": "text/plain"}, {"Idempotency-Key": "no key"}
NO_TOKEN = {"Authorization": "Bearer x.y.z"}


@pytest.mark.parametrize("path", [*COMMANDS.values(), *WITHOUT_KEY])
def test_what_all_commands_check_first(phones: Phones, world: World, snapshot: Snapshot, path: str) -> None:
    before = snapshot()

    def send(content: bytes, *, headers: dict[str, str], method: str = "POST", to: str = path) -> httpx.Response:
        return phones.http.request(method, to, content=content, headers={"Content-Type": "application/json", **headers})

    problem(send(NO_JSON, headers={**TEXT, **NO_KEY}, to=path + "/"), status=404, code="not_found")
    problem(send(NO_JSON, headers={**TEXT, **NO_KEY}, method="PUT"), status=405, code="method_not_allowed")
    problem(send(TOO_LARGE, headers={**TEXT, **NO_KEY}), status=413, code="payload_too_large")
    problem(send(NO_JSON, headers={**TEXT, **NO_KEY}), status=415, code="unsupported_media_type")
    problem(send(NO_JSON, headers={**NO_KEY, **NO_TOKEN}), status=400, code="invalid_json")
    if path in WITHOUT_KEY:
        problem(send(NO_FIELDS, headers={**NO_KEY, **NO_TOKEN}), status=400, code="invalid_request")
    else:
        problem(send(NO_FIELDS, headers=NO_KEY), status=401, code="not_authenticated")
        problem(send(NO_FIELDS, headers={**NO_KEY, **NO_TOKEN}), status=401, code="token_invalid")
    assert snapshot() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_then_the_role_the_keys_header_and_the_fields(
    phones: Phones, world: World, snapshot: Snapshot, command: str
) -> None:
    person = world.person("staff")
    if command == "reverse":
        refused = phones.of(person).send(COMMANDS[command], NO_FIELDS, headers=NO_KEY)
        problem(refused, status=403, code="permission_denied")
        may_reverse(person)
    phone = phones.of(person)
    phone.post("/v1/accounts", {"currency": "VND"}, key="used")
    before = snapshot()
    missing = phone.http.post(COMMANDS[command], json={"nonsense": 1}, headers=phone.credentials)
    problem(missing, status=400, code="idempotency_key_missing")
    answer = phone.send(COMMANDS[command], NO_FIELDS, headers=NO_KEY)
    problem(answer, status=400, code="idempotency_key_invalid")
    answer = phone.send(COMMANDS[command], NO_FIELDS, headers={"Idempotency-Key": "used"})
    problem(answer, status=400, code="invalid_request")
    assert snapshot() == before


@dataclass(frozen=True, kw_only=True)
class Line:
    """A command with faults, and what is said of it."""

    by: Person
    path: str = "/v1/transfers"
    body: dict[str, Any]
    key: str = "new"
    status: int = 422
    code: str


def follow(lines: list[Line], phones: Phones) -> None:
    for line in lines:
        phone: Phone = phones.of(line.by)
        content = json.dumps(line.body).encode()
        answer = phone.send(line.path, content, headers={"Idempotency-Key": line.key})
        problem(answer, status=line.status, code=line.code)


def test_transfers(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    poor = frozen(world.person("poor"))
    poor_dollars = Person(user=poor.user, account_id=world.wallet(poor.user, currency="USD"))
    gone = closed(world.person("gone", currency="USD"))
    rich = world.person("rich", balance=MAX_AMOUNT)
    missing = Person(user=payer.user, account_id=2**63 - 1)
    assert phones.of(payer).pay(payer, payee, 1, key="used").status_code == 201
    before = snapshot()

    def line(by: Person, source: Person, target: Person, amount: int, code: str, **more: Any) -> Line:
        return Line(by=by, body=transfer_body(source, target, amount), code=code, **more)

    follow(
        [
            line(payer, missing, missing, 0, "invalid_request", key="used", status=400),
            line(payer, missing, missing, 5, "idempotency_key_reused", key="used"),
            line(poor, missing, missing, 5, "same_account"),
            line(poor, missing, gone, 5, "not_found", status=404),
            line(poor, poor, missing, 5, "not_found", status=404),
            line(poor, payer, gone, 5, "not_found", status=404),
            line(poor, poor, gone, 5, "account_closed"),
            line(poor, poor, poor_dollars, 5, "account_frozen"),
            line(poor, poor_dollars, rich, 5, "currency_mismatch"),
            line(payer, payer, rich, 1_000, "insufficient_funds"),
            line(payer, payer, rich, 999, "balance_limit_exceeded"),
        ],
        phones,
    )
    assert snapshot() == before


def test_bank_orders(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer = world.person("payer", balance=10)
    poor, gone = frozen(world.person("poor")), closed(world.person("gone"))
    rich = world.person("rich", balance=MAX_AMOUNT)
    assert phones.of(payer).post("/v1/accounts", {"currency": "VND"}, key="used").status_code == 201
    before = snapshot()

    def line(by: Person, account_id: int, amount: int, code: str, *, to: str = "deposits", **more: Any) -> Line:
        destination = {} if to == "deposits" else {"destination": "VCB"}
        body = {"accountId": account_id, "amount": amount, **destination}
        return Line(by=by, path=f"/v1/{to}", body=body, code=code, **more)

    def out(*arguments: Any, **more: Any) -> Line:
        return line(*arguments, to="withdrawals", **more)

    follow(
        [
            *(each(payer, 2**63 - 1, 0, "invalid_request", key="used", status=400) for each in (line, out)),
            *(each(payer, 2**63 - 1, 5, "idempotency_key_reused", key="used") for each in (line, out)),
            *(each(payer, gone.account_id, 5, "not_found", status=404) for each in (line, out)),
            *(each(gone, gone.account_id, MAX_AMOUNT, "account_closed") for each in (line, out)),
            out(poor, poor.account_id, 5, "account_frozen"),
            out(payer, payer.account_id, 11, "insufficient_funds"),
            line(rich, rich.account_id, 1, "balance_limit_exceeded"),
        ],
        phones,
    )
    assert snapshot() == before


def test_closing(phones: Phones, world: World, snapshot: Snapshot) -> None:
    owner = world.person("owner")
    icy_and_rich, rich = (Person(user=owner.user, account_id=world.wallet(owner.user, balance=5)) for _ in range(2))
    frozen(icy_and_rich)
    gone = closed(Person(user=owner.user, account_id=world.wallet(owner.user)))
    other = world.person("other", balance=5)
    assert phones.of(owner).post("/v1/accounts", {"currency": "VND"}, key="used").status_code == 201
    before = snapshot()

    def line(account_id: int, code: str, **more: Any) -> Line:
        return Line(by=owner, path=f"/v1/accounts/{account_id}/close", **{"body": {}, "code": code, **more})

    follow(
        [
            line(other.account_id, "invalid_request", key="used", status=400, body={"x": 1}),
            line(other.account_id, "idempotency_key_reused", key="used"),
            line(other.account_id, "not_found", status=404),
            *(line(wallet.account_id, "illegal_state", status=409) for wallet in (gone, icy_and_rich, rich)),
        ],
        phones,
    )
    assert snapshot() == before


def test_reversals(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee, merchant = world.person("payer", balance=200), world.person("payee"), world.person("merchant")
    leaver, full, friend = world.person("leaver", balance=100), world.person("full", balance=10), world.person("friend")
    staff = may_reverse(world.person("staff"))
    deposit = fund(account_id=merchant.account_id, amount=5, key="bank").transaction_id
    done, kept = (world.pay(payer, payee, 100).transaction_id for _ in range(2))
    lost = world.pay(leaver, payee, 100).transaction_id
    closed(leaver)
    path = f"/v1/transactions/{done}/reversals"
    assert phones.of(staff).post(path, {"reason": "wrong"}, key="used").status_code == 201
    world.pay(payee, merchant, 200)
    too_much = world.pay(full, friend, 10).transaction_id
    fund(account_id=full.account_id, amount=MAX_AMOUNT, key="fortune")
    world.pay(friend, merchant, 5)
    before = snapshot()

    def line(of: object, amount: int, code: str, **more: Any) -> Line:
        body = {"reason": "wrong", "amount": amount}
        return Line(by=staff, path=f"/v1/transactions/{of}/reversals", body=body, code=code, **more)

    follow(
        [
            line(uuid4(), 0, "invalid_request", key="used", status=400),
            line(uuid4(), 5, "idempotency_key_reused", key="used"),
            line(uuid4(), 5, "not_found", status=404),
            line(deposit, 6, "not_reversible"),
            line(done, 101, "already_reversed", status=409),
            line(lost, 101, "reversal_exceeds_original"),
            line(lost, 100, "account_closed"),
            line(kept, 100, "insufficient_funds"),
            line(too_much, 10, "insufficient_funds"),
            line(too_much, 5, "balance_limit_exceeded"),
        ],
        phones,
    )
    assert snapshot() == before
