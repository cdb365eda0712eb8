"""History: one item per transaction and wallet, newest first, each once, in half-open periods, over many months."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

import pytest

from ledger.models import LedgerEntry
from tests.api.past import Past
from tests.api.phone import Phone, Phones, faults, problem
from tests.world import Person, World, close_connection
from transfers.selectors import history_page
from transfers.services import fund, reverse

pytestmark = pytest.mark.django_db(transaction=True)


def entries(phone: Phone, person: Person, **params: Any) -> dict[str, Any]:
    answer = phone.get(f"/v1/accounts/{person.account_id}/entries", **params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def amounts(phone: Phone, person: Person, **params: Any) -> list[int]:
    return [item["amount"] for item in entries(phone, person, **params)["items"]]


def all_pages(phone: Phone, person: Person, **params: Any) -> list[dict[str, Any]]:
    page = entries(phone, person, **params)
    items = list(page["items"])
    while page["nextCursor"] is not None:
        page = entries(phone, person, **params, cursor=page["nextCursor"])
        items += page["items"]
    return items


def test_what_an_item_tells(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    phone = phones.of(payer)
    posted = phone.pay(payer, payee, 300, reference="lunch").json()
    item = entries(phone, payer)["items"][0]
    entry = LedgerEntry.objects.get(account_id=payer.account_id, amount=-300)
    assert item == {
        "entryId": entry.pk,
        "transactionId": posted["transactionId"],
        "type": "TRANSFER",
        "amount": -300,
        "balanceAfter": 700,
        "counterpartyAccountId": payee.account_id,
        "reference": "lunch",
        "createdAt": phone.get(f"/v1/transfers/{posted['transactionId']}").json()["createdAt"],
    }
    (other_side,) = entries(phones.of(payee), payee)["items"]
    assert other_side == {
        **item,
        "entryId": other_side["entryId"],
        "amount": 300,
        "balanceAfter": 300,
        "counterpartyAccountId": payer.account_id,
    }


def test_an_account_without_entries_has_an_empty_history(phones: Phones, world: World) -> None:
    an = world.person("an")
    assert entries(phones.of(an), an) == {"items": [], "nextCursor": None}


def test_pages_show_each_entry_once_while_others_are_added(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=10_000), world.person("payee")
    for amount in range(1, 31):
        world.pay(payer, payee, amount)
    stop = Event()

    def keep_paying() -> None:
        while not stop.is_set():
            world.pay(payer, payee, 99)
        close_connection()

    thread = Thread(target=keep_paying)
    thread.start()
    try:
        items = all_pages(phones.of(payee), payee, limit=7)
    finally:
        stop.set()
        thread.join()
    ids = [item["entryId"] for item in items]
    assert ids == sorted(set(ids), reverse=True)
    assert [item["amount"] for item in items if item["amount"] != 99] == list(range(30, 0, -1))
    assert all(item["counterpartyAccountId"] == payer.account_id for item in items)


def test_types(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    fund(account_id=payer.account_id, amount=50, key="second")
    undone = world.pay(payer, payee, 300).transaction_id
    world.pay(payer, payee, 20)
    reverse(caller=world.person("staff").caller, key="undo", transaction_id=undone, reason="wrong")
    phone = phones.of(payer)
    assert amounts(phone, payer) == [300, -20, -300, 50, 1_000]
    assert amounts(phone, payer, type="TRANSFER") == [-20, -300]
    assert amounts(phone, payer, type="DEPOSIT") == [50, 1_000]
    assert amounts(phone, payer, type="REVERSAL") == [300]
    assert amounts(phone, payer, type="CAPTURE") == []
    assert [item["amount"] for item in all_pages(phone, payer, type="TRANSFER", limit=1)] == [-20, -300]
    for type_ in ("transfer", "", "CONSOLIDATION", "x", "TRANSFER,DEPOSIT"):
        answer = phone.get(f"/v1/accounts/{payer.account_id}/entries", type=type_)
        assert list(faults(problem(answer, status=400, code="invalid_request"))) == ["type"]


def test_periods_are_half_open_and_days_are_business_days(phones: Phones, world: World, past: Past) -> None:
    """Asia/Ho_Chi_Minh is seven hours ahead, so its day begins at 17:00 UTC of the day before."""
    an, binh = world.person("an"), world.person("binh")
    instant = timedelta(microseconds=1)
    midnight_there = datetime(2025, 3, 9, 17, tzinfo=UTC)
    midnight_utc = datetime(2025, 3, 10, tzinfo=UTC)
    past.funded(an, 1_000, at=midnight_there - timedelta(days=30))
    moments = [
        midnight_there - instant,
        midnight_there,
        midnight_utc - instant,
        midnight_utc,
        midnight_there + timedelta(days=1) - instant,
        midnight_there + timedelta(days=1),
    ]
    for amount, moment in enumerate(moments, start=1):
        past.paid(an, binh, amount, at=moment)
    phone = phones.of(binh)
    assert amounts(phone, binh, **{"from": "2025-03-10", "to": "2025-03-11"}) == [5, 4, 3, 2]
    assert amounts(phone, binh, **{"from": "2025-03-09", "to": "2025-03-10"}) == [1]
    assert amounts(phone, binh, **{"from": "2025-03-11"}) == [6]
    assert amounts(phone, binh, to="2025-03-10") == [1]
    assert amounts(phone, binh, **{"from": "2025-03-10T00:00:00Z", "to": "2025-03-11"}) == [5, 4]
    assert amounts(phone, binh, **{"from": "2025-03-10T07:00:00+07:00"}) == [6, 5, 4]
    assert amounts(phone, binh, to="2025-03-10T00:00:00z") == [3, 2, 1]
    assert amounts(phone, binh, **{"from": "2025-03-11", "to": "2025-03-10"}) == []
    assert amounts(phone, binh, **{"from": "1970-01-02", "to": "9999-12-31"}) == [6, 5, 4, 3, 2, 1]
    assert amounts(phone, binh, to="1970-01-02") == []
    days = [("2025-03-09", "2025-03-10"), ("2025-03-10", "2025-03-11"), ("2025-03-11", "2025-03-12")]
    each_day = [amounts(phone, binh, **{"from": first, "to": last}) for first, last in days]
    assert sum(map(sum, each_day)) == binh.balance
    for limit in (1, 2, 3):
        items = all_pages(phone, binh, limit=limit, **{"from": "2025-03-10", "to": "2025-03-11"})
        assert [item["amount"] for item in items] == [5, 4, 3, 2]


def test_periods_that_are_none(phones: Phones, world: World) -> None:
    an = world.person("an", balance=5)
    for name in ("from", "to"):
        for text in (
            "",
            "today",
            "2025-02-29",
            "2025-3-9",
            "20250309",
            "2025-03-09T10:00:00",
            "0001-01-01",
            "10000-01-01",
        ):
            query: dict[str, Any] = {name: text}
            answer = phones.of(an).get(f"/v1/accounts/{an.account_id}/entries", **query)
            assert faults(problem(answer, status=400, code="invalid_request")) == {name: "invalid_or_date"}, text


def test_a_history_of_years_with_gaps(phones: Phones, world: World, past: Past) -> None:
    """A page looks a month back, then a year, then all the way: nothing may be lost between the looks."""
    an, binh = world.person("an"), world.person("binh")
    now = datetime.now(UTC)
    ages = [3000, 2000, 1999, 900, 500, 370, 365, 364, 100, 33, 31, 30, 29, 3, 2, 1]
    past.funded(an, 1_000, at=now - timedelta(days=4000))
    for age in ages:
        past.paid(an, binh, age % 90 + 1, at=now - timedelta(days=age))
    world.pay(an, binh, 5)
    expected = [5, *(age % 90 + 1 for age in reversed(ages))]
    phone = phones.of(binh)
    for limit in (1, 2, 3, 5, 200):
        assert [item["amount"] for item in all_pages(phone, binh, limit=limit)] == expected
    running = [item["balanceAfter"] for item in all_pages(phone, binh)]
    assert running == [sum(expected[position:]) for position in range(len(expected))]
    assert {item["counterpartyAccountId"] for item in all_pages(phone, binh)} == {an.account_id}


def test_a_reversal_and_what_it_reverses_point_at_each_other(phones: Phones, world: World) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    undone, kept = world.pay(payer, payee, 300).transaction_id, world.pay(payer, payee, 20).transaction_id
    staff = world.person("staff").caller
    first, second = (
        str(reverse(caller=staff, key=key, transaction_id=undone, reason="wrong", amount=100).transaction_id)
        for key in ("undo", "undo more")
    )
    for phone, person in ((phones.of(payer), payer), (phones.of(payee), payee)):
        items = {item["transactionId"]: item for item in all_pages(phone, person, limit=2)}
        assert items[first]["reversesTransactionId"] == items[second]["reversesTransactionId"] == str(undone)
        assert items[str(undone)]["reversalTransactionIds"] == [first, second]
        plain = [item for id_, item in items.items() if id_ not in (str(undone), first, second)]
        assert str(kept) in {item["transactionId"] for item in plain}
        assert not any({"reversesTransactionId", "reversalTransactionIds"} & item.keys() for item in plain)


def test_a_page_takes_the_same_few_queries_however_long_it_is(
    world: World, django_assert_num_queries: Callable[[int], Any]
) -> None:
    payer, payee = world.person("payer", balance=1_000), world.person("payee")
    staff = world.person("staff").caller
    for number in range(12):
        posted = world.pay(payer, payee, 3)
        if number % 2:
            reverse(caller=staff, key=f"undo {number}", transaction_id=posted.transaction_id, reason="wrong", amount=1)
    for limit in (2, 10):
        with django_assert_num_queries(4):  # wallet, entries, the other legs, reversals
            page = history_page(payer.account_id, owner_id=payer.user.pk, limit=limit)
        assert len(page["items"]) == limit
