"""The base of all views of the API: the order of checks that API clients rely on."""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import ViewSet

from wallet_project.kernel.api import read_object
from wallet_project.kernel.throttle import Limit, throttle


class ApiViewSet(ViewSet):
    """Checks in one order: method, body (413, 415, 400), caller (401), rate; then the action begins.

    An action parses the rest (key, fields), makes one call of a service or a selector, and translates its answer.
    `body` is a POST's JSON object; the actions of `bodiless` are content without one.
    """

    body: dict[str, Any]
    bodiless: frozenset[str] = frozenset()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in self.allowed_methods:
            self.http_method_not_allowed(request)
        if request.method == "OPTIONS":
            return
        if request.method == "POST":
            self.read_body(request)
        super().initial(request, *args, **kwargs)

    def read_body(self, request: Request) -> None:
        """Read a POST's body, before anybody is asked who calls.

        Raises:
            DomainError: the protocol's own refusals of it.
        """
        self.body = read_object(request._request, may_be_absent=self.action in self.bodiless)

    def options(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # type: ignore[override]  # DRF's own
        """Which methods there are, in `Allow`; it takes no credentials to ask."""
        return Response(status=204)

    @property
    def allowed_methods(self) -> list[str]:
        return [*(method.upper() for method in self.action_map), "OPTIONS"]

    @property
    def default_response_headers(self) -> dict[str, str]:
        return {"Allow": ", ".join(self.allowed_methods), "Cache-Control": "no-store"}


class PerCaller(BaseThrottle):
    """So many calls a minute of each user; a subclass names the limit's scope and its setting."""

    scope: str
    setting: str

    def allow_request(self, request: Request, view: Any) -> bool:
        """True; where it is too much, the refusal is raised.

        Raises:
            RateLimited: too many in this minute.
        """
        limit = Limit(scope=self.scope, tries=getattr(settings, self.setting), seconds=60)
        throttle().check(limit, str(request.user.pk))
        return True
