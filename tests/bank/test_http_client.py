"""What the client makes of answers that no bank should give: nothing is concluded from any of them."""

import gzip
import json
import logging
import ssl
import subprocess
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from tests.bank.kit import instruction, outcome
from tests.bank.sandbox import Sandbox
from tests.bank.scripted import Script, Scripted, answer, dripping, raw, scripted
from transfers.bank.gateway import (
    Direction,
    Instruction,
    NoAnswer,
    Payment,
    PaymentStatus,
    Refused,
    UnknownReference,
    gateway,
)

ORDER = instruction(reference="order-1")
GOOD: Mapping[str, Any] = {
    "reference": "order-1",
    "direction": "OUT",
    "amount": 1_000,
    "currency": "VND",
    "status": "SETTLED",
    "reason": None,
    "returns": [{"returnId": "r1", "amount": 400}],
    "updatedAt": "2026-01-31T17:00:00.5+07:00",
}
NO: Mapping[str, Any] = {"reference": "order-1", "reason": "so"}


@pytest.fixture(autouse=True)
def _no_patience(settings: Settings) -> None:
    settings.BANK_TIMEOUT_SECONDS = 0.5
    settings.BANK_API_KEY = "the-api-key"


def _ask(script: Script, settings: Settings, *, of: Instruction = ORDER) -> list[Any]:
    """What a submit and a query say when they are answered like that."""
    with scripted(script) as server:
        settings.BANK_URL = server.url
        return [outcome(gateway().submit, of), outcome(gateway().query, of)]


def _json(value: Any, **changes: Any) -> bytes:
    return json.dumps({**value, **changes}).encode()


def test_a_good_answer_is_read(settings: Settings) -> None:
    for status in ("200 OK", "201 Created"):
        with scripted(answer(_json(GOOD), status=status)) as server:
            settings.BANK_URL = server.url
            payment = gateway().submit(ORDER)
    assert (payment.status, payment.direction) == (PaymentStatus.SETTLED, Direction.OUT)
    assert payment.updated_at.isoformat() == "2026-01-31T10:00:00.500000+00:00"
    assert [(item.return_id, item.amount) for item in payment.returns] == [("r1", 400)]


def test_what_is_sent(settings: Settings) -> None:
    with scripted(answer(_json(GOOD))) as server:
        settings.BANK_URL = f"{server.url}/partner/v2/"
        gateway().submit(ORDER)
        gateway().query(ORDER)
        submit, query = server.requests
    head, _, body = submit.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "PUT /partner/v2/payments/order-1 HTTP/1.1"
    assert {"Authorization: Bearer the-api-key", "Accept-Encoding: identity"} < set(lines)
    expected = '{"direction":"OUT","amount":1000,"currency":"VND",' + (
        f'"destination":"{ORDER.destination}","description":"{ORDER.description}"}}'
    )
    assert body.decode() == expected
    assert query.startswith(b"GET /partner/v2/payments/order-1 HTTP/1.1\r\n")
    assert server.connections == 1


# --- Bodies ----------------------------------------------------------------------------------------------------------

ODD_VALUES: dict[str, list[Any]] = {
    "reference": ["order-2", "Order-1", "order-1 ", "", None, 1],
    "direction": ["IN", "out", None, True],
    "amount": [1_001, 10, -1_000, 0, 1_000.0, "1000", True, None, 2**53, [1_000]],
    "currency": ["USD", "vnd", "VND ", "", None, 704],
    "status": ["DONE", "settled", "", None, 1],
    "reason": [1, "x" * 501, {}],
    "returns": [
        *(None, {}, "", [1], [{}], [{"returnId": "r1"}], [{"returnId": "r1", "amount": 1, "more": 1}]),
        *([{"returnId": "r1", "amount": amount}] for amount in (0, -1, 1.0, "1", True, 1_001)),
        [{"returnId": "r1", "amount": 1}, {"returnId": "r1", "amount": 1}],
        [{"returnId": "r1", "amount": 600}, {"returnId": "r2", "amount": 600}],
        *([{"returnId": return_id, "amount": 1}] for return_id in (1, None, "", "r" * 65)),
    ],
    "updatedAt": ["", "yesterday", "2026-01-31", "2026-01-31T17:00:00", "2026-02-30T00:00:00Z", 1780000000, None],
    "more": [None, 1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ODD_VALUES.items() for value in values], ids=repr
)
def test_a_member_of_another_kind_or_of_another_payment(settings: Settings, name: str, value: Any) -> None:
    assert _ask(answer(_json(GOOD, **{name: value})), settings) == [NoAnswer, NoAnswer]


@pytest.mark.parametrize("name", GOOD)
def test_a_member_that_is_missing(settings: Settings, name: str) -> None:
    rest = {other: value for other, value in GOOD.items() if other != name}
    assert _ask(answer(_json(rest)), settings) == [NoAnswer, NoAnswer]


@pytest.mark.parametrize("status", ["ACCEPTED", "REFUSED"])
def test_money_that_came_back_though_it_never_went(settings: Settings, status: str) -> None:
    assert _ask(answer(_json(GOOD, status=status)), settings) == [NoAnswer, NoAnswer]
    assert all(isinstance(said, Payment) for said in _ask(answer(_json(GOOD, status=status, returns=[])), settings))


