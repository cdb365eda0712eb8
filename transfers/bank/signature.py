"""Who sent a notice, and when: HMAC-SHA256 over its time and its body, in two headers.

    Bank-Timestamp: 1780000000
    Bank-Signature: v1=<64 lower-case hexadecimal digits>

The digits are HMAC-SHA256 with the shared secret as the key and `<timestamp>.<body>` as the message: the timestamp as
it stands in the header, a full stop, the bytes of the body. There is exactly one signature: during a rotation we
accept two secrets, so the bank needs no second one, and a header that was sent twice is refused.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from transfers.bank.errors import SignatureInvalid
from wallet_project.kernel import clock

TIMESTAMP_HEADER = "Bank-Timestamp"
SIGNATURE_HEADER = "Bank-Signature"

_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
_SIGNATURE = re.compile(r"v1=([0-9a-f]{64})", re.ASCII)


def sign(body: bytes, *, timestamp: str, secret: str) -> str:
    """The value of `Bank-Signature` for a body.

    Args:
        timestamp: seconds since 1970, as in `Bank-Timestamp`.
    """
    message = timestamp.encode() + b"." + body
    return f"v1={hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()}"


def check(headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str], window_seconds: int) -> None:
    """Let a notice pass that the bank has signed just now.

    The answers do not tell a stranger more than what is public: the form of the headers, and our clock.

    Args:
        secrets: any of them may have signed.
        window_seconds: how old it may be, and how far ahead of our clock.

    Raises:
        SignatureInvalid: a header is missing or malformed, no secret fits, or the time is outside the window.
    """
    timestamp, signature = headers.get(TIMESTAMP_HEADER, ""), headers.get(SIGNATURE_HEADER, "")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise SignatureInvalid(f"{TIMESTAMP_HEADER} must be the seconds since 1970, in digits, once.")
    if not _SIGNATURE.fullmatch(signature):
        raise SignatureInvalid(f"{SIGNATURE_HEADER} must be v1= and 64 lower-case hexadecimal digits, once.")
    # All are tried, so that the time taken does not tell which one fits.
    fits = [hmac.compare_digest(sign(body, timestamp=timestamp, secret=secret), signature) for secret in secrets]
    if not any(fits):
        raise SignatureInvalid("The signature does not fit the timestamp and the body.")
    if abs(clock.now().timestamp() - int(timestamp)) > window_seconds:
        raise SignatureInvalid(f"The timestamp is more than {window_seconds} seconds from now.")
