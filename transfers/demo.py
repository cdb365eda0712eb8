"""The demo data of development: customers with money, and staff. Loading it again changes nothing."""

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group

from accounts.models import Account, User
from accounts.services import open_wallet
from transfers.services import fund
from wallet_project.kernel.db import lock_rows, run_in_transaction

PASSWORD = "wallet-demo"  # noqa: S105  Public, which is why production refuses to load it.
CURRENCY = "VND"
CUSTOMERS = {"an": 100_000_000, "binh": 100_000_000, "shop": 0}  # minor units each is given, once
STAFF = {"support": "Support", "finance": "Finance", "finance2": "Finance", "admin": None}  # and their group


def load_demo() -> None:
    """Make what is missing, step by step, each of which may be the last one before an interruption."""
    for username, amount in CUSTOMERS.items():
        account_id = _wallet_of(_user(username))
        if amount:
            # The key makes it once for ever, whatever happened to the money since.
            fund(account_id=account_id, amount=amount, key=f"demo:deposit:{username}")
    for username, group in STAFF.items():
        user = _user(username, is_staff=True, is_superuser=group is None)
        user.groups.add(*Group.objects.filter(name=group))


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
