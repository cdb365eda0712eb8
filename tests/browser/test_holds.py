"""Support follows a hold through the pages: from the account to the hold, and on to what became of its money."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import expect

from accounts.models import User
from tests.browser.conftest import SignedIn
from tests.transfers.till import Till
from tests.world import World, password_hash

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.system]


@dataclass(frozen=True, kw_only=True)
class Counter:
    """A payer's account with a hold of 700, of which 250 were captured, and one that was voided."""

    account: int
    hold: UUID
    capture: str
    voided: UUID


@pytest.fixture
def counter(world: World, superuser: psycopg.Connection[Any]) -> Counter:
    till = Till(world, superuser)
    hold = till.reserve(700)
    support = User.objects.create(username="support", password=password_hash(), is_staff=True)
    support.groups.add(Group.objects.get(name="Support"))
    return Counter(
        account=till.payer.account_id,
        hold=hold,
        capture=till.capture(hold, amount=250).body["transactionId"],
        voided=till.ended("VOIDED"),
    )


def test_support_follows_a_hold(counter: Counter, signed_in: SignedIn) -> None:
    page = signed_in("support")

    page.goto(f"/admin/accounts/account/{counter.account}/change/")
    row = page.get_by_role("row", name=str(counter.hold))
    expect(row).to_contain_text("₫450")
    row.get_by_role("link", name=str(counter.hold)).click()
    expect(page.locator("#content")).to_contain_text("₫250")
    page.get_by_role("link", name=counter.capture).click()
    expect(page.locator("#content")).to_contain_text("CAPTURE")

    page.goto("/admin/transfers/hold/")
    expect(page.get_by_label("Action:")).to_have_count(0)
    page.locator("#changelist-filter").get_by_role("link", name="Voided").click()
    expect(page.locator("#result_list")).to_contain_text(str(counter.voided))
    expect(page.locator("#result_list")).not_to_contain_text(str(counter.hold))
