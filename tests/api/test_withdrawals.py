"""`POST /v1/withdrawals` and `GET /v1/withdrawals/{id}`."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.phone import Phones, at_once, faults, may_reverse, problem
from tests.api.test_transfers import closed, frozen
from tests.bank.sandbox import Sandbox
from tests.transfers.bank_kit import again, completed, work_off
from tests.world import World
from transfers.models import BankOrder

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]
DESTINATION = "VCB 0071000123456"


def test_the_money_is_on_hold_at_once(phones: Phones, world: World) -> None:
    an = world.person("an", balance=1_000)
    phone = phones.of(an)
    body = {"accountId": an.account_id, "amount": 400, "destination": DESTINATION, "reference": "rent"}
    answer = phone.post("/v1/withdrawals", body, key="K")
    order = BankOrder.objects.get()
    assert (answer.status_code, answer.json()) == (202, {"withdrawalId": str(order.pk), "status": "PENDING"})
    wallet = phone.get(f"/v1/accounts/{an.account_id}").json()
    assert (wallet["balance"], wallet["heldBalance"], wallet["availableBalance"]) == (600, 400, 600)
    shown = phone.get(f"/v1/withdrawals/{order.pk}").json()
    history = shown.pop("history")
    assert shown == {
        "withdrawalId": str(order.pk),
        "status": "PENDING",
        "accountId": an.account_id,
        "amount": 400,
        "currency": "VND",
        "destination": DESTINATION,
        "reference": "rent",
        "returnedAmount": 0,
        "createdAt": shown["createdAt"],
        "returns": [],
    }
    assert [(each["status"], each["transactionId"]) for each in history] == [("PENDING", str(order.opening_id))]
    [item, _] = phone.get(f"/v1/accounts/{an.account_id}/entries").json()["items"]
    assert (item["type"], item["amount"], item["counterpartyAccountId"]) == ("WITHDRAWAL", -400, None)
    moved = phone.get(f"/v1/transfers/{order.opening_id}").json()
    assert (moved["type"], moved["fromAccountId"], moved["toAccountId"]) == ("WITHDRAWAL", an.account_id, None)


def test_again_it_is_answered_again(phones: Phones, world: World, snapshot: Snapshot, sandbox_bank: Sandbox) -> None:
    """The first answer's very bytes, whatever has become of the order since."""
    an = world.person("an", balance=1_000)
    phone, body = phones.of(an), {"accountId": an.account_id, "amount": 400, "destination": DESTINATION}
    first = phone.post("/v1/withdrawals", body, key="K")
    completed(sandbox_bank, BankOrder.objects.get())
    before = snapshot()
    second = phone.post("/v1/withdrawals", body, key="K")
    assert (second.status_code, second.content) == (202, first.content)
    assert second.headers["idempotent-replayed"] == "true"
    assert phone.get("/v1/operations", idempotencyKey="K").json() == {"status": 202, "body": first.json()}
    for change in ({"amount": 401}, {"destination": "VCB 1"}, {"reference": "x"}, {"accountId": 2**40}):
        answer = phone.post("/v1/withdrawals", {**body, **change}, key="K")
        problem(answer, status=422, code="idempotency_key_reused")
    assert snapshot() == before
    assert len(sandbox_bank.submits()) == 1


def test_one_key_at_once_pays_once(phones: Phones, world: World) -> None:
    an = world.person("an", balance=1_000)
    phone, body = phones.of(an), {"accountId": an.account_id, "amount": 400, "destination": DESTINATION}
    answers = at_once([lambda: phone.post("/v1/withdrawals", body, key="K")] * 20)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert (BankOrder.objects.count(), an.balance) == (1, 600)


def test_no_more_goes_out_than_there_is(phones: Phones, world: World) -> None:
    """Withdrawals, transfers and holds from one wallet at once (TRIALS 24)."""
    an, binh = world.person("an", balance=1_000), world.person("binh")
    phone = phones.of(an)
    withdrawal = {"accountId": an.account_id, "amount": 300, "destination": DESTINATION}
    calls = [
        *([lambda: phone.post("/v1/withdrawals", withdrawal)] * 6),
        *([lambda: phone.pay(an, binh, 300)] * 6),
        *([lambda: phone.post("/v1/holds", {"accountId": an.account_id, "amount": 300})] * 6),
    ]
    answers = at_once(calls)
    done = [answer for answer in answers if answer.is_success]
    assert len(done) == 3
    assert {answer.json()["code"] for answer in answers if not answer.is_success} == {"insufficient_funds"}
    assert an.balance == 100


