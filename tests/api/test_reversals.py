"""`POST /v1/transactions/{id}/reversals`: what staff with the right take back, and that nobody else does."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import Permission

from accounts.models import User
from tests.api.phone import Phone, Phones, at_once, faults, may_reverse, problem
from tests.api.test_transfers import closed, frozen
from tests.world import Person, World
from transfers.services import fund

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


class Desk:
    """A member of staff, and a transfer of 100 to be taken back."""

    def __init__(self, world: World, phones: Phones) -> None:
        self.payer, self.payee = world.person("payer", balance=100), world.person("payee")
        self.transfer = world.pay(self.payer, self.payee, 100).transaction_id
        self.staff = phones.of(may_reverse(world.person("finance")))

    def reverse(
        self, *, phone: Phone | None = None, of: object = None, key: str | None = None, **body: Any
    ) -> httpx.Response:
        path = f"/v1/transactions/{of or self.transfer}/reversals"
        return (phone or self.staff).post(path, {"reason": "wrong person", **body}, key=key)

    @property
    def balances(self) -> tuple[int, int]:
        return self.payer.balance, self.payee.balance


@pytest.fixture
def desk(world: World, phones: Phones) -> Desk:
    return Desk(world, phones)


def test_whole_and_in_parts(desk: Desk, phones: Phones) -> None:
    answer = desk.reverse(amount=30)
    assert answer.status_code == 201
    assert answer.json() == {"transactionId": answer.json()["transactionId"], "status": "COMPLETED"}
    assert desk.balances == (30, 70)
    rest = desk.reverse()
    assert desk.balances == (100, 0)
    refusal = problem(desk.reverse(), status=409, code="already_reversed")
    for reversal in (answer, rest):
        assert reversal.json()["transactionId"] in refusal["detail"]
    assert desk.balances == (100, 0)
    shown = phones.of(desk.payer).get(f"/v1/transfers/{rest.json()['transactionId']}").json()
    assert (shown["type"], shown["reference"], shown["amount"]) == ("REVERSAL", "wrong person", 70)


def test_the_same_key_is_the_same_reversal(desk: Desk, snapshot: Snapshot) -> None:
    first = desk.reverse(key="K", amount=40)
    before = snapshot()
    again = desk.reverse(key="K", amount=40)
    assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (201, first.content, "true")
    assert desk.staff.get("/v1/operations", idempotencyKey="K").json() == {"status": 201, "body": first.json()}
    changes: list[dict[str, Any]] = [
        {"amount": 41},
        {"amount": None},
        {"amount": 40, "reason": "Wrong person"},
        {"amount": 40, "of": uuid4()},
    ]
    for change in changes:
        problem(desk.reverse(key="K", **change), status=422, code="idempotency_key_reused")
    assert snapshot() == before


def test_nobody_without_the_right(desk: Desk, phones: Phones, world: World, snapshot: Snapshot) -> None:
    clerk, former, customer = (world.person(name) for name in ("clerk", "former", "customer"))
    User.objects.filter(pk=clerk.user.pk).update(is_staff=True)
    User.objects.filter(pk=may_reverse(former).user.pk).update(is_staff=False)
    looker = world.person("looker")
    User.objects.filter(pk=looker.user.pk).update(is_staff=True)
    looker.user.user_permissions.add(Permission.objects.get(codename="view_journaltransaction"))
    before = snapshot()
    for person in (clerk, former, looker, customer, desk.payer, desk.payee):
        for of in (desk.transfer, uuid4()):
            problem(desk.reverse(phone=phones.of(person), of=of), status=403, code="permission_denied")
    problem(desk.reverse(phone=phones.nobody), status=401, code="not_authenticated")
    assert snapshot() == before
    # Nor do staff read what is none of theirs.
    problem(desk.staff.get(f"/v1/transfers/{desk.transfer}"), status=404, code="not_found")


def test_what_cannot_go_back(desk: Desk, world: World, snapshot: Snapshot) -> None:
    deposit = fund(account_id=desk.payer.account_id, amount=5, key="bank").transaction_id
    reversal = desk.reverse(amount=10).json()["transactionId"]
    before = snapshot()
    problem(desk.reverse(of=deposit), status=422, code="not_reversible")
    problem(desk.reverse(of=reversal), status=422, code="not_reversible")
    problem(desk.reverse(amount=91), status=422, code="reversal_exceeds_original")
    for unknown in (uuid4(), "1", "x", "%00"):
        problem(desk.reverse(of=unknown), status=404, code="not_found")
    assert snapshot() == before


def test_money_that_was_spent_frozen_and_closed_wallets(desk: Desk, world: World, snapshot: Snapshot) -> None:
    merchant = world.person("merchant")
    world.pay(desk.payee, merchant, 90)
    before = snapshot()
    problem(desk.reverse(), status=422, code="insufficient_funds")
    assert snapshot() == before
    frozen(desk.payee)
    assert desk.reverse(amount=10).status_code == 201
    assert desk.balances == (10, 0)

    world.pay(desk.payer, merchant, 10)
    closed(desk.payer)
    problem(desk.reverse(amount=1), status=422, code="account_closed")


def test_faulty_fields(desk: Desk, snapshot: Snapshot) -> None:
    before = snapshot()
    faulty: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"reason": None}, {"reason": "null"}),
        ({"reason": ""}, {"reason": "blank"}),
        ({"reason": "x" * 141}, {"reason": "max_length"}),
        ({"reason": 5}, {"reason": "invalid"}),
        ({"amount": 0}, {"amount": "min_value"}),
        ({"amount": -5}, {"amount": "min_value"}),
        ({"amount": 2**53}, {"amount": "max_value"}),
        ({"amount": "10"}, {"amount": "invalid"}),
        ({"amount": 1.5}, {"amount": "invalid"}),
        ({"currency": "VND"}, {"currency": "unknown"}),
    ]
    for body, expected in faulty:
        assert faults(problem(desk.reverse(**body), status=400, code="invalid_request")) == expected
    answer = desk.staff.post(f"/v1/transactions/{desk.transfer}/reversals", {})
    assert faults(problem(answer, status=400, code="invalid_request")) == {"reason": "required"}
    assert snapshot() == before
    assert desk.reverse(reason="ơ" * 140, amount=None).status_code == 201


@pytest.mark.race
def test_parts_at_once_never_exceed_the_original(desk: Desk) -> None:
    answers = at_once([partial(desk.reverse, amount=10) for _ in range(20)])
    codes = Counter("done" if answer.status_code == 201 else answer.json()["code"] for answer in answers)
    assert codes == {"done": 10, "already_reversed": 10}
    assert desk.balances == (100, 0)


@pytest.mark.race
def test_two_colleagues_at_once_make_one(desk: Desk, phones: Phones, world: World) -> None:
    colleague: Person = may_reverse(world.person("finance2"))
    answers = at_once([partial(desk.reverse), partial(desk.reverse, phone=phones.of(colleague))])
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert desk.balances == (100, 0)
