"""Sign-in, refresh and logout: use cases of their own, each in its own transaction."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth import authenticate
from django.db.models import QuerySet
from rest_framework_simplejwt.exceptions import TokenError

from accounts.models import SignIn, User
from accounts.services import stamp_of
from accounts.tokens import AccessToken, RefreshToken
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows, run_in_transaction
from wallet_project.kernel.errors import NotAuthenticated, TokenInvalid
from wallet_project.kernel.throttle import Limit, throttle

# How many addresses' worth of failed tries one name may see in a minute.
ADDRESSES_PER_NAME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a sign-in or a refresh answers; both are encoded JWTs."""

    access: str
    refresh: str


def sign_in(*, username: str, password: str, address: str) -> Tokens:
    """Begin a stay.

    Args:
        address: where the caller is, for the throttle.

    Raises:
        RateLimited, NotAuthenticated: as in `authenticated`.
    """
    user = authenticated(username=username, password=password, address=address)
    stay = SignIn(user=user)

    def work() -> Tokens:
        tokens = _issue(stay, user)
        stay.save(force_insert=True)
        return tokens

    return run_in_transaction(work)


def authenticated(*, username: str, password: str, address: str) -> User:
    """The active user with this name and password; for the API and the admin alike.

    Failures are counted for a name at an address, and more generously for the name wherever they come from: so nobody
    keeps somebody else out from a single place, and whoever guesses from many is slowed. A success forgets them.

    Raises:
        RateLimited: too many tries.
        NotAuthenticated: there is no such user.
    """
    here = f"{username} {address}"
    at_this_address = Limit(scope="sign-in-here", tries=settings.FAILED_SIGN_INS_PER_NAME, seconds=60)
    anywhere = Limit(scope="sign-in-name", tries=ADDRESSES_PER_NAME * settings.FAILED_SIGN_INS_PER_NAME, seconds=60)
    throttle().check(at_this_address, here)
    throttle().check(anywhere, username)
    throttle().check(Limit(scope="sign-in", tries=settings.SIGN_INS_PER_ADDRESS, seconds=60), address)
    user = authenticate(username=username, password=password)
    if not isinstance(user, User):
        raise NotAuthenticated("The username or the password is wrong.")
    throttle().forget(at_this_address, here)
    throttle().forget(anywhere, username)
    return user


def refresh(*, token: str) -> Tokens:
    """Exchange a refresh token for new ones; it is dead from then on. Used a second time, it ends the whole stay.

    Raises:
        TokenInvalid: forged, expired, used before, signed out; or its user is disabled or has changed the password.
    """
    claims = _claims(token)

    def work() -> Tokens | None:
        stays = lock_rows(_open_stays(claims))
        if not stays:
            return None
        (stay,) = stays
        user = User.objects.filter(pk=stay.user_id, is_active=True).first()
        unchanged = user is not None and stamp_of(user.password) == claims.get("stamp")
        if user is None or not unchanged or stay.token_id != claims["jti"]:
            # Somebody has a token that was used, or should have none: whoever it is, both sign in again.
            _end(stay)
            return None
        tokens = _issue(stay, user)
        stay.save(update_fields=["token_id", "expires_at"])
        return tokens

    tokens = run_in_transaction(work)
    if tokens is None:
        raise TokenInvalid("The refresh token is used up, signed out, or its user may no longer sign in.")
    return tokens


def sign_out(*, token: str) -> None:
    """End the stay that a refresh token belongs to. Ending it twice is no fault.

    Raises:
        TokenInvalid: forged or expired.
    """
    claims = _claims(token)

    def work() -> None:
        for stay in lock_rows(_open_stays(claims)):
            _end(stay)

    run_in_transaction(work)


def purge_sign_ins(*, before: timedelta = timedelta(days=7)) -> int:
    """Forget stays that expired long ago; returns how many."""
    deleted, _ = SignIn.objects.filter(expires_at__lt=clock.now() - before).delete()
    return deleted


def _issue(stay: SignIn, user: User) -> Tokens:
    """New tokens for a stay, which from now on knows the refresh token as the one that is alive."""
    access, refresh_token = AccessToken(), RefreshToken()
    for token in (access, refresh_token):
        token["user_id"] = str(user.pk)
        token["stamp"] = stamp_of(user.password)
    refresh_token["sign_in"] = str(stay.pk)
    stay.token_id = refresh_token["jti"]
    stay.expires_at = clock.from_epoch(refresh_token["exp"])
    return Tokens(access=str(access), refresh=str(refresh_token))


def _claims(token: str) -> RefreshToken:
    try:
        claims = RefreshToken(token)  # type: ignore[arg-type]  # The library's own name for an encoded token.
        UUID(claims["sign_in"])
    except (TokenError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise TokenInvalid("The refresh token is invalid or has expired.") from error
    return claims


def _open_stays(claims: RefreshToken) -> QuerySet[SignIn]:
    return SignIn.objects.filter(pk=claims["sign_in"], ended_at=None)


def _end(stay: SignIn) -> None:
    stay.ended_at = clock.now()
    stay.save(update_fields=["ended_at"])
