"""The pages of holds: what was promised, what became of it, and what is on hold of an account."""

import re
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.test import Client

from ledger.models import JournalTransaction
from tests.admin.conftest import SignIn
from tests.transfers.till import Till
from tests.world import World
from transfers.models import Hold
from wallet_project.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)

HOLDS = "/admin/transfers/hold/"


@pytest.fixture
def till(world: World, superuser: psycopg.Connection[Any]) -> Till:
    return Till(world, superuser)


def text(browser: Client, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200, address
    return response.content.decode().replace("\xa0", " ")


def listed(browser: Client, address: str) -> list[UUID]:
    """The holds that a list shows, from the top."""
    return [UUID(id_) for id_ in re.findall(r"/hold/([0-9a-f-]{36})/change/[^>]*\">\1<", text(browser, address))]


def test_a_hold_shows_all_that_became_of_it_in_order(till: Till, sign_in: SignIn) -> None:
    hold = till.reserve(100)
    till.capture(hold, amount=25)
    till.capture(hold, amount=5, final=True)
    page = text(sign_in("support"), f"{HOLDS}{hold}/change/")

    history = page[page.index("<th>transaction</th>") :]
    told = re.findall(
        r"<td>(HOLD|CAPTURE|RELEASE)</td><td>.*?/journaltransaction/([0-9a-f-]+)/.*?<td>(₫\d+)</td>", history
    )
    transactions = JournalTransaction.objects.exclude(type="DEPOSIT").order_by("created_at", "pk")
    assert told == [
        (each.type, str(each.pk), amount)
        for each, amount in zip(transactions, ("₫100", "₫25", "₫5", "₫70"), strict=True)
    ]
    assert "<td>system</td>" in history
    for account_id in (till.payer.account_id, till.merchant.account_id):
        assert f'href="/admin/accounts/account/{account_id}/change/"' in page
    assert "CAPTURED" in page.upper()


def test_filters_by_state_and_expiry(till: Till, sign_in: SignIn) -> None:
    running, overdue, stuck = (till.reserve(10) for _ in range(3))
    ended = {status: till.ended(status) for status in ("CAPTURED", "VOIDED", "EXPIRED")}
    till.let_expire(overdue, stuck)
    Hold.objects.filter(pk=stuck).update(stuck_at=clock.now())
    browser = sign_in("support")

    assert listed(browser, HOLDS) == [*reversed(ended.values()), stuck, overdue, running]
    for status, hold in ended.items():
        assert listed(browser, f"{HOLDS}?status__exact={status}") == [hold]
    assert listed(browser, f"{HOLDS}?status__exact=ACTIVE") == [stuck, overdue, running]
    assert listed(browser, f"{HOLDS}?expiry=overdue") == [stuck, overdue]
    assert listed(browser, f"{HOLDS}?expiry=stuck") == [stuck]
    assert listed(browser, f"{HOLDS}?expiry=running") == [running]
    assert len(listed(browser, f"{HOLDS}?expiry=x")) == 6


def test_an_account_shows_what_is_on_hold_of_it(till: Till, sign_in: SignIn) -> None:
    open_, ended = till.reserve(100), till.ended("VOIDED")
    till.capture(open_, amount=30)
    browser = sign_in("support")

    page = text(browser, f"/admin/accounts/account/{till.payer.account_id}/change/")

    assert page.count("<td>₫70</td>") == 1
    assert ">₫70<" in page
    assert f'href="{HOLDS}{open_}/change/"' in page
    assert f"{ended}" not in page
    assert f'href="{HOLDS}?q={till.payer.account_id}"' in page
    assert listed(browser, f"{HOLDS}?q={till.payer.account_id}") == [ended, open_]
    assert f"{open_}" not in text(browser, f"/admin/accounts/account/{till.merchant.account_id}/change/")


def test_transactions_lead_to_each_other(till: Till, sign_in: SignIn) -> None:
    hold = till.reserve(100)
    capture = till.capture(hold).body["transactionId"]
    browser = sign_in("support")

    for page, other in ((hold, capture), (capture, hold)):
        shown = text(browser, f"/admin/ledger/journaltransaction/{page}/change/")
        assert f'href="/admin/ledger/journaltransaction/{other}/change/"' in shown


def test_finance_reverses_a_capture(till: Till, sign_in: SignIn) -> None:
    capture = till.capture(till.reserve(100)).body["transactionId"]
    browser = sign_in("finance")
    address = "/admin/ledger/journaltransaction/"
    chosen = {"action": "reverse_selected", "_selected_action": capture}

    page = browser.post(address, chosen).content.decode().replace("\xa0", " ")

    assert f"payer ({till.payer.account_id})" in page
    assert f"merchant ({till.merchant.account_id})" in page
    hidden = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', page))
    fields = {name: value for name, value in hidden.items() if name.startswith(capture)}
    browser.post(address, {**chosen, **fields, "confirmed": "yes", "reason": "goods came back"})
    assert till.figures == (1_000, 0, 0)
    assert JournalTransaction.objects.get(type="REVERSAL").reference == "goods came back"
