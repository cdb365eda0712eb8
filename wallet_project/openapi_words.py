"""What the OpenAPI document says of all calls alike, and of those that belong to no app."""

from typing import Any

import accounts.api.schema
import transfers.api.schema
from wallet_project import heartbeat
from wallet_project.exception_handler import problem_body
from wallet_project.kernel import api, errors
from wallet_project.kernel.errors import DomainError, Retry
from wallet_project.kernel.openapi import Answer, Operation, Schema, number, record, ref, text, uuid, word

PROBLEM_JSON = "application/problem+json"

ABOUT = """
Money moves once and only once, whatever the network does: see docs/mobile.md for keys and retries, docs/errors.md for
every code. What holds for all calls:

- JSON in and out whatever `Accept` says, camelCase names, UTF-8. Times are RFC 3339 in UTC. Bodies are read strictly: a
  key twice, NaN, trailing data, NUL, nesting deeper than 32 and unknown fields are 400, more than 1 MiB is 413.
- Money is an integer in the currency's smallest unit, at most 9007199254740991 (2^53 - 1).
- Send `Authorization: Bearer <access token>`. What belongs to somebody else answers like what does not exist: 404.
- Each error is `application/problem+json` (RFC 9457). Decide by `retry` and `code`. An unknown address is 404
  `not_found`, another method 405 `method_not_allowed` with `Allow`; both need no token.
- One order of checks: 404 (no such address), 405; 413, 415, 400 `invalid_json`; 401; 403; 429; the key's header; the
  fields; then, under the locks, the key (a replay, or `idempotency_key_reused`), and the rules of the book.
- Expect fields and types that you do not know.
""".strip()

TAGS = [
    {"name": "Signing in", "description": "Users and tokens."},
    {"name": "Wallets", "description": "A user's accounts, their balances and history."},
    {"name": "Money", "description": "Transfers, holds, money from and to the bank, and what staff take back."},
    {"name": "Keys and events", "description": "What became of a command, and what the world is told."},
    {"name": "Service", "description": "For supervisors, and for those who read this."},
]

SECURITY_SCHEMES: Schema = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The access token of a sign-in or a refresh.",
    }
}


# --- What calls share ------------------------------------------------------------------------------------------------


def _parameter(name: str, where: str, schema: Schema, *, required: bool, example: Any) -> Schema:
    description = schema.pop("description")
    about = {"name": name, "in": where, "required": required, "description": description}
    return {**about, "schema": schema, "example": example}


PARAMETERS: Schema = {
    "accountId": _parameter("accountId", "path", number("A wallet's number."), required=True, example=1001),
    "holdId": _parameter(
        "holdId", "path", uuid("A hold's id."), required=True, example="01a22db0-7c3e-7d7c-9a57-2b6c8d1c0f11"
    ),
    "depositId": _parameter(
        "depositId", "path", uuid("A deposit's id."), required=True, example="01a22db1-0c7e-7a11-8d2f-5b6c8d1c0f22"
    ),
    "withdrawalId": _parameter(
        "withdrawalId",
        "path",
        uuid("A withdrawal's id."),
        required=True,
        example="01a22db2-4d1f-7b36-9c0d-7f1e2d3c4b5a",
    ),
    "transactionId": _parameter(
        "transactionId",
        "path",
        uuid("A transaction's id."),
        required=True,
        example="01a22daf-1602-744f-a315-6f0f53d1b7d0",
    ),
    "Idempotency-Key": _parameter(
        "Idempotency-Key",
        "header",
        text(
            "The caller's name for this command: the same key with the same command is done once and answered again, "
            "for ever; with another command it is 422. A command that was refused has not used its key up. Sent twice "
            "it is 400.",
            pattern=api.KEY_PATTERN,
        ),
        required=True,
        example="6f1d4f0e-6f0a-4c55-9b0e-0a0f7e1a2b3c",
    ),
    "Prefer": _parameter(
        "Prefer",
        "header",
        text("`return=representation`: answer the whole thing. Others are ignored (RFC 7240)."),
        required=False,
        example="return=representation",
    ),
    "Bank-Timestamp": _parameter(
        "Bank-Timestamp",
        "header",
        text("When the notice was signed, in seconds since 1970; at most five minutes from now."),
        required=True,
        example="1796144400",
    ),
    "Bank-Signature": _parameter(
        "Bank-Signature",
        "header",
        text("`v1=` and the HMAC-SHA256 of the timestamp, a point and the body, in hexadecimal."),
        required=True,
        example="v1=" + "0" * 64,
    ),
    "X-Request-ID": _parameter(
        "X-Request-ID",
        "header",
        text("Names the request in answers and logs, if it is 1 to 64 of `A-Z a-z 0-9 . _ -`; else one is made."),
        required=False,
        example="app-7f3a",
    ),
}


def _header(schema: Schema, *, required: bool) -> Schema:
    description = schema.pop("description")
    return {"description": description, "required": required, "schema": schema}


