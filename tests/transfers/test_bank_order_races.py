"""Many workers, dying workers, and a bank that hangs: each order is paid once, and nobody waits for the bank."""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings as django_settings
from django.db import connections
from pytest_django.fixtures import Settings

from tests.bank.sandbox import Sandbox
from tests.books import value
from tests.conftest import wait_until
from tests.races import at_once, soak
from tests.transfers.bank_kit import a_deposit, a_withdrawal, again, family, held, history, state, work_off
from tests.transfers.bank_workers import environment, working
from tests.world import Person, World
from transfers.models import BankOrder
from transfers.services import advance, due_orders
from wallet_project.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)

TERMINAL = {"COMPLETED", "FAILED"}
WORDS = ["settle", "settle", "refuse", "refuse-now", "reject", "timeout", "reset", "502", "broken", "lost", "early"]


def states() -> Counter[str]:
    return Counter(BankOrder.objects.values_list("status", flat=True))


def compare_books(bank: Sandbox, *, funded: int) -> None:
    """The bank's book equals ours to the đồng, order by order and in sum; each reference stands there once."""
    theirs, ours = bank.payments(), {order.bank_reference: order for order in BankOrder.objects.all()}
    for reference, order in ours.items():
        payment = theirs.get(reference)
        settled = payment is not None and payment["status"] == "SETTLED"
        assert (order.status == "COMPLETED") == settled, (reference, order.status, payment)
        assert payment is None or payment["amount"] == order.amount
    assert theirs.keys() <= ours.keys()
    totals = bank.totals()
    out, in_ = totals.get(("OUT", "VND"), Counter()), totals.get(("IN", "VND"), Counter())
    net = in_["settled"] - in_["returned"] - out["settled"] + out["returned"]
    assert family("BANK_CLEARING") == -(funded + net)


def ask_for(world: World, count: int, *, people: int = 4) -> tuple[list[Person], int]:
    """Orders of people, half of them withdrawals, the bank being told to misbehave; and what was funded before."""
    crowd = [world.person(f"person-{number}", balance=100_000) for number in range(people)]
    for number in range(count):
        person, words = crowd[number % people], WORDS[number % len(WORDS)]
        if number % 2:
            a_deposit(person, 100 + number, reference=f"sandbox:{words}")
        else:
            a_withdrawal(person, 100 + number, destination=f"sandbox:{words}")
    return crowd, people * 100_000


def test_eight_workers_of_which_some_are_killed(
    sandbox_bank: Sandbox, world: World, superuser: psycopg.Connection[Any]
) -> None:
    """TRIALS 58. Now and then all that is open is made due, so that several work on one order."""
    kills = soak(150, few=6)
    crowd, funded = ask_for(world, soak(400, few=33))
    variables = {**sandbox_bank.environment, "BANK_TIMEOUT_SECONDS": "0.5"}
    with working(8, **variables) as workers:

        def done() -> bool:
            if workers.killed < kills:
                time.sleep(random.uniform(0, 0.2))  # A moment like any other.
                workers.kill_one()
            BankOrder.objects.open().update(next_step_at=clock.now())
            return workers.killed >= kills and set(states()) <= TERMINAL

        wait_until(done, seconds=soak(900, few=120))
        assert workers.killed == kills
    submits = Counter(reference for reference, _ in sandbox_bank.submits())
    assert len(submits) == BankOrder.objects.count()
    compare_books(sandbox_bank, funded=funded)
    assert [held(person) for person in crowd] == [0] * len(crowd)
    assert value(superuser, "SELECT count(*) FROM held_money WHERE amount <> spent + released") == 0


def test_a_worker_killed_while_the_bank_has_taken_it(sandbox_bank: Sandbox, world: World, settings: Settings) -> None:
    """TRIALS 12: the intent was committed before the call; who comes next asks, and pays nothing twice."""
    settings.BANK_TIMEOUT_SECONDS = 20
    payer = world.person("payer", balance=1_000)
    with working(1, **sandbox_bank.environment, BANK_TIMEOUT_SECONDS="20") as workers:
        order = a_withdrawal(payer, 400, destination="sandbox:timeout")
        sandbox_bank.wait_for(order.bank_reference, status="SETTLED")
        assert state(order) == "SUBMITTED", "the worker waits for an answer that never comes"
        workers.processes[0].kill()
        workers.processes[0].wait()
    assert due_orders() == []
    again(order)
    assert (history(order), held(payer)) == (["PENDING", "SUBMITTED", "COMPLETED"], 0)
    assert len(sandbox_bank.submits()) == 1
    compare_books(sandbox_bank, funded=1_000)


