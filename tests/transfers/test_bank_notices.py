"""The bank's notices, in all their orders: what each does, and what it leaves."""

import json
from collections.abc import Sequence
from itertools import permutations

import pytest

from accounts.models import Freeze
from tests.bank.sandbox import Sandbox
from tests.races import at_once, soak
from tests.transfers.bank_kit import (
    a_deposit,
    a_notice,
    a_withdrawal,
    again,
    alerts,
    completed,
    family,
    held,
    history,
    send,
    state,
    work_off,
)
from tests.world import Person, World
from transfers.bank.errors import SignatureInvalid
from transfers.models import BankNotice, BankOrder
from transfers.services import close_account, take_notice
from wallet_project.kernel.errors import InvalidJSON, InvalidRequest
from wallet_project.kernel.money import MAX_AMOUNT

pytestmark = pytest.mark.django_db(transaction=True)


def submitted(person: Person, kind: str, amount: int = 400) -> BankOrder:
    """An order that the bank has accepted, and of which it says no more by itself."""
    if kind == "DEPOSIT":
        order = a_deposit(person, amount, reference="sandbox:wait")
    else:
        order = a_withdrawal(person, amount, destination="sandbox:wait")
    work_off()
    assert state(order) == "SUBMITTED"
    return order


def outcomes(order: BankOrder) -> list[str]:
    return list(BankNotice.objects.filter(order=order).order_by("pk").values_list("outcome", flat=True))


# --- All orders of notices (the model, and what really happens) ------------------------------------------------------


def expected(events: Sequence[str]) -> tuple[str, int]:
    """The status, and what was returned of 400, after these notices: the first final one decides."""
    final = next(event for event in events if event != "RETURNED")
    return ("COMPLETED", 150) if final == "SETTLED" else ("FAILED", 0)


ORDERS_OF_NOTICES = sorted(set(permutations(["SETTLED", "REFUSED", "RETURNED"] * 2)))


@pytest.mark.parametrize("kind", ["DEPOSIT", "WITHDRAWAL"])
@pytest.mark.parametrize("copies", ["the very same twice", "each with an id of its own"])
def test_all_orders_of_notices(sandbox_bank: Sandbox, world: World, kind: str, copies: str) -> None:
    """90 orders of two settlements, two refusals and two tidings of one return; whoever comes first decides."""
    assert len(ORDERS_OF_NOTICES) == 90
    every = soak(1, few=3)
    for events in ORDERS_OF_NOTICES[::every]:
        person = world.person("person", balance=1_000)
        order = submitted(person, kind)
        before = person.balance
        same = {event: a_notice(order, event, **_return_of_150(event)) for event in set(events)}
        for event in events:
            body = same[event] if copies == "the very same twice" else a_notice(order, event, **_return_of_150(event))
            send(sandbox_bank, body)
        order.refresh_from_db()
        assert (order.status, order.returned) == expected(events), events
        moved = {
            ("DEPOSIT", "COMPLETED"): 400 - 150,
            ("DEPOSIT", "FAILED"): 0,
            ("WITHDRAWAL", "COMPLETED"): 150,
            ("WITHDRAWAL", "FAILED"): 400,
        }[kind, order.status]
        assert (person.balance - before, held(person)) == (moved, 0), events
        assert history(order) == ["PENDING", "SUBMITTED", order.status], events


def _return_of_150(event: str) -> dict[str, object]:
    return {"amount": 150, "returnId": "the return"} if event == "RETURNED" else {}


@pytest.mark.parametrize("kind", ["DEPOSIT", "WITHDRAWAL"])
def test_notices_of_all_kinds_at_once(sandbox_bank: Sandbox, world: World, kind: str) -> None:
    for _ in range(soak(100, few=5)):
        person = world.person("person", balance=1_000)
        order = submitted(person, kind)
        bodies = [a_notice(order, event, **_return_of_150(event)) for event in ["SETTLED", "REFUSED", "RETURNED"] * 2]
        at_once([lambda body=body: send(sandbox_bank, body) for body in bodies])  # type: ignore[misc]
        order.refresh_from_db()
        assert (order.status, order.returned) in {("COMPLETED", 150), ("FAILED", 0)}
        assert held(person) == 0


def test_a_notice_and_an_answer_at_once(sandbox_bank: Sandbox, world: World) -> None:
    for _ in range(soak(100, few=5)):
        payer = world.person("payer", balance=1_000)
        before = payer.balance
        order = submitted(payer, "WITHDRAWAL")
        sandbox_bank.act(order.bank_reference, "settle")
        body = a_notice(order, "SETTLED")
        at_once([lambda order=order: again(order), lambda body=body: send(sandbox_bank, body)])  # type: ignore[misc]
        assert (history(order), payer.balance) == (["PENDING", "SUBMITTED", "COMPLETED"], before - 400)
    assert alerts() == []


