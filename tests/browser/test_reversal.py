"""Finance reverses a transfer in a browser; support looks and may not.

Django is not asked while the browser is open, since Playwright keeps an event loop in this thread: what is in the book
is read by the superuser's connection.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Page, expect

from accounts.models import User
from tests.browser.conftest import SignedIn
from tests.world import World, password_hash

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.system]


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """A transfer of 100 000 đ that went to the wrong person."""

    superuser: psycopg.Connection[Any]
    payer_account: int
    payee_account: int
    transfer: UUID

    def balances(self) -> tuple[int, ...]:
        rows = self.superuser.execute(
            "SELECT balance FROM account WHERE id IN (%s, %s) ORDER BY id", [self.payer_account, self.payee_account]
        )
        return tuple(balance for (balance,) in rows)

    def select(self, page: Page) -> None:
        """The way through the list: search, tick, choose the action."""
        page.goto("/admin/ledger/journaltransaction/")
        page.locator("#searchbar").fill(str(self.transfer))
        page.locator("#searchbar").press("Enter")
        expect(page.locator("input.action-select")).to_have_count(1)
        page.locator("input.action-select").check()
        page.get_by_label("Action:").select_option("reverse_selected")
        page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Go")).click()


@pytest.fixture
def complaint(world: World, superuser: psycopg.Connection[Any]) -> Complaint:
    payer, payee = world.person("an", balance=100_000), world.person("binh")
    for name, group in (("finance", "Finance"), ("finance2", "Finance"), ("support", "Support")):
        staff = User.objects.create(username=name, password=password_hash(), is_staff=True)
        staff.groups.add(Group.objects.get(name=group))
    return Complaint(
        superuser=superuser,
        payer_account=payer.account_id,
        payee_account=payee.account_id,
        transfer=world.pay(payer, payee, 100_000).transaction_id,
    )


def test_finance_sees_what_will_happen_and_reverses(complaint: Complaint, signed_in: SignedIn) -> None:
    page = signed_in("finance")
    complaint.select(page)
    row = page.get_by_role("row", name=str(complaint.transfer))
    expect(row).to_contain_text("₫100,000")
    expect(row).to_contain_text(f"binh ({complaint.payee_account})")
    assert complaint.balances() == (0, 100_000)

    page.get_by_label("Reason:").fill("wrong payee")
    page.get_by_role("button", name="Reverse").click()

    expect(page.locator(".messagelist .success")).to_contain_text(f"{complaint.transfer} was reversed by")
    assert complaint.balances() == (100_000, 0)
    page.locator(".messagelist .success a").nth(1).click()
    expect(page.locator("#content")).to_contain_text("wrong payee")


def test_a_double_click_is_one_reversal(complaint: Complaint, signed_in: SignedIn) -> None:
    page = signed_in("finance")
    complaint.select(page)
    page.locator("input[name$='-amount']").fill("30000")
    page.get_by_label("Reason:").fill("a part")
    page.get_by_role("button", name="Reverse").dblclick()
    expect(page.locator(".messagelist")).to_contain_text("reversed by")
    assert complaint.balances() == (30_000, 70_000)


def test_two_colleagues_make_one_reversal_and_the_second_is_told(complaint: Complaint, signed_in: SignedIn) -> None:
    first, second = signed_in("finance"), signed_in("finance2")
    for page in (first, second):
        complaint.select(page)
        page.get_by_label("Reason:").fill("wrong payee")
    for page in (first, second):
        page.get_by_role("button", name="Reverse").click()

    expect(first.locator(".messagelist .success")).to_be_visible()
    expect(second.locator(".messagelist .error")).to_contain_text("was not reversed")
    assert complaint.balances() == (100_000, 0)


def test_support_sees_both_entries_and_no_action(complaint: Complaint, signed_in: SignedIn) -> None:
    page = signed_in("support")
    page.goto(f"/admin/ledger/journaltransaction/{complaint.transfer}/change/")
    expect(page.locator("#content")).to_contain_text("-₫100,000")
    expect(page.locator("#content")).to_contain_text(f"WALLET {complaint.payee_account}")
    page.goto("/admin/ledger/journaltransaction/")
    expect(page.get_by_label("Action:")).to_have_count(0)
