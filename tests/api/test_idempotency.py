"""Keys: what is the same command, whose key it is, which answers are final, and what a key may look like."""

import json
import random
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from accounts.services import thaw
from ledger.commands import fingerprint_of
from ledger.models import JournalTransaction
from tests.api.past import Past
from tests.api.phone import Phone, Phones, problem, transfer_body
from tests.api.test_transfers import frozen
from tests.world import World
from transfers.services import fund
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def is_replay(answer: httpx.Response, of: httpx.Response) -> bool:
    same = (answer.status_code, answer.content) == (of.status_code, of.content)
    return same and answer.headers.get("idempotent-replayed") == "true"


# --- The same command, and others ------------------------------------------------------------------------------------


def test_a_key_with_another_command_is_refused(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee, other = world.person("payer", balance=1_000), world.person("payee"), world.person("other")
    phone = phones.of(payer)
    full: dict[str, Any] = {"reference": "lunch", "metadata": {"table": 7}}
    first = phone.pay(payer, payee, 100, key="K", **full)
    before = snapshot()
    for change in (
        {"amount": 200},
        {"toAccountId": other.account_id},
        {"fromAccountId": world.wallet(payer.user, balance=500)},
        {"reference": "Lunch"},
        {"reference": None},
        {"metadata": {"table": 8}},
        {"metadata": {"table": "7"}},
        {"metadata": {"table": 7.0}},
        {"metadata": {"table": 7, "x": None}},
        {"metadata": None},
    ):
        if "fromAccountId" in change:
            before = snapshot()
        answer = phone.post("/v1/transfers", {**transfer_body(payer, payee, 100, **full), **change}, key="K")
        problem(answer, status=422, code="idempotency_key_reused")
    problem(phone.post("/v1/accounts", {"currency": "VND"}, key="K"), status=422, code="idempotency_key_reused")
    assert is_replay(phone.pay(payer, payee, 100, key="K", **full), first)
    assert snapshot() == before


def test_how_a_command_is_written_makes_no_other_command(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    body = transfer_body(payer, payee, 100, reference="phở", metadata={"a": 1, "b": [2, {"c": None, "d": "đ"}]})
    first = phone.post("/v1/transfers", body, key="K")
    before = snapshot()
    backwards = {
        "metadata": {"b": [2, {"d": "đ", "c": None}], "a": 1},
        **{name: body[name] for name in ("reference", "amount", "toAccountId", "fromAccountId")},
    }
    for text in (
        json.dumps(backwards),
        json.dumps(body, indent=4, ensure_ascii=True),
        json.dumps(body, ensure_ascii=False),
        json.dumps(body).replace("amount", "\\u0061mount"),
    ):
        assert is_replay(phone.send("/v1/transfers", text.encode(), headers={"Idempotency-Key": "K"}), first)

    short = phone.pay(payer, payee, 1, key="L")
    assert is_replay(phone.pay(payer, payee, 1, key="L", reference=None, metadata=None), short)
    assert before["journal_transaction"] + 1 == snapshot()["journal_transaction"]


def test_an_account_is_opened_once_per_key(phones: Phones, world: World, snapshot: Snapshot) -> None:
    phone = phones.of(world.person("an"))
    first = phone.post("/v1/accounts", {"currency": "USD", "name": "Tiết kiệm"}, key="K")
    assert first.status_code == 201
    fund(account_id=first.json()["accountId"], amount=500, key="interest")
    before = snapshot()
    assert is_replay(phone.post("/v1/accounts", {"name": "Tiết kiệm", "currency": "USD"}, key="K"), first)
    for change in ({"currency": "VND"}, {"name": "tiết kiệm"}, {"name": None}):
        answer = phone.post("/v1/accounts", {"currency": "USD", "name": "Tiết kiệm", **change}, key="K")
        problem(answer, status=422, code="idempotency_key_reused")
    transfer = {"fromAccountId": first.json()["accountId"], "toAccountId": 1, "amount": 1}
    problem(phone.post("/v1/transfers", transfer, key="K"), status=422, code="idempotency_key_reused")
    assert snapshot() == before


# --- Whose key -------------------------------------------------------------------------------------------------------


def test_keys_of_others_do_not_matter(phones: Phones, world: World) -> None:
    an, binh = world.person("an", balance=1_000), world.person("binh", balance=1_000)
    assert phones.of(binh).pay(binh, an, 100, key="order-1").status_code == 201
    problem(phones.of(an).get("/v1/operations", idempotencyKey="order-1"), status=404, code="not_found")
    mine = phones.of(an).pay(an, binh, 300, key="order-1")
    assert mine.status_code == 201
    assert "idempotent-replayed" not in mine.headers
    assert phones.of(an).get("/v1/operations", idempotencyKey="order-1").json()["body"] == mine.json()
    assert (an.balance, binh.balance) == (800, 1_200)


# --- Which answers are final -----------------------------------------------------------------------------------------


def test_a_refused_command_has_not_used_its_key(phones: Phones, world: World, snapshot: Snapshot) -> None:
    """The table of docs/errors.md: success is final, failure is not."""
    payer, payee = world.person("payer"), world.person("payee")
    phone = phones.of(payer)
    before = snapshot()
    answer = phone.send("/v1/transfers", b'{"amount": 1', headers={"Idempotency-Key": "K"})
    problem(answer, status=400, code="invalid_json")
    problem(phone.pay(payer, payee, 0, key="K"), status=400, code="invalid_request")
    elsewhere = {"fromAccountId": payer.account_id, "toAccountId": 2**62, "amount": 100}
    problem(phone.post("/v1/transfers", elsewhere, key="K"), status=404, code="not_found")
    problem(phones.with_token("x.y.z").pay(payer, payee, 100, key="K"), status=401, code="token_invalid")
    problem(phone.pay(payer, payee, 100, key="K"), status=422, code="insufficient_funds")
    problem(phone.get("/v1/operations", idempotencyKey="K"), status=404, code="not_found")
    assert snapshot() == before

    fund(account_id=payer.account_id, amount=100, key="top-up")
    first = phone.pay(payer, payee, 100, key="K")
    assert first.status_code == 201
    assert is_replay(phone.pay(payer, payee, 100, key="K"), first)
    assert (payer.balance, payee.balance) == (0, 100)


def test_frozen_and_full_accounts_pass_later_with_the_same_key(phones: Phones, world: World) -> None:
    payer, payee = frozen(world.person("payer", balance=10)), world.person("payee", balance=MAX_AMOUNT)
    phone = phones.of(payer)
    problem(phone.pay(payer, payee, 10, key="K"), status=422, code="account_frozen")
    thaw(account_id=payer.account_id, reason="test", staff_id=payer.user.pk)
    problem(phone.pay(payer, payee, 10, key="K"), status=422, code="balance_limit_exceeded")
    world.pay(payee, world.person("other"), 10)
    assert phone.pay(payer, payee, 10, key="K").status_code == 201


def test_a_replay_needs_no_money_and_no_open_account(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    first = phones.of(payer).pay(payer, payee, 10, key="K")
    frozen(payer)
    assert is_replay(phones.of(payer).pay(payer, payee, 10, key="K"), first)


def test_a_lock_not_had_in_time_is_a_503_and_the_key_runs_anew(
    phones: Phones, world: World, snapshot: Snapshot, connect: Callable[[str], psycopg.Connection[Any]]
) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    phone = phones.of(payer)
    before = snapshot()
    other = connect("superuser")
    other.execute("SELECT FROM account WHERE id = %s FOR UPDATE", [payer.account_id])
    body = problem(phone.pay(payer, payee, 10, key="K"), status=503, code="unavailable")
    assert body["retry"] == "same_key"
    other.rollback()
    assert snapshot() == before
    assert phone.pay(payer, payee, 10, key="K").status_code == 201


def test_a_fault_at_commit_is_no_success(
    phones: Phones, world: World, snapshot: Snapshot, superuser: psycopg.Connection[Any]
) -> None:
    """The answer is built after the transaction, so what COMMIT refuses is never told as a success."""
    payer, payee = world.person("payer", balance=10), world.person("payee")
    phone = phones.of(payer)
    before = snapshot()
    superuser.execute("""
        CREATE FUNCTION fail_at_commit() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '23514', CONSTRAINT = 'injected'; END $$;
        CREATE CONSTRAINT TRIGGER fail_at_commit AFTER INSERT ON journal_transaction
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.reference = 'marked') EXECUTE FUNCTION fail_at_commit()
    """)
    try:
        answer = phone.pay(payer, payee, 10, key="K", reference="marked")
        body = problem(answer, status=500, code="internal_error")
        assert body["retry"] == "same_key"
        assert "injected" not in answer.text
        assert snapshot() == before
    finally:
        superuser.execute("DROP TRIGGER fail_at_commit ON journal_transaction; DROP FUNCTION fail_at_commit()")
    first = phone.pay(payer, payee, 10, key="K", reference="marked")
    assert first.status_code == 201
    assert is_replay(phone.pay(payer, payee, 10, key="K", reference="marked"), first)


def test_a_client_that_gives_up_and_tries_again_pays_once(
    phones: Phones, world: World, connect: Callable[[str], psycopg.Connection[Any]]
) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    phone = phones.of(payer)
    other = connect("superuser")
    other.execute("SELECT FROM account WHERE id = %s FOR UPDATE", [payer.account_id])
    impatient = httpx.Client(base_url=phone.http.base_url, timeout=0.2)
    for _ in range(3):
        with pytest.raises(httpx.TimeoutException):
            Phone(http=impatient, token=phone.token).pay(payer, payee, 10, key="K")
    impatient.close()
    other.rollback()
    assert phone.pay(payer, payee, 10, key="K").status_code == 201
    assert JournalTransaction.objects.filter(idempotency_key="K").count() == 1
    assert payer.balance == 90


def test_a_key_of_last_year_is_replayed(phones: Phones, world: World, past: Past) -> None:
    payer, payee = world.person("payer"), world.person("payee")
    a_year_ago = datetime.now(UTC) - timedelta(days=366)
    body = transfer_body(payer, payee, 100)
    past.funded(payer, 1_000, at=a_year_ago)
    transaction_id = past.paid(payer, payee, 100, at=a_year_ago, key="K", fingerprint=fingerprint_of("transfer", body))
    answer = phones.of(payer).post("/v1/transfers", body, key="K")
    assert (answer.status_code, answer.headers.get("idempotent-replayed")) == (201, "true")
    assert answer.json() == {"transactionId": str(transaction_id), "status": "COMPLETED"}
    problem(phones.of(payer).pay(payer, payee, 99, key="K"), status=422, code="idempotency_key_reused")
    assert payer.balance == 900


# --- What a key may look like ----------------------------------------------------------------------------------------


def test_keys_that_are_none(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    phone = phones.of(payer)
    body = json.dumps(transfer_body(payer, payee, 1)).encode()
    letters = random.Random(1)
    before = snapshot()
    for length in (65, 255, 256, 2700, 8000):
        for key in ("a" * length, "".join(letters.choices(string.ascii_letters, k=length))):
            answer = phone.send("/v1/transfers", body, headers={"Idempotency-Key": key})
            problem(answer, status=400, code="idempotency_key_invalid")
    for key in ("", "  ", "K%20", "a b", "a\tb", "a,b", "é", "a;b", '"a"', "a\\b", "{a}"):
        answer = phone.raw("/v1/transfers", body, headers={"Idempotency-Key": key})
        problem(answer, status=400, code="idempotency_key_invalid")
    assert snapshot() == before


def test_a_command_without_a_key(phones: Phones, world: World, snapshot: Snapshot) -> None:
    person = world.person("payer", balance=10)
    before = snapshot()
    for path in ("/v1/transfers", "/v1/accounts"):
        credentials = {"Authorization": f"Bearer {phones.of(person).token}"}
        answer = phones.http.post(path, json={"nonsense": True}, headers=credentials)
        problem(answer, status=400, code="idempotency_key_missing")
    assert snapshot() == before


def test_a_key_sent_twice_is_no_key(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    phone = phones.of(payer)
    body = json.dumps(transfer_body(payer, payee, 1)).encode()
    before = snapshot()
    for second in ("K", "L"):
        twice = [("Idempotency-Key", "K"), ("Idempotency-Key", second)]
        problem(phone.send("/v1/transfers", body, headers=twice), status=400, code="idempotency_key_invalid")
    assert snapshot() == before
    assert phone.send("/v1/transfers", body, headers={"Idempotency-Key": "K"}).status_code == 201
    assert payer.balance == 9


def test_blanks_around_a_key_do_not_count_and_case_does(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    phone = phones.of(payer)
    longest = "A-Z._~:+/=@-" + "0" * 52
    body = json.dumps(transfer_body(payer, payee, 1)).encode()
    first = phone.send("/v1/transfers", body, headers={"Idempotency-Key": longest})
    assert first.status_code == 201
    for written in (f" {longest}", f"{longest} ", f"\t {longest}\t"):
        assert is_replay(phone.raw("/v1/transfers", body, headers={"Idempotency-Key": written}), first)
    other = phone.send("/v1/transfers", body, headers={"Idempotency-Key": longest.lower()})
    assert "idempotent-replayed" not in other.headers
    keys = JournalTransaction.objects.filter(initiator=payer.user).values_list("idempotency_key", flat=True)
    assert set(keys) == {longest, longest.lower()}


def test_operations_ask_for_a_key(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    problem(phone.get("/v1/operations"), status=400, code="invalid_request")
    for key in ("", "a b", "a" * 65, "\0"):
        problem(phone.get("/v1/operations", idempotencyKey=key), status=400, code="invalid_request")
    problem(phone.get("/v1/operations", idempotencyKey="a", limit=5), status=400, code="invalid_request")
    problem(phone.get("/v1/operations", idempotencyKey="never-used"), status=404, code="not_found")
