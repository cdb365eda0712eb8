"""Who calls: a bearer token, checked against the user (the default), or only decoded."""

from dataclasses import dataclass
from typing import ClassVar

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework_simplejwt.exceptions import TokenError

from accounts.models import User
from accounts.selectors import confirm_caller
from accounts.services import Caller
from accounts.tokens import AccessToken
from wallet_project.kernel.errors import NotAuthenticated, TokenInvalid
from wallet_project.kernel.fields import MAX_ID

# Characters. Ours have some 300; a token's header is parsed before its signature is checked, by a parser that recurses.
LONGEST_TOKEN = 4096


class TokenAuthentication(BaseAuthentication):
    """Confirms with one query that the user is active and has kept the password.

    `request.user` is the user, `request.auth` the `Caller`.
    """

    def authenticate(self, request: Request) -> tuple[User, Caller] | None:
        caller = _bearer(request)
        return None if caller is None else (confirm_caller(caller), caller)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Somebody with a genuine token, whom nobody has confirmed yet."""

    pk: int
    is_authenticated: ClassVar = True


class UnconfirmedTokenAuthentication(BaseAuthentication):
    """Makes no query. For commands alone whose service confirms the caller itself, after its locks.

    `request.user` is a `Bearer`, `request.auth` the `Caller`.
    """

    def authenticate(self, request: Request) -> tuple[Bearer, Caller] | None:
        caller = _bearer(request)
        return None if caller is None else (Bearer(pk=caller.user_id), caller)


def caller_of(request: Request) -> Caller:
    """Who sent a request.

    Raises:
        NotAuthenticated: nobody did; the view lets anybody in.
    """
    if not isinstance(request.auth, Caller):
        raise NotAuthenticated
    return request.auth


def _bearer(request: Request) -> Caller | None:
    header: str = request.META.get("HTTP_AUTHORIZATION", "")
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    if len(encoded) > LONGEST_TOKEN:
        raise TokenInvalid("The access token is too long to be one.")
    try:
        token = AccessToken(encoded.strip())  # type: ignore[arg-type]  # The library's own name for an encoded token.
        return Caller(user_id=_id(token["user_id"]), stamp=_stamp(token["stamp"]))
    except (TokenError, KeyError, TypeError, ValueError, OverflowError) as error:
        # The last ones: signed by us, but not for this; a key is shared, or was.
        raise TokenInvalid("The access token is not genuine, or has expired.") from error


def _id(claim: str) -> int:
    number = int(claim)
    if not 1 <= number <= MAX_ID:
        raise ValueError(claim)
    return number


def _stamp(claim: object) -> str:
    if not isinstance(claim, str):
        raise TypeError(claim)
    return claim
