"""The services against a ledger of a few lines: every answer and every balance is predicted, whatever the order.

Hypothesis makes up what people do; the model below says what must come of it; the books are compared after each step.
"""

from dataclasses import dataclass, field
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
from ledger.models import LedgerEntry
from tests import books
from tests.ledger.kit import move, post_all, word
from tests.races import soak
from tests.world import Person, password_hash
from transfers.services import close_account, fund, open_account, reverse, transfer
from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.money import MAX_AMOUNT

SYSTEM = "system"
NOWHERE = 2**62  # the number of no account


@dataclass
class Wallet:
    """A wallet of the model."""

    owner: str
    currency: str
    balance: int = 0
    frozen: bool = False
    closed: bool = False


@dataclass
class Model:
    """A ledger in a few lines. Each method says what must come of a command, and does it."""

    wallets: dict[int, Wallet] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    keys: dict[tuple[str, str], tuple[object, ...]] = field(default_factory=dict)
    left: dict[object, tuple[int, int, int]] = field(default_factory=dict)  # per transfer: source, target, what is left

    def _known(self, who: str, key: str, body: tuple[object, ...]) -> str | None:
        if who in self.disabled:
            return "token_invalid"
        known = self.keys.get((who, key))
        if known is None:
            return None
        return "replayed" if known == body else "idempotency_key_reused"

    def opens(self, who: str, key: str, currency: str) -> str:
        body = ("open", currency)
        verdict = self._known(who, key, body)
        if verdict is None:
            self.keys[who, key] = body
        return verdict or "done"

    def closes(self, who: str, key: str, number: int) -> str:
        body = ("close", number)
        wallet = self.wallets.get(number)
        verdict = self._known(who, key, body)
        if verdict is not None:
            return verdict
        if wallet is None or wallet.owner != who:
            return "not_found"
        if wallet.closed or wallet.frozen or wallet.balance:
            return "illegal_state"
        wallet.closed = True
        self.keys[who, key] = body
        return "done"

    def receives(self, key: str, number: int, amount: int) -> str:
        body = ("fund", number, amount)
        verdict = self._known(SYSTEM, key, body)
        if verdict is not None:
            return verdict
        wallet = self.wallets[number]
        if wallet.closed:
            return "account_closed"
        if wallet.balance + amount > MAX_AMOUNT:
            return "balance_limit_exceeded"
        wallet.balance += amount
        self.keys[SYSTEM, key] = body
        return "posted"

    def pays(self, who: str, key: str, source: int, target: int, amount: int, *, kind: str = "transfer") -> str:
        body = (kind, source, target, amount)
        verdict = self._known(who, key, body) or self._refusal(who, source, target, amount)
        if verdict is not None:
            return verdict
        self.wallets[source].balance -= amount
        self.wallets[target].balance += amount
        self.keys[who, key] = body
        return "posted"

    def reverses(self, who: str, key: str, of: object, amount: int | None) -> str:
        """`of` is a transfer that `left` knows; no amount is all that is left."""
        body = ("reverse", of, amount)
        source, target, left = self.left[of]
        going_back = left if amount is None else amount
        verdict = self._known(who, key, body) or self._obstacle(source, target, left, going_back)
        if verdict is not None:
            return verdict
        self.wallets[target].balance -= going_back
        self.wallets[source].balance += going_back
        self.left[of] = (source, target, left - going_back)
        self.keys[who, key] = body
        return "posted"

    def _obstacle(self, source: int, target: int, left: int, going_back: int) -> str | None:
        payer, payee = self.wallets[source], self.wallets[target]
        faults = {
            "already_reversed": left == 0,
            "reversal_exceeds_original": going_back > left,
            "account_closed": payer.closed or payee.closed,
            "insufficient_funds": payee.balance < going_back,
            "balance_limit_exceeded": payer.balance + going_back > MAX_AMOUNT,
        }
        return next((code for code, is_so in faults.items() if is_so), None)

    def _refusal(self, who: str, source: int, target: int, amount: int) -> str | None:
        if source == target:
            return "same_account"
        if source not in self.wallets or target not in self.wallets or self.wallets[source].owner != who:
            return "not_found"
        payer, payee = self.wallets[source], self.wallets[target]
        faults = {
            "account_closed": payer.closed or payee.closed,
            "account_frozen": payer.frozen,
            "currency_mismatch": payer.currency != payee.currency,
            "insufficient_funds": payer.balance < amount,
            "balance_limit_exceeded": payee.balance + amount > MAX_AMOUNT,
        }
        return next((code for code, is_so in faults.items() if is_so), None)

    def freezes(self, number: int) -> str:
        wallet = self.wallets[number]
        if wallet.closed or wallet.frozen:
            return "illegal_state"
        wallet.frozen = True
        return "done"

    def thaws(self, number: int) -> str:
        wallet = self.wallets[number]
        if not wallet.frozen:
            return "illegal_state"
        wallet.frozen = False
        return "done"


PEOPLE = st.sampled_from(["an", "binh", "shop"])
KEYS = st.sampled_from([f"key {number}" for number in range(10)])  # Few, so that they meet again.
AMOUNTS = st.one_of(st.integers(1, 100), st.sampled_from([1, 100, 1_000, MAX_AMOUNT - 50, MAX_AMOUNT]))
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
                frozen=account.frozen,  # type: ignore[attr-defined]
                closed=account.status == Account.Status.CLOSED,
            )
            for account in Account.objects.wallets().with_frozen().select_related("owner")
        }
        assert live == self.model.wallets

    @invariant()
    def every_entry_belongs_to_a_key_that_worked(self) -> None:
        posting = {(who, key) for (who, key), body in self.model.keys.items() if body[0] not in ("open", "close")}
        assert LedgerEntry.objects.count() == 2 * len(posting)


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
