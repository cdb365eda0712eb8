"""Bodies that are no JSON, or that two readers could understand differently: refused, and never a 500."""

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.api.phone import Phones, problem, transfer_body
from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]

# %s is a good body's text without its closing brace.
NO_JSON: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" \n",
    "half of it": b"%s",
    "trailing data": b"%s} x",
    "two documents": b"%s}{}",
    "a trailing comma": b"%s,}",
    "a comment": b"/* */ %s}",
    "single quotes": b"{'amount': 1}",
    "a byte order mark": b"\xef\xbb\xbf%s}",
    "UTF-16": '{"amount": 1}'.encode("utf-16"),
    "no UTF-8": b'%s, "reference": "\xff"}',
    "a surrogate in UTF-8": b'%s, "reference": "\xed\xa0\x80"}',
    "a key twice": b'%s, "amount": 2}',
    "a key twice, once escaped": b'%s, "\\u0061mount": 1}',
    "a key twice further in": b'%s, "metadata": {"a": {"b": 1, "b": 1}}}',
    "NaN": b'%s, "metadata": {"a": NaN}}',
    "Infinity": b'%s, "metadata": {"a": Infinity}}',
    "-Infinity": b'%s, "metadata": {"a": -Infinity}}',
    "a number that is infinite": b'%s, "metadata": {"a": 1e999}}',
    "a number that is minus infinite": b'%s, "metadata": {"a": -1E+400000}}',
    "5000 digits": b'%s, "reference": ' + b"9" * 5000 + b"}",
    "a leading zero": b'%s, "reference": 01}',
    "an underscore": b'%s, "reference": 1_0}',
    "hexadecimal": b'%s, "reference": 0x10}',
    "full-width digits": '%s, "reference": １００}'.encode(),
    "a NUL": b'%s, "reference": "\x00"}',
    "an escaped NUL": b'%s, "reference": "a\\u0000b"}',
    "a NUL in a key": b'%s, "metadata": {"\\u0000": 1}}',
    "a line break in a text": b'%s, "reference": "a\nb"}',
    "half a surrogate pair": b'%s, "reference": "\\ud83d"}',
    "the other half": b'%s, "reference": "\\ude00\\ud83d"}',
    "half a pair in a key": b'%s, "metadata": {"\\ud800": 1}}',
    "nested 33 deep": b'%s, "metadata": ' + b'{"a":' * 32 + b"1" + b"}" * 32 + b"}",
    "20 000 arrays": b"[" * 20_000 + b"]" * 20_000,
    "20 000 arrays in a field": b'%s, "metadata": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "20 000 open arrays": b"[" * 20_000,
    "200 000 objects": b'{"a":' * 200_000,
    "an array": b"[%s}]",
    "a text": b'"amount"',
    "a number": b"1",
    "null": b"null",
}


@pytest.mark.parametrize("story", NO_JSON)
def test_no_json(phones: Phones, world: World, snapshot: Snapshot, story: str) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    good = json.dumps(transfer_body(payer, payee, 1)).encode().removesuffix(b"}")
    before = snapshot()
    answer = phones.of(payer).send("/v1/transfers", NO_JSON[story].replace(b"%s", good))
    assert problem(answer, status=400, code="invalid_json")["retry"] == "never"
    assert snapshot() == before


