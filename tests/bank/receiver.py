"""The wallet's door, as the bank sees it: takes notices, keeps them, and answers as a test wants."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conftest import free_port, wait_until
from wallet_project.kernel import strict_json

_POLL_SECONDS = 0.02


@dataclass(kw_only=True)
class Received:
    """One request that came."""

    headers: dict[str, str]
    body: bytes

    @property
    def notice(self) -> dict[str, Any]:
        value: dict[str, Any] = strict_json.loads(self.body)
        return value


@dataclass(kw_only=True)
class Door:
    """What came, in its order, taken or not."""

    url: str
    statuses: list[int] = field(default_factory=list)
    """What the next requests are answered; 200 when there are no more."""
    received: list[Received] = field(default_factory=list)
    when_received: Callable[[Received], None] = lambda _received: None

    @property
    def events(self) -> list[str]:
        return [received.notice["event"] for received in self.received]

    def wait_for(self, count: int) -> list[Received]:
        """The first so many, as soon as they are here."""
        wait_until(lambda: len(self.received) >= count, seconds=20)
        return self.received[:count]


@contextmanager
def open_door(port: int | None = None) -> Iterator[Door]:
    """A door that takes notices for as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received = Received(headers=dict(self.headers), body=body)
            door.when_received(received)
            door.received.append(received)
            status = door.statuses.pop(0) if door.statuses else 200
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port or free_port()), Handler)
    door = Door(url=f"http://127.0.0.1:{server.server_port}/v1/bank/callbacks")
    thread = threading.Thread(target=server.serve_forever, args=[_POLL_SECONDS], daemon=True)
    thread.start()
    try:
        yield door
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
