"""The services against a ledger of a few lines: every answer and every balance is predicted, whatever the order.

Hypothesis makes up what people do; the model says what must come of it; the books are compared after each step.
"""

from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from accounts.models import Account, User
from accounts.services import Caller, freeze, stamp_of, thaw
from ledger.commands import Posted
from ledger.holdings import find_holdings, held_balance
from ledger.models import LedgerEntry
from tests import books
from tests.ledger.kit import move, post_all, word
from tests.ledger.model import SYSTEM, Model, Promise, Wallet
from tests.races import soak
from tests.transfers.till import end_time_of
from tests.world import Person, password_hash
from transfers.models import Hold
from transfers.services import (
    Answer,
    capture,
    close_account,
    expire_due,
    fund,
    open_account,
    reserve,
    reverse,
    transfer,
    void,
)
from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.money import MAX_AMOUNT

NOWHERE = 2**62  # the number of no account
SILENT = ("open", "close", "void")  # commands that post nothing by their own key

PEOPLE = st.sampled_from(["an", "binh", "shop"])
KEYS = st.sampled_from([f"key {number}" for number in range(10)])  # Few, so that they meet again.
AMOUNTS = st.one_of(st.integers(1, 100), st.sampled_from([1, 100, 1_000, MAX_AMOUNT - 50, MAX_AMOUNT]))
SMALL = st.integers(1, 60)
CURRENCIES = st.sampled_from(["VND", "VND", "VND", "USD"])


