"""Several relays at once, by themselves and under Celery: each key's events stay in order, and none is lost."""

import random
import threading
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from outbox.models import OutboxEvent
from outbox.tasks import relay
from tests.conftest import wait_until
from tests.outbox.conftest import SOAK
from tests.outbox.kit import Listener, add_events, committed_order, environment, process, waiting
from tests.world import Person, World, close_connection
from wallet_project.dev.servers import Broker
from wallet_project.kernel.errors import DomainError

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

TRANSFERS = 2_000
_ROUNDS = 5 if SOAK else 1
_TOPIC = "wallet.transfers"


@pytest.mark.parametrize("round_", range(_ROUNDS))
def test_two_relays_two_thousand_transfers_three_accounts(
    world: World, broker: Broker, listener: Listener, round_: int
) -> None:
    """Small batches, so that the relays meet often. Some transfers are refused: nobody hears of those."""
    people = [world.person(name, balance=300) for name in ("ann", "bob", "cid")]
    with ExitStack() as stack:
        for _ in range(2):
            command = ("manage.py", "relay_outbox", "--batch-size", "7")
            stack.enter_context(process(*command, environment=environment(broker.url, OUTBOX_RELAY_SECONDS="0.01")))
        refused = _pay_each_other(world, people, TRANSFERS, threads=4)
        wait_until(lambda: waiting() == 0, seconds=60)
    assert refused > 0

    committed = committed_order(_TOPIC)
    listener.until_events(OutboxEvent.objects.values_list("event_id", flat=True))
    assert sum(map(len, committed.values())) == TRANSFERS - refused
    assert listener.first_times(_TOPIC) == committed


def test_ticks_that_come_twice_and_a_worker_that_dies(
    world: World, broker: Broker, listener: Listener, tmp_path: Path
) -> None:
    """Two beats, two processes in the worker, and one of those killed: overlapping runs are harmless."""
    people = [world.person(name, balance=300) for name in ("ann", "bob", "cid")]
    ours = environment(broker.url)
    celery = ("-m", "celery", "--quiet", "-A", "wallet_project")
    with ExitStack() as stack:
        worker = stack.enter_context(
            process(*celery, "worker", "-Q", "outbox", "--concurrency", "2", "--loglevel", "WARNING", environment=ours)
        )
        for number in range(2):
            files = (f"--schedule={tmp_path}/beat-{number}", "--pidfile=")
            stack.enter_context(process(*celery, "beat", "--loglevel", "WARNING", *files, environment=ours))
        wait_until(lambda: waiting() == 0, seconds=30)
        refused = _pay_each_other(world, people, 100, threads=2)
        psutil.Process(worker.pid).children()[0].kill()
        refused += _pay_each_other(world, people, 100, threads=2)
        wait_until(lambda: waiting() == 0, seconds=30)
        worker.terminate()
        assert worker.wait(timeout=20) == 0, "it ends in peace, with a client in each process"

    committed = committed_order(_TOPIC)
    listener.until_events(OutboxEvent.objects.values_list("event_id", flat=True))
    assert sum(map(len, committed.values())) == 200 - refused
    assert listener.first_times(_TOPIC) == committed


def test_a_tick_that_was_not_taken_in_time_is_dropped(world: World, broker: Broker, listener: Listener) -> None:
    """A worker that was away does not work off a queue of old ticks."""
    world.person("ann", balance=300)
    for _ in range(50):
        relay.apply_async(expires=0.001)
    ours = environment(broker.url)
    options = ("-Q", "outbox", "--concurrency", "1", "--loglevel", "INFO")
    with process("-m", "celery", "-A", "wallet_project", "worker", *options, environment=ours):
        listener.listen(seconds=6)
        assert listener.heard == []
        relay.apply_async(expires=10)
        listener.until(lambda: len(listener.heard) == 1)


@pytest.mark.chaos
def test_children_that_are_recycled_all_the_time(broker: Broker, listener: Listener) -> None:
    """Each task in a process of its own, forked from a parent with libraries that have threads: none hangs."""
    events = 500 if SOAK else 5
    ours = environment(broker.url)
    options = ("-Q", "outbox", "--concurrency", "2", "--max-tasks-per-child", "1", "--loglevel", "WARNING")
    with process("-m", "celery", "--quiet", "-A", "wallet_project", "worker", *options, environment=ours):
        for number in range(events):
            add_events(1)
            relay.apply_async()
            wait_until(lambda: waiting() == 0, seconds=30)
            listener.until(lambda heard=number + 1: len(listener.heard) == heard)  # type: ignore[misc]


def _pay_each_other(world: World, people: list[Person], count: int, *, threads: int) -> int:
    """Transfers at random; returns how many were refused for lack of funds."""
    refused = []

    def pay(number: int) -> None:
        choose = random.Random(number)
        for _ in range(count // threads):
            payer, payee = choose.sample(people, 2)
            try:
                world.pay(payer, payee, choose.randrange(1, 200))
            except DomainError as refusal:
                refused.append(refusal)
        close_connection()

    workers = [threading.Thread(target=pay, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(refused)
