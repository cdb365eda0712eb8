"""`GET /v1/payees`: whom to pay, and nothing more about them."""

from typing import Any

import pytest

from accounts.models import User
from tests.api.phone import Phones, faults, problem
from tests.api.test_transfers import closed, frozen
from tests.world import Person, World

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_first_open_wallet_in_a_currency(phones: Phones, world: World) -> None:
    an, binh = world.person("an", balance=10), world.person("binh")
    second = Person(user=binh.user, account_id=world.wallet(binh.user))
    dollars = world.wallet(binh.user, currency="USD")
    phone = phones.of(an)

    def found(currency: str = "VND") -> int:
        answer = phone.get("/v1/payees", username="binh", currency=currency)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"accountId", "name"}
        assert answer.json()["name"] == "b••h"
        return int(answer.json()["accountId"])

    assert (found(), found("USD")) == (binh.account_id, dollars)
    frozen(binh)
    assert found() == binh.account_id  # It receives.
    closed(world.person("an"))
    assert phone.pay(an, binh, 1).status_code == 201
    assert phone.get("/v1/payees", username="an", currency="VND").json()["accountId"] == an.account_id
    closed(second)
    assert found() == binh.account_id


def test_a_closed_wallet_is_passed_over(phones: Phones, world: World) -> None:
    binh = closed(world.person("binh"))
    phone = phones.of(world.person("an"))
    problem(phone.get("/v1/payees", username="binh", currency="VND"), status=404, code="not_found")
    second = world.wallet(binh.user)
    assert phone.get("/v1/payees", username="binh", currency="VND").json()["accountId"] == second


def test_who_is_not_there(phones: Phones, world: World) -> None:
    world.person("binh")
    gone = world.person("gone")
    User.objects.filter(pk=gone.user.pk).update(is_active=False)
    phone = phones.of(world.person("an"))
    for username, currency in [
        *(("nobody", "VND"), ("binh", "USD"), ("BINH", "VND"), ("bin", "VND"), (" binh", "VND"), ("binh%", "VND")),
        *(("system", "VND"), ("gone", "VND"), ("ｂｉｎｈ", "VND"), ("'; --", "VND")),
    ]:
        problem(phone.get("/v1/payees", username=username, currency=currency), status=404, code="not_found")


def test_faulty_look_ups(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    faulty: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({}, {"username": "required", "currency": "required"}),
        ({"username": "binh", "currency": "XXX"}, {"currency": "invalid_choice"}),
        ({"username": "binh", "currency": ""}, {"currency": "blank"}),
        ({"username": "", "currency": "VND"}, {"username": "blank"}),
        ({"username": "b" * 65, "currency": "VND"}, {"username": "max_length"}),
        ({"username": "binh\0", "currency": "VND"}, {"username": "null_characters_not_allowed"}),
        ({"username": "binh", "currency": "VND", "limit": "5"}, {"limit": "unknown"}),
    ]
    for query, expected in faulty:
        answer = phone.get("/v1/payees", **query)
        assert faults(problem(answer, status=400, code="invalid_request")) == expected


def test_names_are_masked_whatever_they_are(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    for name, masked in [("bo", "b••o"), ("bob", "b••b"), ("đặng.thị.ánh", "đ••h"), ("x" * 64, "x••x")]:
        world.person(name)
        assert phone.get("/v1/payees", username=name, currency="VND").json()["name"] == masked
