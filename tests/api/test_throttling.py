"""How often one may try: sign-in, sign-up and payees over HTTP, from wherever one says to come; and without Redis."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis
from django.conf import settings

from tests.api.contract import must_be_as_documented
from tests.api.phone import Phones, at_once, problem
from tests.api.servers import hanging_server
from tests.conftest import Served, free_port, serving
from tests.world import PASSWORD, World
from wallet_project.kernel.errors import RateLimited
from wallet_project.kernel.throttle import Limit, Throttle

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def counters() -> Iterator["redis.Redis"]:
    """Where tries are counted, all forgotten."""
    with redis.from_url(settings.CACHE_URL, decode_responses=True) as client:
        for key in client.scan_iter("LIMITS:*"):
            client.delete(key)
        yield client


def sign_in(http: httpx.Client, **headers: str) -> httpx.Response:
    """A wrong guess, each at another name."""
    body = {"username": f"nobody-{uuid4()}", "password": "wrong"}
    return http.post("/v1/auth/token", json=body, headers={name.replace("_", "-"): it for name, it in headers.items()})


def client_of(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=10, event_hooks={"response": [must_be_as_documented]})


def statuses(*answers: httpx.Response) -> list[int]:
    return [answer.status_code for answer in answers]


# --- Over HTTP -------------------------------------------------------------------------------------------------------


def test_small_limits(phones: Phones, world: World, counters: object) -> None:
    an, binh = world.person("an"), world.person("binh", balance=100)
    limits = {"SIGN_INS_PER_ADDRESS": "5", "SIGN_UPS_PER_ADDRESS": "3", "PAYEE_LOOKUPS_PER_USER": "4"}
    with serving(**limits) as served, client_of(served) as http:
        for _ in range(5):
            problem(sign_in(http), status=401, code="not_authenticated")
        # Whatever address somebody makes up, no proxy of ours stands before the service.
        for forwarded in ("6.6.6.1", "6.6.6.2, 127.0.0.1", "", "x" * 3_000):
            refused = sign_in(http, X_Forwarded_For=forwarded)
            assert problem(refused, status=429, code="rate_limited")["retry"] == "same_key"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
        good = http.post("/v1/auth/token", json={"username": "an", "password": PASSWORD})
        problem(good, status=429, code="rate_limited")

        made = [
            http.post("/v1/users", json={"username": f"new-{uuid4()}", "password": PASSWORD}, headers=headers)
            for headers in ({}, {}, {}, {}, {"X-Forwarded-For": "6.6.6.6"})
        ]
        assert statuses(*made) == [201, 201, 201, 429, 429]

        phone, other = Phones(http).of(an), Phones(http).of(binh)
        query: dict[str, Any] = {"username": "binh", "currency": "VND"}
        assert statuses(*(phone.get("/v1/payees", **query) for _ in range(6))) == [200] * 4 + [429] * 2
        # 429 comes before the fields, and one user's curiosity is not another's.
        problem(phone.get("/v1/payees"), status=429, code="rate_limited")
        problem(Phones(http).nobody.get("/v1/payees", **query), status=401, code="not_authenticated")
        assert other.get("/v1/payees", **query).status_code == 200
        assert other.pay(binh, an, 1).status_code == 201


def test_behind_one_proxy_each_address_counts_for_itself(world: World, counters: object) -> None:
    with serving(SIGN_INS_PER_ADDRESS="3", TRUSTED_PROXY_HOPS="1") as served, client_of(served) as http:
        # The right-most entry is the proxy's; what stands before it, anybody may have made up.
        tries = [sign_in(http, X_Forwarded_For=f"6.6.6.{number}, 1.2.3.4") for number in range(5)]
        assert statuses(*tries) == [401, 401, 401, 429, 429]
        victim = [sign_in(http, X_Forwarded_For=spoofed) for spoofed in ("1.2.3.5", "1.2.3.4, 1.2.3.5")]
        assert statuses(*victim) == [401, 401]


def test_guesses_at_one_name_are_slowed_from_wherever(world: World, counters: object) -> None:
    world.person("an")
    with serving(FAILED_SIGN_INS_PER_NAME="3", TRUSTED_PROXY_HOPS="1") as served, client_of(served) as http:

        def guess(number: int, password: str, name: str = "an") -> httpx.Response:
            headers = {"X-Forwarded-For": f"1.2.3.{number}"}
            return http.post("/v1/auth/token", json={"username": name, "password": password}, headers=headers)

        # A success forgets the failures before it, those at its own address and those of the name.
        assert statuses(guess(1, "wrong"), guess(1, "wrong"), guess(1, PASSWORD)) == [401, 401, 200]
        assert statuses(*(guess(1, "wrong") for _ in range(5))) == [401, 401, 401, 429, 429]
        # Guesses at one place keep nobody out elsewhere; from many places the name itself is slowed.
        assert guess(2, PASSWORD).status_code == 200
        assert statuses(*(guess(number, "wrong") for number in range(10, 25))) == [401] * 12 + [429] * 3
        assert guess(9, PASSWORD).status_code == 429
        assert guess(9, PASSWORD, name="binh").status_code == 401


# --- Without Redis ---------------------------------------------------------------------------------------------------


def _without_redis(world: World, url: str) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    limits = {"SIGN_INS_PER_ADDRESS": "6", "SIGN_UPS_PER_ADDRESS": "2", "PAYEE_LOOKUPS_PER_USER": "2"}
    with serving(REDIS_URL=url, **limits) as served, client_of(served) as http:
        phone = Phones(http).of(payer)
        began = time.monotonic()
        assert phone.pay(payer, payee, 1).status_code == 201
        answers = [sign_in(http) for _ in range(20)]
        query: dict[str, Any] = {"username": "payee", "currency": "VND"}
        look_ups = [phone.get("/v1/payees", **query) for _ in range(6)]
        seconds = time.monotonic() - began
        assert phone.pay(payer, payee, 1).status_code == 201
    counted = Counter(statuses(*answers))
    # Each of the two processes counts for itself.
    assert set(counted) == {401, 429}
    assert 6 <= counted[401] <= 12
    assert set(statuses(*look_ups)) <= {200, 429}
    assert 2 <= statuses(*look_ups).count(200) <= 4
    assert seconds < 3  # 27 calls, and each process waits for Redis once


def test_redis_hangs(world: World) -> None:
    with hanging_server() as port:
        _without_redis(world, f"redis://127.0.0.1:{port}/0")


def test_no_redis_there(world: World) -> None:
    _without_redis(world, f"redis://127.0.0.1:{free_port()}/0")


# --- The counting itself ---------------------------------------------------------------------------------------------


def passes(throttle: Throttle, limit: Limit, subject: str) -> bool:
    try:
        throttle.check(limit, subject)
    except RateLimited:
        return False
    return True


def test_a_steady_client_above_the_limit_gets_about_the_limit(counters: object) -> None:
    """Refused tries do not count, so nobody is shut out for going on."""
    throttle, limit = Throttle(url=settings.CACHE_URL), Limit(scope="steady", tries=10, seconds=1)
    windows, passed, began = 4, 0, time.monotonic()
    for number in range(12 * windows):
        time.sleep(max(0.0, began + number / 12 - time.monotonic()))
        passed += passes(throttle, limit, "client")
    assert 10 * windows - 4 <= passed <= 10 * windows + 2


def test_retry_after_is_true(counters: object) -> None:
    throttle, limit = Throttle(url=settings.CACHE_URL), Limit(scope="wait", tries=2, seconds=2)
    assert [passes(throttle, limit, "client") for _ in range(3)] == [True, True, False]
    with pytest.raises(RateLimited) as refused:
        throttle.check(limit, "client")
    assert refused.value.retry_after in (1, 2)
    time.sleep(refused.value.retry_after or 0)
    assert passes(throttle, limit, "client")


def test_no_counter_lives_for_ever(counters: "redis.Redis") -> None:
    throttle, limit = Throttle(url=settings.CACHE_URL), Limit(scope="keys", tries=2, seconds=1)
    for number in range(300):
        passes(throttle, limit, f"subject {number}")
    keys = list(counters.scan_iter("LIMITS:*"))
    assert len(keys) == 300
    assert all(0 < counters.ttl(key) <= 2 for key in keys)
    # One that has lost its end gets a new one, and one that somebody spoiled stops nobody.
    counters.persist(keys[0])
    for number in range(300):
        passes(throttle, limit, f"subject {number}")
    assert all(0 < counters.ttl(key) <= 2 for key in keys)
    time.sleep(2.1)
    assert list(counters.scan_iter("LIMITS:*")) == []


def test_a_spoiled_counter_stops_nobody_for_long(counters: "redis.Redis") -> None:
    throttle, limit = Throttle(url=settings.CACHE_URL), Limit(scope="spoiled", tries=2, seconds=60)
    assert passes(throttle, limit, "client")
    (key,) = counters.scan_iter("LIMITS:*")
    counters.set(key, "99")
    assert [passes(throttle, limit, "client") for _ in range(3)] == [True, True, False]


def test_many_at_once_do_not_pass_more(counters: object) -> None:
    throttle, limit = Throttle(url=settings.CACHE_URL), Limit(scope="race", tries=5, seconds=60)
    assert sum(at_once([lambda: passes(throttle, limit, "client")] * 40)) == 5


def test_the_admins_door_is_as_narrow(world: World, counters: object, client: Any) -> None:
    staff = world.person("finance").user
    staff.is_staff = True
    staff.save(update_fields=["is_staff"])

    def log_in(password: str) -> Any:
        return client.post("/admin/login/", {"username": "finance", "password": password, "next": "/admin/"})

    pages = [log_in("wrong").content.decode() for _ in range(7)]
    assert ["Please enter the correct username" in page for page in pages] == [True] * 5 + [False] * 2
    assert "Too many tries. Try again in" in pages[-1]
    assert log_in(PASSWORD).status_code == 200
    assert client.get("/admin/").status_code == 302

    Throttle(url=settings.CACHE_URL).forget(
        Limit(scope="sign-in-here", tries=settings.FAILED_SIGN_INS_PER_NAME, seconds=60), "finance 127.0.0.1"
    )
    assert log_in(PASSWORD).status_code == 302
    assert client.get("/admin/").status_code == 200
