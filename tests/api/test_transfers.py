"""`POST /v1/transfers` and `GET /v1/transfers/{transactionId}`: what is refused, with which code, and what is shown."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from accounts.models import Account
from accounts.services import close_wallet, freeze, thaw
from ledger.selectors import draw_system_shard
from tests.api.phone import Phone, Phones, faults, problem, transfer_body
from tests.world import Person, World
from transfers.services import fund, reverse
from wallet_project.kernel.db import run_in_transaction
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def frozen(person: Person) -> Person:
    freeze(account_id=person.account_id, cause="STAFF", reason="test", staff_id=person.user.pk)
    return person


def closed(person: Person) -> Person:
    run_in_transaction(lambda: close_wallet(account_id=person.account_id, owner_id=person.user.pk))
    return person


# --- What a phone is told to do --------------------------------------------------------------------------------------


def test_what_a_phone_should_do_about_it(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    phone = phones.of(payer)
    phone.pay(payer, payee, 1, key="used")
    assert phone.pay(payer, payee, 2, key="used").json()["retry"] == "new_key"
    assert phone.pay(payer, payer, 1).json()["retry"] == "never"
    assert phone.pay(payer, payee, 100).json()["retry"] == "same_key"
    assert phone.pay(frozen(payer), payee, 1).json()["retry"] == "same_key"


def test_an_account_receives_while_frozen_and_pays_once_thawed(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10), frozen(world.person("payee"))
    assert phones.of(payer).pay(payer, payee, 10).status_code == 201
    problem(phones.of(payee).pay(payee, payer, 5, key="back"), status=422, code="account_frozen")
    thaw(account_id=payee.account_id, reason="test", staff_id=payee.user.pk)
    assert phones.of(payee).pay(payee, payer, 5, key="back").status_code == 201


# --- Somebody else's, and what does not exist for clients ------------------------------------------------------------


def test_what_is_not_the_callers_answers_like_what_is_not_there(
    phones: Phones, world: World, snapshot: Snapshot
) -> None:
    caller, other = world.person("caller", balance=1_000), world.person("other", balance=1_000)
    shard = draw_system_shard(kind=Account.Kind.BANK_CLEARING, currency="VND")
    family = Account.objects.get(pk=shard).parent_id
    before = snapshot()
    for from_id, to_id in [
        (other.account_id, caller.account_id),
        (shard, caller.account_id),
        (family, caller.account_id),
        (caller.account_id, shard),
        (caller.account_id, family),
        (caller.account_id, 2**63 - 1),
    ]:
        body = {"fromAccountId": from_id, "toAccountId": to_id, "amount": 1}
        problem(phones.of(caller).post("/v1/transfers", body), status=404, code="not_found")
    assert snapshot() == before


# --- Fields ----------------------------------------------------------------------------------------------------------

FAULTY: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"amount": 0}, {"amount": "min_value"}),
    ({"amount": -1}, {"amount": "min_value"}),
    ({"amount": -(2**63)}, {"amount": "min_value"}),
    ({"amount": MAX_AMOUNT + 1}, {"amount": "max_value"}),
    ({"amount": 2**63 - 1}, {"amount": "max_value"}),
    ({"amount": 2**63}, {"amount": "max_value"}),
    ({"amount": 2**64 - 1}, {"amount": "max_value"}),
    ({"amount": 10**30}, {"amount": "max_value"}),
    ({"amount": 1.0}, {"amount": "invalid"}),
    ({"amount": 1e2}, {"amount": "invalid"}),
    ({"amount": "100"}, {"amount": "invalid"}),
    ({"amount": "1_000"}, {"amount": "invalid"}),
    ({"amount": "１００"}, {"amount": "invalid"}),
    ({"amount": "sNaN"}, {"amount": "invalid"}),
    ({"amount": True}, {"amount": "invalid"}),
    ({"amount": None}, {"amount": "null"}),
    ({"amount": [1]}, {"amount": "invalid"}),
    ({"amount": {"value": 1}}, {"amount": "invalid"}),
    ({"fromAccountId": "1001"}, {"fromAccountId": "invalid"}),
    ({"fromAccountId": 0}, {"fromAccountId": "min_value"}),
    ({"toAccountId": -5}, {"toAccountId": "min_value"}),
    ({"toAccountId": 2**63}, {"toAccountId": "max_value"}),
    ({"toAccountId": 1.5}, {"toAccountId": "invalid"}),
    ({"reference": "x" * 141}, {"reference": "max_length"}),
    ({"reference": 5}, {"reference": "invalid"}),
    ({"reference": ["x"]}, {"reference": "invalid"}),
    ({"metadata": []}, {"metadata": "invalid"}),
    ({"metadata": "{}"}, {"metadata": "invalid"}),
    ({"metadata": {"a": "x" * 4090}}, {"metadata": "max_length"}),
    ({"metadata": {"1": {"2": {"3": {"4": {"5": {}}}}}}}, {"metadata": "max_depth"}),
    ({"metadata": {"1": [[[[[]]]]]}}, {"metadata": "max_depth"}),
    ({"currency": "VND"}, {"currency": "unknown"}),
    ({"Amount": 5, "from": 1}, {"Amount": "unknown", "from": "unknown"}),
    ({"amount": "1", "reference": 1, "hold": True}, {"amount": "invalid", "reference": "invalid", "hold": "unknown"}),
]


def test_faulty_fields_are_named(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    before = snapshot()
    for faulty, expected in FAULTY:
        answer = phone.post("/v1/transfers", {**transfer_body(payer, payee, 1), **faulty})
        assert faults(problem(answer, status=400, code="invalid_request")) == expected, faulty
    answer = phone.post("/v1/transfers", {})
    assert set(faults(problem(answer, status=400, code="invalid_request")).values()) == {"required"}
    assert snapshot() == before


def test_thousands_of_unknown_fields_are_not_echoed(phones: Phones, world: World) -> None:
    body = {f"{number}{'x' * 100}": 1 for number in range(5_000)}
    answer = phones.of(world.person("payer")).post("/v1/transfers", body)
    assert len(problem(answer, status=400, code="invalid_request")["errors"]) == 20
    assert len(answer.content) < 10_000


def test_the_widest_fields_pass_and_come_back_as_they_were_sent(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=MAX_AMOUNT), world.person("payee")
    reference = "  “ăn trưa” 🍜\n\t" + "ơ" * 123 + "  "
    assert len(reference) == 140
    metadata = {"đơn": {"2": {"3": {"4": {"5": None}}}}, "số": [1, -2.5, True], "x": "y" * 4_000}
    answer = phones.of(payer).pay(payer, payee, MAX_AMOUNT, reference=reference, metadata=metadata)
    assert answer.status_code == 201
    shown = phones.of(payer).get(f"/v1/transfers/{answer.json()['transactionId']}").json()
    assert (shown["amount"], shown["reference"], shown["metadata"]) == (MAX_AMOUNT, reference, metadata)
    assert payee.balance == MAX_AMOUNT


# --- What is shown ---------------------------------------------------------------------------------------------------


def test_both_sides_see_a_transfer_and_nobody_else(phones: Phones, world: World) -> None:
    payer, payee, other = world.person("payer", balance=1_000), world.person("payee"), world.person("other")
    posted = phones.of(payer).pay(payer, payee, 300, reference="lunch", metadata={"table": 7}).json()
    path = f"/v1/transfers/{posted['transactionId']}"
    answer = phones.of(payer).get(path)
    assert answer.json() == {
        **posted,
        "type": "TRANSFER",
        "amount": 300,
        "currency": "VND",
        "fromAccountId": payer.account_id,
        "toAccountId": payee.account_id,
        "reference": "lunch",
        "metadata": {"table": 7},
        "createdAt": answer.json()["createdAt"],
        "reversesTransactionId": None,
        "reversalTransactionIds": [],
        "reversedAmount": 0,
    }
    assert phones.of(payee).get(path).json() == answer.json()
    assert phones.of(payee).get(path.upper().replace("/V1/TRANSFERS", "/v1/transfers")).json() == answer.json()
    problem(phones.of(other).get(path), status=404, code="not_found")
    for not_there in (str(uuid4()), "1", "x" * 36, posted["transactionId"] + "0", "%00"):
        problem(phones.of(payer).get(f"/v1/transfers/{not_there}"), status=404, code="not_found")


def test_the_outside_and_absent_fields_are_null(phones: Phones, world: World) -> None:
    payee = world.person("payee")
    deposit = fund(account_id=payee.account_id, amount=500, key="deposit")
    shown = phones.of(payee).get(f"/v1/transfers/{deposit.transaction_id}").json()
    assert (shown["type"], shown["amount"], shown["fromAccountId"], shown["toAccountId"]) == (
        *("DEPOSIT", 500),
        *(None, payee.account_id),
    )
    assert (shown["reference"], shown["metadata"]) == (None, None)


def test_a_reversal_and_its_original_name_each_other(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    original = world.pay(payer, payee, 300).transaction_id
    staff = world.person("staff").caller
    reversals = [
        str(reverse(caller=staff, key=key, transaction_id=original, reason="wrong", amount=100).transaction_id)
        for key in ("undo", "undo more")
    ]
    phone = phones.of(payer)
    shown = phone.get(f"/v1/transfers/{original}").json()
    assert (shown["reversalTransactionIds"], shown["reversedAmount"]) == (reversals, 200)
    shown = phone.get(f"/v1/transfers/{reversals[0]}").json()
    assert (shown["type"], shown["amount"], shown["reversesTransactionId"]) == ("REVERSAL", 100, str(original))
    assert (shown["fromAccountId"], shown["toAccountId"]) == (payee.account_id, payer.account_id)
    assert (shown["reversalTransactionIds"], shown["reversedAmount"], shown["reference"]) == ([], 0, "wrong")


# --- Prefer: return=representation -----------------------------------------------------------------------------------


def preferring(phone: Phone, payer: Person, payee: Person, amount: int, *, key: str, prefer: str) -> httpx.Response:
    content = json.dumps(transfer_body(payer, payee, amount)).encode()
    return phone.send("/v1/transfers", content, headers={"Idempotency-Key": key, "Prefer": prefer})


def test_a_representation_is_the_whole_transfer_with_the_payers_balance_after_it(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    answer = preferring(phone, payer, payee, 300, key="K", prefer="return=representation")
    assert answer.status_code == 201
    assert answer.headers["preference-applied"] == "return=representation"
    shown = phone.get(f"/v1/transfers/{answer.json()['transactionId']}").json()
    assert answer.json() == {**shown, "balanceAfter": 700}

    # The very same for ever, whatever came later.
    phone.pay(payer, payee, 200)
    staff = world.person("staff").caller
    reverse(caller=staff, key="undo", transaction_id=UUID(shown["transactionId"]), reason="wrong", amount=50)
    again = preferring(phone, payer, payee, 300, key="K", prefer="return=representation")
    assert (again.status_code, again.content) == (201, answer.content)
    assert (again.headers["idempotent-replayed"], again.headers["preference-applied"]) == (
        *("true", "return=representation"),
    )
    assert payer.balance == 550
    # The preference is no part of the command.
    plain = phone.pay(payer, payee, 300, key="K")
    assert plain.json() == {"transactionId": shown["transactionId"], "status": "COMPLETED"}
    assert "preference-applied" not in plain.headers


def test_between_ones_own_wallets_the_balance_is_the_paying_ones(phones: Phones, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    other = Person(user=payer.user, account_id=world.wallet(payer.user, balance=5))
    phone = phones.of(payer)
    for source, target, left in ((payer, other, 700), (other, payer, 5)):
        answer = preferring(phone, source, target, 300, key=f"K{left}", prefer="return=representation")
        assert answer.json()["balanceAfter"] == left


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("return=representation", True),
        ("RETURN = representation ; foo=bar", True),
        ('return="representation"', True),
        ("respond-async, wait=10, return=representation", True),
        ("return=minimal", False),
        ("return=minimal, return=representation", False),
        ("return=Representation", False),
        ("return", False),
        ("", False),
        ("representation", False),
        (";;==,,=", False),
        ("x" * 5_000, False),
    ],
)
def test_preferences(phones: Phones, world: World, prefer: str, applied: bool) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    answer = preferring(phones.of(payer), payer, payee, 1, key="K", prefer=prefer)
    assert answer.status_code == 201
    assert ("preference-applied" in answer.headers, "balanceAfter" in answer.json()) == (applied, applied)


def test_a_refused_transfer_is_refused_whatever_is_preferred(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer"), world.person("payee")
    answer = preferring(phones.of(payer), payer, payee, 1, key="K", prefer="return=representation")
    problem(answer, status=422, code="insufficient_funds")
    assert "preference-applied" not in answer.headers
