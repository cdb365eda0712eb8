"""Things at once: threads and processes let loose together, a lock held while others wait, and what is left of it all.

Nothing here sleeps for luck. Threads start at a barrier, processes at a word from the parent, and who is to wait for a
lock is seen waiting for it in pg_stat_activity before the next step is taken.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, connection, connections
from django.utils.module_loading import import_string

from ledger.commands import Posted
from tests.books import value
from tests.conftest import database_url, wait_until
from transfers.services import Answer
from wallet_project.kernel.db import sqlstate, violated_constraint
from wallet_project.kernel.errors import DomainError

T = TypeVar("T")
Done = Posted | Answer
PATIENCE = 30  # seconds; a race that takes longer hangs

POSTED, REPLAYED = "posted", "replayed"


def soak(rounds: int, *, few: int = 1) -> int:
    """How many rounds: few in the suite, all of them under `make soak`."""
    return rounds if os.environ.get("WALLET_SOAK") == "1" else few


def at_once(deeds: Sequence[Callable[[], T]]) -> list[T]:
    """Run each deed in a thread of its own, all let loose by one barrier; their results, in order.

    Each thread has a database connection of its own, open before the start and closed at the end. What a deed raises is
    raised here.
    """
    barrier = threading.Barrier(len(deeds))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(position: int, deed: Callable[[], T]) -> None:
        try:
            connection.ensure_connection()
            barrier.wait(PATIENCE)
            results[position] = deed()
        except BaseException as error:
            barrier.abort()
            errors.append(error)
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=run, args=(position, deed), name=f"racer {position}")
        for position, deed in enumerate(deeds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    if errors:
        raise errors[0]
    return [results[position] for position in range(len(deeds))]


def outcome_of(deed: Callable[[], Done]) -> str:
    """What became of a command: `POSTED`, `REPLAYED`, or who refused it, in one word.

    A refusal of the service's is its code, of the database's the constraint's name or the SQLSTATE.
    """
    try:
        done = deed()
    except DomainError as error:
        cause = error.__cause__
        return violated_constraint(cause) or error.code if isinstance(cause, IntegrityError) else error.code
    except DatabaseError as error:
        return violated_constraint(error) or sqlstate(error) or "no connection"
    return REPLAYED if done.replayed else POSTED


def outcomes_of(deeds: Sequence[Callable[[], Done]]) -> Counter[str]:
    """Run commands at once, and count what became of them."""
    return Counter(at_once([lambda deed=deed: outcome_of(deed) for deed in deeds]))  # type: ignore[misc]


def in_processes(deed: str, arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Run a function in as many new processes as there are arguments; its results, in order.

    Args:
        deed: the function's dotted name; arguments and result pass as JSON.
        arguments: one set of keyword arguments per process.

    Each process sets Django up on the test database as the application, says that it is ready, and waits for the word.
    """
    environment = {**os.environ, "DATABASE_URL": database_url("default")}
    for name in ("MIGRATION_DATABASE_URL", "SUPERUSER_DATABASE_URL"):
        environment.pop(name, None)
    with contextlib.ExitStack() as stack:
        crew = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _BE_ONE_OF_THE_CREW, deed, json.dumps(dict(one))],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for one in arguments
        ]
        for process in crew:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in crew:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [process.communicate(timeout=4 * PATIENCE)[0] for process in crew]
    assert [process.returncode for process in crew] == [0] * len(crew)
    return [json.loads(result) for result in results]


# Django first: the modules of this project need it set up.
_BE_ONE_OF_THE_CREW = """
import django
django.setup()
from tests.races import be_one_of_the_crew
be_one_of_the_crew()
"""


def be_one_of_the_crew() -> None:
    """What a process of a race does: get ready, wait for the word, run the deed, say its result."""
    deed, arguments = sys.argv[1:]
    function = import_string(deed)
    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(function(**json.loads(arguments))), flush=True)


def wait_for_lock(superuser: psycopg.Connection[Any], *, waiters: int = 1) -> None:
    """Until so many sessions on the test database wait for a row, table or transaction lock."""

    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    wait_until(lambda: value(superuser, waiting) >= waiters, seconds=PATIENCE)


@contextlib.contextmanager
def meanwhile(deed: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Run a deed in a thread while the block runs; calling what is yielded waits for its result."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(deed())
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, name="meanwhile")

    def result() -> T:
        thread.join(PATIENCE)
        if errors:
            raise errors[0]
        return results[0]

    thread.start()
    try:
        yield result
    finally:
        thread.join(PATIENCE)


@contextlib.contextmanager
def watched(superuser: psycopg.Connection[Any]) -> Iterator[Callable[[], int]]:
    """Calling what is yielded waits for the end of all sessions that began in the block, then counts its deadlocks.

    A session reports the deadlocks it saw at its end, at the latest.
    """
    since = value(superuser, "SELECT clock_timestamp()")
    before = _deadlocks(superuser)

    def count() -> int:
        wait_until(lambda: _sessions_since(superuser, since) == 0, seconds=PATIENCE)
        return _deadlocks(superuser) - before

    yield count


@pytest.fixture(autouse=True)
def deadlocks(superuser: psycopg.Connection[Any]) -> Iterator[Callable[[], int]]:
    """How many there were in the race. After it the racers' sessions are gone, and none is left in a transaction.

    A module of races imports it, and `no_deadlocks`.
    """
    with watched(superuser) as count:
        yield count
        count()
    open_ones = superuser.execute(
        "SELECT pid, query FROM pg_stat_activity"
        " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
    )
    assert open_ones.fetchall() == []


@pytest.fixture
def no_deadlocks(deadlocks: Callable[[], int]) -> Iterator[None]:
    yield
    assert deadlocks() == 0


def _deadlocks(superuser: psycopg.Connection[Any]) -> int:
    superuser.execute("SELECT pg_stat_clear_snapshot()")
    return int(value(superuser, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


def _sessions_since(superuser: psycopg.Connection[Any], since: datetime) -> int:
    """Sessions of the product on the test database, but for those of this thread. A server's are older."""
    own = [connections[alias].connection.info.backend_pid for alias in connections if connections[alias].connection]
    return int(
        value(
            superuser,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'wallet' AND backend_start >= %s AND pid <> ALL(%s)",
            [since, own],
        )
    )
