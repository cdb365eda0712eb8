"""Threads drive the API at once and write down what they asked, when, and what they were told. Afterwards the record is
held against a ledger of a few lines: every answer must be what that ledger says at some moment between question and
answer, and what was accepted must have happened in the order in which it stands in the book.
"""

import copy
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import pytest
from django.db.models import Min

from accounts.models import Account
from ledger.models import LedgerEntry
from tests.api.phone import Phone, Phones, at_once, may_reverse
from tests.ledger.model import Model, Wallet
from tests.races import soak
from tests.world import Person, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

THREADS, CALLS = 8, 25
STAFF = "staff"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A command: a transfer from `source` to `target`, or the reversal of `of`."""

    who: str
    key: str
    source: int = 0
    target: int = 0
    of: str | None = None
    amount: int | None


@dataclass(frozen=True, kw_only=True)
class Told:
    """What was asked, between which moments, and the answer in a word."""

    asked: Asked
    start: float
    end: float
    word: str
    transaction_id: str | None


class Ledger(Model):
    """The model ledger, told in the words of this test."""

    def does(self, asked: Asked, transaction_id: str) -> str:
        """What must come of a command, and what comes of it."""
        if asked.of is not None:
            return self.reverses(asked.who, asked.key, asked.of, asked.amount)
        assert asked.amount is not None
        verdict = self.pays(asked.who, asked.key, asked.source, asked.target, asked.amount)
        if verdict == "posted":
            self.left[transaction_id] = (asked.source, asked.target, asked.amount)
        return verdict


class Recorder:
    """What threads do at random, and their common record."""

    def __init__(self, phones: dict[str, Phone], people: dict[str, Person]) -> None:
        self.phones = phones
        self.people = people
        self.record: list[Told] = []
        self._lock = threading.Lock()

    def drive(self, seed: str, calls: int) -> None:
        rng = random.Random(seed)
        for number in range(calls):
            asked = self._idea(rng, f"{seed}.{number}")
            start = time.monotonic()
            answer = self._ask(asked)
            end = time.monotonic()
            told = Told(asked=asked, start=start, end=end, word=_word(answer), transaction_id=_id(answer))
            with self._lock:
                self.record.append(told)

    def _idea(self, rng: random.Random, name: str) -> Asked:
        with self._lock:
            known = list(self.record)
        done = [told.transaction_id for told in known if told.word == "posted" and told.asked.of is None]
        kind = rng.choices(["pay", "reverse", "again", "reuse"], [55, 20, 15, 10])[0]
        if kind in ("again", "reuse") and known:
            before = rng.choice(known[-20:]).asked
            return before if kind == "again" else Asked(**{**vars_of(before), "amount": rng.randint(1, 60)})
        if kind == "reverse" and done:
            return Asked(who=STAFF, key=name, of=rng.choice(done[-10:]), amount=rng.choice([None, 5, 20]))
        payer, payee = rng.sample(sorted(self.people), 2)
        return Asked(
            who=payer,
            key=name,
            source=self.people[payer].account_id,
            target=self.people[payee].account_id,
            amount=rng.randint(1, 60),
        )

    def _ask(self, asked: Asked) -> httpx.Response:
        phone = self.phones[asked.who]
        if asked.of is not None:
            body: dict[str, Any] = {"reason": "wrong", "amount": asked.amount}
            return phone.post(f"/v1/transactions/{asked.of}/reversals", body, key=asked.key)
        body = {"fromAccountId": asked.source, "toAccountId": asked.target, "amount": asked.amount}
        return phone.post("/v1/transfers", body, key=asked.key)


def vars_of(asked: Asked) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in asked.__dataclass_fields__}


def _word(answer: httpx.Response) -> str:
    if answer.status_code == 201:
        return "replayed" if answer.headers.get("Idempotent-Replayed") == "true" else "posted"
    return str(answer.json()["code"])


def _id(answer: httpx.Response) -> str | None:
    return str(answer.json()["transactionId"]) if answer.status_code == 201 else None


def check(record: list[Told], ledger: Ledger) -> list[str]:
    """What in the record cannot have been so; `ledger` is how it all began, and is left as it must have ended."""
    order = _in_the_books_order([told for told in record if told.word == "posted"])
    moments = [copy.deepcopy(ledger)]
    faults = []
    for told in order:
        verdict = ledger.does(told.asked, str(told.transaction_id))
        if verdict != "posted":
            faults.append(f"in the book's order {told} is impossible: {verdict}")
        faults += _balances_that_differ(ledger, UUID(told.transaction_id))
        moments.append(copy.deepcopy(ledger))
    ids = {(told.asked.who, told.asked.key): told.transaction_id for told in order}
    for told in record:
        if told.word == "posted":
            continue
        # After all that had ended before it was asked, before all that began after it was told.
        first = max((n for n, other in enumerate(order, 1) if other.end < told.start), default=0)
        last = min((n for n, other in enumerate(order) if other.start > told.end), default=len(order))
        verdicts = {copy.deepcopy(moment).does(told.asked, "") for moment in moments[first : last + 1]}
        if told.word not in verdicts:
            faults.append(f"{told} could only be {verdicts}")
        if told.word == "replayed" and told.transaction_id != ids[told.asked.who, told.asked.key]:
            faults.append(f"{told} is another transaction's")
    return faults


def _in_the_books_order(accepted: list[Told]) -> list[Told]:
    """Entries are numbered under the locks of their accounts, so whatever touches one account stands in its order."""
    numbers = LedgerEntry.objects.values_list("transaction_id").annotate(number=Min("id"))
    places = {str(transaction_id): number for transaction_id, number in numbers}
    return sorted(accepted, key=lambda told: places[str(told.transaction_id)])


def _balances_that_differ(ledger: Ledger, transaction_id: UUID) -> list[str]:
    entries = LedgerEntry.objects.filter(transaction_id=transaction_id).values_list("account_id", "balance_after")
    return [
        f"{transaction_id} left {balance} in {account_id}, not {ledger.wallets[account_id].balance}"
        for account_id, balance in entries
        if ledger.wallets[account_id].balance != balance
    ]


@pytest.mark.timeout(1800)
def test_every_answer_is_one_that_the_model_gives_at_some_moment_meanwhile(phones: Phones, world: World) -> None:
    people = {name: world.person(name, balance=100) for name in ("an", "binh", "shop")}
    staff = may_reverse(world.person(STAFF))
    signed_in = {name: phones.of(person) for name, person in {**people, STAFF: staff}.items()}
    said: Counter[str] = Counter()
    for round_ in range(soak(40, few=2)):
        ledger = Ledger(
            wallets={
                person.account_id: Wallet(owner=name, currency="VND", balance=person.balance)
                for name, person in people.items()
            }
        )
        recorder = Recorder(signed_in, people)
        at_once([partial(recorder.drive, f"{round_}.{thread}", CALLS) for thread in range(THREADS)])
        assert check(recorder.record, ledger) == []
        balances = dict(Account.objects.wallets().filter(pk__in=ledger.wallets).values_list("pk", "balance"))
        assert balances == {number: wallet.balance for number, wallet in ledger.wallets.items()}
        said.update(told.word for told in recorder.record)
    print(dict(said))
    assert said.keys() >= {"posted", "replayed", "idempotency_key_reused", "insufficient_funds"}
    assert sum(said.values()) == THREADS * CALLS * soak(40, few=2)


def test_the_check_notices_what_cannot_have_been(world: World) -> None:
    """The control: a record that was tampered with does not pass."""
    an, binh = world.person("an", balance=100), world.person("binh")
    first, second = (world.pay(an, binh, 60 if number == 0 else 40, key=f"K{number}") for number in range(2))

    def told(number: int, amount: int, word: str, id_: Any, *, at: float) -> Told:
        asked = Asked(who="an", key=f"K{number}", source=an.account_id, target=binh.account_id, amount=amount)
        return Told(asked=asked, start=at, end=at + 0.5, word=word, transaction_id=id_ and str(id_))

    def faults(*record: Told) -> int:
        wallets = {person.account_id: Wallet(owner=name, currency="VND") for name, person in (("an", an), ("b", binh))}
        wallets[an.account_id].balance = 100
        return len(check(list(record), Ledger(wallets=wallets)))

    true = [told(0, 60, "posted", first.transaction_id, at=1), told(1, 40, "posted", second.transaction_id, at=2)]
    assert faults(*true) == 0
    assert faults(*true, told(2, 41, "insufficient_funds", None, at=1.7)) == 0
    assert faults(*true, told(2, 41, "insufficient_funds", None, at=0)) == 1
    assert faults(*true, told(2, 40, "insufficient_funds", None, at=1.7)) == 0
    assert faults(*true, told(2, 40, "insufficient_funds", None, at=1.6)) == 0
    assert faults(*true, told(0, 60, "replayed", first.transaction_id, at=3)) == 0
    assert faults(*true, told(0, 60, "replayed", second.transaction_id, at=3)) == 1
    assert faults(*true, told(0, 61, "replayed", first.transaction_id, at=3)) == 1
    assert faults(*true, told(0, 61, "idempotency_key_reused", None, at=3)) == 0
    assert faults(*true, told(0, 61, "idempotency_key_reused", None, at=0)) == 1
    assert faults(told(0, 59, "posted", first.transaction_id, at=1), true[1]) >= 1
