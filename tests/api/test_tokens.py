"""Sign-up, sign-in, and who may still call: every call, at once."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest
from django.conf import settings

from accounts.models import User
from accounts.services import stamp_of
from accounts.tokens import AccessToken, RefreshToken
from tests.api.contract import operation_for
from tests.api.phone import (
    Call,
    Phone,
    Phones,
    access_token,
    at_once,
    faults,
    may_reverse,
    problem,
    transfer_body,
)
from tests.conftest import serving
from tests.transfers.bank_kit import a_deposit, a_withdrawal
from tests.world import PASSWORD, Person, World
from transfers.services import reserve
from wallet_project.openapi import document

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]


def sign_in(phones: Phones, person: Person) -> dict[str, str]:
    answer = phones.nobody.post("/v1/auth/token", {"username": person.user.username, "password": PASSWORD})
    assert answer.status_code == 200, answer.text
    tokens: dict[str, str] = answer.json()
    return tokens


def refresh(phones: Phones, token: str) -> Any:
    return phones.nobody.post("/v1/auth/token/refresh", {"refresh": token})


@dataclass(frozen=True, kw_only=True)
class Things:
    """What the calls are about: `empty` is a wallet to be closed, the holds are the payer's and name nobody."""

    transaction: object = field(default_factory=uuid4)
    empty: int = 1
    hold: object = field(default_factory=uuid4)
    other_hold: object = field(default_factory=uuid4)
    deposit: object = field(default_factory=uuid4)
    withdrawal: object = field(default_factory=uuid4)


def things_of(world: World, payer: Person, payee: Person) -> Things:
    def hold(key: str) -> object:
        return reserve(caller=payer.caller, key=key, account_id=payer.account_id, amount=1).body["holdId"]

    return Things(
        transaction=world.pay(payer, payee, 1).transaction_id,
        empty=world.wallet(payer.user),
        hold=hold("hold"),
        other_hold=hold("other-hold"),
        deposit=a_deposit(payer, 1).pk,
        withdrawal=a_withdrawal(payer, 1).pk,
    )


def all_calls(payer: Person, payee: Person, things: Things) -> list[Call]:
    """All calls that need a token, once."""
    return [
        Call("POST", "/v1/transfers", transfer_body(payer, payee, 1)),
        Call("POST", "/v1/accounts", {"currency": "VND"}),
        Call("GET", "/v1/accounts"),
        Call("GET", f"/v1/accounts/{payer.account_id}"),
        Call("GET", f"/v1/accounts/{payer.account_id}/balance"),
        Call("GET", f"/v1/accounts/{payer.account_id}/entries"),
        Call("GET", f"/v1/transfers/{things.transaction}"),
        Call("GET", "/v1/operations?idempotencyKey=used"),
        Call("POST", f"/v1/accounts/{things.empty}/close", {}),
        Call("GET", f"/v1/payees?username={payee.user.username}&currency=VND"),
        Call("POST", f"/v1/transactions/{things.transaction}/reversals", {"reason": "wrong"}),
        Call("POST", "/v1/holds", {"accountId": payer.account_id, "amount": 1}),
        Call("GET", "/v1/holds"),
        Call("GET", f"/v1/holds/{things.hold}"),
        Call("POST", f"/v1/holds/{things.hold}/capture", {"toAccountId": payee.account_id}),
        Call("POST", f"/v1/holds/{things.other_hold}/void", {}),
        Call("POST", "/v1/deposits", {"accountId": payer.account_id, "amount": 1}),
        Call("GET", f"/v1/deposits/{things.deposit}"),
        Call("POST", "/v1/withdrawals", {"accountId": payer.account_id, "amount": 1, "destination": "VCB 0071"}),
        Call("GET", f"/v1/withdrawals/{things.withdrawal}"),
        Call("GET", "/v1/notifications"),
    ]


def test_the_list_of_all_calls_is_complete(world: World) -> None:
    an = world.person("an")
    listed = {
        operation["operationId"]
        for call in all_calls(an, an, Things())
        if (operation := operation_for(call.method, call.path.partition("?")[0]))
    }
    documented = {
        operation["operationId"]
        for methods in document()["paths"].values()
        for operation in methods.values()
        if operation["security"]
    }
    assert listed == documented


