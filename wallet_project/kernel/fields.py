"""Fields that coerce nothing: a number is a JSON number, a text is taken as it was sent, an unknown name is refused.

Serializers here only read. They keep no state, so a view makes each once and calls `parse` from all threads.

A field whose JSON Schema does not follow from its class says it in `json_schema`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from wallet_project.kernel import clock, strict_json
from wallet_project.kernel.errors import FieldError, InvalidRequest
from wallet_project.kernel.money import MAX_AMOUNT

MAX_ID = 2**63 - 1
MAX_PAGE = 200

_MOST_ERRORS = 20
_LONGEST_NAME = 64
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]([01]\d|2[0-3]):\d{2}:\d{2}(\.\d{1,12})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_FINER = re.compile(r"(\.\d{6})\d+")
_LIMIT = re.compile(r"\d{1,3}", re.ASCII)
_NUMBER = re.compile(r"[1-9]\d{0,18}", re.ASCII)


class StrictSerializer(serializers.Serializer[Any]):
    """Reads the fields of a command or of a query string.

    They are declared in Python's spelling and read in the API's: `from_account_id` is `fromAccountId`. An underscore
    at the end only keeps a name apart from a word of Python's.
    """

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = {}
        for name, field in super().get_fields().items():
            first, *others = name.rstrip("_").split("_")
            api_name = first + "".join(word.capitalize() for word in others)
            if api_name != name and field.source is None:
                field.source = name
            fields[api_name] = field
        return fields

    def parse(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The validated values, by the fields' `source`; an optional field that is absent is absent.

        Raises:
            InvalidRequest: its `fields` name every fault, unknown fields included.
        """
        faults = [
            FieldError(field=name[:_LONGEST_NAME], code="unknown", detail="There is no such field.")
            for name in values
            if name not in self.fields
        ]
        parsed: dict[str, Any] = {}
        try:
            parsed = self.to_internal_value(values)
        except ValidationError as error:
            faults += _faults("", error.detail)
        if faults:
            first = faults[0]
            raise InvalidRequest(f"{first.field}: {first.detail}", fields=faults[:_MOST_ERRORS])
        return parsed


def _faults(path: str, detail: Any) -> Iterator[FieldError]:
    """The REST framework's tree of faults, flat: one per message, with its path."""
    match detail:
        case ErrorDetail():
            yield FieldError(field=path, code=str(detail.code), detail=str(detail))
        case dict():
            for name, inner in detail.items():
                yield from _faults(f"{path}.{name}" if path else str(name), inner)
        case _:
            for inner in detail:
                yield from _faults(path, inner)


class IntegerField(serializers.IntegerField):
    """A JSON integer: no text, no float, no boolean."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return int(data)


class AmountField(IntegerField):
    """An amount of money in minor units."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_AMOUNT, **kwargs)


