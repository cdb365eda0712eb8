"""Access and refresh tokens: signed JWTs (RFC 7519) by simplejwt, with keys that can be changed without a sign-out."""

from functools import lru_cache
from typing import Any

from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import TokenBackendError, TokenBackendExpiredToken
from rest_framework_simplejwt.tokens import AccessToken as BaseAccessToken
from rest_framework_simplejwt.tokens import RefreshToken as BaseRefreshToken


class RotatingKeys(TokenBackend):
    """Signs with the first key and accepts all of them.

    To change a key, put the new one first in JWT_SIGNING_KEYS and leave the old one until what it signed has expired.
    """

    def __init__(self, *keys: str) -> None:
        super().__init__("HS256", signing_key=keys[0])
        self._older = [TokenBackend("HS256", signing_key=key) for key in keys[1:]]

    def decode(self, token: Any, verify: bool = True) -> dict[str, Any]:
        """The claims of a token.

        Raises:
            TokenBackendError: none of the keys has signed it, it is malformed, or it has expired.
        """
        try:
            return super().decode(token, verify=verify)
        except TokenBackendExpiredToken:
            raise
        except TokenBackendError:
            for backend in self._older:
                try:
                    return backend.decode(token, verify=verify)
                except TokenBackendExpiredToken:
                    raise
                except TokenBackendError:
                    continue
            raise


_backend = lru_cache(RotatingKeys)


class AccessToken(BaseAccessToken):
    """Lives for minutes and is checked without a query; its `stamp` tells later whether the password is the same."""

    def get_token_backend(self) -> TokenBackend:
        return _backend(*settings.JWT_SIGNING_KEYS)


class RefreshToken(BaseRefreshToken):
    """Lives for weeks, for one use; `sign_in` names the stay that it prolongs."""

    def get_token_backend(self) -> TokenBackend:
        return _backend(*settings.JWT_SIGNING_KEYS)