GOOD_TEXT = _json(GOOD)
ODD_BODIES = {
    "nothing": b"",
    "a space": b" ",
    "half": GOOD_TEXT[:40],
    "twice": GOOD_TEXT * 2,
    "a list": b"[" + GOOD_TEXT + b"]",
    "null": b"null",
    "a number": b"1000",
    "HTML": b"<html><body>OK</body></html>",
    "a key twice": GOOD_TEXT[:-1] + b', "amount": 1000}',
    "NaN": GOOD_TEXT.replace(b"1000", b"NaN"),
    "a huge number": GOOD_TEXT.replace(b"1000", b"1" * 5_000),
    "an exponent": GOOD_TEXT.replace(b"1000", b"1e3"),
    "UTF-16": GOOD_TEXT.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD_TEXT,
    "no UTF-8": GOOD_TEXT.replace(b'"reason": null', b'"reason": "\xff"'),
    "NUL": GOOD_TEXT.replace(b'"reason": null', b'"reason": "\\u0000"'),
    "deep": b"[" * 30_000 + b"]" * 30_000,
    "too long": GOOD_TEXT + b" " * 65_536,
}


@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES)
def test_a_body_that_cannot_be_read(settings: Settings, body: bytes) -> None:
    assert _ask(answer(body), settings) == [NoAnswer, NoAnswer]
    assert _ask(answer(body, status="422 Unprocessable Content"), settings)[0] is NoAnswer
    assert _ask(answer(body, status="404 Not Found"), settings)[1] is NoAnswer


def test_a_body_that_was_compressed_all_the_same(settings: Settings) -> None:
    """Undone, a small one could fill the memory."""
    packed = answer(gzip.compress(GOOD_TEXT), headers=["Content-Encoding: gzip"])
    assert _ask(packed, settings) == [NoAnswer, NoAnswer]


# --- Statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [202, 203, 204, 300, 304, 400, 401, 402, 403, 405, 408, 409, 410, 413, 418, 425, 429, 451, 500, 502, 503, 504],
)
def test_a_status_that_is_no_answer(settings: Settings, status: int) -> None:
    for body in (GOOD_TEXT, _json(NO)):
        said = _ask(answer(b"" if status in (204, 304) else body, status=f"{status} Status"), settings)
        assert said == [NoAnswer, NoAnswer]


def test_no_means_no_only_of_this_payment_and_in_the_banks_words(settings: Settings) -> None:
    unprocessable, not_found = "422 Unprocessable Content", "404 Not Found"
    assert _ask(answer(_json(NO), status=unprocessable), settings) == [Refused, NoAnswer]
    assert _ask(answer(_json(NO), status=not_found), settings) == [NoAnswer, UnknownReference]
    for changes in ({"reference": "order-2"}, {"reason": None}, {"reason": ""}, {"reason": "x" * 501}, {"more": 1}):
        assert _ask(answer(_json(NO, **changes), status=unprocessable), settings)[0] is NoAnswer
        assert _ask(answer(_json(NO, **changes), status=not_found), settings)[1] is NoAnswer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(settings: Settings, status: int) -> None:
    """Our key and the customer's account number go to the bank and to nobody else."""
    with scripted(answer(GOOD_TEXT)) as elsewhere:
        redirect = answer(GOOD_TEXT, status=f"{status} Moved", headers=[f"Location: {elsewhere.url}/payments/order-1"])
        assert _ask(redirect, settings) == [NoAnswer, NoAnswer]
    assert elsewhere.connections == 0


# --- The wire --------------------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BROKEN_WIRES = {
    "closed at once": raw(b""),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.9\r\n"),
    "a status of letters": raw(b"HTTP/1.1 OK\r\n\r\n"),
    "half a head": raw(HEAD),
    "a shorter body": raw(HEAD + b"Content-Length: %d\r\n\r\n" % (len(GOOD_TEXT) + 1) + GOOD_TEXT),
    "a length of letters": raw(HEAD + b"Content-Length: many\r\nContent-Length: 1\r\n\r\n{}"),
    "two lengths": raw(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
    "half a chunk": raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + GOOD_TEXT),
    "a chunk of letters": raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + GOOD_TEXT + b"\r\n0\r\n\r\n"),
    "a long header": raw(HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n" + GOOD_TEXT),
    "many headers": raw(HEAD + b"X: x\r\n" * 200 + b"\r\n" + GOOD_TEXT),
}


@pytest.mark.parametrize("script", BROKEN_WIRES.values(), ids=BROKEN_WIRES)
def test_a_broken_wire(settings: Settings, script: Script) -> None:
    assert _ask(script, settings) == [NoAnswer, NoAnswer]


