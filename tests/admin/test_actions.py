"""What finance does in the admin: reversing, freezing and thawing, each after a confirmation and with a reason."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.http import HttpResponse
from django.test import Client

from accounts.models import Freeze, Thaw
from ledger.models import JournalTransaction
from tests.admin.conftest import SignIn
from tests.races import at_once
from tests.world import Person, World

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]
TRANSACTIONS = "/admin/ledger/journaltransaction/"
ACCOUNTS = "/admin/accounts/account/"


def hidden_fields(page: Any) -> dict[str, list[str]]:
    """What a browser would send back of a confirmation page, but for what people type."""
    found: dict[str, list[str]] = {}
    for tag in re.findall(r"<input[^>]*>", page.content.decode()):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if "name" in attributes and attributes["name"] != "csrfmiddlewaretoken":
            found.setdefault(attributes["name"], []).append(attributes.get("value", ""))
    return found


def said(answer: Any) -> list[str]:
    """The messages that the next page shows, without their links."""
    return [re.sub(r"<[^>]*>", "", str(message)) for message in get_messages(answer.wsgi_request)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A transfer of 100 đ that somebody complains of."""

    payer: Person
    payee: Person
    transfer: UUID

    def ask(self, browser: Client, *ids: UUID) -> Any:
        selected = [str(id_) for id_ in ids or (self.transfer,)]
        return browser.post(TRANSACTIONS, {"action": "reverse_selected", "_selected_action": selected})

    def confirm(self, browser: Client, page: Any, *, reason: str = "wrong payee", **typed: str) -> Any:
        typed = {f"{self.transfer}-{name}": value for name, value in typed.items()}
        return browser.post(TRANSACTIONS, {**hidden_fields(page), "reason": reason, **typed})

    @property
    def balances(self) -> tuple[int, int]:
        return self.payer.balance, self.payee.balance


@pytest.fixture
def case(world: World) -> Case:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    return Case(payer=payer, payee=payee, transfer=world.pay(payer, payee, 100).transaction_id)


def test_the_page_shows_both_balances_before_and_after_and_moves_nothing(
    case: Case, sign_in: SignIn, snapshot: Snapshot
) -> None:
    browser = sign_in("finance")
    before = snapshot()
    page = case.ask(browser)
    assert page.status_code == 200
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.content.decode()))
    assert f"{case.transfer} ₫100 ₫100 payee ({case.payee.account_id}) ₫100 ₫0" in text
    assert f"payer ({case.payer.account_id}) ₫0 ₫100" in text
    assert snapshot() == before


def test_a_confirmed_reversal_is_done_and_written_down(case: Case, sign_in: SignIn) -> None:
    browser = sign_in("finance")
    answer = case.confirm(browser, case.ask(browser))
    assert answer.status_code == 302
    reversal = JournalTransaction.objects.get(type="REVERSAL")
    assert said(answer) == [f"{case.transfer} was reversed by {reversal.pk}."]
    assert case.balances == (100, 0)
    assert (reversal.reverses_id, reversal.reference) == (case.transfer, "wrong payee")
    assert reversal.initiator is not None
    assert reversal.initiator.username == "finance"
    line = LogEntry.objects.get()
    assert (line.object_id, line.user_id) == (str(case.transfer), reversal.initiator_id)
    assert line.change_message == f"Reversed by {reversal.pk}: wrong payee"


def test_a_part_is_written_in_the_currencys_own_decimals(world: World, sign_in: SignIn) -> None:
    payer, payee = world.person("payer", balance=1_000, currency="USD"), world.person("payee", currency="USD")
    case = Case(payer=payer, payee=payee, transfer=world.pay(payer, payee, 1_000).transaction_id)
    browser = sign_in("finance")
    page = case.ask(browser)
    assert hidden_fields(page)[f"{case.transfer}-amount"] == ["10.00"]
    case.confirm(browser, page, amount="2.50")
    assert case.balances == (250, 750)


@pytest.mark.parametrize(
    "amount",
    ["0", "-1", "1.5", "many", "", "NaN", "1e30", "100000000000000000000", "1_0", "1e1", "+5", "１０", "٣", "1,000"],
)
def test_nonsense_is_shown_again_with_its_fault(case: Case, sign_in: SignIn, snapshot: Snapshot, amount: str) -> None:
    browser = sign_in("finance")
    page = case.ask(browser)
    before = snapshot()
    again = case.confirm(browser, page, amount=amount)
    assert again.status_code == 200
    assert b"errorlist" in again.content
    assert snapshot() == before


@pytest.mark.parametrize("reason", ["", "   ", "x" * 141])
def test_a_reason_is_demanded(case: Case, sign_in: SignIn, snapshot: Snapshot, reason: str) -> None:
    browser = sign_in("finance")
    page = case.ask(browser)
    before = snapshot()
    assert case.confirm(browser, page, reason=reason).status_code == 200
    assert snapshot() == before


def test_a_double_submit_is_one_reversal(case: Case, sign_in: SignIn) -> None:
    browser = sign_in("finance")
    page = case.ask(browser)
    case.confirm(browser, page, amount="30")
    again = case.confirm(browser, page, amount="30")
    assert said(again)[-1].endswith("already.")
    assert case.balances == (30, 70)
    assert LogEntry.objects.count() == 1