def test_a_refusal_of_the_banks_says_why(phones: Phones, world: World, sandbox_bank: Sandbox) -> None:
    an = world.person("an", balance=1_000)
    phone = phones.of(an)
    body = {"accountId": an.account_id, "amount": 400, "destination": "sandbox:refuse-now"}
    path = f"/v1/withdrawals/{phone.post('/v1/withdrawals', body).json()['withdrawalId']}"
    work_off()
    shown = phone.get(path).json()
    assert shown["status"] == "FAILED"
    assert shown["history"][-1]["reason"]
    assert [item["type"] for item in phone.get(f"/v1/accounts/{an.account_id}/entries").json()["items"]] == [
        "RELEASE",
        "WITHDRAWAL",
        "DEPOSIT",
    ]
    assert phone.get(f"/v1/transfers/{shown['history'][-1]['transactionId']}").json()["amount"] == 400


def test_what_the_worker_noted_down_is_not_the_customers(phones: Phones, world: World, sandbox_bank: Sandbox) -> None:
    sandbox_bank.break_down("reset")
    an = world.person("an", balance=1_000)
    phone = phones.of(an)
    body = {"accountId": an.account_id, "amount": 400, "destination": DESTINATION}
    path = f"/v1/withdrawals/{phone.post('/v1/withdrawals', body).json()['withdrawalId']}"
    work_off()
    assert [(each["status"], each["reason"]) for each in phone.get(path).json()["history"]] == [
        ("PENDING", None),
        ("SUBMITTED", None),
        ("UNKNOWN", None),
    ]


def test_a_return_is_in_the_history(phones: Phones, world: World, sandbox_bank: Sandbox) -> None:
    an = world.person("an", balance=1_000)
    phone = phones.of(an)
    phone.post("/v1/withdrawals", {"accountId": an.account_id, "amount": 400, "destination": DESTINATION})
    order = completed(sandbox_bank, BankOrder.objects.get())
    sandbox_bank.act(order.bank_reference, "return", amount=150)
    again(order)
    shown = phone.get(f"/v1/withdrawals/{order.pk}").json()
    assert (shown["returnedAmount"], [each["amount"] for each in shown["returns"]]) == (150, [150])
    assert [each["transactionId"] for each in shown["history"]] == [str(order.pk), None, None]
    items = phone.get(f"/v1/accounts/{an.account_id}/entries", type="RETURN").json()["items"]
    assert [item["amount"] for item in items] == [150]


def test_what_is_refused(phones: Phones, world: World, snapshot: Snapshot) -> None:
    an, binh = world.person("an", balance=100), world.person("binh", balance=100)
    shut, icy = closed(world.person("shut")), frozen(world.person("icy"))
    before = snapshot()

    def ask(by: Any, account_id: Any, amount: Any, **more: Any) -> Any:
        body = {"accountId": account_id, "amount": amount, "destination": DESTINATION, **more}
        return phones.of(by).post("/v1/withdrawals", body)

    for account_id in (binh.account_id, 2**40):
        problem(ask(an, account_id, 1), status=404, code="not_found")
    problem(ask(shut, shut.account_id, 1), status=422, code="account_closed")
    problem(ask(icy, icy.account_id, 1), status=422, code="account_frozen")
    problem(ask(an, an.account_id, 101), status=422, code="insufficient_funds")
    for amount in (0, -1, 2**53, 1.5, "1", True, None):
        assert "amount" in faults(problem(ask(an, an.account_id, amount), status=400, code="invalid_request"))
    for destination, fault in (("", "blank"), ("x" * 65, "max_length"), (None, "null"), (7, "invalid")):
        refusal = problem(ask(an, an.account_id, 1, destination=destination), status=400, code="invalid_request")
        assert faults(refusal) == {"destination": fault}
    assert snapshot() == before


def test_a_failed_command_has_not_used_its_key_up(phones: Phones, world: World) -> None:
    an, binh = world.person("an"), world.person("binh", balance=100)
    phone, body = phones.of(an), {"accountId": an.account_id, "amount": 40, "destination": DESTINATION}
    problem(phone.post("/v1/withdrawals", body, key="K"), status=422, code="insufficient_funds")
    world.pay(binh, an, 40)
    assert phone.post("/v1/withdrawals", body, key="K").status_code == 202


def test_it_cannot_be_reversed(phones: Phones, world: World) -> None:
    """It comes back only through the bank."""
    an, staff = world.person("an", balance=100), may_reverse(world.person("staff"))
    body = {"accountId": an.account_id, "amount": 40, "destination": DESTINATION}
    id_ = phones.of(an).post("/v1/withdrawals", body).json()["withdrawalId"]
    answer = phones.of(staff).post(f"/v1/transactions/{id_}/reversals", {"reason": "no"})
    problem(answer, status=422, code="not_reversible")
