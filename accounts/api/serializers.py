"""The bodies that sign-up and sign-in accept."""

from django.contrib.auth.validators import UnicodeUsernameValidator

from accounts.api.authentication import LONGEST_TOKEN
from wallet_project.kernel.fields import StrictSerializer, TextField, normalized


class SignUpSerializer(StrictSerializer):
    username = TextField(min_length=3, max_length=64, validators=[UnicodeUsernameValidator(), normalized])
    password = TextField(max_length=128)  # how short it may be, Django's password validators say


class SignInSerializer(StrictSerializer):
    """`otp` is the second factor of staff; no environment asks for it yet."""

    username = TextField()
    password = TextField()
    otp = TextField(required=False)


class RefreshSerializer(StrictSerializer):
    refresh = TextField(source="token", max_length=LONGEST_TOKEN)
