"""The pages of bank orders and notices, and the one thing that finance does there: ask the bank again."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.admin.conftest import SignIn
from tests.bank.sandbox import Sandbox
from tests.transfers.bank_kit import a_deposit, a_notice, a_withdrawal, again, completed, send, state, work_off
from tests.world import World
from transfers.models import BankNotice, BankOrder
from transfers.services import due_orders

pytestmark = pytest.mark.django_db(transaction=True)

ORDERS, NOTICES = "/admin/transfers/bankorder/", "/admin/transfers/banknotice/"


def text(browser: Client, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200, address
    return response.content.decode().replace("\xa0", " ")


def listed(browser: Client, address: str) -> list[str]:
    """The ids of the orders that a list shows, from the top."""
    return re.findall(r"/bankorder/([0-9a-f-]{36})/change/[^>]*\">\1<", text(browser, address))


def test_an_order_shows_all_that_became_of_it(sandbox_bank: Sandbox, world: World, sign_in: SignIn) -> None:
    payer = world.person("payer", balance=1_000)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    sandbox_bank.act(order.bank_reference, "return", amount=150)
    again(order)
    send(sandbox_bank, a_notice(order, "REFUSED"))
    notice = BankNotice.objects.get()
    page = text(sign_in("support"), f"{ORDERS}{order.pk}/change/")
    for change in order.changes.all():
        assert f"<td>{change.to_status}</td>" in page
        if change.transaction_id:
            assert f'href="/admin/ledger/journaltransaction/{change.transaction_id}/change/"' in page
    back = order.returns.get()
    assert f'href="/admin/ledger/journaltransaction/{back.transaction_id}/change/"' in page
    assert f'href="/admin/accounts/account/{payer.account_id}/change/"' in page
    assert f'href="{NOTICES}{notice.pk}/change/"' in page
    assert f'href="{NOTICES}?q={order.bank_reference}"' in page
    assert f"{NOTICES}{notice.pk}" in text(sign_in("support"), f"{NOTICES}?q={order.bank_reference}")
    for amount in ("₫400", "₫150"):
        assert amount in page


def test_a_notice_is_shown_as_it_came(sandbox_bank: Sandbox, world: World, sign_in: SignIn) -> None:
    order = a_deposit(world.person("payee"), 10)
    body = a_notice(order, "SETTLED")
    send(sandbox_bank, body)
    notice = BankNotice.objects.get()
    page = text(sign_in("support"), f"{NOTICES}{notice.pk}/change/")
    assert body.decode().replace('"', "&quot;") in page
    assert f'href="{ORDERS}{order.pk}/change/"' in page
    assert notice.notice_id in text(sign_in("support"), f"{NOTICES}?outcome=ILLEGAL_MOVE")
    assert notice.notice_id not in text(sign_in("support"), f"{NOTICES}?outcome=APPLIED")


def test_those_that_wait_longest_are_on_top(sandbox_bank: Sandbox, world: World, sign_in: SignIn) -> None:
    person = world.person("person", balance=1_000)
    old_and_done = completed(sandbox_bank, a_deposit(person, 1))
    first = a_withdrawal(person, 2, destination="sandbox:wait")
    second = a_deposit(person, 3, reference="sandbox:wait")
    new_and_done = completed(sandbox_bank, a_deposit(person, 4))
    browser = sign_in("support")
    assert listed(browser, ORDERS) == [str(each.pk) for each in (first, second, new_and_done, old_and_done)]
    assert listed(browser, f"{ORDERS}?kind__exact=WITHDRAWAL") == [str(first.pk)]
    assert listed(browser, f"{ORDERS}?status__exact=COMPLETED") == [str(new_and_done.pk), str(old_and_done.pk)]
    assert listed(browser, f"{ORDERS}?status__exact=SUBMITTED&kind__exact=DEPOSIT") == [str(second.pk)]
    assert "0 minutes" in text(browser, ORDERS)


def test_the_list_is_read_from_its_index(world: World, sign_in: SignIn) -> None:
    browser = sign_in("support")
    a_deposit(world.person("person"), 1)
    with CaptureQueriesContext(connection) as captured:
        browser.get(ORDERS)
    [query] = [each["sql"] for each in captured.captured_queries if 'ORDER BY "bank_order"' in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_sort = off")
        cursor.execute(f"EXPLAIN {query}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan; RESET enable_sort")
    assert "bank_order_waiting" in plan
    assert "Sort" not in plan


def test_finance_asks_the_bank_again(sandbox_bank: Sandbox, world: World, sign_in: SignIn) -> None:
    person = world.person("person", balance=1_000)
    waits = a_withdrawal(person, 100, destination="sandbox:wait")
    failed = a_withdrawal(person, 100, destination="sandbox:refuse-now")
    work_off()
    assert due_orders() == []
    browser = sign_in("finance")
    choice = {"action": "ask_bank", "_selected_action": [str(waits.pk), str(failed.pk)], "index": "0"}
    answer = browser.post(ORDERS, choice, follow=True)
    assert "The bank will be asked about 1 orders" in answer.content.decode()
    assert due_orders() == [waits.pk]
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.change_message) == (str(waits.pk), "Asked the bank again")
    sandbox_bank.act(waits.bank_reference, "settle")
    work_off()
    assert state(waits) == "COMPLETED"


@pytest.mark.parametrize("who", ["support", "clerk", "customer", "anonymous"])
def test_nobody_else_does(world: World, sign_in: SignIn, who: str) -> None:
    order = a_deposit(world.person("person"), 100)
    BankOrder.objects.update(attempts=3)
    browser = sign_in(who)
    choice = {"action": "ask_bank", "_selected_action": [str(order.pk)], "index": "0"}
    assert browser.post(ORDERS, choice).status_code in (302, 403)
    assert BankOrder.objects.get().attempts == 3
    assert LogEntry.objects.count() == 0