_SECONDS: Schema = {"type": "integer", "minimum": 1, "description": "So many seconds to wait before the next try."}
HEADERS: Schema = {
    "X-Request-ID": _header(text("The client's own, or a new one.", pattern="^[A-Za-z0-9._-]{1,64}$"), required=True),
    "Idempotent-Replayed": _header(word("The first answer again; nothing was done now.", "true"), required=False),
    "Preference-Applied": _header(word("What `Prefer` asked for was done.", "return=representation"), required=False),
    "Retry-After": _header(_SECONDS, required=True),
    "WWW-Authenticate": _header(text("RFC 6750.", pattern='^Bearer realm="wallet"'), required=True),
}

# Refusals that many calls share, exactly so.
RESPONSES: dict[str, tuple[type[DomainError], ...]] = {
    "Unauthenticated": (errors.NotAuthenticated, errors.TokenInvalid),
    "PayloadTooLarge": (api.PayloadTooLarge,),
    "UnsupportedMediaType": (api.UnsupportedMediaType,),
    "RateLimited": (errors.RateLimited,),
    "InternalError": (api.InternalError,),
    "Unavailable": (errors.Unavailable,),
}

_FIELD_ERROR = record(
    "A faulty field.",
    {
        "field": text("Its path in the body, or the name of a query parameter."),
        "code": text("What kind of fault: `required`, `unknown`, `null`, `invalid`, `max_value` ..."),
        "detail": text("In a sentence."),
    },
)
_PROBLEM = record(
    "Every error (RFC 9457).",
    {
        "type": text("Where the code is explained.", format="uri"),
        "title": text("For people; may be translated."),
        "status": {"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."},
        "code": text("Stable: decide by it."),
        "detail": text("For people; may be translated."),
        "instance": text("The path that was asked."),
        "requestId": text("As in `X-Request-ID`."),
        "retry": word("What to do: the same command with the same key, a new key, or nothing.", *Retry),
        "errors": {"type": "array", "maxItems": 20, "items": ref("FieldError"), "description": "Faulty fields."},
    },
)


def problem_example(class_: type[DomainError]) -> Schema:
    body = problem_body(class_(), instance="/v1/...", request_id="01a22dc8-d4b8-7431-a905-a263be55ee6e")
    return {**body, "retry": str(body["retry"])}


# --- Calls that belong to no app -------------------------------------------------------------------------------------

_STATES = word("Whether it answers.", "ok", "unavailable")
_CHECKS = record(
    "Each part by its name.",
    dict.fromkeys(("database", "redis", "broker", heartbeat.BEAT, heartbeat.WORKER), _STATES),
)
_READINESS = record(
    "Whether requests can be served.",
    {"status": word("Money needs the database alone.", "ok", "degraded", "unavailable"), "checks": _CHECKS},
)
_ALL_OK = {"status": "ok", "checks": dict.fromkeys(_CHECKS["properties"], "ok")}
_NO_DATABASE = {"status": "unavailable", "checks": {**_ALL_OK["checks"], "database": "unavailable"}}  # type: ignore[dict-item]

OPERATIONS: dict[str, Operation] = {
    **accounts.api.schema.CHAPTER.operations,
    **transfers.api.schema.CHAPTER.operations,
    "GET /v1/schema": Operation(
        id="getSchema",
        tag="Service",
        summary="This document",
        description="OpenAPI 3.1, as JSON.",
        answers={200: Answer(description="The document.", schema={"type": "object"}, example={"openapi": "3.1.0"})},
        reads_database=False,
    ),
    "GET /v1/docs": Operation(
        id="getDocs",
        tag="Service",
        summary="This document, for people",
        description="Swagger UI, served from here alone.",
        answers={200: Answer(description="A page.", schema={"type": "string"}, media_type="text/html")},
        reads_database=False,
    ),
    "GET /healthz": Operation(
        id="getLiveness",
        tag="Service",
        summary="The process lives",
        description="Asks no other server.",
        answers={200: Answer(description="It does.", schema=ref("Liveness"), example={"status": "ok"})},
        reads_database=False,
    ),
    "GET /readyz": Operation(
        id="getReadiness",
        tag="Service",
        summary="Whether requests can be served",
        description="`degraded` where anything but the database is away.",
        answers={
            200: Answer(description="They can.", schema=ref("Readiness"), example=_ALL_OK),
            503: Answer(
                description="The database is away.",
                schema=ref("Readiness"),
                example=_NO_DATABASE,
                headers=["Retry-After"],
            ),
        },
        reads_database=False,
    ),
}

SCHEMAS: dict[str, Schema] = {
    **accounts.api.schema.CHAPTER.schemas,
    **transfers.api.schema.CHAPTER.schemas,
    "FieldError": _FIELD_ERROR,
    "Problem": _PROBLEM,
    "Liveness": record("The process lives.", {"status": word("It does.", "ok")}),
    "Readiness": _READINESS,
}
