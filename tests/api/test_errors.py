"""Errors outside the views, request ids, methods; and the page that documents the codes."""

import re
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.db import IntegrityError, OperationalError
from django.http import HttpResponse
from django.test import RequestFactory

import accounts.errors
import ledger.errors
import transfers.bank.errors
import transfers.services
import wallet_project.kernel.api
from tests.api.phone import Phones, problem
from tests.world import World
from wallet_project.exception_handler import status_of
from wallet_project.kernel.api import client_address
from wallet_project.kernel.errors import DomainError
from wallet_project.middleware import UnavailableMiddleware

pytestmark = pytest.mark.django_db(transaction=True)

DOCUMENTED = Path(__file__).parents[2] / "docs" / "errors.md"


def test_unknown_addresses(phones: Phones) -> None:
    paths = ["/", "/v1", "/v1/", "/v1/nothing", "/v1/accounts/", "/v1/transfers/", "/v2/accounts", "/healthz/"]
    for path in [*paths, "//", "/v1//accounts", "/v1/accounts/1/", "/admin2/", "/favicon.ico", "/" + "x" * 5000]:
        for method in ("GET", "POST", "DELETE", "PROPFIND"):
            url = httpx.URL(phones.http.base_url).copy_with(raw_path=path.encode())
            problem(phones.http.request(method, url), status=404, code="not_found")
    # What is no UTF-8 stays escaped.
    assert phones.http.get("/v1/%00%ff").json()["instance"] == "/v1/\0%FF"


def test_the_admin_keeps_its_own_pages(phones: Phones) -> None:
    answer = phones.http.get("/admin/login/nothing/")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["x-request-id"]


