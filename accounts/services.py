"""Writers of users and accounts. Building blocks: the use case that calls them has opened the transaction."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from accounts.errors import (
    CONSTRAINTS,
    AccountNotFound,
    PasswordRefused,
    TierNotFound,
    UsernameTaken,
)
from accounts.models import Account, AccountQuerySet, Freeze, Thaw, Tier, User
from wallet_project.kernel.db import (
    demand_transaction,
    lock_rows,
    run_in_transaction,
    translated,
    violated_constraint,
)
from wallet_project.kernel.errors import IllegalState
from wallet_project.kernel.throttle import Limit, throttle


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


def sign_up(*, username: str, password: str, address: str) -> User:
    """Make a customer; a use case of its own, with its own transaction.

    Args:
        address: where the caller is, for the throttle.

    Raises:
        RateLimited: too many sign-ups from this address.
        PasswordRefused: Django's password validators refuse it.
        UsernameTaken: somebody has that name.
    """
    throttle().check(Limit(scope="sign-up", tries=settings.SIGN_UPS_PER_ADDRESS, seconds=60), address)
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
        if violated_constraint(error) not in ("wallet_user_username_key", "wallet_user_name_ignoring_case"):
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


def close_wallet(*, account_id: int, owner_id: int) -> Account:
    """Close an empty wallet, for ever.

    Raises:
        AccountNotFound: the owner has no such wallet.
        IllegalState: it is closed already, frozen, or not empty.
        TransactionManagementError: no transaction is open.
    """
    account = _locked_wallet(Account.objects.owned_by(owner_id), account_id)
    if account.status == Account.Status.CLOSED:
        raise IllegalState("The account is CLOSED.")
    if _open_freezes(account_id).exists():
        raise IllegalState("The account is FROZEN.")
    if account.balance != 0:
        raise IllegalState(f"The account is not empty: it holds {account.balance}.")
    account.status = Account.Status.CLOSED
    account.save(update_fields=["status"])
    return account


def define_tier(*, name: str, currency: str, single_limit: int | None, daily_limit: int | None) -> Tier:
    """Make a tier; one is never changed, so other figures need another name. A use case of its own.

    Args:
        single_limit: the most that may be paid out at once, in minor units; None for no such limit.
        daily_limit: the most that may be paid out in a business day, likewise.

    Raises:
        IllegalState: there is one of that name in that currency.
    """
    with translated(CONSTRAINTS):
        return run_in_transaction(
            lambda: Tier.objects.create(
                name=name, currency=currency, single_limit=single_limit, daily_limit=daily_limit
            )
        )


def set_tier(*, account_id: int, name: str | None) -> Account:
    """Give a wallet the tier of that name in its currency, or none; a use case of its own, with its own transaction.

    What the wallet has paid out today counts under the new tier, too.

    Raises:
        AccountNotFound: there is no such wallet.
        TierNotFound: there is no such tier in the wallet's currency.
    """

    def work() -> Account:
        # Under the account's lock: whoever pays out meanwhile does so under one tier or the other.
        account = _locked_wallet(Account.objects.wallets(), account_id)
        account.tier = None if name is None else _tier(name, account.currency)
        account.save(update_fields=["tier"])
        return account

    return run_in_transaction(work)


def _tier(name: str, currency: str) -> Tier:
    tier = Tier.objects.filter(name=name, currency=currency).first()
    if tier is None:
        raise TierNotFound(f"There is no tier {name} in {currency}.")
    return tier


def freeze(*, account_id: int, cause: str, reason: str, staff_id: int) -> Freeze:
    """Stop a wallet's outflow; a use case of its own, with its own transaction.

    Args:
        cause: a `Freeze.Cause`.
        reason: why, in a sentence.
        staff_id: who did it.

    Raises:
        AccountNotFound: there is no such wallet.
        IllegalState: it is closed, or a freeze of this cause stands on it.
    """

    return run_in_transaction(
        lambda: add_freeze(account_id=account_id, cause=cause, reason=reason, made_by_id=staff_id)
    )


def add_freeze(*, account_id: int, cause: str, reason: str, made_by_id: int) -> Freeze:
    """Stop a wallet's outflow, in the open transaction; arguments and refusals as those of `freeze`.

    Raises:
        TransactionManagementError: no transaction is open.
    """
    # Under the account's lock, so that no debit is under way that has not seen it.
    account = _locked_wallet(Account.objects.wallets(), account_id)
    if account.status == Account.Status.CLOSED:
        raise IllegalState("The account is CLOSED.")
    if _open_freezes(account_id).filter(cause=cause).exists():
        raise IllegalState("The account is FROZEN.")
    return Freeze.objects.create(account=account, cause=cause, reason=reason, made_by_id=made_by_id)


def thaw(*, account_id: int, reason: str, staff_id: int) -> list[Thaw]:
    """End all open freezes of a wallet; a use case of its own, with its own transaction.

    Raises:
        AccountNotFound: there is no such wallet.
        IllegalState: no freeze stands on it.
    """

    def work() -> list[Thaw]:
        _locked_wallet(Account.objects.wallets(), account_id)
        thaws = [
            Thaw.objects.create(freeze=open_freeze, reason=reason, made_by_id=staff_id)
            for open_freeze in _open_freezes(account_id).order_by("pk")
        ]
        if not thaws:
            raise IllegalState("The account is not frozen.")
        return thaws

    return run_in_transaction(work)


def _locked_wallet(wallets: AccountQuerySet, account_id: int) -> Account:
    found = lock_rows(wallets.filter(pk=account_id))
    if not found:
        raise AccountNotFound(f"There is no account {account_id}.")
    return found[0]


def _open_freezes(account_id: int) -> QuerySet[Freeze]:
    return Freeze.objects.filter(account_id=account_id, thaw=None)
