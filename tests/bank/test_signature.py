"""Notices at our door: only what the bank has signed just now is read, and that strictly."""

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from transfers.bank import signature
from transfers.bank.errors import SignatureInvalid
from transfers.bank.gateway import Notice, NoticeEvent, gateway
from wallet_project.exception_handler import status_of
from wallet_project.kernel import clock
from wallet_project.kernel.errors import InvalidJSON, InvalidRequest

SECRET, OLD_SECRET = "the-new-secret", "the-old-secret"
GOOD: dict[str, Any] = {
    "noticeId": "N-1",
    "reference": "order-1",
    "event": "SETTLED",
    "amount": 1_000,
    "currency": "VND",
    "returnId": None,
    "reason": None,
    "occurredAt": "2026-01-31T17:00:00Z",
}
BODY = json.dumps(GOOD).encode()
NOW = 1_780_000_000


@pytest.fixture(autouse=True)
def _secrets_and_clock(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.BANK_WEBHOOK_SECRETS = [SECRET, OLD_SECRET]
    monkeypatch.setattr(clock, "now", lambda: datetime.fromtimestamp(NOW, UTC))


def _digits(body: bytes, timestamp: str, secret: str) -> str:
    """By hand, apart from the code under test."""
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def _headers(body: bytes = BODY, *, timestamp: str = str(NOW), secret: str = SECRET) -> dict[str, str]:
    return {"Bank-Timestamp": timestamp, "Bank-Signature": f"v1={_digits(body, timestamp, secret)}"}


def _verify(headers: dict[str, str], body: bytes = BODY) -> Notice:
    return gateway().verify(headers=headers, body=body)


def test_a_known_answer() -> None:
    """As OpenSSL reckons: printf '1780000000.{}' | openssl dgst -sha256 -hmac secret"""
    digits = "f2dadf9ad78978e9a3a09f360d82463bb247403b8a15405e9a194ed17a4d5357"
    assert signature.sign(b"{}", timestamp="1780000000", secret="secret") == f"v1={digits}"


def test_a_notice_of_the_banks() -> None:
    expected = Notice(
        notice_id="N-1",
        reference="order-1",
        event=NoticeEvent.SETTLED,
        amount=1_000,
        currency="VND",
        return_id=None,
        reason=None,
        occurred_at=datetime(2026, 1, 31, 17, tzinfo=UTC),
    )
    assert _verify(_headers()) == expected


def test_headers_as_they_come_from_a_web_server() -> None:
    headers = {name.lower(): value for name, value in _headers().items()}
    request = RequestFactory().post("/v1/bank/callbacks", BODY, "application/json", headers=headers)
    assert gateway().verify(headers=request.headers, body=request.body).notice_id == "N-1"


def test_the_refusal_is_a_401() -> None:
    assert (status_of(SignatureInvalid()), SignatureInvalid.code) == (401, "signature_invalid")


# --- Who -------------------------------------------------------------------------------------------------------------


def test_a_body_changed_by_one_bit() -> None:
    headers = _headers()
    for position in range(len(BODY)):
        for bit in (0, 5):
            changed = bytearray(BODY)
            changed[position] ^= 1 << bit
            with pytest.raises(SignatureInvalid):
                _verify(headers, bytes(changed))
    for changed_length in (BODY[:-1], BODY + b" ", BODY + b"\n", b" " + BODY, b""):
        with pytest.raises(SignatureInvalid):
            _verify(headers, changed_length)


def test_a_signature_changed_by_one_digit() -> None:
    headers = _headers()
    digits = headers["Bank-Signature"].removeprefix("v1=")
    for position in range(64):
        other = "0" if digits[position] != "0" else "1"
        forged = digits[:position] + other + digits[position + 1 :]
        with pytest.raises(SignatureInvalid):
            _verify({**headers, "Bank-Signature": f"v1={forged}"})


def test_a_timestamp_that_was_moved_to_now() -> None:
    old = _headers(timestamp=str(NOW - 3_600))
    with pytest.raises(SignatureInvalid, match="does not fit"):
        _verify({**old, "Bank-Timestamp": str(NOW)})


def test_the_full_stop_cannot_be_moved_between_timestamp_and_body() -> None:
    signed = _headers(b"0." + BODY)
    with pytest.raises(SignatureInvalid):
        _verify({**signed, "Bank-Timestamp": signed["Bank-Timestamp"] + ".0"})


DIGITS = _digits(BODY, str(NOW), SECRET)
ODD_SIGNATURES = {
    "none": "",
    "no version": DIGITS,
    "another version": f"v0={DIGITS}",
    "a later version": f"v2={DIGITS}",
    "a capital": f"V1={DIGITS}",
    "capitals": f"v1={DIGITS.upper()}",
    "short": f"v1={DIGITS[:-1]}",
    "long": f"v1={DIGITS}0",
    "the beginning": "v1=",
    "twice": f"v1={DIGITS},v1={DIGITS}",
    "twice, with a space": f"v1={DIGITS}, v1={DIGITS}",
    "a wrong one first": f"v1={'0' * 64},v1={DIGITS}",
    "with the timestamp": f"t={NOW},v1={DIGITS}",
    "a space before": f" v1={DIGITS}",
    "a space after": f"v1={DIGITS} ",
    "a line's end": f"v1={DIGITS}\n",
    "quoted": f'"v1={DIGITS}"',
    "base64": "v1=9+p86/TzudRaNqGgykx76PTx0n7n0zuc5+9qKp3PalpA",
    "foreign digits": f"v1={DIGITS[:-1]}٣",
    "zeros": f"v1={'0' * 64}",
    "enormous": "v1=" + "0" * 100_000,
}


@pytest.mark.parametrize("value", ODD_SIGNATURES.values(), ids=ODD_SIGNATURES)
def test_an_odd_signature(value: str) -> None:
    with pytest.raises(SignatureInvalid):
        _verify({**_headers(), "Bank-Signature": value})


ODD_TIMESTAMPS = {
    "none": "",
    "a plus": f"+{NOW}",
    "a minus": f"-{NOW}",
    "a fraction": f"{NOW}.0",
    "an exponent": "1.78e9",
    "milliseconds": f"{NOW}000",
    "a space before": f" {NOW}",
    "a space after": f"{NOW} ",
    "a line's end": f"{NOW}\n",
    "an underscore": "1_780_000_000",
    "hexadecimal": hex(NOW),
    "a date": "2026-05-28T20:26:40Z",
    "twice": f"{NOW},{NOW}",
    "foreign digits": "".join(chr(0x0660 + int(digit)) for digit in str(NOW)),
    "letters": "now",
    "long": "0" * 13 + str(NOW),
    "enormous": "1" * 100_000,
}


@pytest.mark.parametrize("value", ODD_TIMESTAMPS.values(), ids=ODD_TIMESTAMPS)
def test_an_odd_timestamp_even_if_it_is_signed(value: str) -> None:
    with pytest.raises(SignatureInvalid):
        _verify(_headers(timestamp=value))


@pytest.mark.parametrize("missing", ["Bank-Timestamp", "Bank-Signature"])
def test_a_missing_header(missing: str) -> None:
    with pytest.raises(SignatureInvalid):
        _verify({name: value for name, value in _headers().items() if name != missing})


def test_a_header_that_was_sent_twice() -> None:
    """A web server joins the two with a comma."""
    for name in ("Bank-Timestamp", "Bank-Signature"):
        headers = _headers()
        for joint in (",", ", "):
            with pytest.raises(SignatureInvalid):
                _verify({**headers, name: headers[name] + joint + headers[name]})


# --- Rotation --------------------------------------------------------------------------------------------------------


def test_while_a_secret_is_replaced_both_are_good(settings: Settings) -> None:
    for secret in (SECRET, OLD_SECRET):
        assert _verify(_headers(secret=secret)).notice_id == "N-1"
    settings.BANK_WEBHOOK_SECRETS = [SECRET]
    assert _verify(_headers()).notice_id == "N-1"
    with pytest.raises(SignatureInvalid):
        _verify(_headers(secret=OLD_SECRET))


@pytest.mark.parametrize("secret", ["", "another", SECRET.upper(), f"{SECRET},{OLD_SECRET}", SECRET + "x"])
def test_a_stranger(secret: str) -> None:
    with pytest.raises(SignatureInvalid):
        _verify(_headers(secret=secret))


# --- When ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [-300, -299, 0, 299, 300])
def test_within_five_minutes(age: int) -> None:
    assert _verify(_headers(timestamp=str(NOW - age))).notice_id == "N-1"


@pytest.mark.parametrize("age", [-NOW, -3_600, -301, 301, 3_600, NOW - 1, NOW])
def test_a_notice_that_was_kept_and_sent_again_later(age: int) -> None:
    with pytest.raises(SignatureInvalid, match="300 seconds"):
        _verify(_headers(timestamp=str(NOW - age)))


def test_a_clock_between_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: datetime.fromtimestamp(NOW, UTC) + timedelta(milliseconds=1))
    with pytest.raises(SignatureInvalid):
        _verify(_headers(timestamp=str(NOW - 300)))


