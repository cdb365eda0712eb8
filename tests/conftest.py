"""Fixtures for all tests: real servers, two logins, and the books checked and wiped after every test.

The runner (`make test`) starts the servers and says where they are. Tests log in as the application; the test database
is made and migrated by the owner; a superuser's connection looks beneath both.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
from django.conf import settings
from django.db import connections
from django.test.utils import setup_databases, teardown_databases
from psycopg.conninfo import make_conninfo

from tests import books as books_module
from tests.bank.sandbox import sandbox_bank as sandbox_bank
from tests.world import World

logging.getLogger("httpx").setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_blocker: Any,
    django_db_keepdb: bool,
    django_db_modify_db_settings: None,
) -> Iterator[None]:
    """Make the test database as the owner. All aliases are named: otherwise the mirror would run on the real one."""
    for alias in connections:
        # Seconds. A loaded machine forks slowly; the product's own patience is tested through its web server.
        connections[alias].settings_dict["OPTIONS"]["connect_timeout"] = 20
    with django_db_blocker.unblock():
        old = setup_databases(verbosity=0, interactive=False, keepdb=django_db_keepdb)
    assert str(connections["default"].settings_dict["NAME"]).startswith("test_")
    yield
    with django_db_blocker.unblock():
        connections["default"].close()
        teardown_databases(old, verbosity=0, keepdb=django_db_keepdb)


def database_url(alias: str) -> str:
    """The URL of the test database, as another process needs it to log in as that alias does."""
    login = connections[alias].settings_dict
    return f"postgresql://{login['USER']}:{login['PASSWORD']}@{login['HOST']}:{login['PORT']}/{login['NAME']}"


@pytest.fixture(scope="session")
def superuser_conninfo(django_db_setup: None) -> str:
    return make_conninfo(settings.SUPERUSER_DATABASE_URL, dbname=connections["default"].settings_dict["NAME"])


@pytest.fixture(scope="session")
def _superuser_connection(superuser_conninfo: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        yield connection


@pytest.fixture
def superuser(_superuser_connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Sees everything, beneath Django. Autocommit."""
    return _superuser_connection


@pytest.fixture
def connect(django_db_setup: None, superuser_conninfo: str) -> Iterator[Callable[[str], psycopg.Connection[Any]]]:
    """`connect("app" | "owner" | "superuser")`: a connection of its own, rolled back and closed after the test."""
    urls = {"app": database_url("default"), "owner": database_url("owner"), "superuser": superuser_conninfo}
    with contextlib.ExitStack() as stack:

        def open_connection(role: str) -> psycopg.Connection[Any]:
            connection = psycopg.connect(urls[role])
            stack.callback(connection.close)
            return connection

        yield open_connection


_DATABASE_FIXTURES = {"db", "transactional_db", "connect", "superuser"}


@pytest.fixture(autouse=True)
def books(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test with a database: the books are whole, then empty."""
    marked = request.node.get_closest_marker("django_db") is not None
    if not marked and not _DATABASE_FIXTURES.intersection(request.fixturenames):
        yield
        return
    superuser = request.getfixturevalue("superuser")
    yield
    found = {} if request.node.get_closest_marker("corrupts_books") else books_module.faults(superuser)
    books_module.wipe(superuser)
    assert found == {}


@pytest.fixture
def snapshot(superuser: psycopg.Connection[Any]) -> Callable[[], dict[str, Any]]:
    """Call it before and after a refusal: the two must be equal."""
    return lambda: books_module.snapshot(superuser)


@pytest.fixture
def world(transactional_db: None) -> World:
    """Users, wallets and money, made by the product's own services."""
    return World()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def service(django_db_setup: None) -> Iterator[str]:
    """The product's own web server on the test database: two processes of several threads. Yields its URL."""
    with serving() as served:
        yield served.url


@dataclass(frozen=True, kw_only=True)
class Served:
    """A web server that runs."""

    url: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def serving(**variables: str) -> Iterator[Served]:
    """The product's web server on the test database, told these environment variables."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port)),
        *["--workers", "2", "--blocking-threads", "8", "--no-ws", "--workers-kill-timeout", "5"],
        "wallet_project.wsgi:application",
    ]
    generous = {"SIGN_INS_PER_ADDRESS": "100000", "SIGN_UPS_PER_ADDRESS": "100000"}
    environment = {**os.environ, **generous, "DATABASE_URL": database_url("default"), **variables}
    environment.pop("MIGRATION_DATABASE_URL", None)
    server = subprocess.Popen(command, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: is_healthy(url), seconds=30)
        yield Served(url=url, process=server)
    finally:
        server.terminate()
        server.wait(timeout=30)


def is_healthy(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/healthz").status_code == 200
    return False


def wait_until(condition: Callable[[], bool], *, seconds: float) -> None:
    """Poll until the condition holds; fails after the bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(0.02)
