"""Orders and the bank: what each answer of the bank's does to an order and to its money."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.test import override_settings
from pytest_django.fixtures import Settings

from accounts.models import Account, Freeze
from accounts.services import freeze, thaw
from ledger.errors import AccountClosed, AccountFrozen, BalanceLimitExceeded, InsufficientFunds
from ledger.models import JournalTransaction
from tests.bank.sandbox import Sandbox, running
from tests.transfers.bank_kit import (
    a_deposit,
    a_withdrawal,
    again,
    alerts,
    completed,
    family,
    held,
    history,
    state,
    work_off,
)
from tests.world import World
from transfers import bank_tasks
from transfers.models import BankOrder
from transfers.services import advance, ask_again, bank_work, close_account, due_orders
from wallet_project.kernel import clock
from wallet_project.kernel.errors import IllegalState
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)


class Died(BaseException):
    """The end of a worker, as no handler of errors sees it."""


def due_in(order: BankOrder) -> float:
    """Seconds until its next step."""
    at = BankOrder.objects.get(pk=order.pk).next_step_at
    assert at is not None
    return (at - clock.now()).total_seconds()


# --- The plain courses -----------------------------------------------------------------------------------------------


def test_a_withdrawal_is_paid_out(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400)
    assert (payer.balance, held(payer), state(order)) == (600, 400, "PENDING")
    assert sandbox_bank.payments() == {}
    work_off()
    assert state(order) == "SUBMITTED"
    sandbox_bank.wait_for(order.bank_reference, status="SETTLED")
    again(order)
    assert (payer.balance, held(payer), family("BANK_CLEARING")) == (600, 0, -600)
    assert history(order) == ["PENDING", "SUBMITTED", "COMPLETED"]
    [(reference, payment)] = sandbox_bank.submits()
    assert reference == order.bank_reference == order.pk.hex
    assert (payment["direction"], payment["amount"], payment["currency"]) == ("OUT", 400, "VND")
    assert payment["destination"] == "VCB 0071000123456"
    work_off()
    assert len(sandbox_bank.requests()) == 2
    assert alerts() == []


def test_a_deposit_comes_when_the_bank_says_so(sandbox_bank: Sandbox, world: World) -> None:
    payee = world.person("payee", balance=50)
    order = a_deposit(payee, 700)
    work_off()
    assert (payee.balance, state(order)) == (50, "SUBMITTED")
    completed(sandbox_bank, order)
    assert (payee.balance, family("BANK_CLEARING")) == (750, -750)
    [(_, payment)] = sandbox_bank.submits()
    assert (payment["direction"], payment["amount"], payment["destination"]) == ("IN", 700, None)


@pytest.mark.parametrize("words", ["refuse", "refuse-now", "reject"])
def test_what_the_bank_refuses_is_back_in_the_wallet(sandbox_bank: Sandbox, world: World, words: str) -> None:
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400, destination=f"sandbox:{words}")
    deposit = a_deposit(payer, 70, reference=f"sandbox:{words}")
    work_off()
    if words == "refuse":
        sandbox_bank.wait_for(order.bank_reference, status="REFUSED")
        sandbox_bank.wait_for(deposit.bank_reference, status="REFUSED")
        again(order, deposit)
    assert (state(order), state(deposit)) == ("FAILED", "FAILED")
    assert (payer.balance, held(payer)) == (1_000, 0)
    [(change, reason)] = order.changes.filter(to_status="FAILED").values_list("cause", "detail")
    assert change == "ANSWER"
    assert reason
    assert JournalTransaction.objects.get(continues=order.opening).type == "RELEASE"


@pytest.mark.parametrize(("currency", "amount"), [("VND", 123_456), ("USD", 123_456), ("KWD", 123_456)])
def test_the_bank_hears_of_the_very_minor_units(
    sandbox_bank: Sandbox, world: World, currency: str, amount: int
) -> None:
    """Two wrong conversions cancel out in a book of our own; the bank's has only one (TRIALS 22)."""
    payer = world.person("payer", balance=amount, currency=currency)
    order = a_withdrawal(payer, amount)
    work_off()
    payment = sandbox_bank.payments()[order.bank_reference]
    assert (payment["amount"], payment["currency"]) == (amount, currency)


