"""Readers of users and accounts."""

from functools import lru_cache

from accounts.models import User
from accounts.services import Caller, stamp_of
from wallet_project.kernel.errors import TokenInvalid


def confirm_caller(caller: Caller) -> User:
    """The user behind a token, who must be active and have kept the password since it was issued.

    Raises:
        TokenInvalid: disabled, gone, or the password is another.
    """
    user = User.objects.filter(pk=caller.user_id, is_active=True).first()
    if user is None or stamp_of(user.password) != caller.stamp:
        raise TokenInvalid("The user is disabled or has changed the password; sign in again.")
    return user


@lru_cache
def system_user_id() -> int:
    """The id of the inactive user in whose name the service acts."""
    return User.objects.values_list("pk", flat=True).get(username=User.SYSTEM)