@pytest.mark.parametrize("event", ["SETTLED", "REFUSED", "RETURNED"])
def test_the_same_notice_twenty_times_at_once(sandbox_bank: Sandbox, world: World, event: str) -> None:
    """All are taken, one has an effect (TRIALS 57)."""
    payer = world.person("payer", balance=1_000)
    order = submitted(payer, "WITHDRAWAL")
    if event == "RETURNED":
        send(sandbox_bank, a_notice(order, "SETTLED"))
    body = a_notice(order, event)
    found = at_once([lambda: send(sandbox_bank, body)] * 20)
    assert sorted(found) == ["APPLIED"] + ["REPEATED"] * 19
    assert payer.balance == (600 if event == "SETTLED" else 1_000)


def test_an_unknown_notice_twenty_times_at_once(sandbox_bank: Sandbox, world: World) -> None:
    """There is no order whose lock would make them wait."""
    body = a_notice(None, "SETTLED")
    found = at_once([lambda: send(sandbox_bank, body)] * 20)
    assert sorted(found) == ["REPEATED"] * 19 + ["UNKNOWN_REFERENCE"]
    assert alerts() == ["BANK_NOTICE_UNKNOWN_REFERENCE"]
    assert BankNotice.objects.count() == 1


# --- What each notice leaves -----------------------------------------------------------------------------------------


def test_a_notice_is_kept_word_for_word(sandbox_bank: Sandbox, world: World) -> None:
    order = submitted(world.person("payer", balance=1_000), "WITHDRAWAL")
    body = a_notice(order, "REFUSED")
    assert send(sandbox_bank, body) == "APPLIED"
    [notice] = BankNotice.objects.all()
    assert (bytes(notice.body), notice.outcome, notice.order_id) == (body, "APPLIED", order.pk)
    [change] = order.changes.filter(to_status="FAILED")
    assert (change.cause, change.detail, change.happened_at) == ("NOTICE", "Account closed", notice.occurred_at)


def test_a_notice_before_the_answer(sandbox_bank: Sandbox, world: World) -> None:
    """The bank is quicker than its own answer: the order is there since before it was called."""
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400)
    assert send(sandbox_bank, a_notice(order, "SETTLED")) == "ILLEGAL_MOVE", "nobody has asked the bank yet"
    work_off()
    assert send(sandbox_bank, a_notice(order, "SETTLED")) == "APPLIED"
    assert state(order) == "COMPLETED"
    assert alerts() == ["BANK_NOTICE_ILLEGAL_MOVE"]


def test_an_unknown_order_is_settled_by_a_notice(sandbox_bank: Sandbox, world: World) -> None:
    sandbox_bank.break_down("reset")
    payer = world.person("payer", balance=1_000)
    order = a_withdrawal(payer, 400)
    work_off()
    assert state(order) == "UNKNOWN"
    assert send(sandbox_bank, a_notice(order, "SETTLED")) == "APPLIED"
    assert (history(order)[-1], held(payer)) == ("COMPLETED", 0)


@pytest.mark.parametrize("kind", ["DEPOSIT", "WITHDRAWAL"])
def test_a_return_before_its_time_waits(sandbox_bank: Sandbox, world: World, kind: str) -> None:
    person = world.person("person", balance=1_000)
    order = submitted(person, kind)
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=100)) == "WAITING"
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=50)) == "WAITING"
    assert held(person) == (400 if kind == "WITHDRAWAL" else 0)
    assert send(sandbox_bank, a_notice(order, "SETTLED")) == "APPLIED"
    order.refresh_from_db()
    assert (order.returned, order.returns.count()) == (150, 2)
    assert person.balance == (750 if kind == "WITHDRAWAL" else 1_250)
    assert alerts() == []


def test_returns_that_wait_for_more_than_there_was(sandbox_bank: Sandbox, world: World) -> None:
    person = world.person("person")
    order = submitted(person, "DEPOSIT")
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=300)) == "WAITING"
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=300)) == "WAITING"
    assert send(sandbox_bank, a_notice(order, "SETTLED")) == "APPLIED"
    order.refresh_from_db()
    assert (order.returned, person.balance, alerts()) == (300, 100, ["BANK_RETURN_EXCEEDS"])


def test_a_return_that_waited_for_a_refusal(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    order = submitted(payer, "WITHDRAWAL")
    send(sandbox_bank, a_notice(order, "RETURNED"))
    assert send(sandbox_bank, a_notice(order, "REFUSED")) == "APPLIED"
    assert (payer.balance, alerts()) == (1_000, ["BANK_RETURN_OF_FAILED"])


def test_a_return_is_counted_once_however_it_is_told(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    sandbox_bank.act(order.bank_reference, "return", amount=150)
    [told] = [json.loads(row["body"]) for row in sandbox_bank.notices() if row["event"] == "RETURNED"]
    again(order)
    assert send(sandbox_bank, json.dumps(told).encode()) == "REPEATED"
    other = {**told, "noticeId": "another", "amount": 151}
    assert send(sandbox_bank, json.dumps(other).encode()) == "MISMATCH"
    order.refresh_from_db()
    assert (order.returned, payer.balance, alerts()) == (150, 750, ["BANK_NOTICE_MISMATCH"])


def test_more_than_there_was_is_never_returned(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=300)) == "APPLIED"
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=101)) == "ILLEGAL_MOVE"
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=100)) == "APPLIED"
    assert send(sandbox_bank, a_notice(order, "RETURNED", amount=1)) == "ILLEGAL_MOVE"
    assert (payer.balance, family("BANK_CLEARING")) == (1_000, -1_000)