def test_json_that_only_looks_odd(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    good = json.dumps(transfer_body(payer, payee, 1)).encode().removesuffix(b"}")
    for oddity in (
        b', "reference": "\\ud83c\\udf5c \\u0111 \\\\u0000"}',
        b', "metadata": {"a": 1e308, "b": -0.0, "c": 1e-400, "d": ' + b"9" * 3_000 + b"}}",
        b', "metadata": {"": {"": ""}}, "reference": "\\u007f\\u200b\\u202e"}',
        b"}" + b" \r\n\t" * 1000,
    ):
        answer = phones.of(payer).send("/v1/transfers", good + oddity)
        assert answer.status_code == 201, oddity
        shown = phones.of(payer).get(f"/v1/transfers/{answer.json()['transactionId']}")
        assert shown.status_code == 200, oddity


def test_other_commands_read_as_strictly(phones: Phones, world: World, snapshot: Snapshot) -> None:
    phone = phones.of(world.person("an"))
    before = snapshot()
    for path in ("/v1/users", "/v1/auth/token", "/v1/auth/token/refresh", "/v1/auth/logout", "/v1/accounts"):
        for body in (b"", b"{", b"[]", b'{"a": 1, "a": 1}', b"[" * 20_000, b'{"username": "\\ud800"}'):
            problem(phone.send(path, body), status=400, code="invalid_json")
        problem(phone.send(path, b'{"x": 1}'), status=400, code="invalid_request")
        problem(phone.send(path, b"{" + b" " * 2**20 + b"}"), status=413, code="payload_too_large")
        as_text = {"Content-Type": "text/plain"}
        problem(phone.send(path, b"{}", headers=as_text), status=415, code="unsupported_media_type")
    assert snapshot() == before


def test_content_types(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    body = json.dumps(transfer_body(payer, payee, 1)).encode()
    for good in (
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        "application/json; charset=hex",
    ):
        answer = phones.of(payer).send("/v1/transfers", body, headers={"Content-Type": good})
        assert answer.status_code == 201, good
    for bad in (
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "*/*", ""),
        *("application/jsonx", "json", "application/problem+json", "application/json, application/json"),
    ):
        answer = phones.of(payer).send("/v1/transfers", body, headers={"Content-Type": bad})
        problem(answer, status=415, code="unsupported_media_type")


def test_a_body_of_one_mebibyte_passes_and_a_larger_one_does_not(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    good = json.dumps(transfer_body(payer, payee, 1)).encode()
    full = good + b" " * (2**20 - len(good))
    assert phones.of(payer).send("/v1/transfers", full).status_code == 201
    for size in (2**20 + 1, 2**20 + 100, 5 * 2**20, 20 * 2**20):
        too_large = full + b" " * (size - len(full))
        problem(phones.of(payer).send("/v1/transfers", too_large), status=413, code="payload_too_large")


def test_a_body_without_a_length(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    body = json.dumps(transfer_body(payer, payee, 1)).encode()

    def chunked(*pieces: bytes) -> httpx.Response:
        def stream() -> Iterator[bytes]:
            yield from pieces

        headers = {"Content-Type": "application/json", "Idempotency-Key": "K", **phones.of(payer).credentials}
        return phones.http.post("/v1/transfers", content=stream(), headers=headers)

    assert chunked(body[:10], body[10:]).status_code == 201
    problem(chunked(*[b" " * 2**18] * 5), status=413, code="payload_too_large")


def test_a_client_that_hangs_up_in_the_middle_of_its_body(phones: Phones, world: World, snapshot: Snapshot) -> None:
    payer, payee = world.person("payer", balance=10), world.person("payee")
    body = json.dumps(transfer_body(payer, payee, 1)).encode()
    before = snapshot()
    base = httpx.URL(phones.http.base_url)
    with socket.create_connection((base.host, base.port or 80)) as line:
        line.sendall(
            b"POST /v1/transfers HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nIdempotency-Key: K\r\n"
            + f"Authorization: Bearer {phones.of(payer).token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body[:-5]
        )
    assert phones.of(payer).get("/v1/accounts").status_code == 200
    assert snapshot() == before


def test_json_whatever_is_accepted(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    for accept in ("text/html", "application/xml", "image/*", "application/json;q=0", "nonsense", "*/*;version=9"):
        answer = phone.get("/v1/accounts", headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), accept
        problem(phone.get("/v1/accounts/1", headers={"Accept": accept}), status=404, code="not_found")


def test_a_get_with_a_body_is_a_get_whatever_the_body_is_said_to_be(phones: Phones, world: World) -> None:
    phone = phones.of(world.person("an"))
    for parameters in (
        *("charset=utf-8", "charset=hex", "charset=utf-16", "charset=nonsense", "charset*=x''%41", "x*=hex''%41"),
        *("boundary=x; charset=hex", "; ;=", "x" * 10_000),
    ):
        for type_ in ("application/json", "multipart/form-data", "text/plain"):
            headers = {**phone.credentials, "Content-Type": f"{type_}; {parameters}"}
            answer = phones.http.request("GET", "/v1/accounts?limit=5", content=b"{", headers=headers)
            assert answer.status_code == 200, (type_, parameters)