# --- Sign-up ---------------------------------------------------------------------------------------------------------


def test_faulty_sign_ups_are_explained(phones: Phones, world: World, snapshot: Snapshot) -> None:
    world.person("taken")
    before = snapshot()
    faulty: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({}, {"username": "required", "password": "required"}),
        ({"username": "an"}, {"username": "min_length"}),
        ({"username": "x" * 65}, {"username": "max_length"}),
        ({"username": " an "}, {"username": "invalid"}),
        ({"username": "an an"}, {"username": "invalid"}),
        ({"username": "an\n"}, {"username": "invalid"}),
        ({"username": "ａｎｎ"}, {"username": "not_normalized"}),
        ({"username": 12345}, {"username": "invalid"}),
        ({"username": None}, {"username": "null"}),
        ({"username": ""}, {"username": "blank"}),
        ({"username": "taken"}, {"username": "taken"}),
        ({"username": "system"}, {"username": "taken"}),
        ({"password": "short"}, {"password": "too_weak"}),
        ({"password": "password1"}, {"password": "too_weak"}),
        ({"username": "nguyenvanan", "password": "nguyenvanan1"}, {"password": "too_weak"}),
        ({"password": "x" * 129}, {"password": "max_length"}),
        ({"password": 12345678}, {"password": "invalid"}),
        ({"is_staff": True, "isStaff": True}, {"is_staff": "unknown", "isStaff": "unknown"}),
    ]
    for change, expected in faulty:
        body = {} if not change else {"username": "someone", "password": PASSWORD, **change}
        answer = phones.nobody.post("/v1/users", body)
        assert faults(problem(answer, status=400, code="invalid_request")) == expected, change
    assert snapshot() == before


def test_one_name_is_given_once(phones: Phones, world: World) -> None:
    body = {"username": "wanted", "password": PASSWORD}
    answers = at_once([lambda: phones.nobody.post("/v1/users", body)] * 4)
    assert sorted(answer.status_code for answer in answers) == [201, 400, 400, 400]
    assert User.objects.filter(username="wanted").count() == 1


# --- Sign-in, refresh, logout ----------------------------------------------------------------------------------------


def test_wrong_names_and_passwords_are_one_answer(phones: Phones, world: World) -> None:
    name = f"an-{uuid4()}"
    disabled = world.person(f"disabled-{uuid4()}")
    User.objects.filter(pk=disabled.user.pk).update(is_active=False)
    world.person(name)
    details = set()
    for username, password in [
        (name, "wrong"),
        (f"nobody-{uuid4()}", PASSWORD),
        (disabled.user.username, PASSWORD),
        ("system", PASSWORD),
        (name.upper(), PASSWORD),
        (name, f" {PASSWORD}"),
    ]:
        answer = phones.nobody.post("/v1/auth/token", {"username": username, "password": password})
        details.add(problem(answer, status=401, code="not_authenticated")["detail"])
    assert len(details) == 1
    answer = phones.nobody.post("/v1/auth/token", {"username": name, "otp": None, "totp": "1"})
    assert faults(problem(answer, status=400, code="invalid_request")) == {"password": "required", "totp": "unknown"}


def test_guesses_at_one_name_are_slowed(phones: Phones, world: World) -> None:
    guess = {"username": f"an-{uuid4()}", "password": "wrong"}
    for _ in range(settings.FAILED_SIGN_INS_PER_NAME):
        problem(phones.nobody.post("/v1/auth/token", guess), status=401, code="not_authenticated")
    answer = phones.nobody.post("/v1/auth/token", guess)
    assert problem(answer, status=429, code="rate_limited")["retry"] == "same_key"
    assert 1 <= int(answer.headers["retry-after"]) <= 60


def test_a_refresh_token_works_once_and_brings_the_next(phones: Phones, world: World) -> None:
    an = world.person("an")
    first = sign_in(phones, an)
    second = refresh(phones, first["refresh"]).json()
    assert phones.with_token(second["access"]).get("/v1/accounts").status_code == 200
    third = refresh(phones, second["refresh"]).json()
    problem(refresh(phones, first["refresh"]), status=401, code="token_invalid")
    # Whoever sent the used one, the stay has ended.
    problem(refresh(phones, third["refresh"]), status=401, code="token_invalid")


