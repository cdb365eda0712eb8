"""The form through which staff sign in to the admin: throttled as the API is."""

from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError

from accounts.sessions import authenticated
from wallet_project.kernel.api import client_address
from wallet_project.kernel.errors import NotAuthenticated, RateLimited


class StaffSignInForm(AdminAuthenticationForm):
    """Django's own form, but for who counts the tries."""

    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username and password:
            assert self.request is not None  # noqa: S101  The login view gives it.
            try:
                self.user_cache = authenticated(
                    username=username, password=password, address=client_address(self.request)
                )
            except NotAuthenticated as refusal:
                raise self.get_invalid_login_error() from refusal
            except RateLimited as refusal:
                text = f"Too many tries. Try again in {refusal.retry_after} seconds."
                raise ValidationError(text, code="rate_limited") from refusal
            self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data
