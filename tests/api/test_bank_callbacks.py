"""`POST /v1/bank/callbacks`: the bank's door, over real HTTP."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.conf import settings

from accounts.models import User
from tests.api.phone import Phones, access_token, at_once, problem
from tests.bank.sandbox import Sandbox
from tests.conftest import serving, wait_until
from tests.transfers.bank_kit import a_deposit, a_notice, a_withdrawal, history, state, work_off
from tests.world import World
from transfers.bank.signature import sign
from transfers.models import BankNotice, BankOrder

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]
PATH = "/v1/bank/callbacks"


def signed(body: bytes, *, age: int = 0, secret: str | None = None) -> dict[str, str]:
    timestamp = str(int(time.time()) - age)
    signature = sign(body, timestamp=timestamp, secret=secret or settings.BANK_WEBHOOK_SECRETS[0])
    return {"Content-Type": "application/json", "Bank-Timestamp": timestamp, "Bank-Signature": signature}


@pytest.fixture
def submitted(world: World, sandbox_bank: Sandbox) -> BankOrder:
    order = a_withdrawal(world.person("payer", balance=1_000), 400, destination="sandbox:wait")
    work_off()
    return order


@pytest.fixture(autouse=True)
def the_servers_secret(settings: Any, request: pytest.FixtureRequest) -> None:
    """The web server was started with the settings of all tests; the sandbox has a secret of its own."""
    secrets = list(settings.BANK_WEBHOOK_SECRETS)
    if "sandbox_bank" in request.fixturenames:
        request.getfixturevalue("sandbox_bank")
    settings.BANK_WEBHOOK_SECRETS = secrets


def test_a_notice_is_taken(phones: Phones, submitted: BankOrder) -> None:
    body = a_notice(submitted, "SETTLED")
    answer = phones.http.post(PATH, content=body, headers=signed(body))
    assert (answer.status_code, answer.json()) == (200, {"outcome": "APPLIED"})
    again = phones.http.post(PATH, content=body, headers=signed(body, age=100))
    assert (again.status_code, again.json()) == (200, {"outcome": "REPEATED"})
    assert history(submitted) == ["PENDING", "SUBMITTED", "COMPLETED"]


def test_twenty_at_once_are_all_answered_with_200(phones: Phones, submitted: BankOrder) -> None:
    """A loser that got 500 would be sent again for ever (TRIALS 57)."""
    body = a_notice(submitted, "REFUSED")
    answers = at_once([lambda: phones.http.post(PATH, content=body, headers=signed(body))] * 20)
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(answer.json()["outcome"] for answer in answers) == ["APPLIED"] + ["REPEATED"] * 19
    assert BankNotice.objects.count() == 1


def test_what_makes_no_sense_is_kept_and_answered_with_200(phones: Phones, submitted: BankOrder) -> None:
    for body, outcome in (
        (a_notice(None, "SETTLED"), "UNKNOWN_REFERENCE"),
        (a_notice(submitted, "SETTLED", amount=1), "MISMATCH"),
        (a_notice(submitted, "RETURNED", amount=401), "ILLEGAL_MOVE"),
        (a_notice(submitted, "RETURNED"), "WAITING"),
    ):
        answer = phones.http.post(PATH, content=body, headers=signed(body))
        assert (answer.status_code, answer.json()) == (200, {"outcome": outcome})
    assert (BankNotice.objects.count(), state(submitted)) == (4, "SUBMITTED")


def test_a_bad_signature_is_401(phones: Phones, submitted: BankOrder, snapshot: Snapshot) -> None:
    body = a_notice(submitted, "SETTLED")
    before = snapshot()
    good = signed(body)
    for headers in (
        {"Content-Type": "application/json"},
        signed(body + b" "),
        signed(body, secret="another"),
        signed(body, age=301),
        signed(body, age=-301),
        {**good, "Bank-Timestamp": str(int(good["Bank-Timestamp"]) + 1)},
        {**good, "Bank-Signature": good["Bank-Signature"].upper()},
        {**good, "Bank-Signature": good["Bank-Signature"].removeprefix("v1=")},
    ):
        answer = phones.http.post(PATH, content=body, headers=headers)
        problem(answer, status=401, code="signature_invalid")
    phone = phones.with_token(access_token(User.objects.get(pk=submitted.initiator_id)))
    problem(phone.send(PATH, body), status=401, code="signature_invalid")
    assert snapshot() == before


def test_what_is_signed_and_no_notice_is_400(phones: Phones, snapshot: Snapshot, world: World) -> None:
    before = snapshot()
    for body, code in (
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"a":1,"a":1}', "invalid_json"),
        (b"[" * 50 + b"]" * 50, "invalid_json"),
        (b"{}", "invalid_request"),
        (a_notice(None, "RETURNED", returnId=None), "invalid_request"),
        (a_notice(None, "SETTLED", amount=0), "invalid_request"),
        (a_notice(None, "NONSENSE"), "invalid_request"),
    ):
        problem(phones.http.post(PATH, content=body, headers=signed(body)), status=400, code=code)
    large = b" " * (2**20 + 1)
    problem(phones.http.post(PATH, content=large, headers=signed(large)), status=413, code="payload_too_large")
    plain = {**signed(b"{}"), "Content-Type": "text/plain"}
    problem(phones.http.post(PATH, content=b"{}", headers=plain), status=415, code="unsupported_media_type")
    problem(phones.http.get(PATH), status=405, code="method_not_allowed")
    assert snapshot() == before


def test_without_the_database_the_bank_is_to_try_again(submitted: BankOrder) -> None:
    body = a_notice(submitted, "SETTLED")
    with serving(DATABASE_URL="postgresql://nobody@127.0.0.1:9/none") as served:
        answer = httpx.post(f"{served.url}{PATH}", content=body, headers=signed(body), timeout=30)
        problem(answer, status=503, code="unavailable")
    assert state(submitted) == "SUBMITTED"


def test_the_sandbox_and_the_service_together(world: World, sandbox_bank: Sandbox) -> None:
    """Orders asked for, sent, and told of by the bank itself: early, twice, late, with returns, and lies."""
    an = world.person("an", balance=10_000)
    words = ["settle", "early", "twice=3", "late=1", "refuse", "return=40", "return-first", "refuse-after"]
    with serving(**sandbox_bank.environment) as served:
        sandbox_bank.send_notices_to(f"{served.url}{PATH}")
        paid = {each: a_withdrawal(an, 100, destination=f"sandbox:{each}") for each in words}
        got = {each: a_deposit(an, 100, reference=f"sandbox:{each}") for each in words}
        work_off()
        expected = {each: "FAILED" if each == "refuse" else "COMPLETED" for each in words}
        wait_until(lambda: {each: state(order) for each, order in paid.items()} == expected, seconds=30)
        wait_until(lambda: {each: state(order) for each, order in got.items()} == expected, seconds=30)
        sandbox_bank.wait_until_told()
        sandbox_bank.send_notices_to(None)
    for orders in (paid, got):
        returned = {each: BankOrder.objects.get(pk=order.pk).returned for each, order in orders.items()}
        assert returned == {**dict.fromkeys(words, 0), "return=40": 40, "return-first": 100}
    totals = sandbox_bank.totals()
    out, in_ = totals[("OUT", "VND")], totals[("IN", "VND")]
    assert an.balance == 10_000 - out["settled"] + out["returned"] + in_["settled"] - in_["returned"]
