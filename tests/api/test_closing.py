"""`POST /v1/accounts/{id}/close`: for ever, when empty."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.phone import Phones, faults, problem
from tests.api.test_transfers import frozen
from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def test_an_empty_wallet_is_closed_and_stays_so(phones: Phones, world: World, snapshot: Snapshot) -> None:
    an, binh = world.person("an"), world.person("binh", balance=10)
    phone, path = phones.of(an), f"/v1/accounts/{an.account_id}"
    answer = phone.post(f"{path}/close", {}, key="K")
    assert (answer.status_code, answer.json()["status"]) == (200, "CLOSED")
    assert answer.json() == phone.get(path).json()
    before = snapshot()
    again = phone.post(f"{path}/close", {}, key="K")
    assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (200, answer.content, "true")
    refusal = problem(phone.post(f"{path}/close", {}), status=409, code="illegal_state")
    assert "CLOSED" in refusal["detail"]
    problem(phones.of(binh).pay(binh, an, 5), status=422, code="account_closed")
    assert phone.get("/v1/operations", idempotencyKey="K").json() == {"status": 200, "body": answer.json()}
    assert snapshot() == before


def test_the_body_may_be_left_out(phones: Phones, world: World) -> None:
    an = world.person("an")
    phone = phones.of(an)
    ids = [world.wallet(an.user) for _ in range(3)]
    for id_, content, type_ in zip(ids, (b"", b"{}", b""), ("application/json", "application/json", ""), strict=True):
        answer = phone.send(f"/v1/accounts/{id_}/close", content, headers={"Content-Type": type_})
        assert answer.status_code == 200
    path = f"/v1/accounts/{an.account_id}/close"
    answer = phone.post(path, {"force": True})
    assert faults(problem(answer, status=400, code="invalid_request")) == {"force": "unknown"}
    for content in (b"[]", b"null", b"{", b" "):
        problem(phone.send(path, content), status=400, code="invalid_json")
    problem(phone.send(path, b"{}", headers={"Content-Type": "text/plain"}), status=415, code="unsupported_media_type")


def test_what_cannot_be_closed(phones: Phones, world: World, snapshot: Snapshot) -> None:
    rich, icy = world.person("rich", balance=1), frozen(world.person("icy"))
    before = snapshot()
    for person, word in ((rich, "holds 1"), (icy, "FROZEN")):
        answer = phones.of(person).post(f"/v1/accounts/{person.account_id}/close", {})
        assert word in problem(answer, status=409, code="illegal_state")["detail"]
    for id_ in (rich.account_id, 2**62, "x"):
        problem(phones.of(icy).post(f"/v1/accounts/{id_}/close", {}), status=404, code="not_found")
    assert snapshot() == before


def test_a_key_belongs_to_one_wallet(phones: Phones, world: World, snapshot: Snapshot) -> None:
    an = world.person("an")
    other = world.wallet(an.user)
    phone = phones.of(an)
    assert phone.post(f"/v1/accounts/{an.account_id}/close", {}, key="K").status_code == 200
    before = snapshot()
    answer = phone.post(f"/v1/accounts/{other}/close", {}, key="K")
    problem(answer, status=422, code="idempotency_key_reused")
    problem(phone.post("/v1/accounts", {"currency": "VND"}, key="K"), status=422, code="idempotency_key_reused")
    assert snapshot() == before