def test_one_reference_for_ever(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400, destination="sandbox:lost=3")
    work_off()
    for _ in range(4):
        again(order)
    assert {reference for reference, _ in sandbox_bank.submits()} == {order.bank_reference}
    assert len({str(payment) for _, payment in sandbox_bank.submits()}) == 1
    assert sandbox_bank.totals()[("OUT", "VND")]["payments"] == 1


# --- A bank that does not answer (TRIALS 56) -------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["timeout", "reset", "502", "broken"])
def test_no_answer_is_no_refusal(sandbox_bank: Sandbox, world: World, settings: Settings, words: str) -> None:
    """The bank has it and nobody was told: the money stays on hold until a question settles it."""
    settings.BANK_TIMEOUT_SECONDS = 0.3
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400, destination=f"sandbox:{words}")
    work_off()
    assert (state(order), payer.balance, held(payer)) == ("UNKNOWN", 600, 400)
    assert alerts() == ["BANK_ORDER_UNKNOWN"]
    sandbox_bank.wait_for(order.bank_reference, status="SETTLED")
    again(order)
    assert (state(order), payer.balance, held(payer)) == ("COMPLETED", 600, 0)
    assert history(order) == ["PENDING", "SUBMITTED", "UNKNOWN", "COMPLETED"]
    assert len(sandbox_bank.submits()) == 1
    assert alerts() == ["BANK_ORDER_UNKNOWN"]


def test_what_got_lost_is_sent_again(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400, destination="sandbox:lost=2")
    work_off()
    again(order)
    assert (state(order), held(payer)) == ("UNKNOWN", 400)
    again(order)
    assert history(order) == ["PENDING", "SUBMITTED", "UNKNOWN", "SUBMITTED"]
    completed(sandbox_bank, order)
    assert alerts() == ["BANK_ORDER_UNKNOWN"]
    assert sandbox_bank.totals()[("OUT", "VND")]["settled"] == 400


def test_staff_are_told_once_per_order(sandbox_bank: Sandbox, world: World) -> None:
    sandbox_bank.break_down("reset")
    payer = world.person("payer", balance=1_000)
    orders = [a_withdrawal(payer, 100), a_withdrawal(payer, 200)]
    work_off()
    for _ in range(3):
        again(*orders)
    assert {state(order) for order in orders} == {"UNKNOWN"}
    assert alerts() == ["BANK_ORDER_UNKNOWN"] * 2


