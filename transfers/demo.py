"""The demo data of development: customers with money, holds, orders at the bank, and staff.

Loading it again changes nothing. The orders are only asked for here; once the workers run they are sent to the sandbox
bank, which does with each what its text says (docs/bank.md).
"""

from contextlib import suppress
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group

from accounts.models import Account, User
from accounts.services import Caller, open_wallet, stamp_of
from transfers.services import capture, deposit, fund, reserve, void, withdraw
from wallet_project.kernel.db import lock_rows, run_in_transaction
from wallet_project.kernel.errors import DomainError

PASSWORD = "wallet-demo"  # noqa: S105  Public, which is why production refuses to load it.
CURRENCY = "VND"
CUSTOMERS = {"an": 100_000_000, "binh": 100_000_000, "chi": 10_000_000, "shop": 0}  # minor units each is given, once
HOLDS = {"active": 200_000, "captured": 150_000, "voided": 100_000}  # an's for the shop, by what became of them
STAFF = {"support": "Support", "finance": "Finance", "finance2": "Finance", "admin": None}  # and their group


def load_demo() -> None:
    """Make what is missing, step by step, each of which may be the last one before an interruption."""
    for username, amount in CUSTOMERS.items():
        account_id = _wallet_of(_user(username))
        if amount:
            # The key makes it once for ever, whatever happened to the money since.
            fund(account_id=account_id, amount=amount, key=f"demo:deposit:{username}")
    _set_aside(User.objects.get(username="an"), User.objects.get(username="shop"))
    _ask_the_bank(User.objects.get(username="chi"))
    for username, group in STAFF.items():
        user = _user(username, is_staff=True, is_superuser=group is None)
        user.groups.add(*Group.objects.filter(name=group))


def _set_aside(payer: User, payee: User) -> None:
    """A hold that goes on, one that was captured, and one that was voided."""
    payer_wallet, payee_wallet = _wallet_of(payer), _wallet_of(payee)
    merchant = Caller(user_id=payee.pk, stamp=stamp_of(payee.password))
    for end, amount in HOLDS.items():
        # What a customer has made impossible meanwhile is left out; what was done before is not done again.
        with suppress(DomainError):
            if end != "voided":  # What goes away is given on top, so that a round sum is left.
                fund(account_id=payer_wallet, amount=amount, key=f"demo:hold:{end}")
            hold_id = _hold(payer, payer_wallet, payee_wallet, amount, key=f"demo:hold:{end}")
            if end == "captured":
                capture(caller=merchant, key="demo:capture", hold_id=hold_id)
            elif end == "voided":
                void(caller=merchant, key="demo:void", hold_id=hold_id)


def _hold(payer: User, payer_wallet: int, payee_wallet: int, amount: int, *, key: str) -> UUID:
    caller = Caller(user_id=payer.pk, stamp=stamp_of(payer.password))
    answer = reserve(caller=caller, key=key, account_id=payer_wallet, to_account_id=payee_wallet, amount=amount)
    return UUID(answer.body["holdId"])


def _ask_the_bank(user: User) -> None:
    """A deposit that will be completed, a withdrawal that stays on its way, and one that the bank refuses."""
    caller, account_id = Caller(user_id=user.pk, stamp=stamp_of(user.password)), _wallet_of(user)
    withdrawals = {"sandbox:wait": 1_500_000, "sandbox:refuse": 500_000}  # by what the bank is told to do
    # What the customer has made impossible meanwhile is left out; what was asked for before is not asked for again.
    with suppress(DomainError):
        deposit(caller=caller, key="demo:order:deposit", account_id=account_id, amount=2_000_000, reference="savings")
    for destination, amount in withdrawals.items():
        with suppress(DomainError):
            withdraw(
                caller=caller,
                key=f"demo:order:{destination}",
                account_id=account_id,
                amount=amount,
                destination=destination,
            )


def _user(username: str, **rights: bool) -> User:
    # A callable: an existing user costs no hash.
    defaults = {"password": lambda: make_password(PASSWORD), **rights}
    user, _ = User.objects.get_or_create(username=username, defaults=defaults)
    return user


def _wallet_of(user: User) -> int:
    """The user's first wallet, opened where there is none. The user's lock keeps a second call out meanwhile."""

    def work() -> int:
        lock_rows(User.objects.filter(pk=user.pk))
        first = Account.objects.owned_by(user.pk).filter(currency=CURRENCY).order_by("pk").first()
        return (first or open_wallet(owner_id=user.pk, currency=CURRENCY, name="")).pk

    return run_in_transaction(work)
