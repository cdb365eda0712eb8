"""Writers of users and accounts. Building blocks: the use case that calls them has opened the transaction."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from accounts.errors import PasswordRefused, UsernameTaken
from accounts.models import Account, User
from wallet_project.kernel.db import demand_transaction, violated_constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a command, as their token says; the stamp is compared after the locks.

    Args:
        user_id: the user.
        stamp: `stamp_of` the password that was in force when the token was issued.
    """

    user_id: int
    stamp: str


def stamp_of(password_hash: str) -> str:
    """A mark of a stored password: it changes when the password does (32 hex digits).

    It tells nothing, since the stored form is salted; and it is not keyed, so that changing a secret signs nobody out.
    """
    return hashlib.sha256(b"stamp:" + password_hash.encode()).hexdigest()[:32]


def sign_up(*, username: str, password: str) -> User:
    """Make a customer; a use case of its own, with its own transaction.

    Raises:
        PasswordRefused: Django's password validators refuse it.
        UsernameTaken: somebody has that name.
    """
    user = User(username=username)
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise PasswordRefused(error.messages) from error
    user.set_password(password)
    try:
        with transaction.atomic(durable=True):
            user.save()
    except IntegrityError as error:
        if violated_constraint(error) != "wallet_user_username_key":
            raise
        raise UsernameTaken from error
    return user


def open_wallet(*, owner_id: int, currency: str, name: str) -> Account:
    """Open a user's account, empty.

    Plain SQL, because the application may insert these three columns only, and the ORM names all.

    Raises:
        TransactionManagementError: no transaction is open.
    """
    demand_transaction()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO account (owner_id, currency, name) VALUES (%s, %s, %s) RETURNING id",
            [owner_id, currency, name],
        )
        row: tuple[Any, ...] = cursor.fetchone()
    return Account.objects.get(pk=row[0])