def test_questions_come_ever_more_seldom(sandbox_bank: Sandbox, world: World) -> None:
    sandbox_bank.break_down("reset")
    order = a_withdrawal(world.person("payer", balance=1_000), 400)
    work_off()
    pauses = [due_in(order)]
    for _ in range(9):
        BankOrder.objects.update(next_step_at=clock.now())
        work_off()
        pauses.append(due_in(order))
    expected = [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    assert [round(pause / most, 1) for pause, most in zip(pauses, expected, strict=True)] == pytest.approx(
        [1.0] * 10, abs=0.11
    )


def test_an_accepted_order_is_asked_about_when_no_notice_comes(
    sandbox_bank: Sandbox, world: World, settings: Settings
) -> None:
    settings.BANK_ASK_SECONDS = 60
    order = a_withdrawal(world.person("payer", balance=1_000), 400, destination="sandbox:wait")
    work_off()
    assert 53 < due_in(order) < 67
    BankOrder.objects.update(next_step_at=clock.now())
    work_off()
    assert 107 < due_in(order) < 133
    assert state(order) == "SUBMITTED"


def test_a_worker_that_dies_after_its_claim_is_followed_by_another(
    sandbox_bank: Sandbox, world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUBMITTED is committed before the bank hears of it (TRIALS 12): the next one asks first, then sends."""

    def die(_step: object) -> None:
        raise Died

    settings.BANK_TIMEOUT_SECONDS = 10
    order = a_withdrawal(world.person("payer", balance=1_000), 400)
    with monkeypatch.context() as patched:
        patched.setattr(bank_work, "_call", die)
        with pytest.raises(Died):
            work_off()
    assert (state(order), sandbox_bank.requests()) == ("SUBMITTED", [])
    assert 26 < due_in(order) < 34, "by then a worker that lives has had its answer"
    assert due_orders() == []
    again(order)
    assert [request["method"] for request in sandbox_bank.requests()] == ["GET", "PUT"]
    completed(sandbox_bank, order)


def test_a_worker_that_dies_before_it_writes_the_answer_down(
    sandbox_bank: Sandbox, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Died

    order = a_withdrawal(world.person("payer", balance=1_000), 400)
    with monkeypatch.context() as patched:
        patched.setattr(bank_work, "_record", die)
        with pytest.raises(Died):
            work_off()
    assert (state(order), len(sandbox_bank.submits())) == ("SUBMITTED", 1)
    completed(sandbox_bank, order)
    assert len(sandbox_bank.submits()) == 1


def test_an_order_that_breaks_does_not_stop_the_others(
    sandbox_bank: Sandbox, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer = world.person("payer", balance=1_000)
    broken, sound = a_withdrawal(payer, 100), a_withdrawal(payer, 200)

    def break_or_advance(order_id: UUID) -> None:
        if order_id == broken.pk:
            raise ValueError("a fault on purpose")
        advance(order_id)

    monkeypatch.setattr(bank_tasks, "advance", break_or_advance)
    for _ in range(20):  # Ticks, which take the orders in whatever order.
        with suppress(ValueError):
            bank_tasks.work_on_orders()
        if state(sound) != "PENDING":
            break
    assert (state(broken), state(sound)) == ("PENDING", "SUBMITTED")


def test_a_tick_works_until_nothing_is_due(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    orders = [a_withdrawal(payer, 1) for _ in range(bank_work.SWEEP_BATCH + 3)]
    bank_tasks.work_on_orders()
    assert {state(order) for order in orders} == {"SUBMITTED"}
    assert due_orders() == []


# --- Returns ---------------------------------------------------------------------------------------------------------


def test_a_withdrawal_that_the_bank_sends_back(sandbox_bank: Sandbox, world: World) -> None:
    """Days later, in parts (TRIALS 59)."""
    payer = world.person("payer", balance=1_000)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    sandbox_bank.act(order.bank_reference, "return", amount=150)
    again(order)
    again(order)
    assert (payer.balance, held(payer)) == (750, 0)
    sandbox_bank.act(order.bank_reference, "return")
    again(order)
    order.refresh_from_db()
    assert (payer.balance, order.returned, order.status) == (1_000, 400, "COMPLETED")
    assert list(order.returns.order_by("pk").values_list("amount", "cause")) == [(150, "ANSWER"), (250, "ANSWER")]
    assert history(order) == ["PENDING", "SUBMITTED", "COMPLETED"]
    assert (family("BANK_CLEARING"), order.next_step_at, alerts()) == (-1_000, None, [])


def test_a_return_for_a_closed_wallet_is_kept_in_suspense(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=400)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    close_account(caller=payer.caller, key="close", account_id=payer.account_id)
    sandbox_bank.act(order.bank_reference, "return", amount=150)
    again(order)
    order.refresh_from_db()
    assert (payer.balance, order.returned, family("SUSPENSE")) == (0, 150, 150)
    assert alerts() == ["MONEY_IN_SUSPENSE"]


def test_a_return_for_a_full_wallet_is_kept_in_suspense(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=400)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    world.pay(world.person("rich", balance=MAX_AMOUNT), payer, MAX_AMOUNT - 100)
    sandbox_bank.act(order.bank_reference, "return", amount=150)
    again(order)
    assert (payer.balance, family("SUSPENSE"), alerts()) == (MAX_AMOUNT - 100, 150, ["MONEY_IN_SUSPENSE"])


def test_a_deposit_that_the_bank_takes_back(sandbox_bank: Sandbox, world: World) -> None:
    payee = world.person("payee")
    order = completed(sandbox_bank, a_deposit(payee, 700))
    sandbox_bank.act(order.bank_reference, "return", amount=200)
    again(order)
    assert (payee.balance, family("RECEIVABLE"), family("BANK_CLEARING")) == (500, 0, -500)
    assert (alerts(), Freeze.objects.count()) == ([], 0)


def test_a_deposit_taken_back_after_it_was_spent(sandbox_bank: Sandbox, world: World) -> None:
    """What is left goes back, the rest is owed, the wallet is frozen, staff are told."""
    payee, shop = world.person("payee"), world.person("shop")
    order = completed(sandbox_bank, a_deposit(payee, 700))
    world.pay(payee, shop, 600)
    sandbox_bank.act(order.bank_reference, "return", amount=300)
    again(order)
    assert (payee.balance, family("RECEIVABLE"), family("BANK_CLEARING")) == (0, -200, -400)
    [freeze_] = Freeze.objects.all()
    assert (freeze_.account_id, freeze_.cause, freeze_.made_by.username) == (payee.account_id, "CHARGEBACK", "system")
    assert alerts() == ["CHARGEBACK_OWED"]
    sandbox_bank.act(order.bank_reference, "return")
    again(order)
    assert (payee.balance, family("RECEIVABLE"), Freeze.objects.count()) == (0, -600, 1)
    assert alerts() == ["CHARGEBACK_OWED"] * 2
    world.pay(shop, payee, 100)
    with pytest.raises(AccountFrozen):
        world.pay(payee, shop, 1)


def test_a_chargeback_freezes_beside_a_freeze_of_the_staffs(sandbox_bank: Sandbox, world: World) -> None:
    payee, shop = world.person("payee"), world.person("shop")
    order = completed(sandbox_bank, a_deposit(payee, 700))
    world.pay(payee, shop, 600)
    freeze(account_id=payee.account_id, cause="STAFF", reason="police letter 17", staff_id=shop.user.pk)
    sandbox_bank.act(order.bank_reference, "return")
    again(order)
    assert sorted(Freeze.objects.values_list("cause", flat=True)) == ["CHARGEBACK", "STAFF"]
    assert (payee.balance, family("RECEIVABLE")) == (0, -600)


def test_a_deposit_taken_back_from_a_closed_wallet_is_owed_whole(sandbox_bank: Sandbox, world: World) -> None:
    payee, shop = world.person("payee"), world.person("shop")
    order = completed(sandbox_bank, a_deposit(payee, 700))
    world.pay(payee, shop, 700)
    close_account(caller=payee.caller, key="close", account_id=payee.account_id)
    sandbox_bank.act(order.bank_reference, "return")
    again(order)
    assert (family("RECEIVABLE"), Freeze.objects.count(), alerts()) == (-700, 0, ["CHARGEBACK_OWED"])


# --- What freeze, close and limits mean ------------------------------------------------------------------------------


def test_a_frozen_wallet_takes_deposits_and_gets_back_what_failed(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    paid, refused = a_withdrawal(payer, 100), a_withdrawal(payer, 200, destination="sandbox:refuse-now")
    freeze(account_id=payer.account_id, cause="STAFF", reason="police letter 17", staff_id=payer.user.pk)
    with pytest.raises(AccountFrozen):
        a_withdrawal(payer, 1)
    coming = a_deposit(payer, 50)
    completed(sandbox_bank, coming)
    sandbox_bank.wait_for(paid.bank_reference, status="SETTLED")
    again(paid)
    assert (state(paid), state(refused), payer.balance, held(payer)) == ("COMPLETED", "FAILED", 950, 0)
    thaw(account_id=payer.account_id, reason="settled", staff_id=payer.user.pk)


@pytest.mark.parametrize("words", ["wait", "timeout"])
def test_a_wallet_with_an_order_under_way_is_not_closed(
    sandbox_bank: Sandbox, world: World, settings: Settings, words: str
) -> None:
    settings.BANK_TIMEOUT_SECONDS = 0.3
    payee = world.person("payee")
    order = a_deposit(payee, 10, reference=f"sandbox:{words}")

    def refused() -> None:
        with pytest.raises(IllegalState, match="under way"):
            close_account(caller=payee.caller, key="close", account_id=payee.account_id)

    refused()
    work_off()
    refused()
    if words == "wait":
        sandbox_bank.act(order.bank_reference, "refuse")
        again(order)
        close_account(caller=payee.caller, key="close", account_id=payee.account_id)
        with pytest.raises(AccountClosed):
            a_deposit(payee, 10)
        with pytest.raises(AccountClosed):
            a_withdrawal(payee, 10)


def test_a_deposit_waits_for_a_full_wallet(sandbox_bank: Sandbox, world: World) -> None:
    payee, rich = world.person("payee"), world.person("rich", balance=MAX_AMOUNT)
    with pytest.raises(BalanceLimitExceeded):
        a_deposit(rich, 1)
    order = a_deposit(payee, 700)
    work_off()
    sandbox_bank.wait_for(order.bank_reference, status="SETTLED")
    world.pay(rich, payee, MAX_AMOUNT)
    again(order)
    assert (state(order), payee.balance, alerts()) == ("SUBMITTED", MAX_AMOUNT, ["BANK_OUTCOME_NOT_BOOKED"])
    again(order)
    assert alerts() == ["BANK_OUTCOME_NOT_BOOKED"], "once, however often it is tried"
    assert due_in(order) > 0
    world.pay(payee, rich, 1_000)
    again(order)
    assert (state(order), payee.balance) == ("COMPLETED", MAX_AMOUNT - 300)


def test_a_wallet_pays_out_no_more_than_it_has(world: World) -> None:
    payer = world.person("payer", balance=100)
    a_withdrawal(payer, 60)
    with pytest.raises(InsufficientFunds):
        a_withdrawal(payer, 41)
    assert (payer.balance, held(payer)) == (40, 60)
    assert Account.objects.get(pk=payer.account_id).status == "ACTIVE"


# --- Asking again ----------------------------------------------------------------------------------------------------


def test_staff_ask_about_open_and_completed_orders(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    done, failed = a_withdrawal(payer, 100), a_withdrawal(payer, 200, destination="sandbox:refuse-now")
    completed(sandbox_bank, done)
    waits = a_withdrawal(payer, 300, destination="sandbox:wait")
    work_off()
    asked = ask_again(order_ids=[done.pk, failed.pk, waits.pk])
    assert {order.pk for order in asked} == {done.pk, waits.pk}
    assert set(due_orders()) == {done.pk, waits.pk}
    work_off()
    done.refresh_from_db()
    assert (done.next_step_at, state(failed)) == (None, "FAILED")


def test_a_completed_order_is_asked_about_until_the_bank_answers(sandbox_bank: Sandbox, world: World) -> None:
    order = completed(sandbox_bank, a_deposit(world.person("payee"), 100))
    sandbox_bank.break_down("500")
    again(order)
    assert (state(order), 4 < due_in(order) < 6) == ("COMPLETED", True)
    sandbox_bank.break_down(None)
    again(order)
    order.refresh_from_db()
    assert order.next_step_at is None


def test_a_bank_that_has_forgotten_a_payment(sandbox_bank: Sandbox, world: World, tmp_path: Path) -> None:
    """It is not paid again: staff are told, and nobody asks any more."""
    order = completed(sandbox_bank, a_withdrawal(world.person("payer", balance=1_000), 400))
    with (
        running(tmp_path / "another bank") as another,
        override_settings(BANK_URL=another.url, BANK_API_KEY=another.server.api_key),
    ):
        again(order)
        assert [request["method"] for request in another.requests()] == ["GET"]
    order.refresh_from_db()
    assert (order.status, order.next_step_at, alerts()) == ("COMPLETED", None, ["BANK_CONTRADICTION"])


def test_what_is_not_due_is_left_alone(sandbox_bank: Sandbox, world: World) -> None:
    order = a_withdrawal(world.person("payer", balance=1_000), 400)
    BankOrder.objects.update(next_step_at=clock.now() + timedelta(seconds=30))
    work_off()
    advance(order.pk)
    assert (state(order), sandbox_bank.requests()) == ("PENDING", [])
