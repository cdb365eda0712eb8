"""Every error as `application/problem+json` (RFC 9457), whoever raised it; the one place that knows statuses."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.views import defaults
from rest_framework import exceptions

from wallet_project.kernel import errors, strict_json
from wallet_project.kernel.api import (
    InternalError,
    MethodNotAllowed,
    PayloadTooLarge,
    UnsupportedMediaType,
    request_id,
)
from wallet_project.kernel.errors import DomainError

STATUS: dict[type[DomainError], int] = {
    errors.Malformed: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    MethodNotAllowed: 405,
    errors.Conflict: 409,
    PayloadTooLarge: 413,
    UnsupportedMediaType: 415,
    errors.RuleViolation: 422,
    errors.TooMany: 429,
    InternalError: 500,
    errors.Unavailable: 503,
}

# What the frameworks raise by themselves.
_FOREIGN: dict[type[Exception], Callable[[], DomainError]] = {
    exceptions.NotAuthenticated: lambda: errors.NotAuthenticated("Send an access token: Authorization: Bearer ..."),
    exceptions.PermissionDenied: errors.PermissionDenied,
    exceptions.MethodNotAllowed: lambda: MethodNotAllowed("Allow names the methods that this address has."),
    exceptions.NotFound: errors.NotFound,
    Http404: errors.NotFound,
    DjangoPermissionDenied: errors.PermissionDenied,
}


def exception_handler(exc: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """The answer to an expected error. None lets the others crash: Django logs them and asks `server_error`."""
    if isinstance(exc, DomainError):
        return problem(exc, context["request"])
    foreign = _FOREIGN.get(type(exc))
    return None if foreign is None else problem(foreign(), context["request"])


def problem(error: DomainError, request: HttpRequest) -> HttpResponse:
    """A refusal as an answer."""
    body = problem_body(error, instance=request.path, request_id=request_id(request))
    status: int = body["status"]
    response = HttpResponse(strict_json.dumps(body), status=status, content_type="application/problem+json")
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    if status == 401:
        parameters = ', error="invalid_token"' if isinstance(error, errors.TokenInvalid) else ""
        response["WWW-Authenticate"] = f'Bearer realm="wallet"{parameters}'
    return response


def problem_body(error: DomainError, *, instance: str, request_id: str) -> dict[str, Any]:
    """A refusal as RFC 9457 has it, and what the API adds.

    Args:
        instance: the path that was asked.
        request_id: the request's id.
    """
    return {
        "type": f"{settings.DOCS_URL}/errors/{error.code.replace('_', '-')}",
        "title": error.title,
        "status": status_of(error),
        "code": error.code,
        "detail": error.detail,
        "instance": instance,
        "requestId": request_id,
        "retry": error.retry,
        "errors": [{"field": fault.field, "code": fault.code, "detail": fault.detail} for fault in error.fields],
    }


def status_of(error: DomainError) -> int:
    """The HTTP status of an error's category."""
    return next(status for category, status in STATUS.items() if isinstance(error, category))


# --- What Django asks when no view answers; people in the admin get Django's own pages ------------------------------


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_admin(request):
        return defaults.bad_request(request, exception)
    return problem(errors.InvalidRequest("The request is malformed."), request)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_admin(request):
        return defaults.permission_denied(request, exception)
    return problem(errors.PermissionDenied(), request)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if is_admin(request):
        return defaults.page_not_found(request, exception)
    return problem(errors.NotFound("There is no such address."), request)


def server_error(request: HttpRequest) -> HttpResponseBase:
    if is_admin(request):
        return defaults.server_error(request)
    return problem(InternalError("Something went wrong on our side."), request)


def is_admin(request: HttpRequest) -> bool:
    """Whether a person in a browser asked, rather than a program."""
    return request.path.startswith("/admin/")
