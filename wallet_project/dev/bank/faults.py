"""What can go wrong between two machines, committed on a socket instead of an answer."""

import json
import select
import socket
import struct
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

_POLL_SECONDS = 0.1


def hang(handler: BaseHTTPRequestHandler, _body: Any, stopping: Callable[[], bool]) -> None:
    """Say nothing until the other side has gone, or we end."""
    while not stopping():
        readable, _, _ = select.select([handler.connection], [], [], _POLL_SECONDS)
        if readable and not handler.connection.recv(1, socket.MSG_PEEK):
            return


def reset(handler: BaseHTTPRequestHandler, _body: Any, _stopping: Callable[[], bool]) -> None:
    """End the connection the rude way."""
    # With this option, closing sends RST.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def fail(handler: BaseHTTPRequestHandler, _body: Any, _stopping: Callable[[], bool]) -> None:
    """The bank's own 500."""
    _write(handler, 500, "application/json", b'{"reason": "internal error"}')


def bad_gateway(handler: BaseHTTPRequestHandler, _body: Any, _stopping: Callable[[], bool]) -> None:
    """A proxy's 502, which is HTML."""
    _write(handler, 502, "text/html", b"<html><body><h1>502 Bad Gateway</h1></body></html>")


def break_json(handler: BaseHTTPRequestHandler, body: Any, _stopping: Callable[[], bool]) -> None:
    """Status 200, and the first half of an answer."""
    whole = json.dumps(body or {"reference": None}).encode()
    _write(handler, 200, "application/json", whole[: len(whole) // 2])


FAULTS: dict[str, Callable[[BaseHTTPRequestHandler, Any, Callable[[], bool]], None]] = {
    "hang": hang,
    "reset": reset,
    "500": fail,
    "502": bad_gateway,
    "broken": break_json,
}


def commit(fault: str, handler: BaseHTTPRequestHandler, body: Any, *, stopping: Callable[[], bool]) -> None:
    """Commit it, and end the connection.

    Args:
        body: what would have been answered.
        stopping: whether the process is to end.
    """
    handler.close_connection = True
    FAULTS[fault](handler, body, stopping)


def _write(handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(body)
