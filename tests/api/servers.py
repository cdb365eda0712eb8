"""Servers that hang, and connections that die."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg

from tests.conftest import Served


@contextlib.contextmanager
def hanging_server() -> Iterator[int]:
    """A port at which a connection is taken and nothing ever answers, as by a stopped process."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield int(listener.getsockname()[1])


def processes(served: Served) -> list[psutil.Process]:
    """A web server's processes."""
    parent = psutil.Process(served.process.pid)
    return [parent, *parent.children(recursive=True)]


def terminate_backends(superuser: psycopg.Connection[Any], served: Served) -> int:
    """Kill the database's side of all connections of one web server; returns how many there were."""
    ports = [line.laddr.port for process in processes(served) for line in process.net_connections("tcp")]
    killed = superuser.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND client_port = ANY(%s)",
        [ports],
    )
    return len(killed.fetchall())