def test_methods(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    for path, allowed in {
        "/v1/transfers": {"POST", "OPTIONS"},
        "/v1/accounts": {"GET", "HEAD", "POST", "OPTIONS"},
        "/v1/accounts/1": {"GET", "HEAD", "OPTIONS"},
        "/v1/auth/token": {"POST", "OPTIONS"},
        "/v1/operations": {"GET", "HEAD", "OPTIONS"},
        "/healthz": {"GET", "HEAD", "OPTIONS"},
        "/readyz": {"GET", "HEAD", "OPTIONS"},
    }.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "NONSENSE"} - allowed:
            for credentials in (phone.credentials, {}):
                answer = phones.http.request(method, path, headers=credentials, content=b"{")
                problem(answer, status=405, code="method_not_allowed")
                assert set(answer.headers["allow"].split(", ")) == allowed
        answer = phones.http.options(path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert set(answer.headers["allow"].split(", ")) == allowed


def test_head_is_get_without_a_body(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    got = phone.get("/v1/accounts")
    head = phones.http.head("/v1/accounts", headers=phone.credentials)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(got.content))
    assert phones.http.head("/v1/accounts").status_code == 401
    assert phones.http.head("/healthz").status_code == 200


def test_nothing_is_cached(phones: Phones, world: World) -> None:
    assert phones.of(world.person("an")).get("/v1/accounts").headers["cache-control"] == "no-store"


def test_request_ids(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    for id_ in ("a", "A.b_c-9", "x" * 64):
        for path in ("/v1/accounts", "/v1/accounts/1", "/nothing", "/healthz", "/admin/login/"):
            assert phone.get(path, headers={"X-Request-ID": id_}).headers["x-request-id"] == id_
    for id_ in ("", "x" * 65, "a b", "a/b", "a,b", "<script>", "a:b"):
        made = phone.get("/v1/accounts", headers={"X-Request-ID": id_}).headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f-]{36}", made), id_
    assert len({phone.get("/healthz").headers["x-request-id"] for _ in range(5)}) == 5


def test_a_host_that_is_not_ours(phones: Phones) -> None:
    for host in ("evil.example", "a" * 300, "127.0.0.1:x", "..", "[::1"):
        for path in ("/v1/accounts", "/v1/nothing", "/healthz"):
            base = httpx.URL(phones.http.base_url)
            connection = HTTPConnection(base.host, base.port or 80, timeout=10)
            connection.putrequest("GET", path, skip_host=True)
            connection.putheader("Host", host)
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            assert answer.status == 400
            # What is no host at all, the web server refuses by itself.
            assert body == b"" or answer.headers["content-type"] == "application/problem+json"


def test_a_database_that_is_away_is_told_in_words_to_people_and_as_a_problem_to_programs() -> None:
    def answer_to(path: str, error: Exception) -> Any:
        return UnavailableMiddleware(lambda request: HttpResponse()).process_exception(
            RequestFactory().get(path), error
        )

    to_people, to_programs = (answer_to(path, OperationalError()) for path in ("/admin/", "/v1/accounts"))
    assert (to_people.status_code, to_people["Content-Type"], to_people["Retry-After"]) == (503, "text/plain", "1")
    assert (to_programs.status_code, to_programs["Content-Type"]) == (503, "application/problem+json")
    assert answer_to("/v1/accounts", IntegrityError()) is None
    assert answer_to("/v1/accounts", ValueError()) is None


@pytest.mark.parametrize(
    ("hops", "forwarded", "expected"),
    [
        (0, None, "10.0.0.9"),
        (0, "6.6.6.6", "10.0.0.9"),
        (1, "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        (2, "6.6.6.6, 1.2.3.4,10.0.0.8", "1.2.3.4"),
        (1, None, "10.0.0.9"),
        (2, "1.2.3.4", "1.2.3.4"),
        (1, " , ", "10.0.0.9"),
    ],
)
def test_an_address_that_a_client_made_up_is_not_believed(
    settings: Any, hops: int, forwarded: str | None, expected: str
) -> None:
    settings.TRUSTED_PROXY_HOPS = hops
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    assert client_address(RequestFactory().get("/", headers=headers, REMOTE_ADDR="10.0.0.9")) == expected


def test_a_fault_of_ours_tells_nothing(
    phones: Phones, world: World, superuser: psycopg.Connection[Any], snapshot: Callable[[], dict[str, Any]]
) -> None:
    phone = phones.of(world.person("an"))
    before = snapshot()
    superuser.execute("""
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'secret'; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON idempotency_record FOR EACH ROW EXECUTE FUNCTION fail()
    """)
    try:
        answer = phone.post("/v1/accounts", {"currency": "VND"}, key="K")
    finally:
        superuser.execute("DROP FUNCTION fail() CASCADE")
    assert problem(answer, status=500, code="internal_error")["retry"] == "same_key"
    assert "secret" not in answer.text
    assert snapshot() == before
    assert phone.post("/v1/accounts", {"currency": "VND"}, key="K").status_code == 201


# --- docs/errors.md --------------------------------------------------------------------------------------------------


def classes_with_codes(base: type[DomainError] = DomainError) -> set[type[DomainError]]:
    found = {base} if "code" in vars(base) else set()
    return found.union(*(classes_with_codes(subclass) for subclass in base.__subclasses__()))


def test_each_code_is_documented() -> None:
    assert accounts.errors, ledger.errors  # They and those below define the codes.
    assert transfers.services, wallet_project.kernel.api
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \| `(\w+)` \| .{20,} \|$", DOCUMENTED.read_text(), re.MULTILINE)
    expected = {(str(status_of(class_())), class_.code, class_.retry.value) for class_ in classes_with_codes()}
    assert len(rows) == len(set(rows))
    assert set(rows) == expected


def test_each_code_says_what_the_contract_says_of_trying_again() -> None:
    """The codes that may be tried again with the same key, as promised; so a new class cannot change its mind."""
    again = {
        *("not_authenticated", "token_invalid", "signature_invalid", "rate_limited", "internal_error", "unavailable"),
        *("insufficient_funds", "limit_exceeded", "account_frozen", "balance_limit_exceeded"),
    }
    said = {class_.code: class_.retry.value for class_ in classes_with_codes()}
    assert {code for code, retry in said.items() if retry == "same_key"} == again
    assert {code for code, retry in said.items() if retry == "new_key"} == {"idempotency_key_reused"}
    assert set(said.values()) == {"same_key", "new_key", "never"}
