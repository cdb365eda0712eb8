"""Sign-up and sign-in."""

from rest_framework.request import Request
from rest_framework.response import Response

from accounts import sessions
from accounts.api.serializers import RefreshSerializer, SignInSerializer, SignUpSerializer
from accounts.services import sign_up
from accounts.sessions import Tokens
from wallet_project.kernel.api import client_address
from wallet_project.kernel.views import ApiViewSet

SIGN_UP = SignUpSerializer()
SIGN_IN = SignInSerializer()
REFRESH = RefreshSerializer()


class UserViewSet(ApiViewSet):
    """Customers, who sign up themselves."""

    authentication_classes = ()
    permission_classes = ()

    def create(self, request: Request) -> Response:
        user = sign_up(**SIGN_UP.parse(self.body), address=client_address(request))
        return Response({"userId": user.pk, "username": user.username}, status=201)


class TokenViewSet(ApiViewSet):
    """Access tokens, and the refresh tokens that bring new ones."""

    authentication_classes = ()
    permission_classes = ()

    def create(self, request: Request) -> Response:
        fields = SIGN_IN.parse(self.body)
        return _pair(
            sessions.sign_in(username=fields["username"], password=fields["password"], address=client_address(request))
        )

    def refresh(self, request: Request) -> Response:
        return _pair(sessions.refresh(**REFRESH.parse(self.body)))

    def logout(self, request: Request) -> Response:
        sessions.sign_out(**REFRESH.parse(self.body))
        return Response(status=204)


def _pair(tokens: Tokens) -> Response:
    return Response({"access": tokens.access, "refresh": tokens.refresh})