class IdField(IntegerField):
    """The number of an account."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=MAX_ID, **kwargs)


class FlagField(serializers.BooleanField):
    """A JSON true or false: no text, no number. Null is the same as absent."""

    json_schema = {"type": "boolean"}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"allow_null": True, **kwargs})

    def to_internal_value(self, data: Any) -> bool:
        if type(data) is not bool:
            self.fail("invalid", input=data)
        return data


class TextField(serializers.CharField):
    """A text as it was sent, neither trimmed nor converted. Optional ones may be null, the same as absent."""

    def __init__(self, **kwargs: Any) -> None:
        optional = kwargs.get("required") is False
        super().__init__(**{"trim_whitespace": False, "allow_null": optional, "allow_blank": optional, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data


# What nobody sees, or what turns the text around it: controls, marks of direction, blanks of no width, separators.
_UNSEEN = "\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff"
_END = f"[^ \\u00a0{_UNSEEN}]"
LINE_PATTERN = f"^{_END}([^{_UNSEEN}]*{_END})?$"


class LineField(TextField):
    """A line that people read and act upon: what they see is what it is, without blanks at its ends."""

    default_error_messages = {
        "unseen": "This must be one line without blanks at its ends, and without characters that nobody sees."
    }

    @property
    def json_schema(self) -> dict[str, Any]:
        # Without the pattern, on which tools that read the document choke; the description says it in words.
        return {"type": "string", "minLength": 1, "maxLength": self.max_length}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not re.fullmatch(LINE_PATTERN, text):
            self.fail("unseen")
        return text


class CodeField(TextField):
    """One of a fixed set of words, written exactly so."""

    default_error_messages = {"invalid_choice": "This must be one of {choices}."}

    def __init__(self, *, choices: list[str], **kwargs: Any) -> None:
        self.choices = choices
        super().__init__(**kwargs)

    @property
    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": [str(choice) for choice in self.choices]}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if text not in self.choices:
            self.fail("invalid_choice", choices=", ".join(self.choices))
        return text


class MetadataField(serializers.Field[dict[str, Any], Any, dict[str, Any], Any]):
    """A JSON object of the client's own."""

    MAX_BYTES = 4096
    MAX_DEPTH = 5

    json_schema = {"type": "object", "additionalProperties": True}

    default_error_messages = {
        "invalid": "This must be an object.",
        "max_length": f"This must not be longer than {MAX_BYTES} bytes of compact JSON.",
        "max_depth": f"This must not be nested deeper than {MAX_DEPTH}.",
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail("invalid")
        if strict_json.is_deeper_than(self.MAX_DEPTH, data):
            self.fail("max_depth")
        if len(strict_json.dumps(data)) > self.MAX_BYTES:
            self.fail("max_length")
        return data

    def to_representation(self, value: dict[str, Any]) -> dict[str, Any]:
        return value


class LimitField(serializers.Field[int, str, int, Any]):
    """How many items a page may have; in a query string, so written in ASCII digits."""

    json_schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}

    default_error_messages = {"invalid": f"This must be a number from 1 to {MAX_PAGE}."}

    def to_internal_value(self, data: str) -> int:
        if not _LIMIT.fullmatch(data) or not 1 <= int(data) <= MAX_PAGE:
            self.fail("invalid")
        return int(data)

    def to_representation(self, value: int) -> int:
        return value


class NumberField(serializers.Field[int, str, int, Any]):
    """The number of an account in a query string, in ASCII digits and in one spelling."""

    json_schema = {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_ID}

    default_error_messages = {"invalid": "This must be the number of an account."}

    def to_internal_value(self, data: str) -> int:
        if not _NUMBER.fullmatch(data) or int(data) > MAX_ID:
            self.fail("invalid")
        return int(data)

    def to_representation(self, value: int) -> int:
        return value


class MomentField(serializers.Field[datetime, str, str, Any]):
    """An instant of RFC 3339, from 1970 on; with `or_date` also a date, for the beginning of that business day."""

    default_error_messages = {
        "invalid": "This must be an instant of RFC 3339, such as 2026-01-31T17:00:00Z (a plus sign is sent as %2B).",
        "invalid_or_date": "This must be a date, or an instant of RFC 3339 (a plus sign is sent as %2B).",
    }

    def __init__(self, *, or_date: bool = False, **kwargs: Any) -> None:
        self.or_date = or_date
        super().__init__(**kwargs)

    @property
    def json_schema(self) -> dict[str, Any]:
        instant, day = {"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}
        return {"oneOf": [instant, day]} if self.or_date else instant

    def to_internal_value(self, data: Any) -> datetime:
        moment = self._read(data)
        if moment is None or moment < _EARLIEST:
            self.fail("invalid_or_date" if self.or_date else "invalid")
        return moment

    def _read(self, text: Any) -> datetime | None:
        if not isinstance(text, str):
            return None
        try:
            if self.or_date and _DATE.fullmatch(text):
                return clock.start_of(date.fromisoformat(text)).astimezone(UTC)
            if _INSTANT.fullmatch(text):
                # Finer than a microsecond nothing is stored; clients of other languages send nanoseconds.
                return datetime.fromisoformat(_FINER.sub(r"\1", text.upper())).astimezone(UTC)
        except (ValueError, OverflowError):
            return None  # There is no such day or hour, or it lies before the first year or after the last.
        return None

    def to_representation(self, value: datetime) -> str:
        return clock.rfc3339(value)


def normalized(text: str) -> None:
    """A validator: two texts that look the same must be the same.

    Raises:
        ValidationError: the text is not in the normal form NFKC.
    """
    if unicodedata.normalize("NFKC", text) != text:
        raise DjangoValidationError("This holds characters that stand for others; use plain ones.", "not_normalized")
