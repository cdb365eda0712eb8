"""The words in which an app describes its calls for the OpenAPI document, which `wallet_project.openapi` builds.

No view knows its description, so none costs a request anything. What all calls share (errors of the protocol, headers,
security) is added there and said nowhere else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.fields import MAX_ID, StrictSerializer
from wallet_project.kernel.money import MAX_AMOUNT

Schema = dict[str, Any]  # a JSON Schema (2020-12), or a part of one

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A success: its body's schema with an example of it (or several, by name). `headers` names those of its own."""

    description: str
    schema: Schema | None = None
    example: Any = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    media_type: str = JSON
    headers: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call.

    Args:
        id: its name in generated clients.
        tag: the chapter it stands in.
        answers: its successes by status.
        errors: refusals of its own; those that all such calls share are added.
        body: what reads a POST's body.
        example: such a body.
        bodiless: the body may be left out.
        query: what reads the query string.
        headers: names of further request headers.
        command: it needs an idempotency key.
        throttled: it may answer 429.
        reads_database: it may answer 503.
    """

    id: str
    tag: str
    summary: str
    description: str
    answers: Mapping[int, Answer]
    errors: Sequence[type[DomainError]] = ()
    body: StrictSerializer | None = None
    example: Mapping[str, Any] | None = None
    bodiless: bool = False
    query: StrictSerializer | None = None
    headers: Sequence[str] = ()
    command: bool = False
    throttled: bool = False
    reads_database: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What an app adds to the document: its calls by method and path, and the schemas they name."""

    operations: Mapping[str, Operation]
    schemas: Mapping[str, Schema] = field(default_factory=dict)


# --- Schemas ---------------------------------------------------------------------------------------------------------


def ref(name: str) -> Schema:
    """A schema of some chapter's, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(description: str, properties: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """An object; all properties are always there but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "description": description, "properties": dict(properties), "required": required}


def page_of(name: str, what: str) -> Schema:
    """A page of a list."""
    return record(
        f"A page of {what}, newest first.",
        {
            "items": {"type": "array", "items": ref(name)},
            "nextCursor": text("Pass it as `cursor` for the next page; null on the last one.", null=True),
        },
    )


def text(description: str, *, null: bool = False, **more: Any) -> Schema:
    return {"type": ["string", "null"] if null else "string", "description": description, **more}


def uuid(description: str, *, null: bool = False) -> Schema:
    return text(description, null=null, format="uuid")


def instant(description: str) -> Schema:
    return text(f"{description} RFC 3339, in UTC.", format="date-time")


def number(description: str, *, null: bool = False, minimum: int = 1) -> Schema:
    """The number of a row."""
    type_ = ["integer", "null"] if null else "integer"
    return {"type": type_, "format": "int64", "minimum": minimum, "maximum": MAX_ID, "description": description}


def money(description: str, *, null: bool = False, minimum: int = 0) -> Schema:
    """An amount or a balance; a signed one says its own minimum."""
    type_ = ["integer", "null"] if null else "integer"
    in_units = f"{description} In the currency's smallest unit."
    return {"type": type_, "format": "int64", "minimum": minimum, "maximum": MAX_AMOUNT, "description": in_units}


def word(description: str, *words: str) -> Schema:
    """One of these words, and no other."""
    return text(description, enum=[str(each) for each in words])


def open_word(description: str, *words: str) -> Schema:
    """One of these words today; more may come."""
    return text(f"{description} {', '.join(f'`{each}`' for each in words)}; more may come.", examples=[words[0]])
