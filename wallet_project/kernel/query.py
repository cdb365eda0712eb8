"""Query strings and pages of lists."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest
from rest_framework import serializers

from wallet_project.kernel.errors import FieldError, InvalidCursor, InvalidRequest
from wallet_project.kernel.fields import MAX_ID, LimitField, StrictSerializer

DEFAULT_PAGE = 50


class CursorField(serializers.Field[str, str, str, Any]):
    """Taken as it is: `decode_cursor` judges it, with a code of its own."""

    json_schema = {"type": "string"}

    def to_internal_value(self, data: str) -> str:
        return data

    def to_representation(self, value: str) -> str:
        return value


class PageQuery(StrictSerializer):
    """What every list understands."""

    limit = LimitField(default=DEFAULT_PAGE, help_text="How many items a page has at most.")
    cursor = CursorField(required=False, help_text="`nextCursor` of the page before, as it was given.")


def read_query(request: HttpRequest) -> dict[str, str]:
    """The query string, each name once. UTF-8, whatever charset the request's headers claim.

    Raises:
        InvalidRequest: a name stands twice, or it is not UTF-8.
    """
    try:
        pairs = parse_qsl(request.META.get("QUERY_STRING", ""), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise InvalidRequest("The query string is not UTF-8.") from error
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        fault = FieldError(field=twice[:64], code="repeated", detail="This stands twice in the query string.")
        raise InvalidRequest(f"{fault.field}: {fault.detail}", fields=[fault])
    return values


def encode_cursor(of: str, *position: int) -> str:
    """A place in a list, to be sent back as it is.

    Args:
        of: which list; it holds no colon.
        position: where the page ended.
    """
    return urlsafe_b64encode(":".join([of, *map(str, position)]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *, of: str, length: int) -> tuple[int, ...] | None:
    """The place that a cursor of this list names; None without one, which is the list's beginning.

    Raises:
        InvalidCursor: this list issued no such cursor.
    """
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
        name, *numbers = text.split(":")
        position = tuple(int(number) for number in numbers)
    except ValueError as error:
        raise InvalidCursor("This list issued no such cursor.") from error
    genuine = name == of and len(position) == length and all(0 <= number <= MAX_ID for number in position)
    if not genuine or encode_cursor(of, *position) != cursor:
        raise InvalidCursor("This list issued no such cursor.")
    return position


def page(items: Sequence[Any], *, next_cursor: str | None) -> dict[str, Any]:
    """A page of a list as the API shows it."""
    return {"items": list(items), "nextCursor": next_cursor}