def test_a_page_that_is_no_longer_true_does_nothing(case: Case, sign_in: SignIn) -> None:
    first, second = sign_in("finance"), sign_in("finance2-of-finance")
    mine = case.ask(first)
    case.confirm(first, mine, amount="30")

    stale = case.confirm(first, case.ask(first), amount="70")
    assert said(stale)[-1].endswith(
        f"reversed by {JournalTransaction.objects.filter(type='REVERSAL').latest('pk').pk}."
    )
    assert case.balances == (100, 0)
    assert case.ask(second).status_code == 403


@pytest.mark.race
def test_two_colleagues_at_once_make_one_reversal(case: Case, sign_in: SignIn) -> None:
    browsers = [sign_in("finance"), sign_in("superuser")]
    pages = [case.ask(browser) for browser in browsers]
    answers = at_once(
        [partial(case.confirm, browser, page, amount="30") for browser, page in zip(browsers, pages, strict=True)]
    )
    texts = sorted(text for answer in answers for text in said(answer))
    assert len(texts) == 2
    assert sum("was reversed by" in text for text in texts) == 1
    assert sum("70 is left to reverse, no longer 100." in text for text in texts) == 1
    assert case.balances == (30, 70)


def test_what_cannot_be_reversed_says_why(case: Case, world: World, sign_in: SignIn, snapshot: Snapshot) -> None:
    browser = sign_in("finance")
    case.confirm(browser, case.ask(browser))
    ids = list(JournalTransaction.objects.values_list("pk", flat=True))
    before = snapshot()

    page = case.ask(browser, *ids)

    text = page.content.decode()
    assert "A DEPOSIT cannot be reversed." in text
    assert "A REVERSAL cannot be reversed." in text
    assert "Nothing is left to reverse; reversed by" in text
    assert "confirmed" not in hidden_fields(page)
    assert snapshot() == before


def test_several_at_once_are_judged_one_by_one(case: Case, world: World, sign_in: SignIn) -> None:
    other = world.pay(world.person("other payer", balance=7), case.payee, 7).transaction_id
    merchant = world.person("merchant")
    world.pay(case.payee, merchant, 50)
    browser = sign_in("finance")
    answer = case.confirm(browser, case.ask(browser, case.transfer, other))
    texts = said(answer)
    assert texts[0].startswith(f"{case.transfer} was not reversed: ")
    assert texts[1].startswith(f"{other} was reversed by ")
    assert case.balances == (0, 50)


def test_more_than_can_be_read_through_is_refused(
    case: Case, world: World, sign_in: SignIn, snapshot: Snapshot
) -> None:
    for _ in range(50):
        world.pay(world.person("payer-2", balance=1), case.payee, 1)
    browser = sign_in("finance")
    before = snapshot()
    answer = browser.post(
        TRANSACTIONS, {"action": "reverse_selected", "_selected_action": [str(case.transfer)], "select_across": "1"}
    )
    assert said(answer) == ["At most 50 transactions can be reversed at once; nothing was done."]
    assert snapshot() == before


@pytest.mark.parametrize("who", ["support", "clerk", "customer", "anonymous"])
def test_others_reverse_nothing_however_they_ask(case: Case, sign_in: SignIn, snapshot: Snapshot, who: str) -> None:
    page = case.ask(sign_in("finance"))
    browser = sign_in(who)
    before = snapshot()
    for answer in (case.ask(browser), case.confirm(browser, page)):
        assert answer.status_code == (403 if who in ("support", "clerk") else 302)
        if answer.status_code == 302:
            assert answer.headers["location"].startswith("/admin/login/")
    assert snapshot() == before
    assert not LogEntry.objects.exists()


def test_support_is_not_offered_the_action(case: Case, sign_in: SignIn) -> None:
    assert b"reverse_selected" in sign_in("finance").get(TRANSACTIONS).content
    assert b"reverse_selected" not in sign_in("support").get(TRANSACTIONS).content


# --- Freezing ------------------------------------------------------------------------------------------------------


def change(browser: Client, action: str, person: Person, reason: str | None = None) -> HttpResponse:
    data = {"action": action, "_selected_action": [str(person.account_id)]}
    if reason is not None:
        data |= {"confirmed": "yes", "reason": reason}
    return browser.post(ACCOUNTS, data)  # type: ignore[return-value]  # Django's test response is one.


def test_freezing_and_thawing_ask_why_and_keep_the_answer(case: Case, sign_in: SignIn) -> None:
    browser = sign_in("finance")
    assert b"Reason:" in change(browser, "freeze_selected", case.payee).content
    assert change(browser, "freeze_selected", case.payee, "").status_code == 200
    assert not Freeze.objects.exists()

    answer = change(browser, "freeze_selected", case.payee, "a call from the police")
    assert said(answer) == [f"Account {case.payee.account_id} was frozen."]
    row = Freeze.objects.get()
    assert (row.cause, row.reason, row.made_by.username) == ("STAFF", "a call from the police", "finance")

    again = change(browser, "freeze_selected", case.payee, "a second call")
    assert said(again)[-1] == f"Account {case.payee.account_id} was not frozen: The account is FROZEN."

    change(browser, "thaw_selected", case.payee, "all explained")
    assert (Thaw.objects.get().reason, Thaw.objects.get().made_by.username) == ("all explained", "finance")
    assert [line.change_message for line in LogEntry.objects.order_by("pk")] == [
        "Frozen: a call from the police",
        "Thawed: all explained",
    ]


@pytest.mark.parametrize("who", ["support", "clerk"])
def test_others_freeze_nothing(case: Case, sign_in: SignIn, who: str) -> None:
    assert change(sign_in(who), "freeze_selected", case.payee, "spite").status_code == 403
    assert not Freeze.objects.exists()
