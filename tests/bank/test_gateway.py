"""The gateway against a real bank that misbehaves: what each call says, and what stands in the bank's book."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from pytest_django import Settings

from tests.bank.kit import instruction, outcome
from tests.bank.receiver import Door, Received, open_door
from tests.bank.sandbox import Sandbox
from tests.conftest import free_port, wait_until
from transfers.bank.gateway import (
    BankGateway,
    Direction,
    NoAnswer,
    Notice,
    NoticeEvent,
    Payment,
    PaymentStatus,
    Refused,
    UnknownReference,
    gateway,
)
from transfers.bank.http_gateway import HTTPGateway


def _read(received: Received) -> Notice:
    return gateway().verify(headers=received.headers, body=received.body)


@pytest.fixture(autouse=True)
def _no_patience(settings: Settings) -> None:
    settings.BANK_TIMEOUT_SECONDS = 1


# --- The plain course ----------------------------------------------------------------------------------------------


def test_a_payment_is_taken_then_settled_and_told(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction()
    taken = gateway().submit(order)
    assert (taken.status, taken.reason, taken.returns) == (PaymentStatus.ACCEPTED, None, ())

    sandbox_bank.wait_for(order.reference, status="SETTLED")
    settled = gateway().query(order)
    assert settled.status is PaymentStatus.SETTLED
    assert settled.updated_at >= taken.updated_at

    [received] = door.wait_for(1)
    notice = _read(received)
    assert (notice.reference, notice.event, notice.amount) == (order.reference, NoticeEvent.SETTLED, 1_000)
    assert (notice.currency, notice.return_id, notice.reason) == ("VND", None, None)


@pytest.mark.parametrize(("currency", "amount"), [("VND", 1), ("VND", 2**53 - 1), ("USD", 123_456), ("KWD", 1_234_567)])
@pytest.mark.parametrize("direction", Direction)
def test_the_bank_receives_the_minor_units_that_we_mean(
    sandbox_bank: Sandbox, currency: str, amount: int, direction: Direction
) -> None:
    """Currencies of 0, 2 and 3 decimals: two wrong conversions on our side would cancel out; the bank sees one."""
    destination = "VCB 0071000123456" if direction is Direction.OUT else None
    order = instruction(direction=direction, amount=amount, currency=currency, destination=destination)
    gateway().submit(order)

    [request] = sandbox_bank.requests(order.reference)
    assert f'"amount":{amount},"currency":"{currency}"' in request["body"]
    sandbox_bank.wait_for(order.reference, status="SETTLED")
    expected = {"payments": 1, "accepted": 0, "settled": amount, "refused": 0, "returned": 0}
    assert sandbox_bank.totals() == {(direction.value, currency): expected}


def test_a_reference_is_one_payment_however_often_it_is_sent(sandbox_bank: Sandbox) -> None:
    order = instruction()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: gateway().submit(order), range(40)))
    assert {(answer.reference, answer.amount) for answer in answers} == {(order.reference, 1_000)}
    assert len(sandbox_bank.submits(order.reference)) == 40
    assert sandbox_bank.totals()["OUT", "VND"]["payments"] == 1


# --- Taken, and not told so ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["timeout", "broken", "reset", "502"])
@pytest.mark.parametrize("direction", Direction)
def test_a_payment_that_was_taken_without_a_usable_answer(
    sandbox_bank: Sandbox, settings: Settings, words: str, direction: Direction
) -> None:
    """Nobody knows; a query does; sent again with the same reference, it is the same payment."""
    settings.BANK_TIMEOUT_SECONDS = 0.3
    order = instruction(words)
    if direction is Direction.IN:
        order = replace(order, direction=direction, destination=None, description=f"for a friend sandbox:{words} ok")

    assert outcome(gateway().submit, order) is NoAnswer
    assert isinstance(outcome(gateway().query, order), Payment)
    assert isinstance(outcome(gateway().submit, order), Payment)

    first, second = sandbox_bank.submits()
    assert first == second
    assert first[0] == order.reference
    assert sandbox_bank.totals()[direction, "VND"]["payments"] == 1


def test_a_payment_whose_answers_stay_away_for_some_tries(sandbox_bank: Sandbox) -> None:
    order = instruction("reset=3")
    outcomes = [outcome(gateway().submit, order) for _ in range(4)]
    assert outcomes[:3] == [NoAnswer] * 3
    assert isinstance(outcomes[3], Payment)


def test_a_payment_that_gets_lost_on_its_way(sandbox_bank: Sandbox) -> None:
    order = instruction("lost")
    assert outcome(gateway().submit, order) is NoAnswer
    assert outcome(gateway().query, order) is UnknownReference
    assert isinstance(outcome(gateway().submit, order), Payment)
    assert [reference for reference, _ in sandbox_bank.submits()] == [order.reference] * 2


# --- No ------------------------------------------------------------------------------------------------------------


def test_an_instruction_that_the_bank_does_not_take(sandbox_bank: Sandbox) -> None:
    order = instruction("reject")
    with pytest.raises(Refused) as refused:
        gateway().submit(order)
    assert refused.value.reason == "The sandbox was told so."
    assert outcome(gateway().query, order) is UnknownReference
    assert sandbox_bank.payments() == {}


def test_words_that_the_bank_does_not_know_are_not_passed_over(sandbox_bank: Sandbox) -> None:
    for words in ("nonsense", "settle,nonsense", "settle,refuse", "timeout,broken", "return=", "return=-1", "=3"):
        assert outcome(gateway().submit, instruction(words)) is Refused, words
    assert sandbox_bank.payments() == {}


def test_a_payment_that_is_refused_at_once(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction("refuse-now")
    answer = gateway().submit(order)
    assert (answer.status, answer.reason) == (PaymentStatus.REFUSED, "The sandbox was told so.")
    [received] = door.wait_for(1)
    assert (_read(received).event, _read(received).reason) == (NoticeEvent.REFUSED, "The sandbox was told so.")


def test_a_payment_that_is_refused_later(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction("refuse")
    assert gateway().submit(order).status is PaymentStatus.ACCEPTED
    [received] = door.wait_for(1)
    assert _read(received).event is NoticeEvent.REFUSED
    assert gateway().query(order).status is PaymentStatus.REFUSED


def test_another_payment_with_the_same_reference_is_not_answered_for_ours(sandbox_bank: Sandbox) -> None:
    """A 409 is no refusal of the order: something was paid under its reference."""
    order = instruction()
    gateway().submit(order)
    other = replace(order, amount=999)
    assert outcome(gateway().submit, other) is NoAnswer
    assert outcome(gateway().query, other) is NoAnswer
    assert outcome(gateway().query, replace(order, currency="USD")) is NoAnswer
    assert outcome(gateway().query, replace(order, direction=Direction.IN)) is NoAnswer


# --- The bank is away ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hang", "reset", "500", "502", "broken"])
def test_a_bank_that_is_broken_altogether(sandbox_bank: Sandbox, settings: Settings, fault: str) -> None:
    settings.BANK_TIMEOUT_SECONDS = 0.3
    order = instruction()
    sandbox_bank.break_down(fault)
    assert outcome(gateway().submit, order) is NoAnswer
    assert outcome(gateway().query, order) is NoAnswer

    sandbox_bank.break_down(None)
    assert outcome(gateway().query, order) is UnknownReference
    assert isinstance(outcome(gateway().submit, order), Payment)


def test_a_bank_that_does_not_know_us(sandbox_bank: Sandbox, settings: Settings) -> None:
    """Our key is wrong: that is our trouble, and no order fails of it."""
    settings.BANK_API_KEY = "another"
    order = instruction()
    assert outcome(gateway().submit, order) is NoAnswer
    assert outcome(gateway().query, order) is NoAnswer
    assert sandbox_bank.payments() == {}


def test_a_bank_that_was_killed_comes_back_with_its_book(sandbox_bank: Sandbox) -> None:
    orders = [instruction(amount=amount) for amount in (1, 20, 300)]
    for order in orders:
        sandbox_bank.tell(order.reference, "wait")
        gateway().submit(order)
    late = instruction()
    sandbox_bank.tell(late.reference, "refuse-now")
    sandbox_bank.kill()
    assert outcome(gateway().submit, late) is NoAnswer
    assert outcome(gateway().query, orders[0]) is NoAnswer

    sandbox_bank.start()
    assert {gateway().query(order).status for order in orders} == {PaymentStatus.ACCEPTED}
    assert gateway().submit(late).status is PaymentStatus.REFUSED
    for order in orders:
        sandbox_bank.act(order.reference, "settle")
    assert sandbox_bank.totals()["OUT", "VND"] == {
        "payments": 4,
        "accepted": 0,
        "settled": 321,
        "refused": 1_000,
        "returned": 0,
    }


# --- Notices ---------------------------------------------------------------------------------------------------------


def test_a_notice_that_comes_before_the_answer(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction("early")
    answered = threading.Event()
    before: list[bool] = []
    door.when_received = lambda _received: before.append(not answered.is_set())
    answer = gateway().submit(order)
    answered.set()
    assert before == [True]
    # And the answer is the older of the two.
    assert answer.status is PaymentStatus.ACCEPTED
    assert door.events == ["SETTLED"]


def test_a_notice_that_comes_twice_has_one_id(sandbox_bank: Sandbox, door: Door) -> None:
    gateway().submit(instruction("twice=3"))
    received = door.wait_for(3)
    assert len({item.body for item in received}) == 1
    sandbox_bank.wait_until_told()
    assert len(door.received) == 3


def test_a_notice_that_never_comes(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction("never")
    gateway().submit(order)
    sandbox_bank.wait_for(order.reference, status="SETTLED")
    assert gateway().query(order).status is PaymentStatus.SETTLED
    assert sandbox_bank.notices() == []


def test_a_notice_that_comes_late(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction("late=1")
    gateway().submit(order)
    sandbox_bank.wait_for(order.reference, status="SETTLED")
    settled = gateway().query(order)
    assert door.received == []
    [received] = door.wait_for(1)
    assert _read(received).occurred_at - settled.updated_at < timedelta(seconds=0.5)


def test_a_notice_with_a_wrong_amount(sandbox_bank: Sandbox, door: Door) -> None:
    gateway().submit(instruction("wrong-amount"))
    gateway().submit(instruction("wrong-amount=5"))
    assert sorted(_read(received).amount for received in door.wait_for(2)) == [5, 1_001]


@pytest.mark.parametrize(
    ("words", "events"), [("return-first=40", ["RETURNED", "SETTLED"]), ("refuse-after", ["SETTLED", "REFUSED"])]
)
def test_notices_out_of_order(sandbox_bank: Sandbox, door: Door, words: str, events: list[str]) -> None:
    """Even where the first has to be sent several times, it is taken before the second is sent."""
    door.statuses = [503, 503]
    order = instruction(words)
    gateway().submit(order)
    door.wait_for(4)
    assert door.events == [events[0]] * 3 + [events[1]]
    assert gateway().query(order).status is PaymentStatus.SETTLED


@pytest.mark.parametrize(("words", "amount"), [("return", 1_000), ("return=40", 40), ("return-first", 1_000)])
def test_money_that_comes_back(sandbox_bank: Sandbox, door: Door, words: str, amount: int) -> None:
    order = instruction(words)
    gateway().submit(order)
    [returned] = [_read(item) for item in door.wait_for(2) if item.notice["event"] == "RETURNED"]
    payment = gateway().query(order)
    assert payment.status is PaymentStatus.SETTLED
    [shown] = payment.returns
    assert (shown.return_id, shown.amount) == (returned.return_id, returned.amount)
    assert shown.amount == amount
    assert sandbox_bank.totals()["OUT", "VND"]["returned"] == amount


def test_money_that_comes_back_in_parts_and_never_more_than_went(sandbox_bank: Sandbox, door: Door) -> None:
    order = instruction()
    gateway().submit(order)
    sandbox_bank.wait_for(order.reference, status="SETTLED")
    sandbox_bank.act(order.reference, "return", amount=300)
    sandbox_bank.act(order.reference, "return", amount=100)
    with pytest.raises(AssertionError, match="600 of it could go back"):
        sandbox_bank.act(order.reference, "return", amount=601)
    sandbox_bank.act(order.reference, "return")
    assert [item.amount for item in gateway().query(order).returns] == [300, 100, 600]
    assert sorted(item.notice["amount"] for item in door.wait_for(4)) == [100, 300, 600, 1_000]


def test_a_notice_is_sent_until_it_is_taken(sandbox_bank: Sandbox, door: Door) -> None:
    door.statuses = [500, 302, 401, 503]
    gateway().submit(instruction())
    received = door.wait_for(5)
    assert len({item.body for item in received}) == 1
    sandbox_bank.wait_until_told()
    [notice] = sandbox_bank.notices()
    assert (notice["attempts"], notice["answer"]) == (5, "200")


def test_notices_outlive_our_outage_and_the_banks_own_death(sandbox_bank: Sandbox) -> None:
    port = free_port()
    sandbox_bank.send_notices_to(f"http://127.0.0.1:{port}/v1/bank/callbacks")
    orders = [instruction() for _ in range(5)]
    for order in orders:
        gateway().submit(order)
        sandbox_bank.wait_for(order.reference, status="SETTLED")
    wait_until(lambda: all(notice["attempts"] > 1 for notice in sandbox_bank.notices()), seconds=10)
    sandbox_bank.kill()
    sandbox_bank.start()

    with open_door(port) as door:
        sandbox_bank.wait_until_told()
        assert {item.notice["reference"] for item in door.received} == {order.reference for order in orders}
        assert {_read(item).event for item in door.received} == {NoticeEvent.SETTLED}


def test_a_payment_that_waits_until_the_bank_is_told(sandbox_bank: Sandbox, door: Door) -> None:
    sandbox_bank.tell_all("wait")
    settled, refused = instruction(), instruction()
    for order in (settled, refused):
        gateway().submit(order)
    sandbox_bank.act(settled.reference, "settle")
    sandbox_bank.act(refused.reference, "refuse")
    assert gateway().query(settled).status is PaymentStatus.SETTLED
    assert gateway().query(refused).status is PaymentStatus.REFUSED
    sandbox_bank.wait_until_told()
    sandbox_bank.act(settled.reference, "notify")
    events = [item.notice["event"] for item in door.wait_for(3)]
    assert sorted(events) == ["REFUSED", "SETTLED", "SETTLED"]


# --- The kept gateway ----------------------------------------------------------------------------------------------


def test_the_gateway_is_kept_until_the_settings_change(sandbox_bank: Sandbox, settings: Settings) -> None:
    kept = gateway()
    assert gateway() is kept
    # What the setting names is a gateway, to the type checker too.
    named: type[BankGateway] = HTTPGateway
    assert type(kept) is named
    settings.BANK_TIMEOUT_SECONDS = 2
    assert gateway() is not kept


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_makes_its_own_connections(sandbox_bank: Sandbox) -> None:
    """Celery forks: two processes on one connection would read each other's answers."""
    order = instruction()
    gateway().submit(order)
    inherited = gateway()
    child = os.fork()
    if child == 0:
        alone = gateway() is not inherited
        answered = all(gateway().query(order).reference == order.reference for _ in range(20))
        os._exit(0 if alone and answered else 1)
    answers = {gateway().query(order).reference for _ in range(20)}
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert answers == {order.reference}
    assert gateway() is inherited
