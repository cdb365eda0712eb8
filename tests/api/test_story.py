"""A customer's first day, told through the API alone, but for the money that the bank brings."""

import re

import pytest

from tests.api.phone import Phones
from tests.world import PASSWORD, World
from transfers.services import fund

pytestmark = pytest.mark.django_db(transaction=True)

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_sign_up_sign_in_open_pay_and_look_back(phones: Phones, world: World) -> None:
    binh = world.person("binh")

    answer = phones.nobody.post("/v1/users", {"username": "an.nguyễn", "password": PASSWORD})
    assert answer.status_code == 201
    assert answer.json() == {"userId": answer.json()["userId"], "username": "an.nguyễn"}

    answer = phones.nobody.post("/v1/auth/token", {"username": "an.nguyễn", "password": PASSWORD})
    assert answer.status_code == 200
    assert set(answer.json()) == {"access", "refresh"}
    an = phones.with_token(answer.json()["access"])

    answer = an.post("/v1/accounts", {"currency": "VND", "name": "Ví chính"}, key="open-1")
    assert answer.status_code == 201
    account = answer.json()
    assert INSTANT.fullmatch(account["createdAt"])
    assert account == {
        "accountId": account["accountId"],
        "name": "Ví chính",
        "currency": "VND",
        "balance": 0,
        "heldBalance": 0,
        "availableBalance": 0,
        "status": "ACTIVE",
        "createdAt": account["createdAt"],
    }
    assert an.get("/v1/accounts").json() == {"items": [account], "nextCursor": None}

    funded = fund(account_id=account["accountId"], amount=100_000, key="salary")

    transfer = {"fromAccountId": account["accountId"], "toAccountId": binh.account_id, "amount": 30_000}
    answer = an.post("/v1/transfers", transfer, key="lunch")
    assert answer.status_code == 201
    transaction_id = answer.json()["transactionId"]
    assert UUID7.fullmatch(transaction_id)
    assert answer.content == f'{{"transactionId":"{transaction_id}","status":"COMPLETED"}}'.encode()
    assert answer.headers["content-type"] == "application/json"
    assert "idempotent-replayed" not in answer.headers

    again = an.post("/v1/transfers", transfer, key="lunch")
    assert (again.status_code, again.content) == (201, answer.content)
    assert again.headers["idempotent-replayed"] == "true"

    assert an.get("/v1/operations", idempotencyKey="lunch").json() == {"status": 201, "body": answer.json()}
    assert an.get("/v1/operations", idempotencyKey="open-1").json() == {"status": 201, "body": account}

    items = an.get(f"/v1/accounts/{account['accountId']}/entries").json()["items"]
    assert [(item["type"], item["amount"], item["balanceAfter"], item["counterpartyAccountId"]) for item in items] == [
        ("TRANSFER", -30_000, 70_000, binh.account_id),
        ("DEPOSIT", 100_000, 100_000, None),
    ]
    assert items[1]["transactionId"] == str(funded.transaction_id)
    assert phones.of(binh).get(f"/v1/accounts/{binh.account_id}/balance").json()["balance"] == 30_000