def test_of_two_refreshes_at_once_one_gets_the_tokens(phones: Phones, world: World) -> None:
    token = sign_in(phones, world.person("an"))["refresh"]
    answers = at_once([lambda: refresh(phones, token)] * 5)
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401, 401]


def test_logout_kills_the_refresh_token(phones: Phones, world: World) -> None:
    tokens, other = (sign_in(phones, world.person("an")) for _ in range(2))
    answer = phones.nobody.post("/v1/auth/logout", {"refresh": tokens["refresh"]})
    assert (answer.status_code, answer.content) == (204, b"")
    problem(refresh(phones, tokens["refresh"]), status=401, code="token_invalid")
    assert phones.nobody.post("/v1/auth/logout", {"refresh": tokens["refresh"]}).status_code == 204
    assert refresh(phones, other["refresh"]).status_code == 200
    problem(phones.nobody.post("/v1/auth/logout", {"refresh": "x"}), status=401, code="token_invalid")


# --- Who may still call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["disabled", "password"])
def test_a_disabled_user_and_a_changed_password_are_refused_at_once_everywhere(
    phones: Phones, world: World, snapshot: Snapshot, change: str
) -> None:
    payer, payee = may_reverse(world.person("payer", balance=100)), world.person("payee")
    tokens = sign_in(phones, payer)
    phone = phones.with_token(tokens["access"])
    phone.pay(payer, payee, 1, key="used")
    opened = phone.post("/v1/accounts", {"currency": "USD"}, key="opened")
    calls = all_calls(payer, payee, things_of(world, payer, payee))
    assert {call.by(phone).status_code for call in calls} == {200, 201, 202}

    if change == "disabled":
        User.objects.filter(pk=payer.user.pk).update(is_active=False)
    else:
        payer.user.set_password("another-password-2")
        payer.user.save(update_fields=["password"])
    before = snapshot()
    for call in calls:
        problem(call.by(phone), status=401, code="token_invalid")
    problem(phone.pay(payer, payee, 1, key="used"), status=401, code="token_invalid")
    problem(phone.post("/v1/accounts", {"currency": "USD"}, key="opened"), status=401, code="token_invalid")
    # Nor does anybody learn about accounts or keys before that.
    problem(phone.pay(payer, payer, 1), status=401, code="token_invalid")
    problem(phone.pay(payee, payer, 1, key="used"), status=401, code="token_invalid")
    problem(refresh(phones, tokens["refresh"]), status=401, code="token_invalid")
    assert snapshot() == before
    assert opened.status_code == 201


