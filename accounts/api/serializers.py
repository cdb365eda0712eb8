"""The bodies that sign-up and sign-in accept."""

from django.contrib.auth.validators import UnicodeUsernameValidator

from accounts.api.authentication import LONGEST_TOKEN
from wallet_project.kernel.fields import StrictSerializer, TextField, normalized


class SignUpSerializer(StrictSerializer):
    username = TextField(
        min_length=3,
        max_length=64,
        validators=[UnicodeUsernameValidator(), normalized],
        help_text="Letters and digits of any script, and `@ . + - _`, in Unicode's normal form NFKC.",
    )
    password = TextField(
        max_length=128,  # how short it may be, Django's password validators say
        help_text="At least 8 characters; not one of the common ones, nor like the username.",
    )


class SignInSerializer(StrictSerializer):
    """`otp` is the second factor of staff; no environment asks for it yet."""

    username = TextField()
    password = TextField()
    otp = TextField(required=False, help_text="The second factor of staff; nobody else sends one.")


class RefreshSerializer(StrictSerializer):
    refresh = TextField(source="token", max_length=LONGEST_TOKEN, help_text="The newest refresh token.")