def test_the_window_is_a_setting(settings: Settings) -> None:
    settings.BANK_CALLBACK_WINDOW_SECONDS = 10
    assert _verify(_headers(timestamp=str(NOW - 10))).notice_id == "N-1"
    with pytest.raises(SignatureInvalid, match="10 seconds"):
        _verify(_headers(timestamp=str(NOW - 11)))


# --- What ------------------------------------------------------------------------------------------------------------

ODD_VALUES: dict[str, list[Any]] = {
    "noticeId": ["", None, 1, "N" * 65],
    "reference": ["", None, 1, "r" * 65],
    "event": ["ACCEPTED", "settled", "", None, 1],
    "amount": [0, -1, 1.0, "1000", True, None, 2**53],
    "currency": ["", "VN", "VNDD", None, 704],
    "returnId": ["R-1", "", 1],
    "reason": [1, "x" * 501, []],
    "occurredAt": ["", "2026-01-31", "2026-01-31T17:00:00", "2026-02-30T00:00:00Z", 1_780_000_000, None],
    "more": [None, 1],
}


def _signed(value: Any) -> Callable[[], Notice]:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda: _verify(_headers(body), body)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ODD_VALUES.items() for value in values], ids=repr
)
def test_a_signed_notice_that_is_none(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        _signed({**GOOD, name: value})()
    assert [fault.field for fault in refusal.value.fields] == [name]


@pytest.mark.parametrize("name", GOOD)
def test_a_signed_notice_without_one_of_its_members(name: str) -> None:
    with pytest.raises(InvalidRequest):
        _signed({other: value for other, value in GOOD.items() if other != name})()


def test_a_return_has_an_id_and_nothing_else_has() -> None:
    returned = {**GOOD, "event": "RETURNED", "returnId": "R-1", "reason": "account closed"}
    notice = _signed(returned)()
    assert (notice.event, notice.return_id, notice.reason) == (NoticeEvent.RETURNED, "R-1", "account closed")
    for wrong in ({**returned, "returnId": None}, {**returned, "event": "SETTLED"}, {**returned, "event": "REFUSED"}):
        with pytest.raises(InvalidRequest, match="returnId"):
            _signed(wrong)()


@pytest.mark.parametrize(
    "body", [b"", b"{", BODY[:-1] + b', "amount": 1}', b"\xff", BODY.replace(b"1000", b"NaN"), b"[" * 50 + b"]" * 50]
)
def test_a_signed_body_that_is_no_json(body: bytes) -> None:
    with pytest.raises(InvalidJSON):
        _signed(body)()


@pytest.mark.parametrize("value", [[], [GOOD], None, 1, "x"])
def test_a_signed_body_that_is_no_object(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        _signed(value)()
