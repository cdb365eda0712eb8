"""`POST /v1/deposits` and `GET /v1/deposits/{id}`."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from ledger.models import JournalTransaction
from tests.api.phone import Phones, at_once, faults, problem
from tests.api.test_transfers import closed, frozen
from tests.bank.sandbox import Sandbox
from tests.transfers.bank_kit import again, completed
from tests.world import World
from transfers.models import BankOrder
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def test_a_deposit_is_asked_for(phones: Phones, world: World) -> None:
    an = world.person("an", balance=5)
    phone = phones.of(an)
    answer = phone.post("/v1/deposits", {"accountId": an.account_id, "amount": 700, "reference": "savings"}, key="K")
    order = BankOrder.objects.get()
    assert (answer.status_code, answer.json()) == (202, {"depositId": str(order.pk), "status": "PENDING"})
    assert "idempotent-replayed" not in answer.headers
    shown = phone.get(f"/v1/deposits/{order.pk}").json()
    history = shown.pop("history")
    assert shown == {
        "depositId": str(order.pk),
        "status": "PENDING",
        "accountId": an.account_id,
        "amount": 700,
        "currency": "VND",
        "reference": "savings",
        "returnedAmount": 0,
        "createdAt": shown["createdAt"],
        "returns": [],
    }
    assert [(each["status"], each["cause"], each["transactionId"]) for each in history] == [
        ("PENDING", "REQUEST", None)
    ]
    assert phone.get(f"/v1/accounts/{an.account_id}").json()["balance"] == 5


def test_again_it_is_answered_again(phones: Phones, world: World, snapshot: Snapshot) -> None:
    an = world.person("an")
    phone, body = phones.of(an), {"accountId": an.account_id, "amount": 700}
    first = phone.post("/v1/deposits", body, key="K")
    before = snapshot()
    second = phone.post("/v1/deposits", {**body, "reference": None}, key="K")
    assert (second.status_code, second.content) == (202, first.content)
    assert second.headers["idempotent-replayed"] == "true"
    assert phone.get("/v1/operations", idempotencyKey="K").json() == {"status": 202, "body": first.json()}
    for other in ({**body, "amount": 701}, {**body, "reference": "x"}, {**body, "accountId": 2**40}):
        problem(phone.post("/v1/deposits", other, key="K"), status=422, code="idempotency_key_reused")
    withdrawal = {**body, "destination": "VCB"}
    problem(phone.post("/v1/withdrawals", withdrawal, key="K"), status=422, code="idempotency_key_reused")
    assert snapshot() == before


def test_one_key_at_once_makes_one_order(phones: Phones, world: World) -> None:
    an = world.person("an")
    phone, body = phones.of(an), {"accountId": an.account_id, "amount": 700}
    answers = at_once([lambda: phone.post("/v1/deposits", body, key="K")] * 20)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert BankOrder.objects.count() == 1


def test_its_whole_life_is_shown(phones: Phones, world: World, sandbox_bank: Sandbox) -> None:
    an = world.person("an")
    phone = phones.of(an)
    answer = phone.post("/v1/deposits", {"accountId": an.account_id, "amount": 700})
    path = f"/v1/deposits/{answer.json()['depositId']}"
    order = completed(sandbox_bank, BankOrder.objects.get())
    sandbox_bank.act(order.bank_reference, "return", amount=200)
    again(order)
    shown = phone.get(path).json()
    assert (shown["status"], shown["returnedAmount"]) == ("COMPLETED", 200)
    assert [each["status"] for each in shown["history"]] == ["PENDING", "SUBMITTED", "COMPLETED"]
    assert [each["amount"] for each in shown["returns"]] == [200]
    moved = JournalTransaction.objects.get(type="DEPOSIT")
    assert shown["history"][-1]["transactionId"] == str(moved.pk)
    items = phone.get(f"/v1/accounts/{an.account_id}/entries").json()["items"]
    assert [(item["type"], item["amount"], item["counterpartyAccountId"]) for item in items] == [
        ("CHARGEBACK", -200, None),
        ("DEPOSIT", 700, None),
    ]


def test_what_is_refused(phones: Phones, world: World, snapshot: Snapshot) -> None:
    an, binh, rich = world.person("an"), world.person("binh"), world.person("rich", balance=MAX_AMOUNT)
    shut = closed(world.person("shut"))
    before = snapshot()

    def ask(by: Any, account_id: Any, amount: Any, **more: Any) -> Any:
        return phones.of(by).post("/v1/deposits", {"accountId": account_id, "amount": amount, **more})

    for account_id in (binh.account_id, 2**40):
        problem(ask(an, account_id, 1), status=404, code="not_found")
    problem(ask(shut, shut.account_id, 1), status=422, code="account_closed")
    problem(ask(rich, rich.account_id, 1), status=422, code="balance_limit_exceeded")
    for amount in (0, -1, 2**53, 1.5, "1", True, None):
        assert "amount" in faults(problem(ask(an, an.account_id, amount), status=400, code="invalid_request"))
    fault = problem(ask(an, an.account_id, 1, destination="x"), status=400, code="invalid_request")
    assert faults(fault) == {"destination": "unknown"}
    long = problem(ask(an, an.account_id, 1, reference="x" * 141), status=400, code="invalid_request")
    assert faults(long) == {"reference": "max_length"}
    assert snapshot() == before


def test_a_frozen_wallet_takes_money(phones: Phones, world: World) -> None:
    icy = frozen(world.person("icy"))
    answer = phones.of(icy).post("/v1/deposits", {"accountId": icy.account_id, "amount": 1})
    assert answer.status_code == 202


def test_nobody_elses_and_no_withdrawal(phones: Phones, world: World) -> None:
    an, binh = world.person("an", balance=100), world.person("binh")
    phone = phones.of(an)
    deposit = phone.post("/v1/deposits", {"accountId": an.account_id, "amount": 1}).json()["depositId"]
    body = {"accountId": an.account_id, "amount": 1, "destination": "VCB"}
    withdrawal = phone.post("/v1/withdrawals", body).json()["withdrawalId"]
    assert phone.get(f"/v1/deposits/{deposit}").status_code == 200
    assert phone.get(f"/v1/withdrawals/{withdrawal}").status_code == 200
    problem(phone.get(f"/v1/deposits/{withdrawal}"), status=404, code="not_found")
    problem(phone.get(f"/v1/withdrawals/{deposit}"), status=404, code="not_found")
    for path in (f"/v1/deposits/{deposit}", f"/v1/withdrawals/{withdrawal}", f"/v1/deposits/{uuid4()}"):
        problem(phones.of(binh).get(path), status=404, code="not_found")
        problem(phones.nobody.get(path), status=401, code="not_authenticated")


def test_a_wallet_is_not_closed_meanwhile(phones: Phones, world: World) -> None:
    an = world.person("an")
    phone = phones.of(an)
    phone.post("/v1/deposits", {"accountId": an.account_id, "amount": 1})
    refusal = problem(phone.post(f"/v1/accounts/{an.account_id}/close", {}), status=409, code="illegal_state")
    assert "under way" in refusal["detail"]


def test_closing_and_asking_at_once(phones: Phones, world: World) -> None:
    """Either the wallet is closed, or it has an order; never both."""
    for _ in range(10):
        an = world.person("an")
        wallet = world.wallet(an.user)
        phone, body = phones.of(an), {"accountId": wallet, "amount": 1}
        close, *asked = at_once(
            [
                lambda phone=phone, wallet=wallet: phone.post(f"/v1/accounts/{wallet}/close", {}),  # type: ignore[misc]
                *([lambda phone=phone, body=body: phone.post("/v1/deposits", body)] * 3),
            ]
        )
        statuses = {answer.status_code for answer in asked}
        assert (close.status_code, statuses) in [(200, {422}), (409, {202})]