class Ledger(RuleBasedStateMachine):
    """People open wallets, get money, pay, close; staff freeze and thaw, and disable people."""

    wallets = Bundle("wallets")

    def __init__(self, superuser: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.superuser = superuser
        self.model = Model()
        self.users = {
            name: User.objects.create(username=name, password=password_hash()) for name in ("an", "binh", "shop")
        }
        self.transactions: dict[tuple[str, str], UUID] = {}
        self.answers: dict[tuple[str, str], dict[str, Any]] = {}

    def teardown(self) -> None:
        found = books.faults(self.superuser)
        books.wipe(self.superuser)
        assert found == {}

    def caller(self, who: str) -> Caller:
        return Caller(user_id=self.users[who].pk, stamp=stamp_of(self.users[who].password))

    def of(self, who: str, number: int) -> Person:
        return Person(user=self.users[who], account_id=number)

    def answer(self, who: str, key: str, deed: Any) -> str:
        """What a service says, in the model's words; one key names one transaction for ever."""
        try:
            outcome = deed()
        except DomainError as error:
            return error.code
        if isinstance(outcome, Posted):
            assert self.transactions.setdefault((who, key), outcome.transaction_id) == outcome.transaction_id
            return word(outcome)
        if isinstance(outcome, Answer):
            assert self.answers.setdefault((who, key), outcome.body) == outcome.body
        return "replayed" if getattr(outcome, "replayed", False) else "done"

    # --- What people do ---------------------------------------------------------------------------------------------

    @initialize(target=wallets)
    def everybody_has_a_wallet(self) -> Any:
        numbers = [self._opened(name, f"first of {name}", "VND") for name in self.users]
        for number in numbers:
            self.receive(f"first of {number}", number, 1_000)
        return multiple(*numbers)

    @rule(target=wallets, who=PEOPLE, key=KEYS, currency=CURRENCIES)
    def open(self, who: str, key: str, currency: str) -> Any:
        before = set(self.model.wallets)
        number = self._opened(who, key, currency)
        return number if number not in before and number else multiple()

    def _opened(self, who: str, key: str, currency: str) -> int:
        opened: list[int] = []

        def deed() -> Any:
            answer = open_account(caller=self.caller(who), key=key, currency=currency)
            opened.append(answer.body["accountId"])
            return answer

        assert self.answer(who, key, deed) == self.model.opens(who, key, currency)
        if opened and opened[0] not in self.model.wallets:
            self.model.wallets[opened[0]] = Wallet(owner=who, currency=currency)
        return opened[0] if opened else 0

    @rule(who=PEOPLE, key=KEYS, number=wallets)
    def close(self, who: str, key: str, number: int) -> None:
        said = self.answer(who, key, lambda: close_account(caller=self.caller(who), key=key, account_id=number))
        assert said == self.model.closes(who, key, number)

    @rule(key=KEYS, number=wallets, amount=AMOUNTS)
    def get_money(self, key: str, number: int, amount: int) -> None:
        self.receive(key, number, amount)

    def receive(self, key: str, number: int, amount: int) -> None:
        said = self.answer(SYSTEM, key, lambda: fund(account_id=number, amount=amount, key=key))
        assert said == self.model.receives(key, number, amount)

    @rule(key=KEYS, source=wallets, payee=st.one_of(wallets, wallets, st.just(NOWHERE)), amount=AMOUNTS)
    def pay(self, key: str, source: int, payee: int, amount: int) -> None:
        self._pay(self.model.wallets[source].owner, key, source, payee, amount)

    @rule(key=KEYS, source=wallets, payee=wallets, amount=st.integers(1, 10))
    def pay_a_little(self, key: str, source: int, payee: int, amount: int) -> None:
        self._pay(self.model.wallets[source].owner, key, source, payee, amount)

    @rule(who=PEOPLE, key=KEYS, source=wallets, payee=wallets)
    def pay_from_somebodys(self, who: str, key: str, source: int, payee: int) -> None:
        self._pay(who, key, source, payee, 1)

    def _pay(self, who: str, key: str, source: int, target: int, amount: int) -> None:
        said = self.answer(
            who,
            key,
            lambda: transfer(
                caller=self.caller(who), key=key, from_account_id=source, to_account_id=target, amount=amount
            ),
        )
        assert said == self.model.pays(who, key, source, target, amount)
        if said == "posted":
            self.model.left[self.transactions[who, key]] = (source, target, amount)

    @precondition(lambda self: self.model.left)
    @rule(who=PEOPLE, key=KEYS, which=st.integers(0, 20), amount=st.one_of(st.none(), st.integers(1, 100)))
    def reverse(self, who: str, key: str, which: int, amount: int | None) -> None:
        of = list(self.model.left)[which % len(self.model.left)]
        assert isinstance(of, UUID)
        said = self.answer(
            who,
            key,
            lambda: reverse(caller=self.caller(who), key=key, transaction_id=of, reason="a call", amount=amount),
        )
        assert said == self.model.reverses(who, key, of, amount)

    @rule(
        payments=st.lists(st.tuples(KEYS, wallets, wallets, st.integers(1, 100)), min_size=2, max_size=6),
    )
    def pay_in_one_call(self, payments: list[tuple[str, int, int, int]]) -> None:
        owners = [self.model.wallets[source].owner for _, source, *_ in payments]
        commands = [
            move(self.of(who, source), self.of(who, payee), amount, key=key)
            for who, (key, source, payee, amount) in zip(owners, payments, strict=True)
        ]
        outcomes = post_all(*commands)
        expected = [self.model.pays(who, *payment, kind="batch") for who, payment in zip(owners, payments, strict=True)]
        said = [
            self.answer(who, payment[0], partial(_raised, outcome))
            for who, payment, outcome in zip(owners, payments, outcomes, strict=True)
        ]
        assert said == expected

    # --- Holds ------------------------------------------------------------------------------------------------------

    @rule(key=KEYS, source=wallets, payee=st.one_of(st.none(), wallets, st.just(NOWHERE)), amount=SMALL)
    def reserve(self, key: str, source: int, payee: int | None, amount: int) -> None:
        who = self.model.wallets[source].owner
        said = self.answer(
            who,
            key,
            lambda: reserve(caller=self.caller(who), key=key, account_id=source, amount=amount, to_account_id=payee),
        )
        assert said == self.model.reserves(who, key, source, payee, amount)
        if said == "done":
            hold_id = UUID(self.answers[who, key]["holdId"])
            self.model.holds[hold_id] = Promise(source=source, payee=payee, left=amount)

    @precondition(lambda self: self.model.holds)
    @rule(
        key=KEYS,
        which=st.integers(0, 20),
        amount=st.one_of(st.none(), SMALL),
        payee=st.one_of(st.none(), wallets),
        final=st.booleans(),
        by=st.one_of(st.none(), PEOPLE),
    )
    def capture(self, key: str, which: int, amount: int | None, payee: int | None, final: bool, by: str | None) -> None:
        of = self._hold(which)
        who = by or self._commander(of)
        said = self.answer(
            who,
            key,
            lambda: capture(
                caller=self.caller(who), key=key, hold_id=of, amount=amount, to_account_id=payee, final=final
            ),
        )
        expected, target, taken = self.model.captures(who, key, of, amount, payee, final=final)
        assert said == expected
        if said == "done":
            answer = self.answers[who, key]
            assert answer["status"] == ("ACTIVE" if self.model.holds[of].left else "CAPTURED")
            self.model.left[UUID(answer["transactionId"])] = (self.model.holds[of].source, target, taken)

    @precondition(lambda self: self.model.holds)
    @rule(key=KEYS, which=st.integers(0, 20), by=st.one_of(st.none(), PEOPLE))
    def void(self, key: str, which: int, by: str | None) -> None:
        of = self._hold(which)
        who = by or self._commander(of)
        said = self.answer(who, key, lambda: void(caller=self.caller(who), key=key, hold_id=of))
        assert said == self.model.voids(who, key, of)

    @precondition(lambda self: any(hold.left for hold in self.model.holds.values()))
    @rule(which=st.integers(0, 20))
    def let_expire(self, which: int) -> None:
        """One whose wallet is too full to take it back would be due for ever: such is let be."""
        of = self._hold(which)
        if self.model.expires(of):
            end_time_of(self.superuser, of)
            assert expire_due() == 1
        assert expire_due() == 0

    def _hold(self, which: int) -> UUID:
        of = list(self.model.holds)[which % len(self.model.holds)]
        assert isinstance(of, UUID)
        return of

    def _commander(self, of: UUID) -> str:
        hold = self.model.holds[of]
        return self.model.wallets[hold.payee or hold.source].owner

    # --- What staff do ----------------------------------------------------------------------------------------------

    @rule(number=wallets)
    def freeze(self, number: int) -> None:
        staff = self.users["shop"].pk
        deed = lambda: freeze(account_id=number, cause="STAFF", reason="a call", staff_id=staff)  # noqa: E731
        assert self.answer("", "", deed) == self.model.freezes(number)

    @rule(number=wallets)
    def thaw(self, number: int) -> None:
        staff = self.users["shop"].pk
        deed = lambda: thaw(account_id=number, reason="a second call", staff_id=staff)  # noqa: E731
        assert self.answer("", "", deed) == self.model.thaws(number)

    @rule(who=PEOPLE, active=st.sampled_from([True, True, False]))
    def disable(self, who: str, active: bool) -> None:
        User.objects.filter(pk=self.users[who].pk).update(is_active=active)
        (self.model.disabled.discard if active else self.model.disabled.add)(who)

    # --- What must be so --------------------------------------------------------------------------------------------

    @invariant()
    def every_wallet_is_as_the_model_has_it(self) -> None:
        live = {
            account.pk: Wallet(
                owner=account.owner.username,
                currency=account.currency,
                balance=account.balance,
                held=account.held,  # type: ignore[attr-defined]
                frozen=account.frozen,  # type: ignore[attr-defined]
                closed=account.status == Account.Status.CLOSED,
            )
            for account in Account.objects.wallets().with_frozen().annotate(held=held_balance()).select_related("owner")
        }
        assert live == self.model.wallets

    @invariant()
    def every_entry_belongs_to_a_key_that_worked(self) -> None:
        posting = {(who, key) for (who, key), body in self.model.keys.items() if body[0] not in SILENT}
        assert LedgerEntry.objects.count() == 2 * (len(posting) + self.model.releases)

    @invariant()
    def every_hold_is_as_the_model_has_it(self) -> None:
        holdings = find_holdings(self.model.holds)  # type: ignore[arg-type]  # They are named by their ids here.
        live = {hold.pk: (hold.status == "ACTIVE", holdings[hold.pk].left) for hold in Hold.objects.all()}
        assert live == {of: (hold.left > 0, hold.left) for of, hold in self.model.holds.items()}


def _raised(outcome: Any) -> Posted:
    if isinstance(outcome, Posted):
        return outcome
    raise outcome.error


def test_the_services_do_what_the_model_says(transactional_db: None, superuser: psycopg.Connection[Any]) -> None:
    run_state_machine_as_test(
        partial(Ledger, superuser),  # type: ignore[arg-type]  # A factory does as well as a class.
        settings=settings(
            max_examples=soak(300, few=12),
            stateful_step_count=soak(60, few=30),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
