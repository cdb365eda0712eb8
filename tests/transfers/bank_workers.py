"""Workers of the bank as processes of their own, for tests that kill them."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.db import connections

from tests.conftest import database_url
from transfers.services import advance, due_orders

_WORK = """
import django
django.setup()
from tests.transfers.bank_workers import work
work()
"""


def work() -> None:
    """What such a process does, until it is killed: the next step of whatever is due, over and over."""
    print("ready", flush=True)
    while True:
        due = due_orders()
        random.shuffle(due)
        for order_id in due[:4]:
            advance(order_id)
        if not due:
            time.sleep(0.02)


@dataclass(kw_only=True)
class Workers:
    """Processes that work, some of which are killed at whatever line they are."""

    environment: Mapping[str, str]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    killed: int = 0

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _WORK], env=dict(self.environment), stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def wait_until_ready(self) -> None:
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def kill_one(self) -> None:
        """As `kill -9` does; and one takes its place."""
        victim = self.processes.pop(0)
        assert victim.poll() is None, "a worker ended by itself"
        _kill(victim)
        self.killed += 1
        self.start()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def environment(**more: str) -> dict[str, str]:
    """Of a process that is the application on the test database."""
    connections["default"].ensure_connection()
    found = {**os.environ, "DATABASE_URL": database_url("default"), **more}
    for name in ("MIGRATION_DATABASE_URL", "SUPERUSER_DATABASE_URL"):
        found.pop(name, None)
    return found


@contextlib.contextmanager
def working(count: int, **variables: str) -> Iterator[Workers]:
    """So many workers, for as long as the block runs, told these environment variables."""
    workers = Workers(environment=environment(**variables))
    try:
        for _ in range(count):
            workers.start()
        workers.wait_until_ready()
        yield workers
    finally:
        for process in workers.processes:
            _kill(process)
