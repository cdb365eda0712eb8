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
from ledger.models import LedgerEntry
from tests.bank.sandbox import Sandbox
from tests.conftest import wait_until
from tests.transfers.bank_kit import again, work_off
from tests.world import close_connection
from transfers import demo
from transfers.models import BankOrder, Hold
from transfers.services import close_account, transfer, void

pytestmark = pytest.mark.django_db(transaction=True)

GIVEN = 100_000_000  # đồng
SAVED = 10_000_000
HELD = 200_000
BALANCES = {"an": GIVEN, "binh": GIVEN, "shop": 150_000}
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

    assert {name: wallet_of(name).balance for name in BALANCES} == BALANCES
    assert {wallet_of(name).currency for name in BALANCES} == {"VND"}
    debited = LedgerEntry.objects.filter(amount__lt=0, transaction__type="DEPOSIT")
    given = (-GIVEN, -SAVED, -200_000, -150_000)
    assert set(debited.values_list("account__kind", "amount")) == {("BANK_CLEARING", amount) for amount in given}
    assert authenticate(username="an", password="wallet-demo") is not None
    assert not User.objects.filter(username__in=BALANCES, is_staff=True).exists()


def test_it_makes_a_hold_of_each_kind() -> None:
    load()

    holds = Hold.objects.order_by("pk")
    assert [hold.status for hold in holds] == ["ACTIVE", "CAPTURED", "VOIDED"]
    assert {(hold.account_id, hold.to_account_id) for hold in holds} == {(wallet_of("an").pk, wallet_of("shop").pk)}


def test_it_asks_the_bank_for_one_order_of_each_kind(sandbox_bank: Sandbox) -> None:
    load()
    orders = BankOrder.objects.order_by("created_at")
    work_off()
    for order in orders:
        if "wait" not in order.destination:
            wait_until(
                lambda order=order: sandbox_bank.payments()[order.bank_reference]["status"] != "ACCEPTED",  # type: ignore[misc]
                seconds=10,
            )
    again(*orders)

    assert sorted(orders.values_list("kind", "status")) == [
        ("DEPOSIT", "COMPLETED"),
        ("WITHDRAWAL", "FAILED"),
        ("WITHDRAWAL", "SUBMITTED"),
    ]
    assert wallet_of("chi").balance == SAVED + 2_000_000 - 1_500_000


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
            for step in ("_user", "_wallet_of", "fund", "reserve", "capture", "void", "deposit", "withdraw"):
                killed.setattr(demo, step, killing(getattr(demo, step), left))
            load()
            break
        kills += 1

    assert kills == 28  # eight users, seven looks for a wallet, five gifts, five steps of holds, three orders
    assert {name: wallet_of(name).balance for name in BALANCES} == BALANCES
    assert User.objects.exclude(username=User.SYSTEM).count() == 8


def test_what_customers_did_meanwhile_stays(snapshot: Callable[[], dict[str, Any]]) -> None:
    load()
    shop = wallet_of("shop").pk
    void(caller=caller("shop"), key="0", hold_id=Hold.objects.get(status="ACTIVE").pk)
    transfer(caller=caller("an"), key="1", from_account_id=wallet_of("an").pk, to_account_id=shop, amount=GIVEN + HELD)
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

    assert {name: wallet_of(name).balance for name in BALANCES} == BALANCES


def test_production_refuses(monkeypatch: pytest.MonkeyPatch, snapshot: Callable[[], dict[str, Any]]) -> None:
    monkeypatch.setattr(settings, "PRODUCTION", True)
    before = snapshot()

    with pytest.raises(CommandError, match="not for production"):
        load()

    assert snapshot() == before
