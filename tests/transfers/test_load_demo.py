"""The demo data is there after one run, and after any number of runs, however the earlier ones ended."""

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command

from accounts.models import Account, User
from accounts.services import Caller, stamp_of
from ledger.models import JournalTransaction, LedgerEntry
from tests.world import close_connection
from transfers import demo
from transfers.services import close_account, transfer

pytestmark = pytest.mark.django_db(transaction=True)

GIVEN = 100_000_000  # đồng
GIFTS = {"an": GIVEN, "binh": GIVEN, "shop": 0}
STAFF = {"support": {"Support"}, "finance": {"Finance"}, "finance2": {"Finance"}, "admin": set()}


def load() -> None:
    call_command("load_demo", verbosity=0)


def wallet_of(username: str) -> Account:
    return Account.objects.get(owner__username=username)


def caller(username: str) -> Caller:
    user = User.objects.get(username=username)
    return Caller(user_id=user.pk, stamp=stamp_of(user.password))


def test_it_makes_customers_with_money_from_the_bank() -> None:
    load()

    assert {name: wallet_of(name).balance for name in GIFTS} == GIFTS
    assert {wallet_of(name).currency for name in GIFTS} == {"VND"}
    deposits = JournalTransaction.objects.all()
    assert {deposit.type for deposit in deposits} == {"DEPOSIT"}
    debited = LedgerEntry.objects.filter(amount__lt=0).values_list("account__kind", "amount")
    assert list(debited) == [("BANK_CLEARING", -GIVEN)] * 2
    assert authenticate(username="an", password="wallet-demo") is not None
    assert not User.objects.filter(username__in=GIFTS, is_staff=True).exists()


def test_it_makes_staff_with_their_groups() -> None:
    load()

    for username, groups in STAFF.items():
        user = authenticate(username=username, password="wallet-demo")
        assert isinstance(user, User)
        assert user.is_staff
        assert user.is_superuser == (username == "admin")
        assert {group.name for group in user.groups.all()} == groups
    assert User.objects.get(username="support").has_perm("ledger.view_journaltransaction")


def test_a_second_run_changes_nothing(snapshot: Callable[[], dict[str, Any]]) -> None:
    load()
    once = snapshot()

    load()

    assert snapshot() == once


def killing(step: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """The step, until the calls that are left are used up."""

    def call(*arguments: Any, **named: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return step(*arguments, **named)

    return call


def test_it_goes_on_where_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = 0
    for calls in itertools.count():
        left = [calls]
        with monkeypatch.context() as killed, contextlib.suppress(KeyboardInterrupt):
            for step in ("_user", "_wallet_of", "fund"):
                killed.setattr(demo, step, killing(getattr(demo, step), left))
            load()
            break
        kills += 1

    assert kills == 12  # seven users, three wallets, two deposits
    assert {name: wallet_of(name).balance for name in GIFTS} == GIFTS
    assert User.objects.exclude(username=User.SYSTEM).count() == 7


def test_what_customers_did_meanwhile_stays(snapshot: Callable[[], dict[str, Any]]) -> None:
    load()
    shop = wallet_of("shop").pk
    transfer(caller=caller("an"), key="1", from_account_id=wallet_of("an").pk, to_account_id=shop, amount=GIVEN)
    close_account(caller=caller("an"), key="2", account_id=wallet_of("an").pk)
    binh = User.objects.get(username="binh")
    binh.set_password("my-own-word")
    binh.is_active = False
    binh.save(update_fields=["password", "is_active"])
    lived_in = snapshot()

    load()

    assert snapshot() == lived_in


def test_two_at_once_make_one_wallet_each() -> None:
    barrier = threading.Barrier(2)

    def work() -> None:
        try:
            barrier.wait(10)
            demo.load_demo()
        finally:
            close_connection()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work), pool.submit(work)]:
            future.result()

    assert {name: wallet_of(name).balance for name in GIFTS} == GIFTS


def test_production_refuses(monkeypatch: pytest.MonkeyPatch, snapshot: Callable[[], dict[str, Any]]) -> None:
    monkeypatch.setattr(settings, "PRODUCTION", True)
    before = snapshot()

    with pytest.raises(CommandError, match="not for production"):
        load()

    assert snapshot() == before
