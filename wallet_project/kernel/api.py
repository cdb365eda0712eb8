"""What this API speaks: JSON in and out whatever `Accept` says, and the refusals of the protocol itself.

Settings name these classes, and Django REST framework loads them before its views: so no view is imported here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import IO, Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from wallet_project.kernel import strict_json
from wallet_project.kernel.errors import DomainError, InvalidJSON, Malformed, Retry

JSON = "application/json"
MAX_BODY = 1024 * 1024  # bytes
MAX_DISCARDED = 32 * MAX_BODY
REQUEST_ID = "wallet.request_id"  # where a request keeps its id, in META

KEY_PATTERN = "^[A-Za-z0-9._~:+/=@-]{1,64}$"

_KEY = re.compile(KEY_PATTERN)


class PayloadTooLarge(DomainError):
    """The body is larger than 1 MiB."""

    code = "payload_too_large"
    title = "Payload too large"


class UnsupportedMediaType(DomainError):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"
    title = "Unsupported media type"


class MethodNotAllowed(DomainError):
    """The address exists, but not for this method; `Allow` names those it has."""

    code = "method_not_allowed"
    title = "Method not allowed"


class InternalError(DomainError):
    """A fault of ours. Nothing was stored, or all of it: the same key finds out."""

    code = "internal_error"
    title = "Internal error"
    retry = Retry.SAME_KEY


class IdempotencyKeyMissing(Malformed):
    """A command came without an `Idempotency-Key`."""

    code = "idempotency_key_missing"
    title = "Idempotency key missing"


class IdempotencyKeyInvalid(Malformed):
    """The key is longer than 64, has other characters than allowed, or the header was sent twice."""

    code = "idempotency_key_invalid"
    title = "Idempotency key invalid"


class StrictJSONParser(BaseParser):
    """Reads a body by `strict_json`."""

    media_type = JSON

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        return strict_json.loads(stream.read())


class JSONRenderer(BaseRenderer):
    """Writes compact UTF-8; answers are built from plain values, so nothing needs to be converted."""

    media_type = JSON
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else strict_json.dumps(data)


class AlwaysJSON(BaseContentNegotiation):
    """The first parser and the first renderer, whatever the headers say."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        return next(iter(parsers))

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


def read_object(request: HttpRequest, *, may_be_absent: bool = False) -> dict[str, Any]:
    """The body of a request, which must be one JSON object.

    Args:
        may_be_absent: no body is an empty object.

    Raises:
        PayloadTooLarge: it is larger than 1 MiB.
        UnsupportedMediaType: it is not declared as JSON.
        InvalidJSON: it is no JSON object, or JSON that two readers could understand differently.
    """
    body = read_bytes(request)
    if not body:
        if may_be_absent:
            return {}
        raise InvalidJSON("The body is empty; it must be a JSON object.")
    demand_json(request)
    value = strict_json.loads(body)
    if not isinstance(value, dict):
        raise InvalidJSON("The body must be a JSON object.")
    return value


def read_bytes(request: HttpRequest) -> bytes:
    """The body of a request, as it came.

    Raises:
        PayloadTooLarge: it is larger than 1 MiB.
    """
    body = _read(request, MAX_BODY + 1)
    if len(body) > MAX_BODY:
        # Read on for a while: a client that still sends would find the connection closed before it sees the answer.
        for _ in range(MAX_DISCARDED // MAX_BODY):
            if not _read(request, MAX_BODY):
                break
        raise PayloadTooLarge("A body has 1 MiB at most.")
    return body


def demand_json(request: HttpRequest) -> None:
    """Raises UnsupportedMediaType when the body is not declared as JSON."""
    content_type: str = request.META.get("CONTENT_TYPE", "")
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType(f"Send the body as {JSON}.")


def _read(request: HttpRequest, size: int) -> bytes:
    # Django reads nothing where no length is declared: chunked bodies, and HTTP/2. A server that says it ends the
    # stream itself can be read without one.
    if request.META.get("wsgi.input_terminated"):
        body: bytes = request.META["wsgi.input"].read(size)
        return body
    return request.read(size)


def request_id(request: HttpRequest) -> str:
    """The id of a request, as its answer carries it in `X-Request-ID`."""
    return str(request.META.get(REQUEST_ID, ""))


def client_address(request: HttpRequest) -> str:
    """Where a request comes from: the nearest address that no proxy of ours has, so that nobody can make one up."""
    header: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    forwarded = [address for address in map(str.strip, header.split(",")) if address]
    path: list[str] = [*forwarded, request.META.get("REMOTE_ADDR", "")]
    return path[-1 - min(settings.TRUSTED_PROXY_HOPS, len(forwarded))]


def idempotency_key(request: HttpRequest) -> str:
    """The key of a command, without blanks around it.

    Raises:
        IdempotencyKeyMissing: there is no such header.
        IdempotencyKeyInvalid: it is no key. A header sent twice arrives joined by a comma, which no key may have.
    """
    header: str | None = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if header is None:
        raise IdempotencyKeyMissing("Send an Idempotency-Key header: a new key for each new command.")
    key = header.strip(" \t")
    if not is_idempotency_key(key):
        raise IdempotencyKeyInvalid("A key is 1 to 64 of A-Z a-z 0-9 . _ ~ : + / = @ -")
    return key


def prefers_representation(request: HttpRequest) -> bool:
    """Whether a command is to be answered with the whole thing that it made: `Prefer: return=representation`.

    RFC 7240: unknown preferences are ignored, and of one that stands twice the first counts.
    """
    header: str | None = request.META.get("HTTP_PREFER")
    if header is None:
        return False
    for preference in header.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "return":
            return value.strip().strip('"') == "representation"
    return False


def is_idempotency_key(text: str) -> bool:
    """Whether a text may be a key."""
    return _KEY.fullmatch(text) is not None
