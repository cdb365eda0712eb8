"""Domain errors: one small class each, with a stable code. The HTTP status follows from the category, in one place.

A domain error is expected: it is answered, not logged as an exception. Whatever is no domain error crashes.
"""

from enum import StrEnum
from typing import ClassVar


class Retry(StrEnum):
    """What a phone should do about an error: send the same key again, use a new key, or give up."""

    SAME_KEY = "same_key"
    NEW_KEY = "new_key"
    NEVER = "never"


class DomainError(Exception):
    """Base of all expected refusals.

    Args:
        detail: a sentence for people; made to be translated, never to be parsed.
        fields: structured facts of the refusal, in API names.
        retry_after: seconds to wait before trying again, where that is known.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(
        self, detail: str = "", *, fields: list["FieldError"] | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or f"{self.title}."
        self.fields = fields or []
        self.retry_after = retry_after


class FieldError:
    """One entry of a problem's `errors`: which field, what kind of fault, and a sentence about it."""

    __slots__ = ("code", "detail", "field")

    def __init__(self, *, field: str, code: str, detail: str) -> None:
        self.field = field
        self.code = code
        self.detail = detail


# --- Categories: each is one HTTP status (wallet_project.exception_handler) ------------------------------------------


class Malformed(DomainError):
    """The request itself is wrong, whatever the state of the books (400)."""


class Unauthenticated(DomainError):
    """Nobody, or somebody who may no longer act (401)."""

    retry = Retry.SAME_KEY


class Forbidden(DomainError):
    """A role is missing (403). Never used for somebody else's object."""


class NotFound(DomainError):
    """No such thing for this caller (404)."""

    code = "not_found"
    title = "Not found"


class Conflict(DomainError):
    """The object's state does not allow it (409)."""


class IllegalState(Conflict):
    """The object is in a state that does not allow the command; the detail says which."""

    code = "illegal_state"
    title = "Illegal state"


class RuleViolation(DomainError):
    """A rule of the book refuses it (422)."""


class TooMany(DomainError):
    """Asked too often (429)."""

    retry = Retry.SAME_KEY


class Unavailable(DomainError):
    """The service cannot answer now; trying again with the same key is safe (503)."""

    code = "unavailable"
    title = "Service unavailable"
    retry = Retry.SAME_KEY

    def __init__(self, detail: str = "", *, retry_after: int = 1) -> None:
        super().__init__(detail or "The service cannot answer now; try again.", retry_after=retry_after)


class InvalidRequest(Malformed):
    """Fields are missing, unknown or out of bounds; `fields` names each."""

    code = "invalid_request"
    title = "Invalid request"


class InvalidJSON(Malformed):
    """The body is no JSON that this API accepts."""

    code = "invalid_json"
    title = "Invalid JSON"


class InvalidCursor(Malformed):
    """The cursor was not issued by this list."""

    code = "invalid_cursor"
    title = "Invalid cursor"


class NotAuthenticated(Unauthenticated):
    """No credentials, or wrong ones at sign-in."""

    code = "not_authenticated"
    title = "Not authenticated"


class TokenInvalid(Unauthenticated):
    """The token is expired, forged, used up, or its user is disabled or has changed the password."""

    code = "token_invalid"
    title = "Token invalid"


class PermissionDenied(Forbidden):
    """A role is missing."""

    code = "permission_denied"
    title = "Permission denied"


class RateLimited(TooMany):
    """Too many tries; `retry_after` says when the next one passes."""

    code = "rate_limited"
    title = "Rate limited"