def test_a_final_state_is_final(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    paid, refused = submitted(payer, "WITHDRAWAL"), submitted(payer, "WITHDRAWAL", 100)
    send(sandbox_bank, a_notice(paid, "SETTLED"))
    send(sandbox_bank, a_notice(refused, "REFUSED"))
    assert send(sandbox_bank, a_notice(paid, "REFUSED")) == "ILLEGAL_MOVE"
    assert send(sandbox_bank, a_notice(refused, "SETTLED")) == "ILLEGAL_MOVE"
    assert send(sandbox_bank, a_notice(refused, "RETURNED")) == "ILLEGAL_MOVE"
    assert send(sandbox_bank, a_notice(paid, "SETTLED")) == "REPEATED"
    assert (state(paid), state(refused), payer.balance) == ("COMPLETED", "FAILED", 600)
    assert alerts() == ["BANK_NOTICE_ILLEGAL_MOVE"] * 3


@pytest.mark.parametrize("members", [{"amount": 399}, {"amount": 401}, {"currency": "USD"}, {"amount": 40_000}])
@pytest.mark.parametrize("event", ["SETTLED", "REFUSED"])
def test_another_amount_or_currency_moves_nothing(
    sandbox_bank: Sandbox, world: World, event: str, members: dict[str, object]
) -> None:
    payer = world.person("payer", balance=1_000)
    order = submitted(payer, "WITHDRAWAL")
    assert send(sandbox_bank, a_notice(order, event, **members)) == "MISMATCH"
    assert (state(order), held(payer), alerts()) == ("SUBMITTED", 400, ["BANK_NOTICE_MISMATCH"])


def test_an_id_used_for_two_notices(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=1_000)
    first, second = submitted(payer, "WITHDRAWAL"), submitted(payer, "WITHDRAWAL", 100)
    assert send(sandbox_bank, a_notice(first, "SETTLED", noticeId="N")) == "APPLIED"
    assert send(sandbox_bank, a_notice(second, "SETTLED", noticeId="N")) == "REPEATED"
    assert (state(second), alerts()) == ("SUBMITTED", ["BANK_NOTICE_REUSED"])


def test_a_chargeback_by_notice_of_what_was_spent(sandbox_bank: Sandbox, world: World) -> None:
    payee, shop = world.person("payee"), world.person("shop")
    order = completed(sandbox_bank, a_deposit(payee, 700))
    world.pay(payee, shop, 600)
    assert send(sandbox_bank, a_notice(order, "RETURNED")) == "APPLIED"
    assert (payee.balance, family("RECEIVABLE")) == (0, -600)
    assert Freeze.objects.get().cause == "CHARGEBACK"


def test_a_return_for_a_closed_wallet_by_notice(sandbox_bank: Sandbox, world: World) -> None:
    payer = world.person("payer", balance=400)
    order = completed(sandbox_bank, a_withdrawal(payer, 400))
    close_account(caller=payer.caller, key="close", account_id=payer.account_id)
    assert send(sandbox_bank, a_notice(order, "RETURNED")) == "APPLIED"
    assert (payer.balance, family("SUSPENSE"), alerts()) == (0, 400, ["MONEY_IN_SUSPENSE"])


def test_a_settlement_that_cannot_be_booked_yet(sandbox_bank: Sandbox, world: World) -> None:
    """It is taken, so that the bank need not repeat it; the next question books it."""
    payee, rich = world.person("payee"), world.person("rich", balance=MAX_AMOUNT)
    order = submitted(payee, "DEPOSIT")
    world.pay(rich, payee, MAX_AMOUNT)
    body = a_notice(order, "SETTLED")
    assert [send(sandbox_bank, body), send(sandbox_bank, body)] == ["WAITING", "REPEATED"]
    assert (state(order), alerts(), outcomes(order)) == ("SUBMITTED", ["BANK_OUTCOME_NOT_BOOKED"], ["WAITING"])
    world.pay(payee, rich, 400)
    sandbox_bank.act(order.bank_reference, "settle")
    again(order)
    assert (state(order), payee.balance) == ("COMPLETED", MAX_AMOUNT)


def test_what_is_not_the_banks_leaves_nothing(sandbox_bank: Sandbox, world: World) -> None:
    order = submitted(world.person("payer", balance=1_000), "WITHDRAWAL")
    body = a_notice(order, "SETTLED")
    for headers in (
        {},
        sandbox_bank.signed(body + b" "),
        sandbox_bank.signed(body, secret="another"),
        sandbox_bank.signed(body, age=400),
        sandbox_bank.signed(body, age=-400),
    ):
        with pytest.raises(SignatureInvalid):
            take_notice(headers=headers, body=body)
    for malformed, error in ((b"{", InvalidJSON), (b"{}", InvalidRequest), (b"[]", InvalidRequest)):
        with pytest.raises(error):
            send(sandbox_bank, malformed)
    assert (state(order), BankNotice.objects.count(), alerts()) == ("SUBMITTED", 0, [])
