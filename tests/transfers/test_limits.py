"""Limits of a tier on money that is set aside: it counts when it is made, and gives back what was not spent."""

from functools import partial

import psycopg
import pytest

from accounts.services import define_tier, set_tier
from ledger.models import AccountOutflow
from tests.bank.sandbox import Sandbox
from tests.races import at_once
from tests.transfers.bank_kit import a_withdrawal, completed, state, work_off
from tests.transfers.till import Till
from tests.world import World
from transfers.services import expire_due
from wallet_project.kernel.errors import DomainError

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def till(world: World, superuser: psycopg.Connection[object]) -> Till:
    """The payer, with 1 000, may pay out 100 at once and 250 a day."""
    till = Till(world, superuser)
    define_tier(name="basic", currency="VND", single_limit=100, daily_limit=250)
    set_tier(account_id=till.payer.account_id, name="basic")
    return till


def spent(till: Till) -> int:
    return AccountOutflow.objects.get(account_id=till.payer.account_id).spent


def left(till: Till) -> str:
    """What a payment is told that is one more than the rest of the day."""
    with pytest.raises(DomainError) as refused:
        till.world.pay(till.payer, till.merchant, 100)
    assert refused.value.code == "limit_exceeded"
    return refused.value.detail


def test_a_hold_counts_when_it_is_made_and_its_captures_do_not(till: Till) -> None:
    holds = [till.reserve(100), till.reserve(100)]
    assert (spent(till), left(till)) == (200, "At most 250 may be paid out in a day; 50 is left today.")
    for hold in holds:
        till.capture(hold)
    assert spent(till) == 200
    till.reserve(50)
    assert left(till).endswith("0 is left today.")


@pytest.mark.parametrize("amount", [101, 1_000])
def test_a_hold_has_the_limit_of_one_payment(till: Till, amount: int) -> None:
    with pytest.raises(DomainError) as refused:
        till.reserve(amount)
    assert (refused.value.code, refused.value.fields[0].code) == ("limit_exceeded", "single_limit")
    assert till.figures == (1_000, 0, 0)


def test_what_is_released_is_given_back_however_that_happens(till: Till) -> None:
    voided, captured, late = till.reserve(100), till.reserve(100), till.reserve(50)
    assert left(till).endswith("0 is left today.")
    till.void(voided)
    assert spent(till) == 150
    till.capture(captured, amount=30, final=True)
    assert spent(till) == 80
    till.let_expire(late)
    assert expire_due() == 1
    assert spent(till) == 30
    till.world.pay(till.payer, till.merchant, 100)
    till.world.pay(till.payer, till.merchant, 100)
    assert left(till).endswith("20 is left today.")


def test_under_a_new_tier_the_count_knows_of_releases_too(till: Till) -> None:
    till.void(till.reserve(100))
    till.capture(till.reserve(100), amount=60, final=True)
    set_tier(account_id=till.payer.account_id, name=None)
    set_tier(account_id=till.payer.account_id, name="basic")
    till.world.pay(till.payer, till.merchant, 91)
    assert spent(till) == 60 + 91
    assert left(till).endswith("99 is left today.")


def test_a_withdrawal_counts_and_one_that_fails_gives_back(till: Till, sandbox_bank: Sandbox) -> None:
    completed(sandbox_bank, a_withdrawal(till.payer, 100))
    assert spent(till) == 100
    refused = a_withdrawal(till.payer, 100, destination="sandbox:reject")
    assert spent(till) == 200
    work_off()
    assert (state(refused), spent(till)) == ("FAILED", 100)


@pytest.mark.race
def test_payments_holds_and_withdrawals_at_once_stay_within_the_day(till: Till) -> None:
    """Twenty-one want 50 each, and the day has room for five of them, whichever these are."""

    def tried(deed: object) -> str:
        try:
            deed()  # type: ignore[operator]
        except DomainError as refusal:
            return refusal.code
        return "done"

    deeds = [
        *[partial(till.world.pay, till.payer, till.merchant, 50)] * 7,
        *[partial(till.reserve, 50)] * 7,
        *[partial(a_withdrawal, till.payer, 50)] * 7,
    ]
    outcomes = at_once([partial(tried, deed) for deed in deeds])
    assert sorted(outcomes) == [*["done"] * 5, *["limit_exceeded"] * 16]
    assert spent(till) == 250
