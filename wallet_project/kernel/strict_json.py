"""JSON, read strictly: what two readers could understand differently, or the database could not keep, is refused."""

import json
import re
from itertools import accumulate
from math import isinf
from typing import Any

from wallet_project.kernel.errors import InvalidJSON

MAX_DEPTH = 32

_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def loads(raw: bytes) -> Any:
    """Parse a JSON text in UTF-8.

    Raises:
        InvalidJSON: no JSON; or a key twice in one object, NaN or infinite numbers, numbers of thousands of digits,
            NUL characters, lone surrogates, or nesting deeper than 32.
    """
    try:
        # Before the parser, which recurses: with a thread's small stack, deep nesting would end the process.
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        text = raw.decode()
        value = _DECODER.decode(text)
        if "\\u" in text:  # Nothing else can bring in a bad character.
            _check_characters(value)
    except ValueError as error:
        raise InvalidJSON(f"The body is no JSON that this API accepts: {_reason(error)}.") from error
    return value


def dumps(value: Any) -> bytes:
    """Write compact JSON in UTF-8."""
    return _ENCODER.encode(value).encode()


def is_deeper_than(limit: int, value: Any) -> bool:
    """Whether objects and arrays are nested more than `limit` deep; a bare object is one deep."""
    match value:
        case dict():
            children = list(value.values())
        case list():
            children = value
        case _:
            return False
    return limit == 0 or any(is_deeper_than(limit - 1, child) for child in children)


def _depth(raw: bytes) -> int:
    brackets = _STRINGS.sub(b"", raw).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError("a number is too large")
    return number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _check_characters(value: Any) -> None:
    match value:
        case str():
            if "\0" in value:
                raise ValueError("NUL characters are not accepted")
            value.encode()  # A lone surrogate cannot be encoded.
        case dict():
            for name, member in value.items():
                _check_characters(name)
                _check_characters(member)
        case list():
            for item in value:
                _check_characters(item)


def _reason(error: ValueError) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg[0].lower()}{error.msg[1:].removesuffix(' at')} at character {error.pos}"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case UnicodeEncodeError():
            return "it holds half a surrogate pair"
        case _:
            return str(error).partition(";")[0]


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_no_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