def test_without_a_token(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    things = things_of(world, payer, payee)
    before = snapshot()
    for call in all_calls(payer, payee, things):
        answer = call.by(phones.nobody)
        assert problem(answer, status=401, code="not_authenticated")["retry"] == "same_key"
        assert answer.headers["www-authenticate"] == 'Bearer realm="wallet"'
    assert snapshot() == before


def with_header(phones: Phones, value: str) -> list[Any]:
    headers = {"Authorization": value}
    return [
        phones.nobody.get("/v1/accounts", headers=headers),
        phones.nobody.send("/v1/transfers", b"{}", headers=headers),
    ]


def test_other_schemes_are_no_credentials(phones: Phones) -> None:
    for value in ("Basic YW46YW4=", "x", "Token abc", "bearerx", "JWT a.b.c"):
        for answer in with_header(phones, value):
            problem(answer, status=401, code="not_authenticated")


def b64(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


# Signed with our key, but nothing that we issue.
ODD_CLAIMS: list[dict[str, Any]] = [
    {"user_id": "x"},
    {"user_id": None},
    {"user_id": []},
    {"user_id": "0"},
    {"user_id": "-1"},
    {"user_id": str(10**30)},
    {"exp": 10**20},
    {"exp": 10**30},
    {"stamp": None},
]


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_tokens_that_are_not_genuine(phones: Phones, world: World) -> None:
    user = world.person("an").user
    good = access_token(user)
    header, claims, signature = good.split(".")
    expired, refresh_token, unstamped, nobodys = AccessToken(), RefreshToken(), AccessToken(), AccessToken()
    for token in (expired, refresh_token, nobodys):
        token["user_id"], token["stamp"] = str(user.pk), stamp_of(user.password)
    expired.set_exp(lifetime=timedelta(seconds=-1))
    unstamped["user_id"] = str(user.pk)
    nobodys["user_id"] = str(2**62)
    decoded = jwt.decode(good, options={"verify_signature": False})
    forged = [
        *("", "x", "x.y.z", "..", "a.b.c.d", good[:-2], good + "x", f"{good} {good}", f"{header}.{claims}."),
        f"{header}.{b64({**decoded, 'user_id': '1'})}.{signature}",
        f"{b64({'alg': 'none', 'typ': 'JWT'})}.{claims}.",
        f"{b64({'alg': ['HS256'], 'typ': 'JWT'})}.{claims}.{signature}",
        f"{b64({'alg': {}, 'typ': 1, 'crit': ['x']})}.{claims}.{signature}",
        f"{b64('[' * 3_000)}.{claims}.{signature}"[:4096],
        f"{b64('[' * 6_000)}.{claims}.{signature}",
        f"{b64('{' + chr(34) + 'a' + chr(34) + ':' + '[' * 3_000)}.{claims}.{signature}",
        # As deep as the length allows: all three parts are there, so the header is read before the signature.
        f"{b64('[' * 3_000)}.e30.x",
        f"{b64('{' + chr(34) + 'a' + chr(34) + ':' + '[' * 2_900)}.e30.x",
        f"{b64('9' * 3_000)}.e30.x",
        f"{b64('9' * 5_000)}.{claims}.{signature}",
        jwt.encode(decoded, "another key of thirty-two bytes....", algorithm="HS256"),
        jwt.encode(decoded, settings.JWT_SIGNING_KEYS[0], algorithm="HS512"),
        *(str(token) for token in (expired, refresh_token, unstamped)),
        *(jwt.encode({**decoded, **odd}, settings.JWT_SIGNING_KEYS[0], algorithm="HS256") for odd in ODD_CLAIMS),
    ]
    for encoded in forged:
        answer = phones.with_token(encoded).raw("/v1/transfers", b"{}", headers={})
        problem(answer, status=401, code="token_invalid")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    problem(phones.with_token(str(nobodys)).get("/v1/accounts"), status=401, code="token_invalid")
    for encoded in (good, *filter(None, forged)):
        if encoded != str(refresh_token) and len(encoded) <= 4096:
            problem(refresh(phones, encoded), status=401, code="token_invalid")
    answer = refresh(phones, good + "x" * 4096)
    assert faults(problem(answer, status=400, code="invalid_request")) == {"refresh": "max_length"}


def test_the_scheme_is_read_in_any_case(phones: Phones, world: World) -> None:
    token = access_token(world.person("an").user)
    for value in (f"bearer {token}", f"BEARER  {token}"):
        answer = Phone(http=phones.http).get("/v1/accounts", headers={"Authorization": value})
        assert answer.status_code == 200


def test_a_signing_key_changes_without_a_sign_out(phones: Phones, world: World) -> None:
    """Two keys are accepted, the first signs; what a third one signed is refused."""
    an = world.person("an")
    old, new = settings.JWT_SIGNING_KEYS[0], "n" * 50
    before = sign_in(phones, an)
    with serving(JWT_SIGNING_KEYS=f"{new},{old}") as served, httpx.Client(base_url=served.url) as http:
        changed = Phones(http)
        assert changed.with_token(before["access"]).get("/v1/accounts").status_code == 200
        after = refresh(changed, before["refresh"]).json()
        for token in after.values():
            assert jwt.decode(token, new, algorithms=["HS256"])["user_id"] == str(an.user.pk)
        assert changed.with_token(after["access"]).get("/v1/accounts").status_code == 200
        third = jwt.encode(jwt.decode(before["access"], options={"verify_signature": False}), "t" * 50)
        problem(changed.with_token(third).get("/v1/accounts"), status=401, code="token_invalid")
    problem(phones.with_token(after["access"]).get("/v1/accounts"), status=401, code="token_invalid")
