"""What tests are peopled with. Names, not numbers: `payer`, `payee`, `merchant`."""

import functools
import itertools
from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.db import connections

from accounts.models import Account, User
from accounts.services import Caller, open_wallet, stamp_of
from ledger.commands import Posted
from transfers.services import fund, transfer
from wallet_project.kernel.db import run_in_transaction

PASSWORD = "wallet-demo-1"
_numbers = itertools.count(1)


@functools.cache
def password_hash() -> str:
    """The stored form of PASSWORD, made once: a good hasher takes a third of a second."""
    return make_password(PASSWORD)


@dataclass(frozen=True, slots=True)
class Person:
    """A user with one wallet."""

    user: User
    account_id: int

    @property
    def caller(self) -> Caller:
        return Caller(user_id=self.user.pk, stamp=stamp_of(self.user.password))

    @property
    def balance(self) -> int:
        return Account.objects.get(pk=self.account_id).balance


class World:
    """Makes people and moves money between them through the product's services."""

    def person(self, name: str, *, balance: int = 0, currency: str = "VND") -> Person:
        user, _ = User.objects.get_or_create(username=name, defaults={"password": password_hash()})
        account_id = self.wallet(user, currency=currency, balance=balance)
        return Person(user=user, account_id=account_id)

    def wallet(self, user: User, *, currency: str = "VND", balance: int = 0) -> int:
        """Another wallet of a user's; returns its id."""
        account = run_in_transaction(lambda: open_wallet(owner_id=user.pk, currency=currency, name=user.username))
        if balance:
            fund(account_id=account.pk, amount=balance, key=f"fund:{account.pk}:{next(_numbers)}")
        return account.pk

    def pay(self, payer: Person, payee: Person, amount: int, *, key: str | None = None) -> Posted:
        return transfer(
            caller=payer.caller,
            key=key or f"pay:{next(_numbers)}",
            from_account_id=payer.account_id,
            to_account_id=payee.account_id,
            amount=amount,
        )


def close_connection() -> None:
    """What a thread of a test calls at its end, so that it leaves no connection behind."""
    connections["default"].close()
