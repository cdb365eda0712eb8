"""A destination is what staff read and the bank acts upon: one line, and what is seen is what it is."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.phone import Phones
from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True)

UNSEEN = {
    "blank": " ",
    "blanks at its ends": "  VCB 1 ",
    "two lines": "VCB\n1",
    "a tab": "VCB\t1",
    "turned around": "VCB \u202e1",
    "isolated": "\u2066VCB\u2069",
    "a joiner of no width": "VCB\u200b1",
    "a byte order mark": "\ufeffVCB",
    "a line separator": "VCB\u20281",
    "a delete": "VCB\x7f",
    "a hard blank at its end": "VCB\u00a0",
}


@pytest.mark.parametrize("destination", UNSEEN.values(), ids=UNSEEN.keys())
def test_what_nobody_sees_is_refused(
    phones: Phones, world: World, snapshot: Callable[[], dict[str, Any]], destination: str
) -> None:
    payer = world.person("payer", balance=1_000)
    before = snapshot()
    answer = phones.of(payer).post(
        "/v1/withdrawals", {"accountId": payer.account_id, "amount": 5, "destination": destination}, key="K"
    )
    assert answer.status_code == 400
    assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [("destination", "unseen")]
    assert snapshot() == before


@pytest.mark.parametrize("destination", ["x", "VCB 0071000123456", "Ngân hàng Á Châu 12", "sandbox:return=40"])
def test_what_people_write_is_taken(phones: Phones, world: World, destination: str) -> None:
    payer = world.person("payer", balance=1_000)
    answer = phones.of(payer).post(
        "/v1/withdrawals", {"accountId": payer.account_id, "amount": 5, "destination": destination}, key="K"
    )
    assert answer.status_code == 202
