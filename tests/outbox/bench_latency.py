"""`python -m tests.outbox.bench_latency [RATE] [SECONDS] [--kafka] [--process]`: from commit to broker, under load.

Transfers at a steady rate (200 a second for 30 seconds), and the relay as it runs: under Celery with beat, or with
`--process` as a process of its own. What is measured begins when `transfer` returns and ends when the relay, having
heard the broker's acknowledgement, marks the event.
"""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from typing import TYPE_CHECKING
from uuid import UUID

from tests.outbox.bench import servers

if TYPE_CHECKING:  # Django has to be set up before these can be imported.
    from tests.world import Person, World

_THREADS = 8
_CELERY = ["-m", "celery", "--quiet", "-A", "wallet_project"]
_UNDER_CELERY = [
    [*_CELERY, "worker", "-Q", "outbox", "--concurrency", "1", "--loglevel", "WARNING"],
    [*_CELERY, "beat", "--loglevel", "WARNING", "--schedule=/dev/shm/wallet-bench-beat", "--pidfile="],
]
_ALONE = [["manage.py", "relay_outbox"]]


def main(arguments: Sequence[str]) -> None:
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    rate, seconds = (*numbers, *(200, 30)[len(numbers) :])
    with servers(apache="--kafka" in arguments):
        measure(rate, seconds, _ALONE if "--process" in arguments else _UNDER_CELERY)


def measure(rate: int, seconds: int, relay: list[list[str]]) -> None:
    from outbox.models import OutboxEvent
    from tests.world import World

    world = World()
    people = [world.person(f"person-{number}", balance=1_000_000) for number in range(200)]
    with _running(relay):
        _until(lambda: not OutboxEvent.objects.filter(published=False).exists())
        committed: dict[UUID, float] = {}
        threads = [
            threading.Thread(target=_pay, args=(world, people, rate / _THREADS, seconds, number, committed))
            for number in range(_THREADS)
        ]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        achieved = len(committed) / (time.monotonic() - began)
        _until(lambda: not OutboxEvent.objects.filter(published=False).exists())
    marked = OutboxEvent.objects.filter(topic="wallet.transfers").values_list("payload__transactionId", "published_at")
    delays = sorted(
        1000 * (at.timestamp() - committed[UUID(transaction_id)]) for transaction_id, at in marked if at is not None
    )
    cuts = quantiles(delays, n=100)
    print(
        f"{len(delays)} transfers at {achieved:.0f} a second; from commit to broker:"
        f" p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, at most {delays[-1]:.0f} ms"
    )


def _pay(
    world: "World",
    people: list["Person"],
    rate: float,
    seconds: int,
    number: int,
    committed: dict[UUID, float],
) -> None:
    from tests.world import close_connection

    choose = random.Random(number)
    began = time.monotonic()
    for turn in range(int(rate * seconds)):
        time.sleep(max(0.0, began + turn / rate - time.monotonic()))
        payer, payee = choose.sample(people, 2)
        paid = world.pay(payer, payee, 1, key=f"{number}-{turn}")
        committed[paid.transaction_id] = time.time()
    close_connection()


@contextmanager
def _running(commands: list[list[str]]) -> Iterator[None]:
    with ExitStack() as exits:
        for command in commands:
            child = subprocess.Popen([sys.executable, *command])
            exits.callback(child.wait)
            exits.callback(child.terminate)
        yield


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1:])