DRIPS = {
    "nothing at all": (b"", b""),
    "a head that never ends": (HEAD, b"X: x\r\n"),
    "a status line that never ends": (b"HTTP/1.1 200 ", b"O"),
    "a body that never ends": (HEAD + b"Content-Length: 60000\r\n\r\n", b" "),
    "chunks that never end": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a hundred continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize(("before", "drop"), DRIPS.values(), ids=DRIPS)
def test_a_call_ends_in_time_however_slowly_it_is_answered(settings: Settings, before: bytes, drop: bytes) -> None:
    """Each byte comes well within the time that a socket waits for one; the call as a whole is bounded all the same."""
    with scripted(dripping(before, drop)) as server:
        settings.BANK_URL = server.url
        began = time.monotonic()
        assert outcome(gateway().submit, ORDER) is NoAnswer
        assert 0.4 < time.monotonic() - began < 3


def test_an_endless_answer_is_not_read_to_its_end(settings: Settings) -> None:
    settings.BANK_TIMEOUT_SECONDS = 30
    flood = dripping(HEAD + b"Content-Length: 100000000000\r\n\r\n", b" " * 1_000_000, pause=0)
    began = time.monotonic()
    assert _ask(flood, settings) == [NoAnswer, NoAnswer]
    assert time.monotonic() - began < 10


def test_nobody_listens(settings: Settings) -> None:
    with scripted(answer(GOOD_TEXT)) as server:
        settings.BANK_URL = server.url
    assert outcome(gateway().submit, ORDER) is NoAnswer
    settings.BANK_URL = "http://bank.invalid"
    assert outcome(gateway().query, ORDER) is NoAnswer


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate of 127.0.0.1 that vouches for itself, and what serves with it."""
    file, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=bank", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, *names, "-keyout", key, "-out", file], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return file, context


@pytest.mark.system
def test_over_tls_only_with_a_bank_that_somebody_we_trust_vouches_for(
    settings: Settings, certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, context = certificate
    with scripted(answer(GOOD_TEXT), tls=context) as server:
        settings.BANK_URL = server.url
        assert outcome(gateway().submit, ORDER) is NoAnswer
        assert server.requests == []
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with scripted(answer(GOOD_TEXT), tls=context) as server:
        settings.BANK_URL = server.url
        for _ in range(3):
            assert isinstance(outcome(gateway().submit, ORDER), Payment)
        assert server.connections == 1
        # And here, too, the whole call is bounded.
        server.script = dripping(HEAD, b"X: x\r\n")
        began = time.monotonic()
        assert outcome(gateway().query, ORDER) is NoAnswer
        assert 0.4 < time.monotonic() - began < 3


def test_a_connection_is_kept_and_made_anew(settings: Settings) -> None:
    with scripted(answer(GOOD_TEXT)) as server:
        settings.BANK_URL = server.url
        for _ in range(10):
            gateway().query(ORDER)
        assert server.connections == 1
        server.script = raw(b"")
        assert outcome(gateway().query, ORDER) is NoAnswer
        assert len(server.requests) == 11, "a request was sent a second time"
        server.script = answer(GOOD_TEXT)
        gateway().query(ORDER)
        assert (server.connections, len(server.requests)) == (2, 12)


def test_a_call_that_timed_out_leaves_no_answer_for_the_next_one(settings: Settings) -> None:
    """The late answer to one order must not be read as the answer to another."""
    settings.BANK_TIMEOUT_SECONDS = 0.2

    def late(server: Scripted) -> Script:
        def write(connection: Any) -> None:
            if len(server.requests) == 1:
                time.sleep(0.4)
            reference = server.requests[-1].split(b" ")[1].rpartition(b"/")[2].decode()
            answer(_json(GOOD, reference=reference))(connection)

        return write

    with scripted(raw(b"")) as server:
        server.script = late(server)
        settings.BANK_URL = server.url
        assert outcome(gateway().query, ORDER) is NoAnswer
        other = instruction(reference="order-2")
        assert gateway().query(other).reference == "order-2"
        assert server.connections == 2


# --- Instructions and logs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["", ".", "..", "../payments/1", "a/b", "a?b", "a b", "a\n", "đ", "x" * 65])
def test_a_reference_that_would_change_the_address(reference: str) -> None:
    with pytest.raises(ValueError, match="no instruction"):
        instruction(reference=reference)


@pytest.mark.parametrize("amount", [0, -1])
def test_an_amount_that_is_none(amount: int) -> None:
    with pytest.raises(ValueError, match="no instruction"):
        instruction(amount=amount)


@pytest.mark.parametrize("words", ["settle", "reject", "timeout", "broken", "reset", "502"])
def test_neither_key_nor_destination_gets_into_logs_and_errors(
    sandbox_bank: Sandbox, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    caplog.set_level(logging.DEBUG)
    order = instruction(destination="VCB-0071000123456", description=f"a secret purpose sandbox:{words}")
    said = [repr(order), repr(gateway())]
    try:
        said.append(repr(gateway().submit(order)))
    except (NoAnswer, Refused) as error:
        said += ["".join(traceback.format_exception(error)), repr(error)]
    text = "\n".join([*said, caplog.text])
    assert order.reference in text
    for secret in ("0071000123456", "secret purpose", sandbox_bank.server.api_key, *sandbox_bank.server.secrets):
        assert secret not in text
