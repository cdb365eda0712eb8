"""What the pages show, how they are linked, and that their work stays bounded."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.admin.sites import site
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from ledger.models import JournalTransaction, LedgerEntry
from tests.admin.conftest import Book, SignIn
from tests.world import World
from wallet_project.kernel import clock
from wallet_project.kernel.admin import BoundedAdmin, BoundedPaginator

pytestmark = pytest.mark.django_db(transaction=True)

LISTS = [
    *("ledger/journaltransaction", "ledger/ledgerentry", "ledger/reconciliationrun", "ledger/reconciliationfinding"),
    *("accounts/account", "accounts/freeze", "accounts/user", "outbox/outboxevent", "auth/group"),
    *("transfers/hold", "transfers/bankorder", "transfers/banknotice"),
]


def text(browser: Client, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200, address
    return response.content.decode().replace("\xa0", " ")


def rows(browser: Client, address: str) -> int:
    """How many rows a list shows."""
    return len(re.findall(r'<tr><t[hd] class="field-', text(browser, address)))


def queries(browser: Client, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        text(browser, address)
    return [query["sql"] for query in captured.captured_queries]


def test_every_page_is_a_bounded_one() -> None:
    unbounded = [model.__name__ for model, page in site._registry.items() if not isinstance(page, BoundedAdmin)]

    assert unbounded == []


# --- Links -----------------------------------------------------------------------------------------------------------


def test_an_account_leads_to_its_entries_and_these_to_their_transactions(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")
    account = text(browser, f"/admin/accounts/account/{book.payer.account_id}/change/")
    entries = f"/admin/ledger/ledgerentry/?account__id__exact={book.payer.account_id}"

    assert f'href="{entries}"' in account
    assert rows(browser, entries) == 4
    listed = text(browser, entries)
    assert f'href="/admin/ledger/journaltransaction/{book.transfer}/change/"' in listed
    assert f'href="/admin/accounts/account/{book.payer.account_id}/change/"' in listed
    assert str(book.payee.account_id) not in re.findall(r"accounts/account/(\d+)/change", listed)


def test_a_transaction_shows_its_entries_its_reversal_and_its_event(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")
    page = text(browser, f"/admin/ledger/journaltransaction/{book.transfer}/change/")

    for account_id in (book.payer.account_id, book.payee.account_id):
        assert f'href="/admin/accounts/account/{account_id}/change/"' in page
    for amount in ("-₫12,345", "₫12,345", "₫87,655"):
        assert f"<td>{amount}</td>" in page
    assert f'href="/admin/ledger/journaltransaction/{book.reversal}/change/"' in page
    assert f'href="/admin/ledger/journaltransaction/{book.transfer}/change/"' in text(
        browser, f"/admin/ledger/journaltransaction/{book.reversal}/change/"
    )
    [event] = re.findall(r'href="(/admin/outbox/outboxevent/\?q=[0-9a-f-]+)"', page)
    assert rows(browser, event) == 1


def test_a_frozen_account_says_so_and_shows_why(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")

    page = text(browser, f"/admin/accounts/account/{book.payee.account_id}/change/")

    assert "FROZEN" in page
    assert "police letter 17" in page
    assert f'href="/admin/accounts/freeze/{book.freeze}/change/"' in page
    assert "FROZEN" not in text(browser, f"/admin/accounts/account/{book.payer.account_id}/change/")
    assert "FROZEN" in text(browser, f"/admin/accounts/account/?q={book.payee.account_id}")


def test_a_run_shows_its_findings(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("finance")
    run = text(browser, f"/admin/ledger/reconciliationfinding/{book.finding}/change/")
    [address] = set(re.findall(r'href="(/admin/ledger/reconciliationrun/\d+/change/)"', run))

    page = text(browser, address)

    assert "Balance is not the sum of the account" in page
    assert "<td>₫100,000</td><td>₫100,001</td>" in page
    assert f'href="/admin/accounts/account/{book.payer.account_id}/change/"' in page


def test_a_system_family_shows_its_whole_balance(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")
    [parent] = re.findall(
        r"accounts/account/(\d+)/change/\">shard of",
        text(browser, f"/admin/accounts/account/{LedgerEntry.objects.earliest('pk').account_id}/change/"),
    )

    page = text(browser, f"/admin/accounts/account/{parent}/change/")

    assert "-₫100,000" in page
    assert rows(browser, f"/admin/accounts/account/?parent__id__exact={parent}") == 16


@pytest.mark.parametrize(
    ("currency", "shown"), [("VND", "₫123,456"), ("USD", "$1,234.56"), ("KWD", "KWD123.456"), ("JPY", "¥123,456")]
)
def test_amounts_are_written_in_the_currencys_own_decimals(
    sign_in: SignIn, world: World, currency: str, shown: str
) -> None:
    person = world.person("saver", balance=123_456, currency=currency)
    browser = sign_in("support")

    for address in (
        "/admin/ledger/journaltransaction/",
        "/admin/ledger/ledgerentry/",
        f"/admin/accounts/account/{person.account_id}/change/",
        f"/admin/ledger/journaltransaction/{JournalTransaction.objects.get().pk}/change/",
    ):
        page = text(browser, address)
        assert f">{shown}<" in page, address


# --- Bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["superuser", "support"])
def test_no_list_asks_more_with_more_rows(sign_in: SignIn, book: Book, world: World, who: str) -> None:
    browser = sign_in(who)
    lists = [f"/admin/{page}/" for page in LISTS if who == "superuser" or page != "auth/group"]
    few = {address: len(queries(browser, address)) for address in lists}
    for number in range(40):
        person = world.person(f"person-{number}", balance=1_000)
        world.pay(person, book.payer, 10)

    many = {address: len(queries(browser, address)) for address in lists}

    assert many == few
    assert max(many.values()) < 20


def test_no_page_of_an_object_asks_more_with_more_rows(sign_in: SignIn, book: Book, world: World) -> None:
    browser = sign_in("support")
    pages = [f"/admin/{page}/{pk}/change/" for page, pk in book.pages.items() if page != "auth/group"]
    for address in pages:
        text(browser, address)  # Django keeps content types once it has read them.
    few = {address: len(queries(browser, address)) for address in pages}
    for number in range(20):
        world.pay(book.payer, world.person(f"person-{number}"), 10)

    many = {address: len(queries(browser, address)) for address in pages}

    assert many == few
    assert max(many.values()) < 20


def test_counting_stops_at_a_bound(sign_in: SignIn, book: Book, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedPaginator, "BOUND", 4)
    browser = sign_in("support")

    asked = queries(browser, "/admin/ledger/ledgerentry/")
    page = text(browser, "/admin/ledger/ledgerentry/")

    counts = [query for query in asked if "COUNT(" in query]
    assert len(counts) == 1
    assert "LIMIT 4" in counts[0]
    assert "JOIN" not in counts[0]
    assert "The newest 4 ledger entries; search or filter" in page


def test_what_a_list_computes_is_not_computed_for_the_count(sign_in: SignIn, book: Book) -> None:
    [count] = [query for query in queries(sign_in("support"), "/admin/ledger/journaltransaction/") if "COUNT(" in query]

    assert "SUM(" not in count


@pytest.mark.parametrize("page", LISTS)
def test_no_list_counts_its_filters_or_reads_values_in_use(sign_in: SignIn, book: Book, page: str) -> None:
    asked = queries(sign_in("superuser"), f"/admin/{page}/?_facets=True")

    assert not any("DISTINCT" in query for query in asked)
    assert sum("COUNT(" in query for query in asked) == 1


def test_lists_are_paged_and_sorted_by_what_is_indexed(sign_in: SignIn, book: Book, world: World) -> None:
    for number in range(30):
        world.person(f"person-{number}", balance=1)
    browser = sign_in("support")

    assert rows(browser, "/admin/ledger/ledgerentry/") == 50
    assert rows(browser, "/admin/ledger/ledgerentry/?p=2") == 68 - 50
    assert rows(browser, "/admin/ledger/ledgerentry/?all=") == 50
    by_amount = queries(browser, "/admin/ledger/ledgerentry/?o=5")
    assert not any('ORDER BY "ledger_entry"."amount"' in query for query in by_amount)


# --- Searching and filtering -----------------------------------------------------------------------------------------


def test_the_search_boxes_take_what_they_say(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")
    account, entry = book.payer.account_id, book.entry

    found = {
        f"accounts/account/?q={account}": 1,
        "accounts/account/?q=payer": 1,
        "accounts/account/?q=PAYER": 0,
        "accounts/account/?q=pay": 0,
        f"accounts/user/?q={book.payer.user.pk}": 1,
        "accounts/user/?q=payee": 1,
        f"accounts/freeze/?q={book.payee.account_id}": 1,
        f"ledger/ledgerentry/?q={entry}": 1,
        f"ledger/ledgerentry/?q={book.transfer}": 2,
        f"ledger/journaltransaction/?q={book.transfer}": 1,
        f"ledger/journaltransaction/?q={str(book.transfer).upper()}": 1,
        f"ledger/journaltransaction/?q={uuid4()}": 0,
        "ledger/journaltransaction/?q=payer+rent": 1,
        "ledger/journaltransaction/?q=payee+rent": 0,
        "ledger/journaltransaction/?q=rent": 0,
        f"ledger/reconciliationfinding/?q={account}": 1,
        f"outbox/outboxevent/?q={book.event}": 1,
        f"transfers/hold/?q={book.hold}": 1,
        f"transfers/hold/?q={account}": 1,
        f"transfers/hold/?q={book.payee.account_id}": 1,
        f"transfers/hold/?q={uuid4()}": 0,
        "transfers/hold/?q=payer": 0,
        f"transfers/bankorder/?q={book.order}": 1,
        f"transfers/bankorder/?q={book.order.hex}": 1,
        f"transfers/bankorder/?q={account}": 1,
        f"transfers/bankorder/?q={uuid4()}": 0,
        "transfers/banknotice/?q=N-1": 1,
        "transfers/banknotice/?q=nobody": 1,
        "transfers/banknotice/?q=N": 0,
    }

    assert {address: rows(browser, f"/admin/{address}") for address in found} == found


@pytest.mark.parametrize("page", LISTS)
@pytest.mark.parametrize(
    "term", ["%", "'", "0x10", "-1", "９", "9" * 19, "9" * 30, "9" * 5000, "%00", "a b c", "\N{PILE OF POO}"]
)
def test_no_search_term_breaks_a_page(sign_in: SignIn, book: Book, page: str, term: str) -> None:
    response = sign_in("superuser").get(f"/admin/{page}/", {"q": term})

    assert response.status_code == 200


@pytest.mark.parametrize("page", LISTS)
def test_no_address_breaks_a_page(sign_in: SignIn, book: Book, page: str) -> None:
    browser = sign_in("superuser")
    ids = ["x", "0", "-1", "1_0", "１", "9" * 19, "9" * 30, "9" * 5000, str(uuid4()), f"{uuid4()}x", "%00", "a/b", "é"]
    for bad in ids:
        for view in ("change", "history"):
            assert browser.get(f"/admin/{page}/{bad}/{view}/").status_code in (302, 404), (bad, view)
        assert browser.post(f"/admin/{page}/{bad}/change/").status_code in (302, 403, 404), bad
        assert browser.get(f"/admin/{page}/{bad}/delete/").status_code in (403, 404), bad
        assert browser.get(f"/admin/{page}/{bad}/").status_code in (302, 404), bad
    for query in (
        *("p=99999999999999999999", "p=x", "p=0", "o=99", "o=-x", "e=1", "all=1", "_popup=1", "day=x", "type=x"),
        *("id__exact=x", f"id__exact={'9' * 30}", "id__gt=%00", "created_at__gte=yesterday", "nothing=1", "q=%00"),
        *("owner__password__startswith=p", "password__startswith=p", "initiator__password=x", "state=x", "%00=1"),
        *("account__id__exact=x", f"account__id__exact={'9' * 30}", "status__exact=%00", "kind__exact=%00"),
    ):
        assert browser.get(f"/admin/{page}/?{query}").status_code in (200, 302, 400), query


@pytest.mark.parametrize("address", ["r/4/x/", "r/x/1/", "r/4/%00/", "autocomplete/", "nothing/", "nothing/1/", "%00/"])
def test_no_other_address_breaks(sign_in: SignIn, book: Book, address: str) -> None:
    assert sign_in("superuser").get(f"/admin/{address}").status_code in (302, 403, 404)


def test_nothing_can_be_learned_of_passwords(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")
    stored = User.objects.get(pk=book.payer.user.pk).password

    assert browser.get("/admin/accounts/user/?password__startswith=pbkdf2").status_code == 400
    assert browser.get("/admin/accounts/account/?owner__password__startswith=pbkdf2").status_code == 400
    assert stored.split("$")[-1] not in text(browser, f"/admin/accounts/user/{book.payer.user.pk}/change/")


def test_a_business_day_is_half_open(sign_in: SignIn, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.person("saver", balance=5)
    booked_at = JournalTransaction.objects.get().created_at
    midnight = {clock.business_date(): booked_at}
    for days in range(-31, 32):
        midnight[clock.business_date() + timedelta(days=days)] = booked_at + timedelta(days=days)
    monkeypatch.setattr(clock, "start_of", midnight.__getitem__)
    browser = sign_in("support")

    def shown(day: str) -> list[int]:
        return [rows(browser, f"/admin/ledger/{page}/?day={day}") for page in ("journaltransaction", "ledgerentry")]

    assert shown("today") == [1, 2], "the day begins with its first instant"
    assert shown("yesterday") == [0, 0], "which the day before does not have"
    assert shown("week") == shown("month") == [1, 2]
    assert "By day (Asia/Ho_Chi_Minh)" in text(browser, "/admin/ledger/ledgerentry/")


def test_the_filters_of_type_and_state_filter(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("support")

    assert rows(browser, "/admin/ledger/journaltransaction/?type=REVERSAL") == 1
    assert rows(browser, "/admin/ledger/journaltransaction/?type=DEPOSIT") == 1
    assert rows(browser, "/admin/outbox/outboxevent/?state=waiting") == 5
    assert rows(browser, "/admin/outbox/outboxevent/?state=parked") == 0
    assert rows(browser, "/admin/accounts/account/?kind__exact=WALLET") == 2


# --- Signing in ------------------------------------------------------------------------------------------------------


def test_staff_sign_in_by_the_form(world: World) -> None:
    user = world.person("teller").user
    User.objects.filter(pk=user.pk).update(is_staff=True)
    browser = Client(enforce_csrf_checks=True)
    token = re.findall(r'csrfmiddlewaretoken" value="(\w+)"', text(browser, "/admin/login/?next=/admin/"))[0]

    response = browser.post(
        "/admin/login/?next=/admin/",
        {"username": "teller", "password": "wallet-demo-1", "csrfmiddlewaretoken": token},
    )

    assert (response.status_code, response["Location"]) == (302, "/admin/")
    assert "Wallet back office" in text(browser, "/admin/")


def test_a_post_without_a_token_is_refused(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("superuser")
    browser.handler.enforce_csrf_checks = True

    address = f"/admin/accounts/user/{book.payer.user.pk}/change/"
    assert browser.post(address, {"username": "mallory"}).status_code == 403
