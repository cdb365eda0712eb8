"""What the example consumer wrote for the caller, and the schemas of events."""

from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import caller_of
from transfers.events import schemas_body
from transfers.notifications import notifications_page
from wallet_project.kernel.query import PageQuery, read_query
from wallet_project.kernel.views import ApiViewSet

PAGE = PageQuery()


class NotificationViewSet(ApiViewSet):
    """The caller's notifications."""

    def list(self, request: Request) -> Response:
        query = PAGE.parse(read_query(request))
        return Response(notifications_page(user_id=caller_of(request).user_id, **query))


class EventSchemaViewSet(ApiViewSet):
    """For those who consume: services, which do not sign in. They are no secret."""

    authentication_classes = ()
    permission_classes = ()

    def list(self, request: Request) -> Response:
        return Response(schemas_body())