def test_one_order_and_many_workers(sandbox_bank: Sandbox, world: World) -> None:
    for _ in range(soak(100, few=5)):
        order = a_withdrawal(world.person("payer", balance=1_000), 400)
        at_once([lambda order=order: advance(order.pk)] * 8)  # type: ignore[misc]
        assert (history(order), len(sandbox_bank.submits(order.bank_reference))) == (["PENDING", "SUBMITTED"], 1)


# --- A bank that hangs (TRIALS 29) -----------------------------------------------------------------------------------


@contextlib.contextmanager
def hanging_calls(bank: Sandbox, orders: list[BankOrder]) -> Iterator[Callable[[], int]]:
    """Workers that wait for a bank which does not answer, one per order; calling what is yielded counts them."""

    def call(order: BankOrder) -> None:
        try:
            advance(order.pk)
        finally:
            connections.close_all()

    bank.break_down("hang")
    threads = [threading.Thread(target=call, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(bank.requests()) == len(orders), seconds=20)
        yield lambda: sum(thread.is_alive() for thread in threads)
    finally:
        bank.break_down(None)
        for thread in threads:
            thread.join(60)


def test_nobody_waits_for_the_bank(
    sandbox_bank: Sandbox, world: World, settings: Settings, superuser: psycopg.Connection[Any]
) -> None:
    """While 30 calls hang, the same wallets pay, and no transaction is open: shown by counts, not by times."""
    settings.BANK_TIMEOUT_SECONDS = soak(30, few=10)
    payee = world.person("payee")
    payers = [world.person(f"payer-{number}", balance=1_000) for number in range(30)]
    orders = [a_withdrawal(payer, 400) for payer in payers]
    with hanging_calls(sandbox_bank, orders) as hanging:
        for payer in payers:
            world.pay(payer, payee, 100)
        idle = superuser.execute(
            "SELECT state, query FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'wallet' AND state LIKE 'idle in transaction%'"
        ).fetchall()
        assert (hanging(), idle) == (30, [])
        assert {state(order) for order in orders} == {"SUBMITTED"}
    assert payee.balance == 30 * 100
    assert {state(order) for order in orders} == {"UNKNOWN"}
    assert {held(payer) for payer in payers} == {400}


def test_a_bank_that_is_down_slows_no_transfer(sandbox_bank: Sandbox, world: World) -> None:
    """Down from the first to the last: orders wait, transfers do not, and all is made good afterwards."""
    sandbox_bank.kill()
    payer, payee = world.person("payer", balance=100_000), world.person("payee")
    orders = []
    for _ in range(10):
        orders += [a_withdrawal(payer, 10), a_deposit(payer, 10)]
        work_off()
        for _ in range(10):
            world.pay(payer, payee, 1)
    assert (payee.balance, states()) == (100, Counter(UNKNOWN=20))
    sandbox_bank.start()
    again(*orders)
    for order in orders:
        sandbox_bank.wait_for(order.bank_reference, status="SETTLED")
    again(*orders)
    assert states() == Counter(COMPLETED=20)
    compare_books(sandbox_bank, funded=100_000)


# --- Redis and Celery (TRIALS 76) ------------------------------------------------------------------------------------


def test_the_work_is_found_without_redis(sandbox_bank: Sandbox, world: World, settings: Settings) -> None:
    settings.CELERY_BROKER_URL = settings.CACHE_URL = "redis://127.0.0.1:9/0"
    order = a_withdrawal(world.person("payer", balance=1_000), 400)
    assert due_orders() == [order.pk]
    work_off()
    assert state(order) == "SUBMITTED"


@contextlib.contextmanager
def celery(home: Path, **variables: str) -> Iterator[None]:
    """Celery as it runs: beat, and a worker for both queues."""
    arguments = ["--beat", "--schedule", str(home / "beat"), "--queues", "celery,bank", "--concurrency", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "wallet_project", "worker", *arguments, "--loglevel", "ERROR"],
        env=environment(**variables),
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_celery_moves_orders_and_forgets_none_when_redis_does(
    sandbox_bank: Sandbox, world: World, tmp_path: Path
) -> None:
    """All queues are emptied over and over; the sweep finds in the database what was lost with them."""
    crowd, funded = ask_for(world, 12)
    variables = {**sandbox_bank.environment, "BANK_TIMEOUT_SECONDS": "0.5", "BANK_ASK_SECONDS": "1"}
    queues = redis.Redis.from_url(django_settings.CELERY_BROKER_URL)
    with queues, celery(tmp_path, **variables):

        def all_submitted() -> bool:
            queues.flushdb()
            return "PENDING" not in states()

        wait_until(all_submitted, seconds=60)
        wait_until(lambda: set(states()) <= TERMINAL, seconds=60)
    compare_books(sandbox_bank, funded=funded)
    assert [held(person) for person in crowd] == [0] * len(crowd)
