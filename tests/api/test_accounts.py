"""Wallets and their balances."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from ledger.selectors import draw_system_shard
from tests.api.past import Past
from tests.api.phone import Phone, Phones, faults, problem
from tests.api.test_transfers import closed, frozen
from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def balance(phone: Phone, account_id: int, **params: Any) -> dict[str, Any]:
    answer = phone.get(f"/v1/accounts/{account_id}/balance", **params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


# --- Opening ---------------------------------------------------------------------------------------------------------


def test_a_user_opens_as_many_wallets_as_they_like(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    for currency in ("VND", "VND", "USD", "EUR", "JPY", "KWD"):
        assert phone.post("/v1/accounts", {"currency": currency}).status_code == 201
    answer = phone.post("/v1/accounts", {"currency": "VND", "name": None})
    assert answer.json()["name"] is None
    assert phone.post("/v1/accounts", {"currency": "VND", "name": "ơ" * 100}).json()["name"] == "ơ" * 100


def test_faulty_fields_of_a_wallet_are_named(phones: Phones, world: World, snapshot: Snapshot) -> None:
    phone = phones.of(world.person("an"))
    before = snapshot()
    faulty: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({}, {"currency": "required"}),
        ({"currency": None}, {"currency": "null"}),
        ({"currency": ""}, {"currency": "blank"}),
        ({"currency": "XXX"}, {"currency": "invalid_choice"}),
        ({"currency": "vnd"}, {"currency": "invalid_choice"}),
        ({"currency": " VND"}, {"currency": "invalid_choice"}),
        ({"currency": 704}, {"currency": "invalid"}),
        ({"currency": ["VND"]}, {"currency": "invalid"}),
        ({"currency": "VND", "name": "x" * 101}, {"name": "max_length"}),
        ({"currency": "VND", "name": 5}, {"name": "invalid"}),
        ({"currency": "VND", "balance": 5, "ownerId": 1}, {"balance": "unknown", "ownerId": "unknown"}),
        ({"currency": "VND", "allowNegative": True, "kind": "HOLD"}, {"allowNegative": "unknown", "kind": "unknown"}),
    ]
    for body, expected in faulty:
        answer = phone.post("/v1/accounts", body)
        assert faults(problem(answer, status=400, code="invalid_request")) == expected, body
    assert snapshot() == before


# --- Looking ---------------------------------------------------------------------------------------------------------


def test_the_status_and_what_can_be_spent(phones: Phones, world: World) -> None:
    an = world.person("an", balance=500)
    phone = phones.of(an)
    path = f"/v1/accounts/{an.account_id}"

    def shown() -> list[Any]:
        body = phone.get(path).json()
        figures = balance(phone, an.account_id)
        for name in ("balance", "heldBalance", "availableBalance"):
            assert figures[name] == body[name]
        return [body[name] for name in ("status", "balance", "heldBalance", "availableBalance")]

    assert shown() == ["ACTIVE", 500, 0, 500]
    frozen(an)
    assert shown() == ["FROZEN", 500, 0, 0]
    assert phone.get("/v1/accounts").json()["items"] == [phone.get(path).json()]
    binh = closed(world.person("binh"))
    assert phones.of(binh).get(f"/v1/accounts/{binh.account_id}").json()["status"] == "CLOSED"


def test_what_is_not_the_callers_is_not_there(phones: Phones, world: World) -> None:
    an, binh = world.person("an"), world.person("binh", balance=10)
    shard = draw_system_shard(kind=Account.Kind.BANK_CLEARING, currency="VND")
    ids = [
        *(str(id_) for id_ in (binh.account_id, shard, Account.objects.get(pk=shard).parent_id, 2**63 - 1)),
        *("0", "-1", str(2**63), "9" * 20, "9" * 5000, "1_0", "１", "٣", "0x10", "1.0", "+1", " 1", "%00", "1;--", "x"),
    ]
    for id_ in ids:
        for path in (f"/v1/accounts/{id_}", f"/v1/accounts/{id_}/balance", f"/v1/accounts/{id_}/entries"):
            problem(phones.of(an).get(path), status=404, code="not_found")


def test_the_list_of_wallets_page_by_page(phones: Phones, world: World) -> None:
    an, binh = world.person("an"), world.person("binh")
    ids = [an.account_id, *(world.wallet(an.user) for _ in range(6))]
    phone = phones.of(an)
    seen: list[int] = []
    page = phone.get("/v1/accounts", limit=3).json()
    while True:
        seen += [item["accountId"] for item in page["items"]]
        world.wallet(an.user)  # One more, which must not shift the rest.
        if page["nextCursor"] is None:
            break
        page = phone.get("/v1/accounts", limit=3, cursor=page["nextCursor"]).json()
    assert seen == sorted(ids, reverse=True)
    assert [item["accountId"] for item in phones.of(binh).get("/v1/accounts").json()["items"]] == [binh.account_id]
    exact = phone.get("/v1/accounts", limit=len(ids) + 3).json()
    assert (len(exact["items"]), exact["nextCursor"]) == (len(ids) + 3, None)


def test_faulty_queries_of_a_list_are_named(phones: Phones, world: World) -> None:
    an = world.person("an")
    phone = phones.of(an)
    for path in ("/v1/accounts", f"/v1/accounts/{an.account_id}/entries"):
        for limit in ("0", "-1", "201", "1000000000", "", "x", "1_0", "１０", "٣", "1.5", "0x10", "1e1", " 5", "%00"):
            answer = phone.http.get(path, params={"limit": limit}, headers=phone.credentials)
            assert faults(problem(answer, status=400, code="invalid_request")) == {"limit": "invalid"}, limit
        answer = phone.get(path, offset=5, page_size=10**9)
        assert faults(problem(answer, status=400, code="invalid_request")) == {
            "offset": "unknown",
            "page_size": "unknown",
        }
        answer = phone.get(f"{path}?limit=5&limit=6")
        assert faults(problem(answer, status=400, code="invalid_request")) == {"limit": "repeated"}
        problem(phone.get(f"{path}?cursor=%ff"), status=400, code="invalid_request")


def test_cursors_that_the_list_has_not_issued(phones: Phones, world: World) -> None:
    an = world.person("an", balance=10)
    other = world.wallet(an.user, balance=10)
    for number in range(3):
        world.pay(an, world.person(f"payee {number}"), 1)
    phone = phones.of(an)
    accounts = phone.get("/v1/accounts", limit=1).json()["nextCursor"]
    entries = phone.get(f"/v1/accounts/{an.account_id}/entries", limit=1).json()["nextCursor"]
    assert accounts
    assert entries
    for path, cursors in {
        "/v1/accounts": [entries],
        f"/v1/accounts/{an.account_id}/entries": [accounts],
        f"/v1/accounts/{other}/entries": [entries],
    }.items():
        for cursor in (*cursors, "", "x", "null", "0", "5", "=", "é", "\0", accounts + "=", f" {accounts}", "A" * 3000):
            problem(phone.get(path, cursor=cursor), status=400, code="invalid_cursor")


# --- Balances --------------------------------------------------------------------------------------------------------


def test_the_balance_as_it_stood_at_a_moment(phones: Phones, world: World, past: Past) -> None:
    an, binh = world.person("an"), world.person("binh")
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=400)
    hour, instant = timedelta(hours=1), timedelta(microseconds=1)
    past.funded(an, 1_000, at=noon)
    past.paid(an, binh, 300, at=noon + hour)
    past.paid(an, binh, 50, at=noon + hour)
    world.pay(an, binh, 1)
    phone = phones.of(an)

    def at(moment: datetime) -> int:
        text = moment.isoformat().replace("+00:00", "Z")
        body = balance(phone, an.account_id, at=text)
        assert body == {
            "accountId": an.account_id,
            "currency": "VND",
            "balance": body["balance"],
            "heldBalance": None,
            "availableBalance": None,
            "at": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
        return int(body["balance"])

    assert at(noon - instant) == 0
    assert at(noon) == 1_000
    assert at(noon + hour - instant) == 1_000
    assert at(noon + hour) == 650
    assert at(datetime.now(UTC) - timedelta(days=1)) == 650
    now = balance(phone, an.account_id)
    assert (now["balance"], now["heldBalance"], now["availableBalance"]) == (649, 0, 649)
    assert at(datetime.fromisoformat(now["at"])) == 649
    local = noon.astimezone(tz=None).isoformat()
    assert balance(phone, an.account_id, at=local)["balance"] == 1_000


def test_moments_that_are_none_or_have_not_come(phones: Phones, world: World) -> None:
    an = world.person("an")
    phone = phones.of(an)
    path = f"/v1/accounts/{an.account_id}/balance"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    for at in (tomorrow, "9999-12-31T23:59:59Z"):
        assert faults(problem(phone.get(path, at=at), status=400, code="invalid_request")) == {"at": "future"}
    for at in (
        *("", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-13-01T00:00:00Z"),
        *("2026-01-01T00:00:00+07", "2026-01-01T00:00Z", "20260101T000000Z", "2026-W01-1T00:00:00Z", "1767225600"),
        *("2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "2026-02-30T00:00:00Z", "２０２６-01-01T00:00:00Z"),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "2026-01-01T00:00:00,5Z"),
        *("2026-01-01T00:00:00+99:00", "-2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z\0", "2026-01-01T00:00:00 07:00"),
    ):
        assert faults(problem(phone.get(path, at=at), status=400, code="invalid_request")) == {"at": "invalid"}, at
    assert faults(problem(phone.get(path, when=1), status=400, code="invalid_request")) == {"when": "unknown"}
