"""What surrounds every request: its id, and the answer when the database is away."""

import logging
import re
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from wallet_project.exception_handler import is_admin, problem
from wallet_project.kernel import clock
from wallet_project.kernel.api import REQUEST_ID, request_id
from wallet_project.kernel.db import is_unavailable
from wallet_project.kernel.errors import Unavailable

logger = logging.getLogger(__name__)
GetResponse = Callable[[HttpRequest], HttpResponseBase]

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestIdMiddleware:
    """Gives every answer an `X-Request-ID`: the client's own, where it sent a usable one."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        sent: str = request.META.get("HTTP_X_REQUEST_ID", "")
        id_ = sent if _ID.fullmatch(sent) else str(clock.new_id())
        request.META[REQUEST_ID] = id_
        response = self.get_response(request)
        response["X-Request-ID"] = id_
        return response


class UnavailableMiddleware:
    """Answers 503 when the database, rather than the request, is the reason of an error, in whatever view."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        if not isinstance(exception, (DatabaseError, InterfaceError)) or not is_unavailable(exception):
            return None
        logger.warning("request %s: the database cannot answer: %s", request_id(request), exception)
        error = Unavailable()
        if is_admin(request):
            return HttpResponse(error.detail, status=503, content_type="text/plain", headers={"Retry-After": "1"})
        return problem(error, request)
